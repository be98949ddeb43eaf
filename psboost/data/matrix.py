"""Knows numpy and scipy matrices as sources of rows; does not know files, or what rows are for.

A span is a range of rows. Matrices are handed over in pieces of about PIECE_CELLS cells, so that a large one
is never copied whole.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy  # scipy.sparse is imported where it is first named: it takes a quarter of a second

from psboost.data import zeros
from psboost.data.columns import DenseColumns
from psboost.data.frames import is_frame, matrix_of, names_of
from psboost.data.rows import Cells, Counts, DenseCells, Held
from psboost.data.source import Source, check_parts
from psboost.errors import DataError
from psboost.kernels import cells as kernels

MATRIX = "X"  # the name of a matrix that was given, in error messages
PIECE_CELLS = 1 << 20


class _RowSource(Source):
    """What sources share whose spans are ranges of rows."""

    def __init__(self, name, n_rows, n_columns, labels, weights, n_features, zero_as_missing):
        if n_features is not None and n_features < n_columns:
            raise DataError(
                f"{name} has {n_columns} columns, n_features declares {n_features}: declare at least as many"
            )
        self.name = name
        self.zero_as_missing = zero_as_missing
        self._n_rows = n_rows
        self._n_columns = n_columns
        self.width = n_columns if n_features is None else n_features
        self._labels = None if labels is None else _checked_vector("labels", labels, name, n_rows)
        self._weights = None if weights is None else _checked_vector("weights", weights, name, n_rows)
        if self._weights is not None and (self._weights < 0).any():
            row = int(np.flatnonzero(self._weights < 0)[0])
            raise DataError(f"weights[{row}] is {self._weights[row]}: weights must be 0 or more")

    @property
    def size(self):
        return self._n_rows

    def place(self, span, row):
        return f"row {span[0] + row} of {self.name}"

    def _piece(self, begin, end, indptr, columns, values, bytes_read) -> Cells:
        """Cells of rows begin .. end. Raises DataError if a value is infinite."""
        wrong = kernels.first_infinite(values)
        if wrong >= 0:
            row = begin + int(np.searchsorted(indptr, wrong, side="right")) - 1
            raise DataError(
                f"{self.name}: the value in row {row}, column {columns[wrong]} is infinite or too large: values must be "
                f"below 3.4028235e38; use NaN for a missing one"
            )
        return Cells(indptr, columns, values, *self._rows_of(begin, end), self.width, bytes_read)

    def _rows_of(self, begin, end):
        """(labels, weights) of rows begin .. end."""
        return tuple(None if whole is None else whole[begin:end] for whole in (self._labels, self._weights))


class DenseSource(_RowSource):
    """The rows of a 2-d array of numbers."""

    def __init__(self, matrix, *args):
        super().__init__(MATRIX, *matrix.shape, *args)
        self._matrix = matrix

    def count_in_parts(self, span, n_threads, side_by_side=map):
        return [self.count(span)]

    def read_counted(self, counted, keep, side_by_side=map):
        [whole] = counted
        return self.read_columns(whole.span, keep)

    def read_columns(self, span, keep, *threads):
        if int(keep.max(initial=-1)) >= self._n_columns:  # columns that other data have
            return super().read_columns(span, keep, *threads)
        begin, end = span
        rule = self.zero_as_missing
        columns = DenseColumns(self._matrix[begin:end], keep, zeros.keeps_zeros(rule), zeros.keeps_nan(rule))
        return Held(columns, *self._rows_of(begin, end), bytes_read=0)

    def count(self, span):
        begin, end = span
        keeps_zeros, keeps_nan = zeros.keeps_zeros(self.zero_as_missing), zeros.keeps_nan(self.zero_as_missing)
        counts, stores_zeros = np.zeros(self._n_columns, np.int64), False
        for piece in self.pieces(span):
            n_zeros = len(piece.values) - np.count_nonzero(piece.values, axis=0)
            stores_zeros = stores_zeros or bool(n_zeros.any())
            counts += len(piece.values) - (0 if keeps_zeros else n_zeros)
            if not keeps_nan:
                counts -= np.count_nonzero(np.isnan(piece.values), axis=0)
        features = np.flatnonzero(counts)
        labels, weights = self._rows_of(begin, end)
        return Counts(
            span=span, features=features, counts=counts[features], stores_zeros=stores_zeros, n_rows=end - begin,
            n_values=int(counts.sum()), n_features=self.width, labels=labels, weights=weights, bytes_read=0,
            borders=None,
        )  # fmt: skip

    def pieces(self, span) -> Iterator[DenseCells]:
        for row, stop in self._cut(span):
            with np.errstate(over="ignore", under="ignore"):
                values = np.require(self._matrix[row:stop], np.float32, ["A"])
            if kernels.first_infinite(values.ravel(order="K")) >= 0:
                next(self._cells((row, stop)))  # names the cell
            yield DenseCells(values, self.width)

    def _cut(self, span) -> Iterator[tuple[int, int]]:
        """Begin and end of the pieces of a span; at least one."""
        begin, end = span
        step = max(1, PIECE_CELLS // max(1, self._n_columns))
        for row in range(begin, max(end, begin + 1), step):
            yield row, min(row + step, end)

    def _cells(self, span) -> Iterator[Cells]:
        for row, stop in self._cut(span):
            block = _float32(self._matrix[row:stop])
            stored = np.ones(block.shape, bool) if zeros.keeps_zeros(self.zero_as_missing) else block != 0
            indptr = np.zeros(stop - row + 1, np.int64)
            np.cumsum(np.count_nonzero(stored, axis=1), out=indptr[1:])
            columns = np.ascontiguousarray(np.nonzero(stored)[1])
            yield self._piece(row, stop, indptr, columns, block[stored], 0)


class CsrSource(_RowSource):
    """The rows of CSR arrays, in memory or mapped from a file. Repeated columns in a row are added up."""

    def __init__(self, name, indptr, indices, data, shape, labels, weights, n_features, zero_as_missing):
        """indptr is checked here; indices and data are checked when they are read.

        bytes_read stays 0 for arrays in memory; see `bytes_pending` and `mapped`. If it `was_dense`, rows are split as those
        of the dense matrix, whose cut points would else be others on several row shards.
        """
        super().__init__(name, *shape, labels, weights, n_features, zero_as_missing)
        if indptr.ndim != 1 or len(indptr) != shape[0] + 1 or indptr.dtype.kind not in "iu":
            raise DataError(f"{name}: indptr must hold {shape[0] + 1} whole numbers, one more than rows")
        if indices.ndim != 1 or indices.dtype.kind not in "iu" or data.shape != indices.shape:
            raise DataError(f"{name}: indices (whole numbers) and data must be of one length")
        _check_numbers(name, data.dtype)
        self._indptr = np.ascontiguousarray(indptr, np.int64)
        if self._indptr[0] != 0 or self._indptr[-1] > len(indices) or (self._indptr[1:] < self._indptr[:-1]).any():
            raise DataError(f"{name}: indptr must rise from 0 to {len(indices)}, the length of indices")
        self._indices = indices
        self._data = data
        self.bytes_pending = iter([0])  # read when the source was opened, told with the first piece
        self.mapped = False
        self.was_dense = False

    def split(self, span, n_parts):
        if self.was_dense:
            return super().split(span, n_parts)
        check_parts(n_parts)
        begin, end = span

        def load(row: int) -> int:
            """Of the rows before this one: their values, and one more each, so that empty rows are dealt out too."""
            return int(self._indptr[row]) + row

        least, most = load(begin), load(end)
        targets = [least + (most - least) * part // n_parts for part in range(1, n_parts)]
        inner = [bisect_left(range(end + 1), target, begin, end, key=load) for target in targets]
        borders = [begin, *inner, end]
        return list(zip(borders[:-1], borders[1:], strict=True))

    def _most_cells(self, span):
        begin, end = span
        return int(self._indptr[end] - self._indptr[begin])

    def _cells(self, span) -> Iterator[Cells]:
        row, end = span
        first = True
        while row < end or first:
            first = False
            limit = self._indptr[row] + PIECE_CELLS
            stop = int(np.searchsorted(self._indptr, limit, side="right")) - 1
            stop = min(max(stop, row + 1), row + PIECE_CELLS, end)
            yield self._read_piece(row, stop)
            row = stop

    def _read_piece(self, row, stop):
        begin, end = int(self._indptr[row]), int(self._indptr[stop])
        indptr = self._indptr[row : stop + 1] - begin
        columns = self._indices[begin:end]
        data = self._data[begin:end]
        bytes_read = next(self.bytes_pending, 0)
        if self.mapped:
            bytes_read += columns.nbytes + data.nbytes
        if columns.dtype.kind == "u" and columns.dtype.itemsize == 8:
            columns = columns.astype(np.int64)  # above 2^63 becomes negative, and is refused
        columns = np.require(columns, np.int32 if columns.dtype == np.int32 else np.int64, ["C", "A"])
        wrong, ascending = kernels.check_rows(indptr, columns, self._n_columns)
        if wrong >= 0:
            wrong_row = row + int(np.searchsorted(indptr, wrong, side="right")) - 1
            raise DataError(
                f"{self.name}: row {wrong_row} has column {columns[wrong]}, the matrix has "
                f"{self._n_columns} columns: correct indices or shape"
            )
        if not ascending:
            block = scipy.sparse.csr_array(
                (data.astype(np.float64), columns.copy(), indptr.copy()), shape=(stop - row, self._n_columns)
            )
            block.sum_duplicates()
            indptr, data = block.indptr.astype(np.int64), block.data
            columns = block.indices
        return self._piece(row, stop, indptr, columns, _float32(data), bytes_read)


def open_matrix(data, labels, weights, n_features, zero_as_missing) -> Source:
    """The source for a matrix in memory; see open_source."""
    matrix = as_matrix(data)
    if isinstance(matrix, np.ndarray):
        rule = False if zero_as_missing is None else zero_as_missing
        source: Source = DenseSource(matrix, labels, weights, n_features, rule)
    else:
        csr = as_csr(matrix)
        parts = (csr.indptr, csr.indices, csr.data)
        source = CsrSource(MATRIX, *parts, csr.shape, labels, weights, n_features, zero_as_missing)
    source.feature_names = names_of(data)
    return source


def as_matrix(data) -> Any:
    """`data` as a 2-d array of numbers or, if it is sparse, a scipy sparse matrix or array. DataError if it is neither."""
    if isinstance(data, np.ma.MaskedArray):
        raise DataError("X is a masked array: give X.filled(numpy.nan), where NaN stands for a missing value")
    try:
        if isinstance(data, np.ndarray) or scipy.sparse.issparse(data):
            matrix = data
        elif is_frame(data):
            matrix = matrix_of(data)
        else:
            matrix = np.asarray(data)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"X is not a matrix: {error}; give rows of equal length") from error
    _check_shape(data, matrix.shape)
    if matrix.dtype == object:
        try:
            matrix = matrix.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"X holds objects that are not all numbers: {error}") from error
    _check_numbers(MATRIX, matrix.dtype)
    return np.asarray(matrix) if isinstance(matrix, np.ndarray) else matrix


def as_csr(matrix):
    """A sparse matrix or array as CSR. What is stored of a cell in several places adds up as numbers do: scipy adds those of
    COO in the matrix's own type, where 200 and 100 may come to 44. Zeros of BSR are not stored ones: they pad its blocks."""
    if matrix.format == "coo" and matrix.dtype.kind in "biu":
        matrix = matrix.astype(np.float64)
    csr = matrix.tocsr()
    if matrix.format == "bsr":
        csr.eliminate_zeros()
    return csr


