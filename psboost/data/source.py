"""Knows rows of stored values, wherever they come from, how to count and filter them; does not know bins.

A source is cut into spans. What a span is (a range of rows or of bytes) is the source's own business: spans
come from `spans` and `split` and go back into `count` and `read`, in any process that opened the same data.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from psboost.data import zeros
from psboost.data.columns import Columns, ColumnsBuilder, DenseColumns, to_columns
from psboost.errors import DataError, ParameterError
from psboost.kernels import cells as kernels

TABLE_COLUMNS = 1 << 22  # columns below are counted in a table, the others in a hash table
LOOKUP_COLUMNS = 1 << 26  # no lookup table is longer
MOST_PARTS = 8  # that are read side by side: each takes the memory of a table of columns

SideBySide = Callable[..., Iterable]  # a `map`, which may take several items at a time


@dataclass(frozen=True)
class Rows:
    """Rows of a source: CSR of stored values.

    indptr      int64 (n_rows + 1)
    features    int64: columns, zero-based; when read with `keep`, int32: positions in `keep`
    values      float32
    labels      float64 (n_rows), None when the source has none
    weights     float64 (n_rows) or None
    n_features  the declared width, or 1 + the largest column in what was parsed, kept or not
    bytes_read  from disk, for this call
    """

    indptr: np.ndarray
    features: np.ndarray
    values: np.ndarray
    labels: np.ndarray | None
    weights: np.ndarray | None
    n_features: int
    bytes_read: int

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1


@dataclass(frozen=True)
class Counts:
    """What a span stores.

    span          the span itself
    features      int64, ascending: the columns in which something is stored
    counts        int64: how many cells are
    n_values      the sum of counts; the other fields are as in Rows
    stores_zeros  whether a zero is stored, counted or not
    """

    span: tuple[int, int]
    features: np.ndarray
    counts: np.ndarray
    n_rows: int
    n_values: int
    n_features: int
    labels: np.ndarray | None
    weights: np.ndarray | None
    bytes_read: int
    stores_zeros: bool

    @staticmethod
    def join(parts: list["Counts"]) -> "Counts":
        """What spans that follow each other store together."""
        if len(parts) == 1:
            return parts[0]
        features, counts = sum_counts([part.features for part in parts], [part.counts for part in parts])
        return Counts(
            span=(parts[0].span[0], parts[-1].span[1]),
            features=features,
            counts=counts,
            n_rows=sum(part.n_rows for part in parts),
            n_values=sum(part.n_values for part in parts),
            n_features=max(part.n_features for part in parts),
            labels=_joined([part.labels for part in parts]),
            weights=_joined([part.weights for part in parts]),
            bytes_read=sum(part.bytes_read for part in parts),
            stores_zeros=any(part.stores_zeros for part in parts),
        )


def sum_counts(features: list[np.ndarray], counts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(features, counts): the sums of counts of features, int64, each ascending."""
    features, counts = np.concatenate(features), np.concatenate(counts)
    if len(features) == 0:
        return features, counts
    order = np.argsort(features, kind="stable")
    features, counts = features[order], counts[order]
    first = np.flatnonzero(np.concatenate([[True], features[1:] != features[:-1]]))
    return features[first], np.add.reduceat(counts, first)


@dataclass(frozen=True)
class Held:
    """Some rows, column by column.

    columns    of the columns that were asked for, in that order; the other fields are as in Rows
    """

    columns: Columns | DenseColumns
    labels: np.ndarray | None
    weights: np.ndarray | None
    bytes_read: int


@dataclass(frozen=True)
class Cells:
    """A piece of a span as a source hands it over, stored zeros and NaN still in it.

    indptr int64 (n_rows + 1), columns int32 or int64, values float32 (finite or NaN), labels and weights
    float64 (n_rows) or None; n_features and bytes_read of this piece alone.
    """

    indptr: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    labels: np.ndarray | None
    weights: np.ndarray | None
    n_features: int
    bytes_read: int


