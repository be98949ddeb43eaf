"""Knows how columns are put in order of value, and their values counted; does not know weights, or what is made of it."""

import numpy as np

from psboost.kernels.compile import IN, OUT, float32, inline, int32, int64, kernel, uint32, uint64, void
from psboost.kernels.fills import fill

_SIGN = np.uint32(0x80000000)
_ALL = np.uint32(0xFFFFFFFF)
_32, _BYTE, _ROW = uint64(32), uint64(0xFF), uint64(0xFFFFFFFF)
_BYTES = uint64(32), uint64(40), uint64(48), uint64(56)  # of a pair, where those of its key begin
_FEW = 64  # entries: so few are sorted by insertion in less time than the bytes of their keys are counted


@inline
def longest_of(starts, ends):
    """Of columns that are starts[f] .. ends[f]."""
    longest = int64(0)
    for f in range(len(starts)):
        longest = max(longest, ends[f] - starts[f])
    return longest


@inline
def _key_of(bits):
    """A key that orders as the float32 of these bits does, NaN last."""
    if (bits & uint32(0x7FFFFFFF)) > uint32(0x7F800000):
        return _ALL
    return bits ^ (_ALL if bits & _SIGN else _SIGN)


@inline
def pair_of(bits, row):
    """A key that orders as the float32 of these bits does, and by row where values are equal."""
    return uint64(_key_of(bits)) << _32 | uint64(row)


@inline
def bits_of(pair):
    """The bits that pair_of made it of."""
    key = uint32(pair >> _32)
    return key ^ (_SIGN if key & _SIGN else _ALL)


@inline
def row_of(pair):
    """The row that pair_of made it of."""
    return pair & _ROW


@inline
def are_of_one_value(pair, other):
    return pair >> _32 == other >> _32


@inline
def _insert(pairs, n):
    """Sorts a few."""
    for i in range(1, n):
        pair, at = pairs[i], i
        while at > 0 and pairs[at - 1] > pair:
            pairs[at] = pairs[at - 1]
            at -= 1
        pairs[at] = pair


@inline
def _sort_by_byte(shift, counts, n, pairs, in_order):
    """One pass of a radix sort; counts int64 (256): how often each byte occurs, used up."""
    at = 0
    for byte in range(256):
        counts[byte], at = at, at + counts[byte]
    for i in range(uint64(n)):
        byte = (pairs[i] >> shift) & _BYTE
        in_order[counts[byte]] = pairs[i]
        counts[byte] += 1


@inline
def sort_pairs(n, pairs, other, counts):
    """Sorts n pairs (pair_of) whose rows ascend; returns where they are then, and the other array.

    In time that no order of values can stretch: by insertion where they are few, else byte after byte.

    counts  int64 (4, 256), to work in
    """
    n_descents = 0
    for i in range(1, n):
        n_descents += int64(pairs[i - 1] > pairs[i])
    if n_descents > 0 and n <= _FEW:
        _insert(pairs, n)
    elif n_descents > 0:
        for k in range(4):
            fill(counts[k], 0)
        for i in range(uint64(n)):
            for k in range(4):
                counts[k, (pairs[i] >> _BYTES[k]) & _BYTE] += 1
        for k in range(4):
            if counts[k, (pairs[0] >> _BYTES[k]) & _BYTE] < n:
                _sort_by_byte(_BYTES[k], counts[k], n, pairs, other)
                pairs, other = other, pairs
    return pairs, other


@kernel(void(IN[int64], OUT[int32], OUT[float32]))
def sort_columns(offsets, rows, values):
    """Sorts each column, whose rows ascend, by value, in place, NaN last; entries of one value stay in their order. -0.0 is
    never stored."""
    longest = longest_of(offsets[:-1], offsets[1:])
    pairs, other, counts = np.empty(longest, np.uint64), np.empty(longest, np.uint64), np.empty((4, 256), np.int64)
    bits = values.view(np.uint32)
    for f in range(len(offsets) - 1):
        begin = offsets[f]
        n = offsets[f + 1] - begin
        for i in range(n):
            pairs[i] = pair_of(bits[begin + i], rows[begin + i])
        pairs, other = sort_pairs(n, pairs, other, counts)
        for i in range(n):
            rows[begin + i], bits[begin + i] = row_of(pairs[i]), bits_of(pairs[i])


@kernel(void(IN[int64], IN[float32], int64, OUT[int64], OUT[float32], OUT[int64], OUT[int64]))
def runs_of_sorted(offsets, values, most, run_offsets, run_values, run_counts, missing):
    """The distinct values of each sorted column with their counts; of a column of more than `most` of them, none.

    missing  how many NaN each column has, which are no run

    Column f's runs are run_offsets[f] .. run_offsets[f+1]. Room for runs: sum(min(length, most)).
    """
    written = int64(0)
    run_offsets[0] = 0
    for f in range(len(offsets) - 1):
        first, begin, end = written, offsets[f], offsets[f + 1]
        while end > begin and np.isnan(values[end - 1]):
            end -= 1
        missing[f] = offsets[f + 1] - end
        for i in range(begin, end):
            if i > begin and values[i] == values[i - 1]:
                run_counts[written - 1] += 1
                continue
            if written - first == most:
                written = first
                break
            run_values[written], run_counts[written] = values[i], 1
            written += 1
        run_offsets[f + 1] = written
