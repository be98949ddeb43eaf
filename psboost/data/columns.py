"""Knows stored values by row and by column; does not know bins, labels or where the values came from."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from psboost.errors import DataError
from psboost.kernels import columns as kernels
from psboost.kernels import sorted_columns as sorting_kernels

MAX_INT32 = np.iinfo(np.int32).max
GROUP_CELLS = 1 << 20  # of a dense array, as many cells are turned into columns at a time
MANY_COLUMNS = 32  # of which two are at least: lines of memory are read half as often, for less than a block of them takes
CONVERTED_CELLS = 1 << 18  # of other types than kernels take, as many are made float32 at a time


@dataclass(frozen=True)
class Columns:
    """The stored values of one block, column by column.

    offsets  int64 (n_features + 1): column f's entries are offsets[f] .. offsets[f+1]
    rows     int32 (n): ascending within a column
    values   float32 (n): not contiguous, but a view of a single one, where all are known to be the same (one-hot data)
    """

    n_rows: int
    n_features: int
    offsets: np.ndarray
    rows: np.ndarray
    values: np.ndarray

    @property
    def value(self) -> np.float32 | None:
        """What every entry has, where a single value is held."""
        return self.values[0] if len(self.values) and self.values.strides == (0,) else None

    def n_stored(self, begin: int, end: int) -> int:
        """How many values features begin .. end store."""
        return int(self.offsets[end] - self.offsets[begin])

    def groups(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Features begin .. end, cut where they are best taken apart: nowhere."""
        yield begin, end

    def part(self, begin: int, end: int) -> "Columns":
        """Features begin .. end, numbered from 0."""
        if (begin, end) == (0, self.n_features):
            return self
        low, high = self.offsets[begin], self.offsets[end]
        offsets = self.offsets[begin : end + 1] - low
        return type(self)(self.n_rows, end - begin, offsets, self.rows[low:high], self.values[low:high])


class SortedColumns(Columns):
    """The same by value: within a column values ascend, NaN last, and rows of the same value ascend."""