@dataclass(frozen=True)
class DenseCells:
    """A piece of a span that stores every cell: values float32 (n_rows, n_columns), finite or NaN, in any layout."""

    values: np.ndarray
    n_features: int


class Source(ABC):
    """Rows to learn from or to predict for.

    name             for messages: the file's path, or X
    has_labels       whether Rows.labels is there
    zero_as_missing  the rule for zeros (zeros.py): a stored 0 or NaN that is the same as a cell that is not stored
                     is neither counted nor read
    """

    name: str
    has_labels: bool
    zero_as_missing: zeros.Rule | None
    is_seekable = True  # whether a part of the rows is read in a part of the time

    @abstractmethod
    def _whole(self) -> tuple[int, int]:
        """The span of all rows."""

    @abstractmethod
    def split(self, span: tuple[int, int], n_parts: int) -> list[tuple[int, int]]:
        """n_parts half-open spans that together hold the rows of `span` once, balanced; some may be empty."""

    @abstractmethod
    def _cells(self, span: tuple[int, int]) -> Iterator[Cells]:
        """The rows of a span, piece by piece, in order; at least one piece. Raises DataError."""

    def _most_cells(self, span: tuple[int, int]) -> int:
        """How many cells a span stores at most; 0 if nobody knows before they are read."""
        return 0

    def pieces(self, span: tuple[int, int]) -> Iterator[Cells | DenseCells]:
        """The rows of `span` as they are stored, piece by piece, in order; at least one piece. Raises DataError."""
        return self._cells(span)

    @abstractmethod
    def place(self, span: tuple[int, int], row: int) -> str:
        """Where the row-th row of `span` stands, for error messages; may read the file."""

    def map_pieces(
        self, function: Callable[[Cells | DenseCells], Any], n_threads: int, side_by_side: SideBySide = map
    ) -> list:
        """function(piece) of the pieces of all rows, in order. Raises DataError.

        side_by_side  a `map` that takes n_threads parts of the rows at a time
        """
        spans = self.spans(n_threads if self.is_seekable else 1)
        parts = self._in_parts(lambda _, pieces: [function(piece) for piece in pieces], spans, side_by_side, self.pieces)
        return sum(parts, [])

    def spans(self, n_parts: int) -> list[tuple[int, int]]:
        """n_parts half-open spans that together hold all rows once, balanced by stored values or bytes."""
        return self.split(self._whole(), n_parts)

    def with_rule(self, zero_as_missing: zeros.Rule) -> "Source":
        """The same data, read by this rule."""
        other = copy(self)
        other.zero_as_missing = zero_as_missing
        return other

    def count(self, span: tuple[int, int]) -> Counts:
        """How often each column is stored in `span`, and its labels. Raises DataError."""
        return self._count(span, self._cells(span))

    def count_in_parts(self, span: tuple[int, int], n_threads: int, side_by_side: SideBySide = map) -> list[Counts]:
        """The same in parts that follow each other; `side_by_side` is a `map` that takes n_threads of them at a time."""
        spans = self._parts_of(span, n_threads)
        return self._in_parts(lambda i, pieces: self._count(spans[i], pieces), spans, side_by_side)

    def _parts_of(self, span: tuple[int, int], n_threads: int) -> list[tuple[int, int]]:
        """A span for each thread, as far as that saves time."""
        return self.split(span, min(n_threads, MOST_PARTS) if self.is_seekable else 1)

    def _in_parts(self, function: Callable[[int, Iterator], Any], spans: list, side_by_side: SideBySide, read=None) -> list:
        """function(i, pieces of the i-th span) of each span, as `read` gives them, by default `_cells`. If one raises, the
        others end with their pieces at hand."""
        stopped = Event()

        def work(i: int, span: tuple[int, int]):
            try:
                return function(i, takewhile(lambda _: not stopped.is_set(), (read or self._cells)(span)))
            except BaseException:
                if stopped.is_set():  # it had to do without its pieces
                    return None
                stopped.set()
                raise

        try:
            return list(side_by_side(work, range(len(spans)), spans))
        except BaseException:  # while it waited for the others
            stopped.set()
            raise

    def _count(self, span: tuple[int, int], pieces_of_span: Iterator[Cells]) -> Counts:
        counter = _Counter(self.zero_as_missing)
        pieces = []
        stores_zeros = False
        for cells in pieces_of_span:
            counter.add(cells)
            stores_zeros = stores_zeros or bool((cells.values == 0).any())
            pieces.append(_without_values(cells))
        features, counts = counter.result()
        return Counts(
            span=span,
            features=features,
            counts=counts,
            n_rows=sum(len(piece.indptr) - 1 for piece in pieces),
            n_values=int(counts.sum()),
            n_features=max(piece.n_features for piece in pieces),
            labels=_joined([piece.labels for piece in pieces]),
            weights=_joined([piece.weights for piece in pieces]),
            bytes_read=sum(piece.bytes_read for piece in pieces),
            stores_zeros=stores_zeros,
        )

    def read(self, span: tuple[int, int], keep: np.ndarray | None = None) -> Rows:
        """The rows of `span`; with `keep` only these columns, renumbered. Raises DataError.

        keep  int64, distinct columns in the caller's order
        """
        return self._read(span, self._cells(span), None if keep is None else _Lookup(keep))

    def _read(self, span: tuple[int, int], pieces_of_span: Iterator[Cells], lookup: "_Lookup | None") -> Rows:
        n_expected = self._most_cells(span)
        columns = _Growing(np.int64 if lookup is None else np.int32, n_expected)
        values = _Growing(np.float32, n_expected)
        indptrs = [np.zeros(1, np.int64)]
        pieces = []
        for cells in pieces_of_span:
            n_cells, before = len(cells.values), values.n
            found = (
                cells.columns.astype(np.int64, copy=False) if lookup is None else lookup.locate(cells.columns)
            )
            indptr = np.empty_like(cells.indptr)
            n = kernels.compact(
                cells.indptr,
                found,
                cells.values,
                zeros.keeps_zeros(self.zero_as_missing),
                zeros.keeps_nan(self.zero_as_missing),
                indptr,
                columns.room(n_cells),
                values.room(n_cells),
            )
            columns.n += n
            values.n += n
            indptrs.append(indptr[1:] + before)
            pieces.append(_without_values(cells))
        return Rows(
            indptr=_joined(indptrs),
            features=columns.taken(),
            values=values.taken(),
            labels=_joined([piece.labels for piece in pieces]),
            weights=_joined([piece.weights for piece in pieces]),
            n_features=max(piece.n_features for piece in pieces),
            bytes_read=sum(piece.bytes_read for piece in pieces),
        )

    def read_columns(
        self, span: tuple[int, int], keep: np.ndarray, n_threads: int = 1, side_by_side: SideBySide = map
    ) -> Held:
        """The rows of `span`, column by column; only the columns `keep`, as in `read`. Raises DataError.

        side_by_side  a `map` that takes n_threads parts of it at a time
        """
        lookup, spans = _Lookup(keep), self._parts_of(span, n_threads)
        parts = self._in_parts(lambda i, pieces: self._read(spans[i], pieces, lookup), spans, side_by_side)
        return Held(
            columns=to_columns([(part.indptr, part.features, part.values) for part in parts], len(keep), side_by_side),
            labels=_joined([part.labels for part in parts]),
            weights=_joined([part.weights for part in parts]),
            bytes_read=sum(part.bytes_read for part in parts),
        )

    def read_counted(self, counted: list[Counts], keep: np.ndarray, side_by_side: SideBySide = map) -> Held:
        """The same of parts that were counted, side by side (count_in_parts): each cell goes to its column as it is read,
        where `read_columns` holds all by row before, which takes twice the memory. DataError if they have changed."""
        lookup = _Lookup(keep)
        counts = np.zeros((len(counted), len(keep)), np.int64)
        for part, of_part in zip(counted, counts, strict=True):
            positions = lookup.locate(part.features)
            of_part[positions[positions >= 0]] = part.counts[positions >= 0]
        builder = ColumnsBuilder(self.name, counts, [part.n_rows for part in counted])
        rules = zeros.keeps_zeros(self.zero_as_missing), zeros.keeps_nan(self.zero_as_missing)

        def add(i: int, pieces: Iterator[Cells]) -> list[Cells]:
            added = []
            for cells in pieces:
                builder.add(i, cells.indptr, lookup.locate(cells.columns), cells.values, *rules)
                added.append(_without_values(cells))
            return added

        pieces = sum(self._in_parts(add, [part.span for part in counted], side_by_side), [])
        return Held(
            columns=builder.columns(),
            labels=_joined([piece.labels for piece in pieces]),
            weights=_joined([piece.weights for piece in pieces]),
            bytes_read=sum(piece.bytes_read for piece in pieces),
        )


