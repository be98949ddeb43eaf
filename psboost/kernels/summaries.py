"""Knows columns in order of value, and weighted summaries of them; does not know what the weights are."""

import numpy as np

from psboost.kernels.binning import exact_ranks, pick_even
from psboost.kernels.compile import IN, IN2, OUT, OUT2, float32, inline, int32, int64, kernel, uint32, void
from psboost.kernels.fills import copy, fill

_SIGN = np.uint32(0x80000000)
_ALL = np.uint32(0xFFFFFFFF)
_FEW = 64  # entries: so few are sorted by insertion in less time than the bytes of their keys are counted


@inline
def _longest(offsets):
    """Of columns that are offsets[f] .. offsets[f + 1]."""
    longest = int64(0)
    for f in range(len(offsets) - 1):
        longest = max(longest, offsets[f + 1] - offsets[f])
    return longest


@inline
def _key_of(bits):
    """A key that orders as the float32 of these bits does, NaN last."""
    if (bits & uint32(0x7FFFFFFF)) > uint32(0x7F800000):
        return _ALL
    return bits ^ (_ALL if bits & _SIGN else _SIGN)


@inline
def _bits_of(key):
    return key ^ (_SIGN if key & _SIGN else _ALL)


@inline
def _insert(keys, rows, n):
    """Sorts a few."""
    for i in range(1, n):
        key, row, at = keys[i], rows[i], i
        while at > 0 and keys[at - 1] > key:
            keys[at] = keys[at - 1]
            rows[at] = rows[at - 1]
            at -= 1
        keys[at] = key
        rows[at] = row


@inline
def _sort_by_byte(shift, counts, n, keys, rows, sorted_keys, sorted_rows):
    """One pass of a radix sort; counts int64 (256): how often each byte occurs, used up."""
    at = 0
    for byte in range(256):
        counts[byte], at = at, at + counts[byte]
    for i in range(n):
        byte = (keys[i] >> uint32(shift)) & uint32(255)
        sorted_keys[counts[byte]] = keys[i]
        sorted_rows[counts[byte]] = rows[i]
        counts[byte] += 1


@kernel(void(IN[int64], OUT[int32], OUT[float32]))
def sort_columns(offsets, rows, values):
    """Sorts each column by value, in place, NaN last; entries of one value stay in their order. -0.0 is never stored.

    In time that no order of values can stretch: by insertion where they are few, else byte after byte.
    """
    longest = _longest(offsets)
    keys, other_keys = np.empty(longest, np.uint32), np.empty(longest, np.uint32)
    held, other_rows = np.empty(longest, np.int32), np.empty(longest, np.int32)
    counts = np.empty((4, 256), np.int64)
    bits = values.view(np.uint32)
    for f in range(len(offsets) - 1):
        begin = offsets[f]
        n = offsets[f + 1] - begin
        ascends = True
        for i in range(n):
            keys[i] = _key_of(bits[begin + i])
            ascends &= i == 0 or keys[i - 1] <= keys[i]
        if ascends:
            continue
        copy(rows, begin, n, held, 0)
        if n <= _FEW:
            _insert(keys, held, n)
        else:
            for k in range(4):
                fill(counts[k], 0)
            for i in range(n):
                for k in range(4):
                    counts[k, (keys[i] >> uint32(8 * k)) & uint32(255)] += 1
            for k in range(4):
                if counts[k, (keys[0] >> uint32(8 * k)) & uint32(255)] < n:
                    _sort_by_byte(8 * k, counts[k], n, keys, held, other_keys, other_rows)
                    keys, other_keys = other_keys, keys
                    held, other_rows = other_rows, held
        for i in range(n):
            rows[begin + i] = held[i]
            bits[begin + i] = _bits_of(keys[i])


_weigh = void(
    IN[int64], IN[int32], IN[float32], IN[int64], int64, OUT[int64], OUT[float32], OUT[int64], OUT[int64], OUT[int64]
)


