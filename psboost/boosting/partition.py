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
        self._rows = np.empty(2 * n_rows, np.int32)
        self._spare = np.empty(self._n_words + 1, np.int32)
        self.reset()

    def reset(self) -> None:
        """All rows in the root, node 0."""
        self._free = list(range(len(self._words)))[::-1]
        self.members = Members(self._words, {0: self._free.pop()}, self._rows, {})
        root = self._words[self.members.places[0]]
        root.fill(_ALL)
        if self._n_rows % 64:
            root[-1] >>= np.uint64(-self._n_rows % 64)
        begin, end = self._n_rows, self._n_rows + self._n_train
        kernels.count_up(self._rows[begin:end])
        self._listed = {0: (begin, end)}
        self._end = 0  # of lists

    def listed(self, nodes: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """The training rows of the root, or of nodes that the last `split` was to list: int32, and where each node's, which
        ascend, begin and end: int64 (n_nodes, 2)."""
        spans = [self._listed[node] if node in self._listed else self._training_rows(node) for node in nodes]
        return self._rows, np.array(spans, np.int64).reshape(-1, 2)

    def _training_rows(self, node: int) -> tuple[int, int]:
        """Where a node's list begins, and where its training rows end."""
        begin, end = self.members.spans[node]
        if self._n_train < self._n_rows:
            end = begin + int(np.searchsorted(self._rows[begin:end], self._n_train))
        return begin, end

    def split(
        self, splits: list[tuple[int, int, int]], bits: np.ndarray, left_bits: list[int], *, listed=(), last=False,
        fill: Callable[[slice], None] | None = None,
    ) -> None:  # fmt: skip
        """Moves the rows of each (node, left, right) to the children.

        bits       uint64: a bitvector of all the shard's rows
        left_bits  for each split, the bit of the rows that go left
        listed     the children whose `rows` will be asked for
        last       whether the children are leaves
        fill       called first, by chunks of rows: makes their bits, while `members` are as before
        """
        members, large, small = self.members, [], []
        for (node, *children), left_bit in zip(splits, left_bits, strict=True):
            if node in members.places:
                large.append((members.places[node], -1 if last else self._free.pop(), left_bit, *children))
            else:
                small.append((*members.spans[node], left_bit, *children))
        of_large, of_small = _table(large), _table(small)
        work = self._number_members if last else self._split_members

        def fill_and_work(chunk: tuple[int, int]) -> list[int]:
            if fill is not None:
                fill(slice(64 * chunk[0], min(64 * chunk[1], self._n_rows)))
            return work(of_large, chunk, bits)

        sizes = list(self._side_by_side(fill_and_work, self._chunks))
        for node, *_ in splits:
            members.places.pop(node, None)
            members.spans.pop(node, None)
        if last:
            kernels.number_lists(of_small, bits, self._rows, self.node_of_row)
            return
        middles = np.empty(len(small), np.int64)
        kernels.split_lists(of_small, bits, self._rows, self._spare, middles)
        for (begin, end, _, left, right), middle in zip(small, middles.tolist(), strict=True):
            members.spans[left], members.spans[right] = (begin, middle), (middle, end)
        placed = [pair for place, right_place, _, *pair in large for pair in zip(pair, (place, right_place), strict=True)]
        self._place(placed, sizes, set(listed))

    def finish(self) -> None:
        """The tree is grown: what is left are leaves."""
        large = [(place, -1, 1, node, node) for node, place in self.members.places.items()]
        small = [(*span, 1, node, node) for node, span in self.members.spans.items()]
        of_large, of_small, any_bits = _table(large), _table(small), self._words[0]
        if large:
            list(self._side_by_side(lambda chunk: self._number_members(of_large, chunk, any_bits), self._chunks))
        kernels.number_lists(of_small, any_bits, self._rows, self.node_of_row)

    def _number_members(self, table: np.ndarray, chunk: tuple[int, int], bits: np.ndarray) -> list[int]:
        kernels.number_members(table, *chunk, bits, self._words, self.node_of_row)
        return []

    def _split_members(self, table: np.ndarray, chunk: tuple[int, int], bits: np.ndarray) -> list[int]:
        """How many rows of the chunk go left by the first split, and right, and so on."""
        counts = np.empty((len(table), 2), np.int64)
        kernels.split_members(table, *chunk, bits, self._words, counts)
        return counts.reshape(-1).tolist()

    def _place(self, children: list[tuple[int, int]], sizes: list[list[int]], listed: set[int]) -> None:
        """Each (child, place) keeps its place, or becomes a list; of those `listed` the training rows are listed in any
        case. `sizes`: of each chunk, how many rows the children have."""
        end, end_of_large, small, due = self._end, self._n_rows, [], []
        for (child, place), *of_chunks in zip(children, *sizes, strict=True):
            size = sum(of_chunks)
            if size <= self._n_words:
                small.append((child, place, self._n_rows, end, of_chunks))
                self._free.append(place)
                end += size
                continue
            self.members.places[child] = place
            if child in listed:
                due.append((child, place, self._n_train, end_of_large, of_chunks))
                end_of_large += size
        spans = self._list(small + due)
        self.members.spans.update(spans[: len(small)])
        self._listed, self._end = dict(spans[len(small) :]), end

    def _list(self, children: list[tuple[int, int, int, int, list[int]]]) -> list[tuple[int, tuple[int, int]]]:
        """Lists the rows of each (child, place, the first row that is none, where they begin, its rows in each chunk);
        returns each child, and where its rows begin and end."""
        if not children:
            return []
        lists = np.empty((len(self._chunks), len(children), kernels.N_LIST_FIELDS), np.int64)
        for i, (_, place, n_rows, begin, of_chunks) in enumerate(children):
            for c, size in enumerate(of_chunks):
                lists[c, i] = place, n_rows, begin, begin + size
                begin += size

        def write(chunk: tuple[int, int], of_chunk: np.ndarray) -> None:
            kernels.list_members(of_chunk, *chunk, self._words, self._rows)

        list(self._side_by_side(write, self._chunks, lists))
        begins, ends = lists[:, :, kernels.LIST_BEGIN], lists[:, :, kernels.LIST_END]
        spans = zip(begins[0].tolist(), (begins[0] + (ends - begins).sum(axis=0)).tolist(), strict=True)
        return [(child, span) for (child, *_), span in zip(children, spans, strict=True)]


def _table(splits: list[tuple[int, ...]]) -> np.ndarray:
    """As the kernels take them."""
    return np.array(splits, np.int64).reshape(len(splits), kernels.N_FIELDS)