class DenseColumns:
    """The same of a 2-d array, which is neither turned nor copied: `part` reads a few features at a time from it."""

    def __init__(self, matrix: np.ndarray, keep: np.ndarray, keep_zeros: bool, keep_nan: bool):
        """keep: int64, the matrix columns that are the features; which values count as stored (data.zeros)."""
        self.n_rows, self.n_features = len(matrix), len(keep)
        self._matrix, self._keep = matrix, keep
        self._keep_zeros, self._keep_nan = keep_zeros, keep_nan

    def n_stored(self, begin: int, end: int) -> int:
        """How many values features begin .. end store, at most: NaN are counted."""
        if self._keep_zeros:
            return self.n_rows * (end - begin)
        return sum(kernels.count_nonzero(matrix, columns) for _, matrix, columns in self._pieces(begin, end))

    def groups(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Features begin .. end, so many at a time that their cells do not take much memory."""
        step = max(2 if self.n_features >= MANY_COLUMNS else 1, GROUP_CELLS // max(1, self.n_rows))
        for first in range(begin, end, step):
            yield first, min(first + step, end)

    def part(self, begin: int, end: int) -> Columns:
        """Features begin .. end, numbered from 0."""
        n_features = end - begin
        rows = np.empty(n_features * self.n_rows, np.int32)
        values = np.empty(n_features * self.n_rows, np.float32)
        ends = np.arange(n_features) * self.n_rows
        for first_row, matrix, columns in self._pieces(begin, end):
            kernels.append_cells(matrix, columns, first_row, self._keep_zeros, self._keep_nan, ends, rows, values)
        return Columns(self.n_rows, n_features, *_close_gaps(np.arange(n_features) * self.n_rows, ends, rows, values))

    def _pieces(self, begin: int, end: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(first row, some rows as float32 or float64, which of their columns) of features begin .. end."""
        keep = self._keep[begin:end]
        if self._matrix.dtype in (np.float32, np.float64) and self._matrix.flags.aligned:
            yield 0, self._matrix, keep
            return
        step = max(1, CONVERTED_CELLS // max(1, len(keep)))
        for row in range(0, self.n_rows, step):
            yield row, np.require(self._matrix[row : row + step, keep], np.float32, ["A"]), np.arange(len(keep))


class StackedColumns:
    """The columns of several sources of rows, whose rows follow each other."""

    def __init__(self, parts: list["Columns | DenseColumns"]):
        self._parts = parts
        self.n_rows, self.n_features = sum(part.n_rows for part in parts), parts[0].n_features

    def n_stored(self, begin: int, end: int) -> int:
        return sum(part.n_stored(begin, end) for part in self._parts)

    def groups(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        finest = max(self._parts, key=lambda part: len(list(part.groups(begin, end))))
        return finest.groups(begin, end)

    def part(self, begin: int, end: int) -> Columns:
        """Features begin .. end, numbered from 0."""
        parts = [part.part(begin, end) for part in self._parts]
        offsets = sum(part.offsets for part in parts)
        rows, values = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.float32)
        cursors, first_row = offsets[:-1].copy(), 0
        for part in parts:
            held = np.ascontiguousarray(part.values)
            kernels.append_columns(part.offsets, part.rows, held, first_row, cursors, rows, values)
            first_row += part.n_rows
        return Columns(self.n_rows, end - begin, offsets, rows, values)


AnyColumns = Columns | DenseColumns | StackedColumns


def stack_columns(parts: list[Columns | DenseColumns]) -> AnyColumns:
    """The columns of all parts' rows, one part after another."""
    return parts[0] if len(parts) == 1 else StackedColumns(parts)


def sort_columns(columns: AnyColumns, begin: int, end: int) -> SortedColumns:
    """Features begin .. end in order of value, numbered from 0."""
    groups = list(columns.groups(begin, end)) or [(begin, end)]
    parts = [columns.part(*group) for group in groups]
    if not isinstance(columns, SortedColumns):
        parts = [_sorted(part) for part in parts]
    return join_columns(parts) if len(parts) != 1 else parts[0]


def join_columns(parts: list[SortedColumns]) -> SortedColumns:
    """The columns of one part after another's, of the same rows."""
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    rows, values = (np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "values"))
    return SortedColumns(parts[0].n_rows, len(lengths), offsets, rows, values)


def _sorted(columns: Columns) -> SortedColumns:
    rows, values = columns.rows.copy(), columns.values.copy()
    sorting_kernels.sort_columns(columns.offsets, rows, values)
    return SortedColumns(columns.n_rows, columns.n_features, columns.offsets, rows, values)


class OnlyValue:
    """The value that all cells have, as long as they have the same."""

    def __init__(self) -> None:
        self._first: np.float32 | None = None
        self._is_only = True

    def add(self, values: np.ndarray) -> None:
        """float32, of more cells."""
        if self._is_only and len(values):
            if self._first is None:
                self._first = values[0]
            self._is_only = bool((values == self._first).all())

    @property
    def value(self) -> np.float32 | None:
        """None if there are several, or no cells, or if it is one that may not count (0; NaN)."""
        return self._first if self._is_only and self._first else None


class ColumnsBuilder:
    """Columns in the making, of rows that come in parts, piece by piece. Parts may be added to side by side."""

    def __init__(self, name: str, counts: np.ndarray, n_rows: list[int], value: np.float32 | None = None):
        """name of the data, for messages; counts: whole numbers (n_parts, n_features), how many entries of a column a part
        has at most; n_rows of each part; value: OnlyValue of all cells."""
        if sum(n_rows) > MAX_INT32 or counts.shape[1] > MAX_INT32:
            raise DataError(f"a block of {sum(n_rows)} rows x {counts.shape[1]} features: use more row or feature shards")
        offsets = np.zeros(counts.shape[1] + 1, np.int64)
        np.cumsum(counts.sum(axis=0), out=offsets[1:])
        n_cells = int(offsets[-1])
        self._name = name
        self._ends = offsets[:-1] + np.cumsum(counts, axis=0)  # of the room for each part's entries in each column
        self._cursors = np.empty(counts.shape, np.int32 if n_cells < MAX_INT32 else np.int64)
        self._cursors[0], self._cursors[1:] = offsets[:-1], self._ends[:-1]
        self._rows, self._value = np.empty(n_cells, np.int32), value
        self._values = np.empty(n_cells, np.float32) if value is None else _repeated(value, n_cells)
        self._next_row = np.cumsum([0, *n_rows])[:-1].tolist()
        self._end_rows = np.cumsum(n_rows).tolist()

    def add(
        self, part: int, indptr: np.ndarray, features: np.ndarray, values: np.ndarray, keep_zeros: bool, keep_nan: bool
    ) -> None:
        """The next rows of a part, as CSR: indptr int64, features int32 (negative: left out), values float32; which values
        count (data.zeros). A row holds a feature at most once."""
        first = self._next_row[part]
        self._next_row[part] += len(indptr) - 1
        where = first, self._cursors[part], self._rows
        if self._value is not None:
            fits = kernels.scatter_rows(indptr, features, values, self._value, *where)
        else:
            fits = kernels.scatter_columns(indptr, features, values, keep_zeros, keep_nan, *where, self._values)
        if not fits:
            self._complain()

    def columns(self) -> Columns:
        """Of all rows that were added; to be called once. DataError if there are others than there were to be."""
        fits = self._cursors <= self._ends if self._value is None else self._cursors == self._ends  # then all cells count
        if self._next_row != self._end_rows or not fits.all():
            self._complain()
        n_parts, n_features = self._ends.shape
        taken, room = (ends.T.reshape(-1) for ends in (self._cursors, self._ends))  # column after column, each by parts
        begins = np.concatenate([np.zeros(min(1, n_features), np.int64), room[:-1]])
        offsets, rows, values = _close_gaps(begins, taken, self._rows, self._values)
        return Columns(self._end_rows[-1], n_features, np.ascontiguousarray(offsets[::n_parts]), rows, values)

    def _complain(self):
        raise DataError(f"{self._name} changed between counting and reading it: leave data as they are while they are read")


Csr = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows: indptr int64 (n_rows + 1), features int32, values float32


def to_columns(parts: list[Csr], n_features: int, side_by_side: Callable[..., Iterable] = map) -> Columns:
    """The columns of rows that come in parts, features in [0, n_features). A row holds a feature at most once.

    side_by_side  a `map` that may take several parts at a time

    Raises DataError if the arrays do not fit together.
    """
    for part in parts:
        _check(*part, n_features)
    counts = np.zeros((len(parts), n_features), np.int32)
    list(side_by_side(lambda part, of_part: kernels.count_occurrences(part[1], of_part), parts, counts))
    only = OnlyValue()
    for _, _, values in parts:
        only.add(values)
    builder = ColumnsBuilder("X", counts, [len(indptr) - 1 for indptr, _, _ in parts], only.value)
    list(side_by_side(lambda i, part: builder.add(i, *part, True, True), range(len(parts)), parts))
    return builder.columns()


def _check(indptr: np.ndarray, features: np.ndarray, values: np.ndarray, n_features: int) -> None:
    n_rows = len(indptr) - 1
    if n_rows < 0 or n_rows > MAX_INT32 or not 0 <= n_features <= MAX_INT32:
        raise DataError(f"a block of {n_rows} rows x {n_features} features: use more row or feature shards")
    if indptr[0] != 0 or indptr[-1] != len(features) or len(values) != len(features):
        raise DataError(
            f"rows of {indptr[-1] - indptr[0]} stored values come with {len(features)} feature numbers "
            f"and {len(values)} values"
        )
    descends = indptr[1:] < indptr[:-1]
    if descends.any():
        raise DataError(f"row {int(descends.argmax())} ends before it begins")
    least, greatest = (int(features.min()), int(features.max())) if len(features) else (0, -1)
    if least < 0 or greatest >= n_features:
        raise DataError(f"feature numbers {least}..{greatest} in a block of {n_features} features")


def _repeated(value: np.float32, n: int) -> np.ndarray:
    """It n times, in the memory of one (numpy's broadcast_to, which holds a single one as any other array)."""
    return as_strided(np.array([value]), (n,), (0,), writeable=False)


def _close_gaps(
    begins: np.ndarray, ends: np.ndarray, rows: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offsets, rows and values of entries begins[i] .. ends[i], one after another; moved if there is anything between."""
    offsets = np.zeros(len(begins) + 1, np.int64)
    np.cumsum(ends - begins, out=offsets[1:])
    if offsets[-1] < len(rows):
        kernels.close_gaps(begins, offsets, rows, values)
        rows, values = rows[: offsets[-1]], values[: offsets[-1]]
    return offsets, rows, values
