"""Knows how a worker that has all rows and all features grows a whole tree in one go; does not know messages."""

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from psboost.boosting.builders import HistogramBuilder
from psboost.boosting.fixed_point import Steps
from psboost.boosting.histogram import Total
from psboost.boosting.partition import RowPartition, are_shallow
from psboost.boosting.row_gradients import RowGradients
from psboost.boosting.split import Proposals, SplitFinder, SplitRule
from psboost.data.block import Block, SparseBlock
from psboost.errors import ProtocolError
from psboost.kernels import levels as kernels
from psboost.kernels import parts as part_kernels
from psboost.kernels.arrivals import GIVEN_UP
from psboost.kernels.members import MOST_DEPTH, MOST_NODES
from psboost.kernels.node_builds import N_SUMS
from psboost.kernels.open_nodes import MISFIT, N_FIELDS
from psboost.kernels.splits import N_PROPOSED, N_SPLIT

Span = tuple[str, float, float]  # a stage, and when it began and was over, by time.perf_counter


class GrowingPart(Protocol):
    """Features begin .. of a worker's, and what builds their histograms and finds their splits."""

    begin: int
    block: Block
    builder: HistogramBuilder
    finder: SplitFinder


class _InThread:
    """The kernel's call in each of the threads, which wait for each other unless one gives up."""

    def __init__(self, state: np.ndarray, arguments: tuple):
        self._state, self._arguments = state, arguments

    def __call__(self, thread: int) -> None:
        kernels.grow(thread, *self._arguments)

    def give_up(self) -> None:
        self._state[GIVEN_UP] = 1


class Levels:
    """Grows trees from gradients to leaves in kernels.levels, in several threads that need nobody but each other."""

    def __init__(
        self, parts: Sequence[GrowingPart], gradients: RowGradients, partition: RowPartition, bits: np.ndarray, shard: int,
        rule: SplitRule, max_depth: int, n_threads: int, side_by_side: Callable[..., Iterable],
    ):  # fmt: skip
        """bits: a bitvector of all rows, to work in. `side_by_side` is a `map` that calls its function in n_threads threads,
        and which may be given as many items; if any call fails, it calls the function's `give_up`."""
        self._parts, self._gradients, self._partition, self._bits = parts, gradients, partition, bits
        self._shard, self._rule, self._max_depth, self._side_by_side = shard, rule, max_depth, side_by_side
        of_chunks = partition.held
        self._n_threads = min(n_threads, max(len(parts), len(of_chunks)))
        self._held: list[tuple] = []  # what kernels find by address is not to go away
        most = kernels.MOST_OPEN
        self._chunks = np.zeros(len(of_chunks) * part_kernels.CHUNK_WORDS, np.int64)
        for k, held in enumerate(of_chunks):
            listed = np.empty((most, N_SUMS), np.int64), np.empty((most, 2), np.int64)
            self._held.append((*held, *listed))
            part_kernels.keep_chunk(*held, *listed, k, self._chunks)
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
        self._state = np.zeros(kernels.N_STATE, np.int64)
        self._times = np.zeros(3 + MOST_DEPTH * len(kernels.STAGES), np.int64)
        n_nodes = MOST_NODES
        self._sums = np.empty((self._n_threads, N_SUMS), np.int64)
        self._leaf_sums = np.empty((self._n_threads, n_nodes * kernels.SUMS_OF_NODE), np.int64)
        self._grown = kernels.Grown(
            np.empty(n_nodes), np.empty((n_nodes, N_PROPOSED), np.int64), np.empty((n_nodes, N_SPLIT), np.int32),
            np.empty(n_nodes, np.int64), np.empty((n_nodes, 2), np.int64),
        )  # fmt: skip

    @staticmethod
    def can_grow(parts: Sequence[GrowingPart], max_depth: int) -> bool:
        """Whether the kernels are for trees so deep, of such blocks."""
        kinds = {tuple(array.dtype for array in _known_by(part.block)) for part in parts}
        return are_shallow(max_depth) and len(kinds) == 1

    def grow(self, steps: Steps, key: np.uint64, row_offset: int) -> tuple[Proposals, np.ndarray, np.ndarray, list[Span]]:
        """Grows a tree of gradients that are rounded as RowGradients.round does.

        returns  the best split of each node that was searched, in order of node; int64: which nodes are leaves, and the sums
                 of each, as RowGradients.sum_by_node has them; the stages
        """
        state, grown, begin = self._state, self._grown, time.perf_counter()
        state[:] = 0
        state[kernels.N_OPEN] = state[kernels.N_NODES] = 1
        arguments = self._gradients.take(steps, key, row_offset), *self._rule.in_steps(steps)
        self._call(*arguments)
        while state[kernels.IS_SHORT]:
            self._make_room()
            self._call(*arguments)
        n_searched, n_leaves = state[kernels.N_SEARCHED], state[kernels.N_NODES] - state[kernels.N_CHOSEN]
        best = Proposals(grown.gains[:n_searched], grown.proposals[:n_searched])
        return best, grown.leaves[:n_leaves], grown.leaf_sums[:n_leaves].copy(), self._spans(begin)

    @property
    def n_rows_built(self) -> int:
        """How many rows the last tree's nodes have whose histograms were built."""
        return int(self._state[kernels.N_ROWS_BUILT])

    def _call(self, of_gradients: tuple, least: int, constants: np.ndarray) -> None:
        """The kernel, in all threads, until the tree is grown or a part is short of memory."""
        partition, state = self._partition, self._state
        state[: kernels.N_MEETING] = 0
        state[kernels.IS_SHORT] = 0
        known_by, n_threads = _known_by(self._parts[0].block), self._n_threads

        in_thread = _InThread(state, (
            n_threads, *known_by, self._kept, len(self._parts), self._chunks,
            len(self._chunks) // part_kernels.CHUNK_WORDS, state, self._times, *of_gradients, partition.all_rows,
            self._sums, self._leaf_sums, self._gradients.packed, *partition.lists, self._bits, partition.node_of_row,
            self._grown, self._shard, self._max_depth, least, constants,
        ))  # fmt: skip
        list(self._side_by_side(in_thread, range(n_threads)))

    def _make_room(self) -> None:
        """For the root or the children that a part had none for."""
        n_children = self._state[kernels.N_LAST_SPLIT]
        for k, (part, (_, parents, *_, done)) in enumerate(zip(self._parts, self._to_work_in, strict=True)):
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
        keep(*of_block, *block.held, part.begin, acc, *finder.held, *self._to_work_in[k], k, self._kept)

    def _spans(self, begin: float) -> list[Span]:
        """The stages of the tree, which began at that time."""
        labels = (kernels.FIRST_STAGE, *(int(self._state[kernels.LEVEL]) * kernels.STAGES), kernels.LAST_STAGE)
        first, *times = self._times.tolist()
        moments = [begin, *[begin + (time - first) * 1e-9 for time in times[: len(labels)]]]
        return [(label, *span) for label, span in zip(labels, pairwise(moments), strict=True)]


def _known_by(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays by whose types kernels know of which kind a block is."""
    return (block.indptr, block.bins) if isinstance(block, SparseBlock) else (block.cells, block.cells)
