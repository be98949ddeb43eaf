"""Knows how a worker that has all rows and all features grows a whole tree in one go; does not know messages."""

import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from psboost.boosting.builders import HistogramBuilder
from psboost.boosting.crew import Crew
from psboost.boosting.fixed_point import Steps
from psboost.boosting.histogram import Total
from psboost.boosting.partition import RowPartition, are_shallow
from psboost.boosting.row_gradients import RowGradients
from psboost.boosting.split import Proposals, SplitFinder, SplitRule
from psboost.data.block import Block, SparseBlock
from psboost.errors import ProtocolError
from psboost.kernels import levels as kernels
from psboost.kernels import parts as part_kernels
from psboost.kernels import rare as rare_kernels
from psboost.kernels import rare_search
from psboost.kernels.arrivals import GIVEN_UP
from psboost.kernels.gains import N_CONSTANTS
from psboost.kernels.gradients import SUMS_OF_NODE
from psboost.kernels.members import MOST_DEPTH, MOST_NODES
from psboost.kernels.node_builds import N_SUMS
from psboost.kernels.open_nodes import MISFIT, N_FIELDS
from psboost.kernels.splits import N_PROPOSED, N_SPLIT

# Where histograms of rare features take more time than to look at these: if they hold so many values a row, or more, until a
# tree in which more than 1 of so many is looked at closer.
LEAST_OF_A_ROW, SELDOM = 2, 16
_NOT_RARE = np.empty(0, np.int64)
Span = tuple[str, float, float]  # a stage, and when it began and was over, by time.perf_counter
_LABELS = [(kernels.FIRST_STAGE, *(n * kernels.STAGES), kernels.LAST_STAGE) for n in range(MOST_DEPTH + 1)]  # by levels


class GrowingPart(Protocol):
    """Features begin .. of a worker's, and what builds their histograms and finds their splits."""

    begin: int
    block: Block
    builder: HistogramBuilder
    finder: SplitFinder


