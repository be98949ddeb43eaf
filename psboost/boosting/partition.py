"""Knows which rows are in which node; does not know gains or messages."""

from collections.abc import Callable, Iterable

import numpy as np

from psboost.data.block import Members
from psboost.kernels import members as kernels
from psboost.kernels.splits import NODE

GROUP_ROWS = 1 << 17  # work on fewer is not worth waking up a thread
ALL_ONES = np.uint64(2**64 - 1)
_NO_ROWS = -1, 0, 0


def n_words_of(n_rows: int) -> int:
    """How many words a bitvector of so many rows takes."""
    return (n_rows + 63) // 64


def chunks_of(n_rows: int, n_threads: int) -> list[slice]:
    """As many rows for each thread, in whole words of a bitvector; all for one if they are few."""
    n_chunks = min(n_threads, 1 + n_rows // GROUP_ROWS)
    edges = [*(64 * (n_rows * i // (64 * n_chunks)) for i in range(n_chunks)), n_rows]
    return [slice(*edge) for edge in zip(edges, edges[1:], strict=False)]


class RowPartition:
    """The rows of a row shard, the training rows first, by the leaf-to-be that they are in.

    Those of a node are bits (Members.words), 64 of which go to its children at once; or a list, where that takes less
    memory and time: in a node of no more rows than there are words. So at most 64 nodes are bits, whatever the tree's depth.

        rows   [ 7 9 | 3 8 | ...         0 1 2 4 5 6 | ...       ]
                 lists, up to n_rows      from n_rows on: rows of large nodes, listed anew by each level that builds them

    When a small node is split, its list becomes its children's, in place.

    node_of_row  uint8 or int32 (n_rows): once `finish` was called
    """

    def __init__(
        self, n_rows: int, n_train: int, max_depth: int, n_threads: int = 1, side_by_side: Callable[..., Iterable] = map
    ):
        """`side_by_side` is a `map`, as Worker takes it, that calls its function in n_threads threads."""
        self.node_of_row = np.zeros(n_rows, np.uint8 if 0 < max_depth <= 7 else np.int32)
        self._n_rows, self._n_train, self._n_words = n_rows, n_train, n_words_of(n_rows)
        chunks = chunks_of(n_rows, n_threads)
        self._chunks = [(rows.start // 64, n_words_of(rows.stop)) for rows in chunks]
        self._side_by_side = side_by_side
        self._words = np.empty((2 * 64, self._n_words), np.uint64)  # of 64 nodes, and of the right children of as many
        self._rows, self._all_rows = np.empty(2 * n_rows, np.int32), np.arange(n_train, dtype=np.int32)
        self._spare = np.empty(self._n_words + 1, np.int32)
        self._held = np.empty((64, kernels.N_HELD), np.int64)
        self._room = np.empty(kernels.FIRST_FREE + len(self._words), np.int64)
        self.reset()

    def reset(self) -> None:
        """All rows in the root, node 0."""
        self._room[kernels.N_FREE], self._room[kernels.END_OF_LISTS] = len(self._words) - 1, 0
        self._room[kernels.FIRST_FREE :] = np.arange(len(self._words))[::-1]  # the last one is not free: the root has it
        self._held[0], self._n_nodes = (0, 0, 0), 1
        root = self._words[0]
        root.fill(ALL_ONES)
        if self._n_rows % 64:
            root[-1] >>= np.uint64(-self._n_rows % 64)
        self._listed = self._all_rows, np.array([[0, self._n_train]])

    @property
    def members(self) -> Members:
        """Which rows each node has."""
        return Members(self._words, self._rows, self._held)

    @property
    def listed(self) -> tuple[np.ndarray, np.ndarray]:
        """The training rows of the root or, split by split, of those children of the last splits whose histograms are built:
        int32, and where each node's, which ascend, begin and end: int64 (n_nodes, 2)."""
        return self._listed

    def split(
        self, splits: np.ndarray, bits: np.ndarray, *, last=False, fill: Callable[[slice], None] | None = None
    ) -> None:
        """Moves the rows of split nodes to their children, which are numbered from the node count on.

        splits  int32 (n, N_SPLIT): kernels.splits, one or more
        bits    uint64: a bitvector of all the shard's rows
        last    whether the children are leaves
        fill    called first, by chunks of rows: makes their bits, while `members` are as before
        """
        first_child, held = self._n_nodes, self._make_room(2 * len(splits))
        moves = np.empty((len(splits), kernels.N_FIELDS), np.int64)
        n_large = kernels.plan_moves(splits, first_child, last, held, self._room, moves)
        large, counts = moves[:n_large], np.empty((len(self._chunks), 2 * n_large), np.int64)

        def fill_and_move(chunk: tuple[int, int], of_chunk: np.ndarray) -> None:
            if fill is not None:
                fill(slice(64 * chunk[0], min(64 * chunk[1], self._n_rows)))
            if last:
                kernels.number_members(large, *chunk, bits, self._words, self.node_of_row)
            else:
                kernels.split_members(large, *chunk, bits, self._words, of_chunk)

        list(self._side_by_side(fill_and_move, self._chunks, counts))
        if last:
            kernels.number_lists(moves[n_large:], bits, self._rows, self.node_of_row)
            held[splits[:, NODE]] = held[first_child : self._n_nodes] = _NO_ROWS
            return
        lists = np.empty((len(self._chunks), 2 * n_large, kernels.N_LIST_FIELDS), np.int64)
        in_a_row = lists.reshape(-1, kernels.N_LIST_FIELDS)
        n_lists = kernels.settle(
            splits, first_child, moves, n_large, counts, bits, self._n_train, self._rows, self._spare, held, self._room,
            in_a_row,
        )  # fmt: skip

        def write(chunk: tuple[int, int], of_chunk: np.ndarray) -> None:
            kernels.list_members(of_chunk[:n_lists], *chunk, self._words, self._rows)

        if n_lists:
            list(self._side_by_side(write, self._chunks, lists))
        spans = np.empty((len(splits), 2), np.int64)
        kernels.find_spans(splits, first_child, held, self._rows, self._n_train, in_a_row, len(self._chunks), spans)
        self._listed = self._rows, spans

    def finish(self) -> None:
        """The tree is grown: what is left are leaves."""
        moves = np.empty((self._n_nodes, kernels.N_FIELDS), np.int64)
        n_large, n_small = kernels.plan_leaves(self._held, self._n_nodes, moves)
        large, any_bits = moves[:n_large], self._words[0]

        def number(chunk: tuple[int, int]) -> None:
            kernels.number_members(large, *chunk, any_bits, self._words, self.node_of_row)

        if n_large:
            list(self._side_by_side(number, self._chunks))
        kernels.number_lists(moves[self._n_nodes - n_small :], any_bits, self._rows, self.node_of_row)

    def _make_room(self, n_children: int) -> np.ndarray:
        """`held` with so many nodes more."""
        self._n_nodes += n_children
        if self._n_nodes > len(self._held):
            grown = np.empty((2 * self._n_nodes, kernels.N_HELD), np.int64)
            grown[: len(self._held)] = self._held
            self._held = grown
        return self._held