def open_source(
    data,
    labels=None,
    *,
    weights=None,
    index_base: int = 1,
    n_features: int | None = None,
    zero_as_missing: zeros.Rule | None = None,
) -> Source:
    """The source for a matrix, or for the file at a path. Raises DataError, ParameterError.

    data             2-d array, scipy sparse matrix or array, what np.asarray makes one of, or a path:
                     .npz as scipy.sparse.save_npz writes it, or with indptr, indices, data and shape, both
                     with y and weights if they are there; any other is svmlight text (.gz, .bz2: packed)
    labels, weights  (n_rows); not for a file that has its own
    index_base       the number of an svmlight file's first column, 0 or 1
    n_features       the declared width; by default the matrix's own, or what turns up in the text
    zero_as_missing  the rule for zeros (zeros.py); by default False for dense matrices, and for sparse ones and
                     files None, to be decided by what is stored (Source.with_rule)
    """
    from psboost.data.matrix import open_matrix, open_npz
    from psboost.data.svmlight import SvmlightSource

    if index_base not in (0, 1):
        raise ParameterError(f"index_base is {index_base!r}: it must be 0 or 1")
    if n_features is not None and not 0 <= int(n_features) <= 2**63 - 1:
        raise ParameterError(f"n_features is {n_features!r}: it must be between 0 and 2^63 - 1")
    zero_as_missing = zeros.checked(zero_as_missing)
    if not isinstance(data, (str, Path)):
        return open_matrix(data, labels, weights, n_features, zero_as_missing)
    path = Path(data)
    if not path.exists():
        raise DataError(f"{data}: no such file; check the path")
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "is not a regular file"
        raise DataError(f"{data}: {what}; name a file of svmlight text or an .npz")
    if path.suffix == ".npz":
        return open_npz(str(data), labels, weights, n_features, zero_as_missing)
    for what, given in (("labels", labels), ("weights", weights)):
        if given is not None:
            raise DataError(
                f"{data}: {what} were given beside an svmlight file, which has its labels and no room "
                f"for weights; leave them out, or save the data as .npz with y and weights"
            )
    return SvmlightSource(str(data), index_base, n_features, zero_as_missing)