@kernel(seldom=[_weigh])
def weigh_columns(offsets, rows, values, weights, most, run_offsets, run_values, run_weights, run_gaps, missing):
    """The distinct values of each sorted column with the weight of their rows; of more than `most` of them, `most` at most.

    weights     int64 >= 0, of each row; what only rows of weight 0 hold is left out
    run_gaps    the weight that lies between a run and the one before it, whose values were not picked
    missing     the weight of each column's NaN

    Column f's runs are run_offsets[f] .. run_offsets[f+1]. Room for runs: sum(min(length, most)).
    """
    longest = _longest(offsets)
    found, weighed = np.empty(longest, np.float32), np.empty(longest, np.int64)
    least, greatest = np.empty(longest, np.int64), np.empty(longest, np.int64)
    picks = np.empty(most, np.int64)
    written = 0
    run_offsets[0] = 0
    for f in range(len(offsets) - 1):
        n, of_nan = 0, int64(0)
        for i in range(offsets[f], offsets[f + 1]):
            weight = weights[rows[i]]
            if weight == 0:
                continue
            if np.isnan(values[i]):
                of_nan += weight
            elif n > 0 and found[n - 1] == values[i]:
                weighed[n - 1] += weight
            else:
                found[n] = values[i]
                weighed[n] = weight
                n += 1
        missing[f] = of_nan
        if n <= most:
            copy(found, 0, n, run_values, written)
            copy(weighed, 0, n, run_weights, written)
            fill(run_gaps[written : written + n], 0)
            written += n
        else:
            exact_ranks(weighed, 0, n, least, greatest)
            up_to = int64(0)
            for k in range(pick_even(least, greatest, greatest, least, n, most, picks)):
                pick = picks[k]
                run_values[written] = found[pick]
                run_weights[written] = weighed[pick]
                run_gaps[written] = least[pick] - up_to
                up_to = greatest[pick]
                written += 1
        run_offsets[f + 1] = written


@kernel(void(IN[int64], IN[float32], int64, OUT[int64], OUT[float32], OUT[int64], OUT[int64], OUT[int64]))
def count_columns(offsets, values, most, run_offsets, run_values, run_counts, run_gaps, missing):
    """The same where each row weighs 1."""
    longest = _longest(offsets)
    ends, picks = np.empty(longest + 1, np.int32), np.empty(most, np.int64)
    written = 0
    run_offsets[0] = ends[0] = 0
    for f in range(len(offsets) - 1):
        held = values[offsets[f] : offsets[f + 1]]
        n, n_numbers = 0, len(held)
        while n_numbers > 0 and np.isnan(held[n_numbers - 1]):
            n_numbers -= 1
        missing[f] = len(held) - n_numbers
        for i in range(1, n_numbers + 1):
            ends[n + 1] = i  # where the n-th value ends: written for each of its rows, the last one stays
            n += i == n_numbers or held[i - 1] != held[i]
        n_picked = n
        if n > most:
            least, greatest = ends[:n], ends[1 : n + 1]
            n_picked = pick_even(least, greatest, greatest, least, n, most, picks)
        up_to = int64(0)
        for k in range(n_picked):
            pick = picks[k] if n > most else int64(k)
            run_values[written], run_counts[written] = held[ends[pick]], ends[pick + 1] - ends[pick]
            run_gaps[written] = ends[pick] - up_to
            up_to = ends[pick + 1]
            written += 1
        run_offsets[f + 1] = written


@kernel(void(IN[int64], IN[float32], IN2[int64], int64, OUT[int64], OUT[float32], OUT2[int64]))
def prune(offsets, values, masses, most, out_offsets, out_values, out_masses):
    """At most `most` entries of each summary, evenly by rank, the first and the last among them (data.weighted)."""
    longest = _longest(offsets)
    least, greatest = np.empty(longest, np.int64), np.empty(longest, np.int64)
    least_behind, greatest_before = np.empty(longest, np.int64), np.empty(longest, np.int64)
    picks = np.empty(most, np.int64)
    written = 0
    out_offsets[0] = 0
    for f in range(len(offsets) - 1):
        begin = offsets[f]
        n = offsets[f + 1] - begin
        if n <= most:
            for i in range(begin, begin + n):
                out_values[written] = values[i]
                for k in range(3):
                    out_masses[written, k] = masses[i, k]
                written += 1
        else:
            below, up_to = int64(0), int64(0)
            for i in range(n):
                weight = masses[begin + i, 0]
                least[i], greatest_before[i] = below + masses[begin + i, 1], up_to
                least_behind[i], greatest[i] = least[i] + weight, up_to + weight
                below, up_to = least_behind[i], greatest[i] + masses[begin + i, 2]
            n_picked = pick_even(least, greatest, least_behind, greatest_before, n, most, picks)
            for k in range(n_picked):
                pick = picks[k]
                out_values[written] = values[begin + pick]
                out_masses[written, 0] = masses[begin + pick, 0]
                out_masses[written, 1] = least[pick]
                out_masses[written, 2] = 0
                if k > 0:
                    out_masses[written, 1] -= least_behind[picks[k - 1]]
                    out_masses[written - 1, 2] = greatest_before[pick] - greatest[picks[k - 1]]
                written += 1
        out_offsets[f + 1] = written
