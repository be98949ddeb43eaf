"""Knows which rows are in which node; does not know gains or messages."""

from collections.abc import Callable, Iterable

import numpy as np

from psboost.data.block import Members
from psboost.kernels import routing as kernels

GROUP_ROWS = 1 << 17  # work on fewer is not worth waking up a thread
_ALL = np.uint64(2**64 - 1)


def ones(n_rows: int) -> np.ndarray:
    """uint64: a bitvector of ones."""
    return np.full(n_words_of(n_rows), _ALL)


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
        self._room = np.empty(n_rows, np.int32)
        self.reset()

    def reset(self) -> None:
        """All rows in the root, node 0."""
        self._free = list(range(len(self._words)))[::-1]
        self.members = Members(self._words, {0: self._free.pop()}, {})
        root = self._words[self.members.places[0]]
        root.fill(_ALL)
        if self._n_rows % 64:
            root[-1] >>= np.uint64(-self._n_rows % 64)
        everything = self._room[: self._n_train]
        kernels.count_up(everything)
        self._spans = {0: (0, self._n_train)}

    def listed(self, nodes: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """The training rows of the root, or of nodes that the last `split` was to list: int32, and where each node's, which
        ascend, begin and end: int64 (n_nodes, 2)."""
        return self._room, np.array([self._spans[node] for node in nodes], np.int64).reshape(-1, 2)

    def split(
        self, splits: list[tuple[int, int, int]], bits: np.ndarray, left_bits: list[int], *, listed=(), last=False
    ) -> None:
        """Moves the rows of each (node, left, right) to the children.

        bits       uint64: a bitvector of all the shard's rows
        left_bits  for each split, the bit of the rows that go left
        listed     the children whose `rows` will be asked for
        last       whether the children are leaves
        """
        members, large = self.members, []
        for split, left_bit in zip(splits, left_bits, strict=True):
            node, *children = split
            if node in members.places:
                large.append((members.places.pop(node), -1 if last else self._free.pop(), left_bit, *children))
            elif last:
                kernels.number_rows(members.rows.pop(node), bits, left_bit, *children, self.node_of_row)
            else:
                members.rows.update(zip(children, _split_rows(members.rows.pop(node), bits, left_bit), strict=True))
        table = np.array(large, np.int64).reshape(len(large), kernels.N_FIELDS)
        if last:
            self._number(table, bits)
            return
        placed = [pair for place, right_place, _, *pair in large for pair in zip(pair, (place, right_place), strict=True)]
        end = self._place(placed, self._split_members(table, bits), set(listed))
        for node in listed:
            if node in members.rows:
                rows = members.rows[node]
                rows = rows[: np.searchsorted(rows, self._n_train)]
                self._spans[node] = end, end + len(rows)
                self._room[end : end + len(rows)] = rows
                end += len(rows)

    def finish(self) -> None:
        """The tree is grown: what is left are leaves."""
        leaves = [(place, -1, 1, node, node) for node, place in self.members.places.items()]
        self._number(np.array(leaves, np.int64).reshape(len(leaves), kernels.N_FIELDS), self._words[0])
        for node, rows in self.members.rows.items():
            self.node_of_row[rows] = node

    def _number(self, table: np.ndarray, bits: np.ndarray) -> None:
        def write(chunk: tuple[int, int]) -> None:
            kernels.number_members(table, *chunk, bits, self._words, self.node_of_row)

        if len(table):
            list(self._side_by_side(write, self._chunks))

    def _split_members(self, table: np.ndarray, bits: np.ndarray) -> list[list[int]]:
        """How many rows of each chunk go left by the first split, and right, and so on."""

        def split(chunk: tuple[int, int]) -> list[int]:
            counts = np.empty((len(table), 2), np.int64)
            kernels.split_members(table, *chunk, bits, self._words, counts)
            return counts.reshape(-1).tolist()

        return list(self._side_by_side(split, self._chunks))

    def _place(self, children: list[tuple[int, int]], sizes: list[list[int]], listed: set[int]) -> int:
        """Each (child, place) keeps its place, or becomes a list; of those `listed` the training rows are listed in any
        case. `sizes`: of each chunk, how many rows the children have. Returns where the room for lists is free."""
        due, small = [], []
        for (child, place), *of_chunks in zip(children, *sizes, strict=True):
            if sum(of_chunks) <= self._n_words:
                small.append((child, place, of_chunks))
                self._free.append(place)
                continue
            self.members.places[child] = place
            if child in listed:
                due.append((child, place, of_chunks))
        room = np.empty(sum(sum(of_chunks) for *_, of_chunks in small), np.int32)
        for child, (begin, end) in self._list(small, self._n_rows, room).items():
            self.members.rows[child] = room[begin:end]
        self._spans = self._list(due, self._n_train, self._room)
        return sum(sum(of_chunks) for *_, of_chunks in due)

    def _list(
        self, children: list[tuple[int, int, list[int]]], n_rows: int, room: np.ndarray
    ) -> dict[int, tuple[int, int]]:
        """Lists the rows below n_rows of each (child, place, its rows in each chunk) in `room`; returns where."""
        if not children:
            return {}
        lists, end = np.empty((len(self._chunks), len(children), kernels.N_LIST_FIELDS), np.int64), 0
        for i, (_, place, of_chunks) in enumerate(children):
            for c, size in enumerate(of_chunks):
                lists[c, i] = place, end, end + size
                end += size

        def write(chunk: tuple[int, int], of_chunk: np.ndarray) -> None:
            kernels.list_members(of_chunk, *chunk, n_rows, self._words, room)

        begins = lists[0, :, kernels.LIST_BEGIN].tolist()
        sizes = -lists[:, :, kernels.LIST_BEGIN].sum(axis=0)
        list(self._side_by_side(write, self._chunks, lists))
        sizes += lists[:, :, kernels.LIST_END].sum(axis=0)
        return {child: (at, at + n) for (child, *_), at, n in zip(children, begins, sizes.tolist(), strict=True)}


def _split_rows(rows: np.ndarray, bits: np.ndarray, left_bit: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the left child and of the right one."""
    left, right = np.empty(len(rows), np.int32), np.empty(len(rows), np.int32)
    n_left = kernels.split_rows(rows, bits, left_bit, left, right)
    return left[:n_left].copy(), right[: len(rows) - n_left].copy()
