"""Knows rows, columns and the distinct values of a column; does not know bins, sketches or feature names."""

import numpy as np

from psboost.kernels.ascending import first_from
from psboost.kernels.cells import does_count
from psboost.kernels.compile import IN, OUT, boolean, float32, float64, inline, int32, int64, kernel, types, uint64, void
from psboost.kernels.fills import fill
from psboost.kernels.prefetch import place_ahead, prefetch

_LONG = 256  # values: so many are sorted in less time than they are looked up
_1 = uint64(1)
_ROWS_AT_ONCE = 256  # of a matrix: their lines stay in the cache until all columns have theirs
_MATRICES = [types.Array(cell, 2, "A", readonly=True) for cell in (float32, float64)]
_NEW = 64  # distinct values among the first 2 * _NEW: most others will be new, too


@kernel(void(IN[int32], OUT[int32]))
def count_occurrences(numbers, counts):
    """Adds to counts[k] how often k is among the numbers, which are of features, or of rows."""
    for number in numbers:
        counts[uint64(number)] += 1


@kernel(
    [
        boolean(IN[int64], IN[int32], IN[float32], boolean, boolean, int64, OUT[cursor], OUT[int32], OUT[float32])
        for cursor in (int32, int64)
    ]
)
def scatter_columns(indptr, features, values, keep_zeros, keep_nan, first_row, cursors, rows, column_values):
    """Adds CSR rows, the first of which is first_row, to columns; column f goes on at cursors[f]. False: no room is left.

    Cells of negative features are left out, and those that do not count (kernels.cells). -0.0 becomes 0.0. Rows are visited
    in order, so they ascend within each column. Whether a column ran into the next one is for the caller to see by the
    cursors: to look up here where each ends would take a fifth longer.
    """
    n_room = uint64(len(rows))
    for row in range(len(indptr) - 1):
        for i in range(uint64(indptr[row]), uint64(indptr[row + 1])):
            place = place_ahead(features, i, cursors)
            prefetch(rows, place)
            prefetch(column_values, place)
            feature, value = features[i], values[i]
            if feature < 0 or not does_count(value, keep_zeros, keep_nan):
                continue
            at = uint64(cursors[uint64(feature)])
            cursors[uint64(feature)] = at + _1
            if at >= n_room:
                return False
            rows[at] = first_row + row
            column_values[at] = value + float32(0)
    return True


@kernel(
    [
        boolean(IN[int64], IN[int32], IN[float32], float32, int64, OUT[cursor], OUT[int32])
        for cursor in (int32, int64)
    ]
)
def scatter_rows(indptr, features, values, value, first_row, cursors, rows):
    """scatter_columns where each value is `value`, which counts and is not written down. False also for another one."""
    n_room = uint64(len(rows))
    for row in range(len(indptr) - 1):
        for i in range(uint64(indptr[row]), uint64(indptr[row + 1])):
            prefetch(rows, place_ahead(features, i, cursors))
            feature = features[i]
            if feature < 0:
                continue
            at = uint64(cursors[uint64(feature)])
            cursors[uint64(feature)] = at + _1
            if at >= n_room or values[i] != value:
                return False
            rows[at] = first_row + row
    return True


@kernel([int64(matrix, IN[int64]) for matrix in _MATRICES])
def count_nonzero(matrix, columns):
    """How many cells of these columns of a matrix are not 0 as float32; NaN are among them."""
    n = 0
    for row in range(len(matrix)):
        for column in columns:
            n += float32(matrix[row, column]) != 0
    return n


@kernel(
    [
        void(matrix, IN[int64], int64, boolean, boolean, OUT[int64], OUT[int32], OUT[float32])
        for matrix in _MATRICES
    ]
)
def append_cells(matrix, columns, first_row, keep_zeros, keep_nan, ends, rows, values):
    """Appends dense rows, the first of which is first_row, to columns: to column f, which ends at ends[f], columns[f] of the
    matrix. Some rows at once: all that is wanted of a line of memory, while it is near.

    Which cells are stored: `keep_zeros` and `keep_nan` say whether zeros and NaN are, all others are. -0.0 becomes 0.0.
    """
    for begin in range(0, len(matrix), _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, len(matrix))
        for f in range(len(columns)):
            at, column = uint64(ends[f]), columns[f]
            for row in range(begin, end):
                value = float32(matrix[row, column])
                # Written in any case, without a branch to guess, and moved on from if it is stored.
                rows[at] = first_row + row
                values[at] = value + float32(0)
                at += uint64(does_count(value, keep_zeros, keep_nan))
            ends[f] = at