def check_parts(n_parts: int) -> None:
    """Raises ParameterError unless n_parts is 1 or more."""
    if n_parts < 1:
        raise ParameterError(f"n_parts is {n_parts}: it must be 1 or more")


def _joined(arrays):
    """One array of several, None if they are None; does not copy a single one."""
    return arrays[0] if len(arrays) == 1 or arrays[0] is None else np.concatenate(arrays)


def _without_values(cells: Cells) -> Cells:
    """`cells` without its values, so that a piece's memory is free before the next one is read."""
    nothing = np.empty(0, np.float32)
    return Cells(
        cells.indptr, nothing, nothing, cells.labels, cells.weights, cells.n_features, cells.bytes_read
    )


class _Growing:
    """A 1-d array that grows at its end, in place where the system can: `n` of its entries are taken.

    Room for n_expected is there from the start: the system gives it in larger pages than what is added, and what nobody
    writes to takes no memory.
    """

    def __init__(self, dtype, n_expected: int):
        self._array = np.empty(n_expected, dtype)
        self.n = 0

    def room(self, n_entries):
        """The next n_entries, to be written at once: they may move when there has to be more room."""
        if self.n + n_entries > len(self._array):
            # No view outlives the call it was made for, so numpy need not look for any.
            self._array.resize(max(self.n + n_entries, len(self._array) // 4 * 5), refcheck=False)
        return self._array[self.n : self.n + n_entries]

    def taken(self):
        """The array, cut to what is taken."""
        self._array.resize(self.n, refcheck=False)
        return self._array


class _Lookup:
    """Position of a column in `keep`, by a table, or by a hash table if keep's columns lie far apart."""

    def __init__(self, keep):
        keep = np.ascontiguousarray(keep, np.int64)
        longest = min(LOOKUP_COLUMNS, max(1 << 16, 16 * len(keep)))
        positions = np.arange(len(keep), dtype=np.int32)
        n_columns = int(keep.max(initial=-1)) + 1
        self._table = self._keys = None
        if n_columns <= longest:
            self._table = np.full(n_columns, -1, np.int32)
            self._table[keep] = positions
        else:
            self._keys, self._positions = _empty_hash(len(keep), np.int32)
            kernels.fill_hash(keep, positions, self._keys, self._positions)

    def locate(self, columns):
        """int32 positions of `columns` in keep, -1 for those that are not in it."""
        out = np.empty(len(columns), np.int32)
        if self._table is not None:
            kernels.locate_by_table(columns, self._table, out)
        else:
            kernels.locate_by_hash(columns, self._keys, self._positions, out)
        return out


class _Counter:
    """Counts the stored cells of each column: low columns in a table, high ones in a hash table."""

    def __init__(self, zero_as_missing):
        self._kept = zeros.keeps_zeros(zero_as_missing), zeros.keeps_nan(zero_as_missing)
        self._table = np.zeros(0, np.uint32)  # no column has more rows than that
        self._keys, self._counts = _empty_hash(0, np.int64)
        self._n_keys = 0

    def add(self, cells: Cells) -> None:
        columns, values = cells.columns, cells.values
        n_columns = int(columns.max(initial=-1)) + 1
        n_low = min(n_columns, TABLE_COLUMNS)
        if n_low > len(self._table):
            longer = min(TABLE_COLUMNS, max(n_low, 2 * len(self._table)))
            self._table = np.concatenate([self._table, np.zeros(longer - len(self._table), self._table.dtype)])
        kernels.count_by_table(columns, values, *self._kept, self._table)
        at = 0 if n_columns > TABLE_COLUMNS else len(columns)
        while at < len(columns):
            table = (self._n_keys, self._keys, self._counts)
            at, self._n_keys = kernels.count_by_hash(columns, values, *self._kept, TABLE_COLUMNS, at, *table)
            if at < len(columns):
                keys, counts = self._keys, self._counts
                self._keys, self._counts = _empty_hash(len(keys), np.int64)
                kernels.fill_hash(keys, counts, self._keys, self._counts)

    def result(self):
        """(features, counts): the columns that are stored, ascending, and how often."""
        low = np.flatnonzero(self._table)
        high = np.flatnonzero(self._keys >= 0)
        high = high[np.argsort(self._keys[high])]
        features = np.concatenate([low, self._keys[high]])
        return features, np.concatenate([self._table[low].astype(np.int64), self._counts[high]])


def _empty_hash(n_keys, dtype):
    """(keys, payloads) of an empty hash table that n_keys fill to less than a half."""
    n_slots = 1 << (2 * max(n_keys, 8) - 1).bit_length()
    return np.full(n_slots, -1, np.int64), np.zeros(n_slots, dtype)
