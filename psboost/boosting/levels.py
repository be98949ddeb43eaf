"""Knows how a worker that has all rows and all features grows a whole tree in one go; does not know messages."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Protocol

import numpy as np

from psboost.boosting.builders import HistogramBuilder
from psboost.boosting.partition import RowPartition, are_shallow
from psboost.boosting.split import Proposals, SplitFinder
from psboost.data.block import Block, SparseBlock
from psboost.errors import ProtocolError
from psboost.interrupts import interrupts_wait
from psboost.kernels import levels as kernels
from psboost.kernels import parts as part_kernels
from psboost.kernels.arrivals import GIVEN_UP
from psboost.kernels.members import MOST_DEPTH, MOST_NODES
from psboost.kernels.node_builds import N_SUMS
from psboost.kernels.open_nodes import MISFIT, N_FIELDS
from psboost.kernels.splits import N_PROPOSED, N_SPLIT, NODE

Span = tuple[str, float, float]  # a stage, and when it began and was over, by time.perf_counter


class GrowingPart(Protocol):
    """Features begin .. of a worker's, and what builds their histograms and finds their splits."""

    begin: int
    block: Block
    builder: HistogramBuilder
    finder: SplitFinder


class Levels:
    """Grows trees from root to leaves in kernels.levels, in several threads that need nobody but each other."""

    def __init__(
        self, parts: Sequence[GrowingPart], partition: RowPartition, packed: np.ndarray, bits: np.ndarray, shard: int,
        max_depth: int, n_threads: int, side_by_side: Callable[..., Iterable],
    ):  # fmt: skip
        """packed: of each training row (boosting.row_gradients); bits: a bitvector of all rows, to work in. `side_by_side`
        is a `map` that calls its function in n_threads threads, and which may be given as many items."""
        self._parts, self._partition, self._packed, self._bits = parts, partition, packed, bits
        self._shard, self._max_depth, self._side_by_side = shard, max_depth, side_by_side
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
        self._state = np.zeros(kernels.N_STATE, np.int64)
        self._times = np.zeros(1 + MOST_DEPTH * len(kernels.STAGES), np.int64)
        n_nodes = MOST_NODES
        self._grown = kernels.Grown(
            np.empty(n_nodes), np.empty((n_nodes, N_PROPOSED), np.int64), np.empty((n_nodes, N_SPLIT), np.int32)
        )

    @staticmethod
    def can_grow(parts: Sequence[GrowingPart], max_depth: int) -> bool:
        """Whether the kernels are for trees so deep, of such blocks."""
        kinds = {tuple(array.dtype for array in _known_by(part.block)) for part in parts}
        return are_shallow(max_depth) and len(kinds) == 1

    def grow(self) -> tuple[Proposals, np.ndarray, list[Span]]:
        """Grows a tree of the rows that are in the root of the partition, whose finders know its steps.

        returns  the best split of each node that was searched, in order of node; int64: which nodes are leaves; the stages
        """
        root = self._partition.listed
        for k, part in enumerate(self._parts):
            part.finder.make_room_for_root(root.totals[0])
            self._keep(k)
        state, begin = self._state, time.perf_counter()
        state[:] = 0
        state[kernels.N_OPEN] = state[kernels.N_NODES] = 1
        self._call(root)
        while state[kernels.IS_SHORT]:
            self._make_room()
            self._call(root)
        n_searched, n_nodes = int(state[kernels.N_SEARCHED]), int(state[kernels.N_NODES])
        self._partition.grown(n_nodes)
        is_leaf = np.ones(n_nodes, bool)
        is_leaf[self._grown.splits[: state[kernels.N_CHOSEN], NODE]] = False
        best = Proposals(self._grown.gains[:n_searched], self._grown.proposals[:n_searched])
        return best, np.flatnonzero(is_leaf), self._spans(begin)

    @property
    def n_rows_built(self) -> int:
        """How many rows the last tree's nodes have whose histograms were built."""
        return int(self._state[kernels.N_ROWS_BUILT])

    def _call(self, root) -> None:
        """The kernel, in all threads, until the tree is grown or a part is short of memory."""
        partition, state, finder = self._partition, self._state, self._parts[0].finder
        state[: kernels.N_MEETING] = 0
        state[kernels.IS_SHORT] = 0
        known_by, n_threads = _known_by(self._parts[0].block), self._n_threads

        def run(thread: int) -> None:
            try:
                kernels.grow(
                    thread, n_threads, *known_by, self._kept, len(self._parts), self._chunks,
                    len(self._chunks) // part_kernels.CHUNK_WORDS, state, self._times, root.rows, root.sums[0], self._packed,
                    *partition.lists, self._bits, partition.node_of_row, self._grown, len(root.rows), self._shard,
                    self._max_depth, finder.least, finder.constants,
                )  # fmt: skip
            except BaseException:
                state[GIVEN_UP] = 1  # or the others wait for ever
                raise

        with interrupts_wait() if n_threads > 1 else nullcontext():  # or they would, if this thread did not come
            list(self._side_by_side(run, range(n_threads)))

    def _make_room(self) -> None:
        """For the children that a part had none for."""
        n_children = self._state[kernels.N_LAST_SPLIT]
        for k, (part, (_, parents, *_, done)) in enumerate(zip(self._parts, self._to_work_in, strict=True)):
            if done[0] == MISFIT:
                raise ProtocolError("a child's histogram is not part of its parent's")
            if done[0] < n_children:
                part.finder.make_room_for_child(parents[done[0]])
                self._keep(k)

    def _keep(self, k: int) -> None:
        """Tells the kernels where a part's arrays are, if others came in their place."""
        part = self._parts[k]
        block, finder = part.block, part.finder
        if self._memories[k] is finder.memory:
            return
        self._memories[k] = finder.memory
        *of_block, acc = part.builder.held(self._packed.dtype)
        keep = part_kernels.keep_sparse_part if isinstance(block, SparseBlock) else part_kernels.keep_dense_part
        keep(*of_block, *block.held, part.begin, acc, *finder.held, *self._to_work_in[k], k, self._kept)

    def _spans(self, begin: float) -> list[Span]:
        """The stages of all levels, which began at that time."""
        n_levels = int(self._state[kernels.LEVEL])
        times = self._times[: 1 + n_levels * len(kernels.STAGES)]
        moments = (begin + (times - times[0]) * 1e-9).tolist()
        return [(label, *span) for label, span in zip(n_levels * kernels.STAGES, pairwise(moments), strict=True)]


def _known_by(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays by whose types kernels know of which kind a block is."""
    return (block.indptr, block.bins) if isinstance(block, SparseBlock) else (block.cells, block.cells)