class Levels:
    """Grows trees from gradients to leaves in kernels.levels, in several threads that need nobody but each other."""

    def __init__(
        self, parts: Sequence[GrowingPart], gradients: RowGradients, row_offset: int, partition: RowPartition,
        bits: np.ndarray, shard: int, rule: SplitRule, max_depth: int, n_threads: int,
    ):  # fmt: skip
        """row_offset: as RowGradients.round takes it; bits: a bitvector of all rows, to work in. It is to be closed."""
        ends = _ends_of_rare(parts)
        order = sorted(range(len(parts)), key=lambda k: len(ends[k]))  # rare features come last
        self._parts, self._ends = [parts[k] for k in order], [ends[k] for k in order]
        self._n_built, self._gradients, self._rule = sum(len(of) == 0 for of in ends), gradients, rule
        of_chunks, most, n_nodes = partition.held, kernels.MOST_OPEN, MOST_NODES
        n_threads = min(n_threads, max(len(parts), len(of_chunks)))
        self._held: list[tuple] = []  # what kernels find by address is not to go away
        chunks = np.zeros(len(of_chunks) * part_kernels.CHUNK_WORDS, np.int64)
        for k, held in enumerate(of_chunks):
            listed = np.empty((most, N_SUMS), np.int64), np.empty((most, 2), np.int64)
            self._held.append((*held, *listed))
            part_kernels.keep_chunk(*held, *listed, k, chunks)
        self._to_work_in = [
            (
                *np.zeros((2, most, N_FIELDS), np.int64), np.zeros(most, np.uint8), np.empty(most),
                np.empty((most, N_PROPOSED), np.int64), np.zeros(1, np.int64),
            )
            for _ in parts
        ]  # fmt: skip
        self._kept = np.zeros(len(parts) * part_kernels.PART_WORDS, np.int64)
        self._memories: list[tuple | None] = [None] * len(parts)  # of the parts' finders, as the kernels know them
        for k in range(len(parts)):
            self._keep(k)
        state = self._state = np.zeros(kernels.N_STATE, np.int64)
        self._times = np.zeros(3 + MOST_DEPTH * len(kernels.STAGES), np.int64)
        self._due_values, self._key = np.empty(n_nodes, np.float32), np.empty(1, np.uint64)
        self._steps: Steps | None = None
        self._steps_in_units, self._constants = np.empty(kernels.N_STEPS), np.empty(N_CONSTANTS)
        self._sums = np.empty((n_threads, N_SUMS), np.int64)
        leaf_sums = np.empty((n_threads, n_nodes * SUMS_OF_NODE), np.int64)
        self._grown = kernels.Grown(
            np.empty(n_nodes), np.empty((n_nodes, N_PROPOSED), np.int64), np.empty((n_nodes, N_SPLIT), np.int32),
            np.empty(n_nodes, np.int64), np.empty((n_nodes, 2), np.int64),
        )  # fmt: skip
        self._looks = np.zeros(rare_search.FIRST_NEEDED + most, np.int64)
        arguments = (
            n_threads, *_known_by(parts[0].block), self._kept, len(parts), chunks, len(of_chunks), state, self._times,
            *gradients.held, self._due_values, self._steps_in_units, self._key, row_offset, self._constants,
            partition.all_rows, self._sums, leaf_sums, gradients.packed, *partition.lists, bits, partition.node_of_row,
            self._looks, self._grown, shard, max_depth,
        )  # fmt: skip
        self._crew = Crew(
            n_threads,
            work=lambda thread, posts: kernels.grow(thread, posts, *arguments),
            give_up=lambda: state.__setitem__(GIVEN_UP, 1),
        )

    @staticmethod
    def can_grow(parts: Sequence[GrowingPart], max_depth: int) -> bool:
        """Whether the kernels are for trees so deep, of such blocks."""
        kinds = {tuple(array.dtype for array in _known_by(part.block)) for part in parts}
        return are_shallow(max_depth) and len(kinds) == 1

    def grow(self, steps: Steps, key: np.uint64) -> tuple[Proposals, np.ndarray, np.ndarray, list[Span]]:
        """Grows a tree of gradients that are rounded as RowGradients.round does.

        returns  the best split of each node that was searched, in order of node; int64: which nodes are leaves, and the sums
                 of each, as RowGradients.sum_by_node has them; the stages
        """
        state, grown, begin = self._state, self._grown, time.perf_counter()
        state[kernels.N_DUE :] = self._looks[:] = 0
        state[kernels.N_BUILT] = self._n_built
        state[kernels.N_OPEN] = state[kernels.N_NODES] = 1
        state[kernels.N_DUE], self._key[0] = self._gradients.take_due(self._due_values), key
        if steps != self._steps:
            self._use(steps)
        self._crew.call()
        while state[kernels.IS_SHORT]:
            self._make_room()
            state[kernels.IS_SHORT] = 0
            self._crew.call()
        n_rare = sum(part.block.n_features for part in self._parts[self._n_built :])
        if self._looks[rare_search.N_CLOSER] > n_rare // SELDOM:
            self._n_built = len(self._parts)
        n_searched, n_leaves = state[kernels.N_SEARCHED], state[kernels.N_NODES] - state[kernels.N_CHOSEN]
        best = Proposals(grown.gains[:n_searched].copy(), grown.proposals[:n_searched].copy())
        return best, grown.leaves[:n_leaves].copy(), grown.leaf_sums[:n_leaves].copy(), self._spans(begin)

    def close(self) -> None:
        """No tree is grown any more."""
        self._crew.close()

    @property
    def n_rows_built(self) -> int:
        """How many rows the last tree's nodes have whose histograms were built."""
        return int(self._state[kernels.N_ROWS_BUILT])

    def _use(self, steps: Steps) -> None:
        """Tells the kernels of them: few trees have others than the one before."""
        self._steps, in_units = steps, self._gradients.in_units(steps)
        self._state[kernels.LEAST_HESS], self._constants[:] = self._rule.in_steps(steps)
        self._steps_in_units[:] = in_units.grad, in_units.hess, in_units.leaf_grad, in_units.leaf_hess
        self._state[kernels.IS_EXACT] = in_units.exact

    def _make_room(self) -> None:
        """For the root or the children that a part had none for."""
        n_children = self._state[kernels.N_LAST_SPLIT]
        of_parts = list(zip(self._parts, self._to_work_in, strict=True))[: self._n_built]
        for k, (part, (_, parents, *_, done)) in enumerate(of_parts):
            if self._state[kernels.LEVEL] == 0:
                part.finder.make_room_for_root(self._sums[:, : len(Total._fields)].sum(axis=0))
            elif done[0] == MISFIT:
                raise ProtocolError("a child's histogram is not part of its parent's")
            elif done[0] < n_children:
                part.finder.make_room_for_child(parents[done[0]])
            self._keep(k)

    def _keep(self, k: int) -> None:
        """Tells the kernels where a part's arrays are, if others came in their place."""
        part = self._parts[k]
        block, finder = part.block, part.finder
        if self._memories[k] is finder.memory:
            return
        self._memories[k] = finder.memory
        *of_block, acc = part.builder.held(self._gradients.packed.dtype)
        keep = part_kernels.keep_sparse_part if isinstance(block, SparseBlock) else part_kernels.keep_dense_part
        keep(*of_block, *block.held, part.begin, acc, *finder.held, *self._to_work_in[k], self._ends[k], k, self._kept)

    def _spans(self, begin: float) -> list[Span]:
        """The stages of the tree, which began at that time."""
        labels = _LABELS[self._state[kernels.LEVEL]]
        times = self._times[: 1 + len(labels)].tolist()
        moments = [begin + (time - times[0]) * 1e-9 for time in times]
        return list(zip(labels, moments, moments[1:], strict=False))


def _known_by(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays by whose types kernels know of which kind a block is."""
    return (block.indptr, block.bins) if isinstance(block, SparseBlock) else (block.cells, block.cells)


def _ends_of_rare(parts: Sequence[GrowingPart]) -> list[np.ndarray]:
    """Of each part but the first, what kernels.rare takes of it, if all its features are rare; else nothing, and of none of
    them if they hold few values."""
    ends, n_stored = [_NOT_RARE], 0
    for part in parts[1:]:
        ends.append(_NOT_RARE)
        if isinstance(part.block, SparseBlock):
            n_rows = np.diff(part.block.posting_offsets[part.block.bin_offsets])
            if n_rows.max(initial=0) <= rare_kernels.MOST_ROWS:
                ends[-1] = rare_kernels.ends_of(n_rows)
                n_stored += int(n_rows.sum())
    return ends if n_stored >= LEAST_OF_A_ROW * parts[0].block.n_rows else [_NOT_RARE] * len(parts)
