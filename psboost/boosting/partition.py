"""Knows which rows are in which node; does not know gains or messages."""

import numpy as np

from psboost.kernels import routing as kernels

CHUNK_ROWS = 1 << 16  # a node of more is moved in chunks, by several threads
GROUP_ROWS = 1 << 17  # work on fewer is not worth waking up a thread


def words_of(bits: np.ndarray) -> np.ndarray:
    """uint64: row i's bit in bit i % 64 of word i // 64, of `bits` (uint8, 0 or 1); what follows the last is 0."""
    packed = np.packbits(bits, bitorder="little")
    return np.pad(packed, (0, -len(packed) % 8)).view(np.uint64)


def bits_of(words: np.ndarray, n_rows: int) -> np.ndarray:
    """The inverse of words_of."""
    return np.unpackbits(words.view(np.uint8), count=n_rows, bitorder="little")


def nodes_of_rows(n_rows: int, max_depth: int) -> np.ndarray:
    """Each row's node, in as few bytes as hold the nodes of such a tree (0: of any depth): all in the root."""
    return np.zeros(n_rows, np.uint8 if 0 < max_depth <= 7 else np.int32)


def groups_of(sizes: list[int]) -> list[tuple[int, int]]:
    """(begin, end) of groups of what has these sizes, each of GROUP_ROWS or more but for the last."""
    groups, begin, n_rows = [], 0, 0
    for i, size in enumerate(sizes):
        n_rows += size
        if n_rows >= GROUP_ROWS:
            groups.append((begin, i + 1))
            begin, n_rows = i + 1, 0
    return groups + [(begin, len(sizes))] * (begin < len(sizes))


def chunks_of(n_rows: int, n_threads: int) -> list[slice]:
    """As many rows for each thread; all for one if they are few."""
    n_chunks = min(n_threads, 1 + n_rows // GROUP_ROWS)
    edges = np.linspace(0, n_rows, n_chunks + 1).astype(int).tolist()
    return [slice(*edge) for edge in zip(edges, edges[1:], strict=False)]


class RowPartition:
    """The rows begin .. end of a row shard, grouped by the leaf-to-be that they are in, in row order within each.

        rows    [ node 3 | node 4 | node 2 ]
        ranges  {3: (0, 0, n3), 4: (0, n3, n3 + n4), 2: ...}

    When a node is split, its rows are written from one of two arrays to the same place of the other.
    """

    def __init__(self, begin: int, end: int, node_of_row: np.ndarray):
        """`node_of_row` (nodes_of_rows, rows of the whole shard) is shared with the other partitions of the shard."""
        self._begin, self._end = begin, end
        self._node_of_row = node_of_row
        self._rows = np.empty((2, end - begin), np.int32)
        self.reset()

    def reset(self) -> None:
        """All rows in the root, node 0."""
        for at in range(0, self._end - self._begin, CHUNK_ROWS):
            some = self._rows[0, at : at + CHUNK_ROWS]
            some[:] = np.arange(self._begin + at, self._begin + at + len(some), dtype=np.int32)
        self._node_of_row[self._begin : self._end] = 0
        self._ranges = {0: (0, 0, self._end - self._begin)}

    def rows(self, node: int) -> np.ndarray:
        """int32: the rows of a node, ascending."""
        source, begin, end = self._ranges[node]
        return self._rows[source, begin:end]

    def split(
        self, splits: list[tuple[int, int, int]], bits: np.ndarray, left_bits: np.ndarray, last=False, side_by_side=map
    ) -> None:
        """Moves the rows of each (node, left, right) to the children.

        bits          uint8: 0 or 1 for each row of the whole shard
        left_bits     uint8: for each split, the bit of the rows that go left
        last          whether nobody will ask for the children's rows
        side_by_side  a `map`, as Worker takes it
        """
        chunks = []
        for split, left_bit in zip(splits, left_bits.tolist(), strict=True):
            chunks += self._chunks(*split, left_bit)
        groups = groups_of([end - begin for _, begin, end, *_ in chunks])
        table = np.zeros((len(chunks), kernels.N_FIELDS), np.int64)
        table[:, : kernels.N_LEFT] = np.array(chunks, np.int64).reshape(len(chunks), kernels.N_LEFT)
        if last:
            list(side_by_side(lambda group: kernels.descend(*group, bits, table, self._rows, self._node_of_row), groups))
            return
        list(side_by_side(lambda group: kernels.count_left(*group, self._rows, bits, table), groups))
        kernels.place(table)
        list(side_by_side(lambda group: kernels.move(*group, bits, table, self._rows, self._node_of_row), groups))
        middles = dict(zip(table[::-1, kernels.LEFT].tolist(), table[::-1, kernels.AT_RIGHT].tolist(), strict=True))
        for node, left, right in splits:
            source, begin, end = self._ranges.pop(node)
            self._ranges[left], self._ranges[right] = (1 - source, begin, middles[left]), (1 - source, middles[left], end)

    def _chunks(self, node: int, left: int, right: int, left_bit: int) -> list[tuple[int, ...]]:
        """The first fields of the node's chunks (kernels.routing), at least one."""
        source, begin, end = self._ranges[node]
        edges = [*range(begin, max(end, begin + 1), CHUNK_ROWS), end]
        return [(source, *edge, left, right, left_bit) for edge in zip(edges, edges[1:], strict=False)]
