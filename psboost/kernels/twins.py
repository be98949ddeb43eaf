"""Knows which bins hold the same rows, and so have the same sums in every tree; does not know messages or nodes.

A bin whose rows are those of an earlier one is its twin; the first of them is the elder. Where most bins hold one row, as
those of distinct values do, a row's are all twins. Elders are numbered from 0, in the order of their bins:

    bins     [ 3 | 4 | 9 | 11 | 17 ]
    rows     [ 7 | 2 | 7 | 7 5 | 2 ]
    numbers  [ 0 | 1 | 0 | 2 | 1 ]      of each bin's elder
"""

from psboost.kernels.compile import IN, OUT, boolean, inline, int32, int64, kernel, kernel_for, uint64, void
from psboost.kernels.packed_rows import WIDTHS
from psboost.kernels.slots import read
from psboost.kernels.tiles import TILINGS, build_by_tiles

_1, _29, _32 = uint64(1), uint64(29), uint64(32)
_MIX = uint64(0x9E3779B97F4A7C15)  # odd, as random as any


@inline
def _hold_the_same(posting_offsets, posting_rows, b, other):
    """Whether two bins hold the same rows, in the same order."""
    begin, end, at = posting_offsets[b], posting_offsets[b + 1], posting_offsets[other]
    if posting_offsets[other + 1] - at != end - begin:
        return False
    n_same = 0
    while begin + n_same < end and posting_rows[uint64(begin + n_same)] == posting_rows[uint64(at + n_same)]:
        n_same += 1
    return begin + n_same == end


@kernel(int64(IN[int64], IN[int32], int64, IN[int32], OUT[int32], OUT[int32]))
def find_twins(posting_offsets, posting_rows, first, bins, slots, numbers):
    """Writes the number of the elder of each of `bins`, which count from bin `first`; returns how many elders there are.

    slots    zeros, a power of two of them, more than there are bins: a hash table of places in `bins`, from 1 on  # OUT
    numbers  OUT
    """
    mask, n_elders = uint64(len(slots) - 1), 0
    for k in range(len(bins)):
        b = first + int64(bins[k])
        begin, end = posting_offsets[b], posting_offsets[b + 1]
        word = uint64(end - begin)
        for i in range(uint64(begin), uint64(end)):
            word = (word ^ uint64(posting_rows[i])) * _MIX
            word ^= word >> _29
        slot = (word >> _32) & mask
        while slots[slot] != 0:
            if _hold_the_same(posting_offsets, posting_rows, b, first + int64(bins[slots[slot] - 1])):
                break
            slot = (slot + _1) & mask
        if slots[slot] == 0:
            slots[slot], numbers[k] = k + 1, n_elders
            n_elders += 1
        else:
            numbers[k] = numbers[slots[slot] - 1]
    return n_elders


@kernel(int64(IN[int64], OUT[int64]))
def find_elders(numbers, places):
    """Writes where each elder stands, to `places` (OUT, as many as numbers); returns how many there are, or -1 if nobody
    numbers them so."""
    n_elders = 0
    for k in range(len(numbers)):
        if numbers[k] < 0 or numbers[k] > n_elders:
            return -1
        if numbers[k] == n_elders:
            places[n_elders] = k
            n_elders += 1
    return n_elders


@kernel(int64(IN[int64], IN[int32], int64, IN[int32], int64, OUT[int64], OUT[int32]))
def copy_postings(posting_offsets, posting_rows, first, bins, n_rows, offsets, rows):
    """Copies the postings of `bins`, which count from `first`, but for rows from n_rows on; returns how many these are.

    offsets, rows  as posting_offsets and posting_rows, of these bins alone  # OUT
    """
    at = uint64(0)
    offsets[0] = 0
    for k in range(len(bins)):
        b = first + int64(bins[k])
        for i in range(uint64(posting_offsets[b]), uint64(posting_offsets[b + 1])):
            rows[at] = posting_rows[i]
            at += uint64(posting_rows[i] < n_rows)
        offsets[k + 1] = int64(at)
    return int64(at)


@kernel_for(
    WIDTHS,
    signature=lambda width: void(IN[int64], IN[int32], TILINGS, IN[width], boolean, OUT[int64], OUT[int64], OUT[int64]),
)
def sum_bins(offsets, rows, tilings, packed, pairs, acc, grads, hesses):
    """Grads and hesses (OUT) of all the rows of each bin. acc: slots, two for each bin if sums need pairs  # OUT"""
    build_by_tiles(offsets, rows, tilings, packed, pairs, acc)
    for k in range(uint64(len(grads))):
        grads[k], hesses[k] = read(acc, pairs, k)


@kernel(void(IN[int32], IN[int64], IN[int64], OUT[int64], OUT[int64]))
def spread(numbers, elder_grads, elder_hesses, grads, hesses):
    """Gives each bin its elder's sums: `grads` and `hesses` (OUT)."""
    for k in range(uint64(len(numbers))):
        elder = uint64(numbers[k])
        grads[k], hesses[k] = elder_grads[elder], elder_hesses[elder]
