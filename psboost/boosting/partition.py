"""Knows which rows are in which node, and what they come to; does not know gains or messages."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from psboost.boosting.histogram import Total
from psboost.data.block import Members
from psboost.kernels import members as kernels
from psboost.kernels import node_builds
from psboost.kernels.histograms import span_size
from psboost.kernels.words import n_words_of

GROUP_ROWS = 1 << 17  # work on fewer is not worth waking up a thread


def are_shallow(max_depth: int) -> bool:
    """Whether no tree is so deep (0: any may be) that a row's node takes more than a byte: kernels.levels grow these."""
    return 0 < max_depth <= kernels.MOST_DEPTH


def chunks_of(n_rows: int, n_threads: int) -> list[slice]:
    """As many rows for each thread, in whole words of a bitvector; all for one if they are few."""
    n_chunks = min(n_threads, 1 + n_rows // GROUP_ROWS)
    edges = [*(64 * (n_rows * i // (64 * n_chunks)) for i in range(n_chunks)), n_rows]
    return [slice(*edge) for edge in zip(edges, edges[1:], strict=False)]


def join_sums(of_chunks: Iterable[np.ndarray]) -> np.ndarray:
    """int64 (n_nodes, kernels.node_builds.N_SUMS): what nodes come to, of whose rows each has a part; the first is lost."""
    sums, *others = of_chunks
    for of_chunk in others:
        node_builds.add_nodes(of_chunk, sums)
    return sums


class NodeRows(NamedTuple):
    """The rows of several nodes, and what they come to.

    rows    int32: each node's ascend
    spans   int64 (n_nodes, 2 for each chunk of all rows): where those of each chunk begin and end
    sums    int64 (n_nodes, kernels.node_builds.N_SUMS)
    packed  int32 or int64: the grad and hess of each of `rows` (kernels.packed_rows)
    """

    rows: np.ndarray
    spans: np.ndarray
    sums: np.ndarray
    packed: np.ndarray

    @property
    def totals(self) -> np.ndarray:
        """int64 (n_nodes, 3): each node's Total."""
        return self.sums[:, : len(Total._fields)]

    def node(self, i: int) -> "NodeRows":
        """That one alone."""
        return self._replace(spans=self.spans[i : i + 1], sums=self.sums[i : i + 1])

    def size(self, i: int) -> int:
        """How many rows the node has."""
        return span_size(self.spans[i].tolist())


@dataclass(frozen=True)
class _Chunk:
    """Some of the rows, which a thread has to itself; its arrays are those of kernels.members."""

    rows: slice
    words: tuple[int, int]  # first, last
    members: Members
    packed: np.ndarray  # of members.rows, where they are built
    spare: np.ndarray
    room: np.ndarray

    @staticmethod
    def of(rows: slice, words: np.ndarray, lists: np.ndarray, packed: np.ndarray, n_nodes: int) -> "_Chunk":
        """`words`, `lists` and `packed` of all rows."""
        ends = rows.start // 64, n_words_of(rows.stop)  # of its words
        held = np.empty((n_nodes, kernels.N_HELD), np.int64)
        own = slice(2 * rows.start, 2 * rows.stop)
        members = Members(words, lists[own], held)
        spare, room = np.empty(ends[1] - ends[0] + 1, np.int32), np.empty(kernels.FIRST_FREE + len(words), np.int64)
        return _Chunk(rows, ends, members, packed[own], spare, room)

    def reset(self) -> None:
        """All rows in the root, node 0."""
        kernels.hold_all(*self.words, self.rows.stop, self.members.words, self.members.held, self.room)

    def grown(self, n_nodes: int) -> "_Chunk":
        """With room for so many nodes."""
        words, lists, held = self.members
        if n_nodes <= len(held):
            return self
        grown = np.empty((2 * n_nodes, kernels.N_HELD), np.int64)
        grown[: len(held)] = held
        return replace(self, members=Members(words, lists, grown))


class RowPartition:
    """The rows of a row shard, the training rows first, by the leaf-to-be that they are in.

    Each chunk of them, one for a thread, is by itself. The rows of a node are bits there (Members.words), 64 of which go to
    its children at once; or a list, where that takes less memory and time: in a node of no more rows than there are words.
    So fewer than 64 nodes are bits, whatever the tree's depth.

        lists  [ 7 9 | 3 8 | ...     0 1 2 4 5 6 | ...       ]      of a chunk
                 of small nodes      in the second half: rows of large nodes, anew for each level that builds them

    When a small node is split, its list becomes its children's, in place.

    listed       the training rows of the root or, split by split, of those children of the last splits whose histograms are
                 built
    node_of_row  uint8 or int32 (n_rows): once `finish` was called
    all_rows     int32: the training rows
    """

    def __init__(
        self, n_rows: int, n_train: int, max_depth: int, packed: np.ndarray, n_threads: int = 1,
        side_by_side: Callable[..., Iterable] = map,
    ):  # fmt: skip
        """packed: each training row's grad and hess (kernels.packed_rows), when rows are split. `side_by_side` is a `map`,
        that calls its function in n_threads threads."""
        self.node_of_row = np.zeros(n_rows, np.uint8 if are_shallow(max_depth) else np.int32)
        self._n_train, self._packed, self._side_by_side = n_train, packed, side_by_side
        words, self._lists = np.empty((kernels.N_PLACES, n_words_of(n_rows)), np.uint64), np.empty(2 * n_rows, np.int32)
        self._listed_packed = np.empty(2 * n_rows, packed.dtype)
        all_rows = words, self._lists, self._listed_packed
        self._chunks = [_Chunk.of(rows, *all_rows, kernels.MOST_NODES) for rows in chunks_of(n_rows, n_threads)]
        self.all_rows = np.arange(n_train, dtype=np.int32)

    def reset(self, sums: np.ndarray) -> None:
        """All rows in the root, node 0; its training rows come to `sums` (int64, 1 x kernels.node_builds.N_SUMS)."""
        self._n_nodes, self._are_numbered = 1, False
        self.listed = NodeRows(self.all_rows, np.array([[0, self._n_train]]), sums, self._packed)
        for chunk in self._chunks:
            chunk.reset()

    def each(self, work: Callable[[slice, Members], None]) -> None:
        """Calls `work` with the rows of each chunk, and where its nodes' are."""
        list(self._side_by_side(lambda chunk: work(chunk.rows, chunk.members), self._chunks))

    def split(
        self, splits: np.ndarray, bits: np.ndarray, *, last=False, fill: Callable[[slice, Members], None] | None = None
    ) -> None:
        """Moves the rows of split nodes to their children, which are numbered from the node count on.

        splits  int32 (n, N_SPLIT): kernels.splits, one or more
        bits    uint64: a bitvector of all the shard's rows
        last    whether the children are leaves
        fill    called first, as by `each`: makes a chunk's bits
        """
        first_child, self._are_numbered = self._n_nodes, last
        self._n_nodes += 2 * len(splits)
        self._chunks = [chunk.grown(self._n_nodes) for chunk in self._chunks]

        def move(chunk: _Chunk) -> tuple[np.ndarray, np.ndarray] | None:
            if fill is not None:
                fill(chunk.rows, chunk.members)
            (words, lists, held), (first, end) = chunk.members, chunk.words
            if last:
                kernels.number_children(splits, first_child, first, end, bits, words, lists, held, self.node_of_row)
                self._number_leaves(chunk)
                return None
            spans, sums = np.empty((len(splits), 2), np.int64), np.empty((len(splits), node_builds.N_SUMS), np.int64)
            kernels.split_rows(
                splits, first_child, first, end, self._n_train, bits, words, lists, chunk.spare, held, chunk.room, spans
            )
            node_builds.list_gradients(lists, spans, self._packed, chunk.packed, sums)
            spans += 2 * chunk.rows.start
            return spans, sums

        moved = list(self._side_by_side(move, self._chunks))
        if not last:
            spans, sums = zip(*moved, strict=True)
            self.listed = NodeRows(self._lists, np.concatenate(spans, axis=1), join_sums(sums), self._listed_packed)

    @property
    def lists(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows that all chunks list, and what is packed of those that are built: NodeRows of nodes have them."""
        return self._lists, self._listed_packed

    @property
    def held(self) -> list[tuple]:
        """Of each chunk, what kernels.parts.keep_chunk takes first. A tree that is not shallow changes it."""
        return [
            (*chunk.words, chunk.rows.start, chunk.rows.stop, *chunk.members, chunk.spare, chunk.room, chunk.packed)
            for chunk in self._chunks
        ]

    def finish(self) -> None:
        """The tree is grown: what is left are leaves."""
        if not self._are_numbered:
            list(self._side_by_side(self._number_leaves, self._chunks))

    def _number_leaves(self, chunk: _Chunk) -> None:
        kernels.number_leaves(self._n_nodes, *chunk.words, *chunk.members, self.node_of_row)
