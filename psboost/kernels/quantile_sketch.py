"""Knows XGBoost's weighted quantile sketch of columns in the order of their rows; does not know bins or messages.

As its versions up to 3.2 have it (Chen and Guestrin 2016, appendix A; src/common/quantile.h: WQuantileSketch), to the entry,
so that cut points are XGBoost's own. Values wait in a queue. Once it is full they become a summary of half as many entries,
which goes up the levels as a 1 does that is added to a binary number: where one stands already, both become one, of as many
entries, a level higher.

    rows        3 1 4 1 5 9 2 6 | 5 3 5 8 9 7 9 3 | 2 3 ...
    level 1     1 3 5 9   ----+
    level 2                   +-> 1 3 7 9           (of 16 rows)

A summary is values, float32, ascending, and their masses, int64 (n, 3): WEIGHT, BEFORE and AFTER of each (data.weighted).
Where what is not stored is 0, zeros take their turn in the order of the rows, those of rows side by side together.
"""

import numpy as np

from psboost.kernels.binning import pick_even
from psboost.kernels.compile import IN, IN2, OUT, OUT2, float32, float64, inline, int32, int64, kernel, uint32, uint64, void
from psboost.kernels.sorted_columns import are_of_one_value, bits_of, longest_of, pair_of, row_of, sort_pairs

WEIGHT, BEFORE, AFTER = range(3)
_0, _1 = uint64(0), uint64(1)


@inline
def limits(n_values, max_bin, per_bin):
    """How many levels a column of so many values takes at most, and how many entries each has: XGBoost's LimitSizeLevel."""
    eps, n_levels = 1.0 / float64(max(int64(1), min(n_values, max_bin)) * per_bin), int64(1)
    while True:
        limit = min(n_values, int64(np.ceil(n_levels / eps)) + 1)
        if limit << n_levels >= n_values:
            return n_levels, limit
        n_levels += 1


@inline
def _copy_entry(values, masses, i, at, to_values, to_masses):
    to_values[at] = values[i]
    for k in range(3):
        to_masses[at, k] = masses[i, k]


@kernel(int64(IN[float32], IN2[int64], int64, int64, OUT2[int64], OUT[int64], OUT[float32], OUT2[int64]))
def keep_even(values, masses, n, most, ranks, picks, to_values, to_masses):
    """Copies at most `most` of n entries, evenly by rank, the first and the last among them (SetPrune); returns how many.

    ranks, picks  to work in: (2, n) and `most`  # OUT
    """
    if n <= most:
        for i in range(uint64(n)):
            _copy_entry(values, masses, i, i, to_values, to_masses)
        return n
    least, greatest, weights = ranks[0], ranks[1], masses[:, WEIGHT]
    below, up_to = int64(0), int64(0)
    for i in range(uint64(n)):
        below += masses[i, BEFORE]
        up_to += weights[i]
        least[i], greatest[i] = below, up_to
        below += weights[i]
        up_to += masses[i, AFTER]
    n_picked = pick_even(least, greatest, weights, n, most, picks)
    below, up_to = int64(0), int64(0)  # what is known behind the entry before
    for k in range(uint64(n_picked)):
        pick = uint64(picks[k])
        to_values[k] = values[pick]
        to_masses[k, WEIGHT], to_masses[k, BEFORE], to_masses[k, AFTER] = weights[pick], least[pick] - below, 0
        if k > _0:
            to_masses[k - _1, AFTER] = greatest[pick] - weights[pick] - up_to
        below, up_to = least[pick] + weights[pick], greatest[pick]
    return int64(n_picked)


@kernel(int64(IN[float32], IN2[int64], int64, IN[float32], IN2[int64], int64, OUT[float32], OUT2[int64]))
def combine(values, masses, n, other_values, other_masses, n_other, to_values, to_masses):
    """What two summaries say together (SetCombine), which adds up; returns how many entries."""
    i, j, at, end, other_end = _0, _0, _0, uint64(n), uint64(n_other)
    while i < end and j < other_end:
        if values[i] < other_values[j]:
            _copy_entry(values, masses, i, at, to_values, to_masses)
            i += _1
        elif other_values[j] < values[i]:
            _copy_entry(other_values, other_masses, j, at, to_values, to_masses)
            j += _1
        else:
            to_values[at] = values[i]
            for k in range(3):
                to_masses[at, k] = masses[i, k] + other_masses[j, k]
            i += _1
            j += _1
        at += _1
    for left in range(i, end):
        _copy_entry(values, masses, left, at, to_values, to_masses)
        at += _1
    for left in range(j, other_end):
        _copy_entry(other_values, other_masses, left, at, to_values, to_masses)
        at += _1
    return int64(at)


