"""Knows which rows are in which node; does not know gains or messages."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

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


def in_groups(items: list, sizes: list[int]) -> list[list]:
    """The items in their order, in groups of GROUP_ROWS or more by their sizes, but for the last."""
    groups, n_rows = [], GROUP_ROWS
    for item, size in zip(items, sizes, strict=True):
        if n_rows >= GROUP_ROWS:
            groups.append([])
            n_rows = 0
        groups[-1].append(item)
        n_rows += size
    return groups


def map_in_groups(side_by_side: Callable[..., Iterable], function: Callable, items: list[tuple], sizes: list[int]) -> list:
    """What `function` makes of each item, its arguments; by groups of them, with `side_by_side` as Worker takes it."""
    of_groups = side_by_side(lambda group: [function(*item) for item in group], in_groups(items, sizes))
    return [result for of_group in of_groups for result in of_group]


def chunks_of(n_rows: int, n_threads: int) -> list[slice]:
    """As many rows for each thread; all for one if they are few."""
    n_chunks = min(n_threads, 1 + n_rows // GROUP_ROWS)
    edges = np.linspace(0, n_rows, n_chunks + 1).astype(int).tolist()
    return [slice(*edge) for edge in zip(edges, edges[1:], strict=False)]


class _Chunk(NamedTuple):
    """Some rows of a node that is split, begin .. end of the array `source`; those whose bit is left_bit go left."""

    source: int
    begin: int
    end: int
    left: int
    right: int
    left_bit: int


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
        self._rows = [np.empty(end - begin, np.int32) for _ in range(2)]
        self.reset()

    def reset(self) -> None:
        """All rows in the root, node 0."""
        for at in range(0, len(self._rows[0]), CHUNK_ROWS):
            some = self._rows[0][at : at + CHUNK_ROWS]
            some[:] = np.arange(self._begin + at, self._begin + at + len(some), dtype=np.int32)
        self._node_of_row[self._begin : self._end] = 0
        self._ranges = {0: (0, 0, self._end - self._begin)}

    def rows(self, node: int) -> np.ndarray:
        """int32: the rows of a node, ascending."""
        source, begin, end = self._ranges[node]
        return self._rows[source][begin:end]

    def split(self, children: list[tuple[int, int, int]], bits: np.ndarray, left_bits: np.ndarray, side_by_side=map) -> None:
        """Moves the rows of each (node, left, right) to the children.

        bits          uint8: 0 or 1 for each row of the whole shard
        left_bits     uint8: for each split, the bit of the rows that go left
        side_by_side  a `map`, as Worker takes it
        """
        nodes = [self._chunks(*split, bit) for split, bit in zip(children, left_bits.tolist(), strict=True)]
        chunks = [chunk for of_node in nodes for chunk in of_node]
        sizes = [chunk.end - chunk.begin for chunk in chunks]
        n_left = map_in_groups(side_by_side, self._count_left, [(chunk, bits) for chunk in chunks], sizes)
        places, at = [], 0
        for of_node in nodes:
            counts = n_left[at : at + len(of_node)]
            places += self._place(of_node, counts)
            at += len(of_node)
        moves = [(chunk, bits, *place) for chunk, place in zip(chunks, places, strict=True)]
        map_in_groups(side_by_side, self._move, moves, sizes)

    def _chunks(self, node: int, left: int, right: int, left_bit: int) -> list[_Chunk]:
        source, begin, end = self._ranges.pop(node)
        edges = [*range(begin, max(end, begin + 1), CHUNK_ROWS), end]
        return [_Chunk(source, *edge, left, right, left_bit) for edge in zip(edges, edges[1:], strict=False)]

    def _place(self, chunks: list[_Chunk], n_left: list[int]) -> list[tuple[int, int]]:
        """Where each chunk's left and right rows go, all left ones of the node first; takes note of its children."""
        source, begin, end = chunks[0].source, chunks[0].begin, chunks[-1].end
        middle = begin + sum(n_left)
        self._ranges[chunks[0].left], self._ranges[chunks[0].right] = (1 - source, begin, middle), (1 - source, middle, end)
        places, at_left, at_right = [], begin, middle
        for chunk, n in zip(chunks, n_left, strict=True):
            places.append((at_left, at_right))
            at_left, at_right = at_left + n, at_right + chunk.end - chunk.begin - n
        return places

    def _count_left(self, chunk: _Chunk, bits: np.ndarray) -> int:
        n_ones = kernels.count_ones(self._rows[chunk.source][chunk.begin : chunk.end], bits)
        return n_ones if chunk.left_bit else chunk.end - chunk.begin - n_ones

    def _move(self, chunk: _Chunk, bits: np.ndarray, at_left: int, at_right: int) -> None:
        kernels.partition(
            self._rows[chunk.source][chunk.begin : chunk.end], bits, chunk.left_bit, chunk.left, chunk.right,
            at_left, at_right, self._rows[1 - chunk.source], self._node_of_row,
        )  # fmt: skip
