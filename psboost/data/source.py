"""Knows how rows are counted, filtered and read side by side, wherever they come from; does not know bins.

A source is cut into spans. What a span is (a range of rows or of bytes) is the source's own business: spans
come from `spans` and `split` and go back into `count` and `read`, in any process that opened the same data.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from itertools import pairwise, takewhile
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from psboost.data import zeros
from psboost.data.bundles import Bundles
from psboost.data.column_tables import ColumnCounter, ColumnLookup
from psboost.data.columns import ColumnsBuilder, OnlyValue, to_columns
from psboost.data.rows import Cells, Counts, DenseCells, Held, Rows, joined, rest_of
from psboost.errors import DataError, ParameterError
from psboost.kernels import cells as kernels
from psboost.settings import MAX_FEATURES

MOST_PARTS = 8  # that are read side by side: each takes the memory of a table of columns

PATHS = str, os.PathLike
TRAINING, EVALUATION, PREDICTION = "training", "evaluation", "prediction"  # what rows are for
_OF_OTHERS = {".npy", ".parquet", ".feather", ".xz", ".zst", ".zip"}  # no svmlight text has a name that ends so

SideBySide = Callable[..., Iterable]  # a `map`, which may take several items at a time


class Source(ABC):
    """Rows to learn from or to predict for.

    name             for messages: the file's path, or X
    zero_as_missing  the rule for zeros (zeros.py): a stored 0 or NaN that is the same as a cell that is not stored
                     is neither counted nor read
    """

    name: str
    zero_as_missing: zeros.Rule | None
    is_seekable = True  # whether a part of the rows is read in a part of the time
    width: int | None = None  # how many columns there are, where the data themselves say so
    feature_names: tuple[str, ...] | None = None  # a data frame's

    @property
    @abstractmethod
    def size(self) -> int:
        """Rows or bytes that there are: all are in the span 0 .. size."""

    def split(self, span: tuple[int, int], n_parts: int) -> list[tuple[int, int]]:
        """n_parts half-open spans that together hold the rows of `span` once, balanced; some may be empty."""
        check_parts(n_parts)
        begin, end = span
        borders = [begin + (end - begin) * part // n_parts for part in range(n_parts + 1)]
        return list(pairwise(borders))

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
        return self.split((0, self.size), n_parts)

    def other_width(self, n_features: int, n_found: int = 0) -> int | None:
        """How many columns there are, if that is not n_features; None if it is. Text, in which n_found columns were found,
        may have fewer."""
        if self.width is None:
            return n_found if n_found > n_features else None
        return None if self.width == n_features else self.width

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
        """function(i, pieces of the i-th span) of each span, as `read` gives them, by default `_cells`. If one raises, those
        behind it end with their pieces at hand; what the first of all that do raises is raised."""
        raised: list[Exception | None] = [None] * len(spans)
        stopped = Event()

        def goes_on(i: int) -> bool:
            return not stopped.is_set() and not any(raised[:i])

        def work(i: int, span: tuple[int, int]):
            try:
                return function(i, takewhile(lambda _: goes_on(i), (read or self._cells)(span)))
            except Exception as error:  # also of who had to do without its pieces
                raised[i] = error
            except BaseException:
                stopped.set()
                raise

        try:
            results = list(side_by_side(work, range(len(spans)), spans))
        except BaseException:  # while it waited for the others
            stopped.set()
            raise
        if first := next(filter(None, raised), None):
            raise first
        return results

    def _count(self, span: tuple[int, int], pieces_of_span: Iterator[Cells]) -> Counts:
        counter, bundles, only = ColumnCounter(self.zero_as_missing), Bundles(), OnlyValue()
        pieces = []
        stores_zeros = False
        for cells in pieces_of_span:
            counter.add(cells.columns, cells.values)
            bundles.add(cells.indptr, cells.columns)
            only.add(cells.values)
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
            **rest_of(pieces),
            stores_zeros=stores_zeros,
            borders=bundles.borders,
            value=only.value,
        )

    def read(self, span: tuple[int, int], keep: np.ndarray | None = None) -> Rows:
        """The rows of `span`; with `keep` only these columns, renumbered. Raises DataError.

        keep  int64, distinct columns in the caller's order
        """
        return self._read(span, self._cells(span), None if keep is None else ColumnLookup(keep))

    def _read(self, span: tuple[int, int], pieces_of_span: Iterator[Cells], lookup: ColumnLookup | None) -> Rows:
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
            indptr=joined(indptrs),
            features=columns.taken(),
            values=values.taken(),
            n_features=max(piece.n_features for piece in pieces),
            **rest_of(pieces),
        )

    def read_columns(
        self, span: tuple[int, int], keep: np.ndarray, n_threads: int = 1, side_by_side: SideBySide = map
    ) -> Held:
        """The rows of `span`, column by column; only the columns `keep`, as in `read`. Raises DataError.

        side_by_side  a `map` that takes n_threads parts of it at a time
        """
        lookup, spans = ColumnLookup(keep), self._parts_of(span, n_threads)
        parts = self._in_parts(lambda i, pieces: self._read(spans[i], pieces, lookup), spans, side_by_side)
        return Held(
            columns=to_columns([(part.indptr, part.features, part.values) for part in parts], len(keep), side_by_side),
            **rest_of(parts),
        )

    def read_counted(self, counted: list[Counts], keep: np.ndarray, side_by_side: SideBySide = map) -> Held:
        """The same of parts that were counted, side by side (count_in_parts): each cell goes to its column as it is read,
        where `read_columns` holds all by row before, which takes twice the memory. DataError if they have changed."""
        lookup = ColumnLookup(keep)
        counts = np.zeros((len(counted), len(keep)), np.int64)
        for part, of_part in zip(counted, counts, strict=True):
            positions = lookup.locate(part.features)
            is_kept = positions >= 0
            of_part[positions[is_kept]] = part.counts[is_kept]
        values = {part.value for part in counted}
        value = values.pop() if len(values) == 1 else None
        builder = ColumnsBuilder(self.name, counts, [part.n_rows for part in counted], value)
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
            **rest_of(pieces),
        )


def open_source(
    data,
    labels=None,
    *,
    weights=None,
    index_base: int = 1,
    n_features: int | None = None,
    zero_as_missing: zeros.Rule | None = None,
    purpose: str = TRAINING,
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
    purpose          what the rows are for. An .npz with weights is refused for EVALUATION, where nobody would read them;
                     for PREDICTION, what it has beside the matrix is left where it is
    """
    from psboost.data.matrix import open_matrix
    from psboost.data.npz import open_npz
    from psboost.data.svmlight import SvmlightSource

    if index_base not in (0, 1):
        raise ParameterError(f"index_base is {index_base!r}: it must be 0 or 1")
    if n_features is not None and not 0 <= int(n_features) <= MAX_FEATURES:
        raise ParameterError(f"n_features is {n_features!r}: it must be between 0 and 2^63 - 1")
    zero_as_missing = zeros.checked(zero_as_missing)
    if not isinstance(data, PATHS):
        return open_matrix(data, labels, weights, n_features, zero_as_missing)
    path, name = Path(data), os.fspath(data)
    check_data_file(data)
    if path.suffix == ".npz":
        return open_npz(name, labels, weights, n_features, zero_as_missing, purpose)
    for what, given in (("labels", labels), ("weights", weights)):
        if given is not None:
            raise DataError(
                f"{name}: {what} were given beside an svmlight file, which has its labels and no room "
                f"for weights; leave them out, or save the data as .npz with y and weights"
            )
    return SvmlightSource(name, index_base, n_features, zero_as_missing)


def check_file(path: str | os.PathLike[str], what: str = "a file") -> None:
    """DataError if there is no file, which is to be `what`."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file; check the path")
    if not path.is_file():
        found = "is a directory" if path.is_dir() else "is not a regular file"
        raise DataError(f"{path}: {found}; name {what}")


def check_data_file(path: str | os.PathLike[str]) -> None:
    """DataError if there is no file, or one that open_source does not read."""
    check_file(path, "a file of svmlight text or an .npz")
    if Path(path).suffix in _OF_OTHERS:
        raise DataError(
            f"{path}: files of this kind are not read: give svmlight text (also .gz and .bz2), an .npz, or the matrix itself"
        )


def check_as_wide(source: Source, training: Source, n_found: int = 0) -> None:
    """DataError if evaluation data have another width than the training data, as far as both say so (other_width)."""
    if training.width is not None and (n_columns := source.other_width(training.width, n_found)) is not None:
        raise DataError(
            f"{source.name} has {n_columns} features, {training.name} has {training.width}: give the same columns in both"
        )


def check_parts(n_parts: int) -> None:
    """Raises ParameterError unless n_parts is 1 or more."""
    if n_parts < 1:
        raise ParameterError(f"n_parts is {n_parts}: it must be 1 or more")


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