@inline
def _weight_of(first, end, before):
    """What rows first .. end weigh: 1 each if there are no weights."""
    return before[end] - before[first] if len(before) > 0 else int64(end) - int64(first)


@inline
def _count_numbers(begin, end, rows, values, before):
    """How many entries are numbers, and what the others weigh."""
    n_numbers, of_nan = int64(0), int64(0)
    for i in range(begin, end):
        n_numbers += int64(not np.isnan(values[i]))
    if n_numbers < end - begin:
        for i in range(begin, end):
            of_nan += _weight_of(rows[i], rows[i] + 1, before) if np.isnan(values[i]) else int64(0)
    return n_numbers, of_nan


@inline
def _is_last(bits, n_waiting, pairs):
    """Whether the last of those that wait has this value."""
    return n_waiting > _0 and are_of_one_value(pairs[n_waiting - _1], pair_of(bits, _0))


@inline
def _fill_queue(at, row, end, n_rows, rows, values, before, size, pairs, waiting):
    """Puts values, from entry `at` and row `row` on, in a queue of that size: `pairs` of value and place (pair_of), and in
    `waiting` what they weigh. Equal ones side by side are one. Returns the entry and row to go on with, and how many wait.

    n_rows  as sketch_columns takes it
    """
    bits, n_waiting, i, zero = values.view(np.uint32), _0, uint64(at), uint32(0)
    while i < uint64(end) or row < n_rows:
        stored = int64(rows[i]) if i < uint64(end) else n_rows
        is_zero = row < stored and row < n_rows
        value, next_row = (zero, stored) if is_zero else (bits[i], stored + 1)
        weight = _weight_of(row if is_zero else stored, next_row, before)
        if weight > 0 and (is_zero or not np.isnan(values[i])):
            if _is_last(value, n_waiting, pairs):
                waiting[n_waiting - _1] += weight
            elif n_waiting == uint64(size):
                break
            else:
                pairs[n_waiting], waiting[n_waiting] = pair_of(value, n_waiting), weight
                n_waiting += _1
        i += uint64(not is_zero)
        row = next_row
    return int64(i), row, int64(n_waiting)


@inline
def _summarise(pairs, n_waiting, waiting, to_values, to_masses):
    """The exact summary of a queue in order; returns how many entries."""
    bits, n = to_values.view(np.uint32), _0
    for k in range(uint64(n_waiting)):
        weight = waiting[row_of(pairs[k])]
        if k > _0 and are_of_one_value(pairs[k], pairs[k - _1]):
            to_masses[n - _1, WEIGHT] += weight
            continue
        bits[n] = bits_of(pairs[k])
        to_masses[n, WEIGHT], to_masses[n, BEFORE], to_masses[n, AFTER] = weight, 0, 0
        n += _1
    return int64(n)


@inline
def _join(n, limit, level, new_values, new_masses, level_values, level_masses, lengths, ranks, picks):
    """Adds to n new entries, of which `limit` are kept, those of a level, which is empty then; returns how many there are.
    Level 0 is room to work in."""
    n = keep_even(new_values, new_masses, n, limit, ranks, picks, level_values[0], level_masses[0])
    n = combine(
        level_values[0], level_masses[0], n, level_values[level], level_masses[level], lengths[level], new_values, new_masses
    )
    lengths[level] = 0
    return n