@kernel(void(IN[int64], IN[int64], OUT[int32], OUT[float32]))
def close_gaps(begins, offsets, rows, values):
    """Moves column f, which begins at begins[f], to offsets[f], which is not behind that."""
    for f in range(len(offsets) - 1):
        begin = begins[f]
        for k in range(offsets[f], offsets[f + 1]):
            rows[k] = rows[begin]
            values[k] = values[begin]
            begin += 1


@kernel(void(IN[int64], IN[int32], IN[float32], int64, OUT[int64], OUT[int32], OUT[float32]))
def append_columns(offsets, rows, values, first_row, cursors, out_rows, out_values):
    """Copies each column f to cursors[f], its rows counted from first_row, and moves cursors[f] behind it."""
    for f in range(len(offsets) - 1):
        at = cursors[f]
        for k in range(offsets[f], offsets[f + 1]):
            out_rows[at] = first_row + rows[k]
            out_values[at] = values[k]
            at += 1
        cursors[f] = at


@kernel(void(IN[int64], IN[int32], int64, OUT[int64]))
def prefix_ends(offsets, rows, n_count_rows, ends):
    """ends[f]: where those of column f's entries end whose rows are below n_count_rows (binary search)."""
    for f in range(len(offsets) - 1):
        ends[f] = first_from(n_count_rows, rows, offsets[f], offsets[f + 1])


@inline
def _sort(values, begin, end):
    """Sorts values[begin:end], a few thousand at most, in place (Shell; gaps by Knuth)."""
    gap = 1
    while 3 * gap + 1 < end - begin:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(begin + gap, end):
            value, at = values[i], i
            while at - gap >= begin and values[at - gap] > value:
                values[at] = values[at - gap]
                at -= gap
            values[at] = value
        gap //= 3


@kernel(void(IN[int64], IN[int64], IN[float32], int64, OUT[int64], OUT[float32], OUT[int64], OUT[int64]))
def find_runs(starts, ends, values, limit, run_offsets, run_values, run_counts, n_missing):
    """The distinct values of each column with their counts, for columns of at most `limit` distinct values.

    Column f is values[starts[f] : ends[f]]. Its runs are run_offsets[f] .. run_offsets[f+1], in ascending
    order; a column of more distinct values gets none, nor does a long one where half of the first values are new: the caller
    sorts it sooner than it is looked up here. NaN is counted in n_missing[f] alone. Room for runs:
    sum(min(length, limit)).

    Most columns hold one value; the others go through a hash table of bit patterns (-0.0 is never stored),
    which a column leaves as soon as it shows one value too many. `owner` tells whose entry a slot is, so that
    the table is not cleared between columns.
    """
    log_size = 4
    while (1 << log_size) < 2 * (limit + 1):
        log_size += 1
    mask = np.int64((1 << log_size) - 1)
    keys = np.empty(mask + 1, np.uint32)
    tallies = np.empty(mask + 1, np.int64)
    owner = np.empty(mask + 1, np.int64)
    fill(owner, -1)
    bits = values.view(np.uint32)
    run_bits = run_values.view(np.uint32)
    factor = np.uint64(2654435769)
    shift = np.uint64(32 - log_size)
    written = 0
    run_offsets[0] = 0
    for f in range(len(starts)):
        begin, end = starts[f], ends[f]
        while begin < end and np.isnan(values[begin]):
            begin += 1
        missing = begin - starts[f]
        i = begin
        while i < end and bits[i] == bits[begin]:
            i += 1
        if i == end:
            if begin < end:
                run_values[written] = values[begin]
                run_counts[written] = end - begin
                written += 1
        else:
            n_distinct = 0
            for i in range(begin, end):
                if np.isnan(values[i]):
                    missing += 1
                    continue
                slot = np.int64((np.uint64(bits[i]) * factor) >> shift) & mask
                while owner[slot] == f and keys[slot] != bits[i]:
                    slot = (slot + 1) & mask
                if owner[slot] != f:
                    if n_distinct == limit or (n_distinct == _NEW and end - begin >= _LONG and i - begin < 2 * _NEW):
                        n_distinct = -1
                        break
                    run_bits[written + n_distinct] = bits[i]
                    n_distinct += 1
                    owner[slot] = f
                    keys[slot] = bits[i]
                    tallies[slot] = 0
                tallies[slot] += 1
            if n_distinct < 0:
                missing = 0
                for i in range(starts[f], end):
                    missing += np.isnan(values[i])
            else:
                _sort(run_values, written, written + n_distinct)
                for run in range(written, written + n_distinct):
                    slot = np.int64((np.uint64(run_bits[run]) * factor) >> shift) & mask
                    while keys[slot] != run_bits[run] or owner[slot] != f:
                        slot = (slot + 1) & mask
                    run_counts[run] = tallies[slot]
                written += n_distinct
        n_missing[f] = missing
        run_offsets[f + 1] = written
