"""Knows which rows are in which node; does not know gains or messages."""

import numpy as np

from psboost.kernels import routing as kernels


def n_words(n_rows: int) -> int:
    return (n_rows + 63) >> 6


class RowPartition:
    """The rows begin .. end of a row shard, grouped by the leaf-to-be that they are in, in row order within each.

        rows    [ node 3 | node 4 | node 2 ]
        ranges  {3: (0, n3), 4: (n3, n3 + n4), 2: ...}
    """

    def __init__(self, begin: int, end: int, node_of_row: np.ndarray):
        """`node_of_row` (int32, rows of the whole shard) is shared with the other partitions of the shard."""
        self._begin, self._end = begin, end
        self._node_of_row = node_of_row
        self._rows = np.empty(end - begin, np.int32)
        self._spare = np.empty(end - begin, np.int32)
        self.reset()

    def reset(self) -> None:
        """All rows in the root, node 0."""
        self._rows[:] = np.arange(self._begin, self._end, dtype=np.int32)
        self._node_of_row[self._begin : self._end] = 0
        self._ranges = {0: (0, self._end - self._begin)}

    def rows(self, node: int) -> np.ndarray:
        """int32: the rows of a node, ascending."""
        begin, end = self._ranges[node]
        return self._rows[begin:end]

    def split(self, node: int, words: np.ndarray, default_is_left: bool, left: int, right: int) -> None:
        """Moves the rows of `node` to its children, by the bitvector of the shard's rows."""
        begin, end = self._ranges.pop(node)
        n_left = kernels.partition(
            self._rows[begin:end], words, default_is_left, left, right, self._node_of_row, self._spare[begin:end]
        )
        self._ranges[left] = (begin, begin + n_left)
        self._ranges[right] = (begin + n_left, end)