@kernel(
    void(
        IN[int64], IN[int64], IN[int32], IN[float32], IN[int64], int64, int64, int64, OUT[int64], OUT[float32], OUT2[int64],
        OUT[int64],
    )
)  # fmt: skip
def sketch_columns(
    starts, ends, rows, values, before, n_rows, max_bin, per_bin, offsets, kept_values, kept_masses, missing
):
    """A summary of each column values[starts[f] : ends[f]], of at most max_bin * per_bin entries: an exact one of all values
    if there are no more of them.

    before   int64, what all rows before each one weigh, and what all weigh; none: 1 each. What only rows of weight 0 hold is
             left out
    n_rows   if what is not stored is 0, how many rows there are: a column that has numbers has these zeros too; else 0
    missing  the weight of each column's NaN  # OUT

    Column f's entries are offsets[f] .. offsets[f + 1]. Room for entries: sum(min(length + 1, max_bin * per_bin)).
    """
    most, written = max_bin * per_bin, int64(0)
    n_levels, limit = limits(max(longest_of(starts, ends), n_rows), max_bin, per_bin)
    size = 2 * limit
    pairs, other, counts = np.empty(size, np.uint64), np.empty(size, np.uint64), np.empty((4, 256), np.int64)
    waiting, ranks, picks = np.empty(size, np.int64), np.empty((2, size), np.int64), np.empty(max(limit, most), np.int64)
    new_values, new_masses = np.empty(size, np.float32), np.empty((size, 3), np.int64)
    level_values, level_masses = np.empty((n_levels + 2, limit), np.float32), np.empty((n_levels + 2, limit, 3), np.int64)
    lengths = np.zeros(n_levels + 2, np.int64)  # of levels: between columns, all are empty
    offsets[0] = 0
    for f in range(len(starts)):
        at, row, end = starts[f], int64(0), ends[f]
        n_numbers, missing[f] = _count_numbers(at, end, rows, values, before)
        end_row = n_rows if n_numbers > 0 else int64(0)
        _, limit = limits(n_numbers + max(int64(0), end_row - (end - at)), max_bin, per_bin)
        while True:
            at, row, n_waiting = _fill_queue(at, row, end, end_row, rows, values, before, 2 * limit, pairs, waiting)
            pairs, other = sort_pairs(n_waiting, pairs, other, counts)
            n, level = _summarise(pairs, n_waiting, waiting, new_values, new_masses), 1
            if at == end and row >= end_row:
                break
            while lengths[level] > 0:
                n = _join(n, limit, level, new_values, new_masses, level_values, level_masses, lengths, ranks, picks)
                level += int(n > limit)
            lengths[level] = keep_even(
                new_values, new_masses, n, limit, ranks, picks, level_values[level], level_masses[level]
            )
        for level in range(1, len(lengths)):
            if lengths[level] > 0:
                n = _join(n, limit, level, new_values, new_masses, level_values, level_masses, lengths, ranks, picks)
        n = keep_even(new_values, new_masses, n, limit, ranks, picks, level_values[0], level_masses[0])
        written += keep_even(
            level_values[0], level_masses[0], n, most, ranks, picks, kept_values[written:], kept_masses[written:]
        )
        offsets[f + 1] = written


_weigh = void(IN[int64], IN[int32], IN[float32], IN[int64], int64, OUT[int64], OUT[float32], OUT2[int64], OUT[int64])


@kernel(seldom=[_weigh])
def weigh_columns(column_offsets, rows, values, before, most, offsets, kept_values, kept_masses, missing):
    """A summary of each column that is in order of value, NaN last, of at most `most` entries, picked at once: column f is
    column_offsets[f] .. column_offsets[f + 1]. All else is as in sketch_columns, but that there are weights."""
    longest, written = longest_of(column_offsets[:-1], column_offsets[1:]), int64(0)
    pairs, waiting = np.empty(longest, np.uint64), np.empty(longest, np.int64)
    found, masses = np.empty(longest, np.float32), np.empty((longest, 3), np.int64)
    ranks, picks = np.empty((2, longest), np.int64), np.empty(most, np.int64)
    offsets[0] = 0
    for f in range(len(column_offsets) - 1):
        begin, end = column_offsets[f], column_offsets[f + 1]
        _, missing[f] = _count_numbers(begin, end, rows, values, before)
        _, _, n_waiting = _fill_queue(begin, 0, end, 0, rows, values, before, end - begin, pairs, waiting)
        n = _summarise(pairs, n_waiting, waiting, found, masses)
        written += keep_even(found, masses, n, most, ranks, picks, kept_values[written:], kept_masses[written:])
        offsets[f + 1] = written


@kernel(void(IN[int64], IN[float32], IN2[int64], int64, OUT[int64], OUT[float32], OUT2[int64]))
def prune(offsets, values, masses, most, out_offsets, out_values, out_masses):
    """At most `most` entries of each summary (keep_even)."""
    longest, written = longest_of(offsets[:-1], offsets[1:]), int64(0)
    ranks, picks = np.empty((2, longest), np.int64), np.empty(most, np.int64)
    out_offsets[0] = 0
    for f in range(len(offsets) - 1):
        begin, end = offsets[f], offsets[f + 1]
        written += keep_even(
            values[begin:end], masses[begin:end], end - begin, most, ranks, picks, out_values[written:], out_masses[written:]
        )
        out_offsets[f + 1] = written