def _check_shape(data, shape):
    """Raises DataError unless the shape has rows and columns."""
    if len(shape) == 0:
        raise DataError(f"X is a {type(data).__name__}: give a matrix, a data frame, or the path of a file")
    if len(shape) != 2:
        hint = "one row is X.reshape(1, -1), one column X.reshape(-1, 1)" if len(shape) == 1 else "reshape it"
        raise DataError(f"X has {len(shape)} dimensions, 2 are needed (rows and columns): {hint}")


def _check_numbers(name, dtype):
    """Raises DataError unless values of `dtype` are real numbers."""
    if dtype.kind not in "biuf":
        raise DataError(f"{name} holds values of type {dtype}: real numbers are needed")


def _checked_vector(what, given, name, n_rows):
    """float64 copy or view of labels or weights. Raises DataError, which names the row."""
    if isinstance(given, np.ma.MaskedArray):
        raise DataError(f"{what} are a masked array: leave the rows out for which there are none")
    try:
        given = np.asarray(given)
        if given.dtype.kind in "cmM":  # numpy would make numbers of them
            raise ValueError(f"{given.dtype} values")
        if given.ndim == 2 and given.shape[1] == 1:
            given = given[:, 0]
        vector = np.ascontiguousarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} are not numbers: {error}; map them to numbers first") from error
    if given.ndim != 1:
        raise DataError(f"{what} have {given.ndim} dimensions, 1 is needed: one number per row of {name}")
    if len(vector) != n_rows:
        raise DataError(f"{what} has {len(vector)} entries, {name} has {n_rows} rows: give one per row")
    wrong = np.flatnonzero(~np.isfinite(vector))
    if len(wrong):
        raise DataError(f"{what}[{wrong[0]}] is {vector[wrong[0]]}: {what} must be finite; leave the row out")
    return vector


def _float32(values):
    """`values` as a C-contiguous, aligned float32 array; what is too large becomes infinite."""
    with np.errstate(over="ignore", under="ignore"):
        return np.require(values, np.float32, ["C", "A"])
