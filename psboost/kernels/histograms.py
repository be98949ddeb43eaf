"""Knows how rows of bins are added up to sums of gradients; does not know features' names, gains or messages.

    rows      [ 3 | 7 | 9 ]                  rows of one node
    packed    [ gh | gh | gh ]               grads and hesses (kernels.packed_rows) of `rows`, in their order: among those of
                                             all rows a node's would be far apart, as its rows of bins are
    indptr    row -> its bins                bins [ 0 4 17 | 0 5 | ... ]        (kernels.row_bins)
    acc       all 0 between nodes: a slot for each bin, packed or a pair (kernels.slots); and in either form N_NONE bins
              more, for what is behind the bins of padded rows
"""

import numpy as np
from numba.extending import overload

from psboost.kernels.ascending import first_from
from psboost.kernels.compile import IN, OUT, boolean, inline, int32, int64, kernel, kernel_for, types, uint64, void
from psboost.kernels.packed_rows import WIDTHS, as_slot, grad_and_hess
from psboost.kernels.prefetch import load_word, prefetch, prefetch_far
from psboost.kernels.row_bins import N_NONE, ROWS, bins_of
from psboost.kernels.slots import CACHED_SLOTS, LOW, read, write

# How many rows ahead a row's place and its bins are asked for. A node's rows are far apart in the block, so without
# asking each costs a wait for memory: 1.3x to 2.5x the time on url-, avazu- and bosch-shaped data.
_PLACE_AHEAD, _BINS_AHEAD = uint64(32), uint64(16)
# Where packed slots are added to, bins are asked for into the second cache first, and then into the nearest one: 0.75 of the
# time on url-shaped data, whole and in parts of 30 bins a row, 0.6 on avazu-shaped; no gain on bosch-shaped (few bins).
_ROW_PLACE_AHEAD, _ROW_FAR_AHEAD, _ROW_AHEAD = uint64(64), uint64(32), uint64(8)
_PADDED_FAR_AHEAD, _PADDED_AHEAD = uint64(96), uint64(16)
_FOLLOWING_AHEAD = uint64(192)  # of padded rows that follow each other: processors bring these nearer by themselves
_LINE = 64  # bytes of a cache line
_FEW = 3  # bins of a row, on average, which mostly lie in one cache line
_SHORT = 128  # bytes of a row's bins, on average: they lie in three cache lines at most
# In longer accumulators, the slots of a row's last bins, which are rare ones, are asked for so many rows ahead: of so many
# bins; of a padded row's from so many places before the average row's end on.
_SLOTS_AHEAD, _LAST_BINS = uint64(4), uint64(8)
_PADDED_SLOTS_AHEAD, _LAST_PLACES = uint64(24), 4
_MANY_SLOTS = 1 << 20  # with more, no cache is sure to hold any:
_MANY_BINS = 16  # then all of a row's are asked for, where it has more than so many
_LEAST_FIT = 1 << 12  # rows at once: with fewer, to go through the bins in between would take longer than what is saved
_RUNNING, _BINS_RUNNING = 2048, uint64(256)  # rows and bins of a run of sums, which stays in the nearest cache
_0, _1, _2, _3, _4, _6, _8, _63 = (uint64(k) for k in (0, 1, 2, 3, 4, 6, 8, 63))


# The asking stands in each loop over rows anew: as a function, though inlined, it makes them up to five times slower.


@inline
def _build(indptr, bins, rows, packed, all_slots, acc):
    n_rows, is_far, per_line = uint64(len(rows)), len(acc) > CACHED_SLOTS, uint64(_LINE // bins.itemsize)
    for i in range(n_rows):
        if i + _ROW_PLACE_AHEAD < n_rows:
            prefetch(indptr, uint64(rows[i + _ROW_PLACE_AHEAD]))
        if i + _ROW_FAR_AHEAD < n_rows:
            row = uint64(rows[i + _ROW_FAR_AHEAD])
            for k in range(uint64(indptr[row]), uint64(indptr[row + _1]), per_line):
                prefetch_far(bins, k)
        if i + _ROW_AHEAD < n_rows:
            row = uint64(rows[i + _ROW_AHEAD])
            for k in range(uint64(indptr[row]), uint64(indptr[row + _1]), per_line):
                prefetch(bins, k)
        if is_far and i + _SLOTS_AHEAD < n_rows:
            row = uint64(rows[i + _SLOTS_AHEAD])
            end = uint64(indptr[row + _1])
            for k in range(uint64(indptr[row]) if all_slots else end - min(end, _LAST_BINS), end):
                prefetch_far(acc, uint64(bins[k]))
        row = uint64(rows[i])
        value = as_slot(packed, i)
        for k in range(uint64(indptr[row]), uint64(indptr[row + _1])):
            acc[uint64(bins[k])] += value


@kernel_for(ROWS, WIDTHS, signature=lambda indptr, bins, width: void(IN[indptr], IN[bins], IN[int32], IN[width], OUT[int64]))
def build(indptr, bins, rows, packed, acc):
    """acc[b] += packed[i] for every bin b that row rows[i] holds; acc is packed.

    Indices are made unsigned: a signed one may be negative, which costs a test for each value.
    """
    _build(indptr, bins, rows, packed, False, acc)


@kernel_for(ROWS, WIDTHS, signature=lambda indptr, bins, width: void(IN[indptr], IN[bins], IN[int32], IN[width], OUT[int64]))
def build_scattered(indptr, bins, rows, packed, acc):
    """`build` where no cache holds the slots: all of a row's are asked for. In 0.6 to 0.7 of the time with three million."""
    _build(indptr, bins, rows, packed, True, acc)


@inline
def _add_row(bins, begin, end, at_once, value, acc):
    """acc[bins[k]] += value for k from `begin` to `end`, by so many bins at once: behind the row's last ones, 0 is added.

    A loop over a few bins, now more and now fewer, ends where no processor expects it: of rows of 20 to 30 bins, that takes
    as long as what is added.
    """
    if end + at_once > uint64(len(bins)):  # there are no bins behind the block's last
        for k in range(begin, end):
            acc[uint64(bins[k])] += value
        return
    while begin + at_once <= end:
        for k in range(at_once):
            acc[uint64(bins[begin + k])] += value
        begin += at_once
    for k in range(at_once):
        acc[uint64(bins[begin + k])] += value if begin + k < end else int64(0)


@kernel_for(ROWS, WIDTHS, signature=lambda indptr, bins, width: void(IN[indptr], IN[bins], IN[int32], IN[width], OUT[int64]))
def build_short(indptr, bins, rows, packed, acc):
    """`build` for blocks of short rows, which are asked for at three places, and not in a loop: of rows of 20 to 30 bins, in
    0.75 to 0.95 of the time.
    """
    n_rows, is_far = uint64(len(rows)), len(acc) > CACHED_SLOTS
    for i in range(n_rows):
        if i + _ROW_PLACE_AHEAD < n_rows:
            prefetch(indptr, uint64(rows[i + _ROW_PLACE_AHEAD]))
        if i + _ROW_FAR_AHEAD < n_rows:
            row = uint64(rows[i + _ROW_FAR_AHEAD])
            begin, end = uint64(indptr[row]), uint64(indptr[row + _1])
            prefetch_far(bins, begin)
            prefetch_far(bins, (begin + end) >> _1)
            prefetch_far(bins, end)
        if i + _ROW_AHEAD < n_rows:
            row = uint64(rows[i + _ROW_AHEAD])
            begin, end = uint64(indptr[row]), uint64(indptr[row + _1])
            prefetch(bins, begin)
            prefetch(bins, (begin + end) >> _1)
            prefetch(bins, end)
        if is_far and i + _SLOTS_AHEAD < n_rows:
            end = uint64(indptr[uint64(rows[i + _SLOTS_AHEAD]) + _1])
            for k in range(end - min(end, _LAST_BINS), end):
                prefetch_far(acc, uint64(bins[k]))
        row = uint64(rows[i])
        _add_row(bins, uint64(indptr[row]), uint64(indptr[row + _1]), _8, as_slot(packed, i), acc)


@kernel_for(ROWS, WIDTHS, signature=lambda indptr, bins, width: void(IN[indptr], IN[bins], IN[int32], IN[width], OUT[int64]))
def build_few(indptr, bins, rows, packed, acc):
    """`build` for blocks whose rows hold next to nothing: of 0.5 to 2 bins on average, in 0.6 to 0.75 of the time."""
    n_rows = uint64(len(rows))
    for i in range(n_rows):
        if i + _PLACE_AHEAD < n_rows:
            prefetch(indptr, uint64(rows[i + _PLACE_AHEAD]))
        if i + _ROW_AHEAD < n_rows:
            prefetch(bins, uint64(indptr[uint64(rows[i + _ROW_AHEAD])]))
        row = uint64(rows[i])
        _add_row(bins, uint64(indptr[row]), uint64(indptr[row + _1]), _4, as_slot(packed, i), acc)


def _add_two(bins, at, value, acc):
    """acc[bins[k]] += value for k = at and at + 1. Wide bins by one read of two: in 0.9 of the time; narrow ones in 1.1."""
    acc[bins[at]] += value
    acc[bins[at + 1]] += value


@overload(_add_two, jit_options={"forceinline": True})
def _compiled_add_two(bins, at, value, acc):
    def add_wide(bins, at, value, acc):
        both = load_word(bins, at)
        acc[both & uint64(LOW)] += value
        acc[both >> uint64(32)] += value

    def add_narrow(bins, at, value, acc):
        acc[uint64(bins[at])] += value
        acc[uint64(bins[at + _1])] += value

    return add_wide if bins.dtype == int32 else add_narrow


@inline
def _add_padded(bins, at, step, value, acc):
    """Adds a padded row, whose bins begin at `at`, and what is behind its bins."""
    for k in range(_0, _4, _2):
        _add_two(bins, at + k, value, acc)
    if step > _4:
        for k in range(_4, _8, _2):
            _add_two(bins, at + k, value, acc)
    if step > _8:
        for k in range(_8, _8 + _8, _2):
            _add_two(bins, at + k, value, acc)


@kernel_for(ROWS, WIDTHS, signature=lambda _, bins, width: void(IN[bins], int64, int64, IN[int32], IN[width], OUT[int64]))
def build_padded(bins, stride, n_held, rows, packed, acc):
    """`build` for padded rows, of n_held bins on average, by adding what is behind their bins as well; it is then forgotten.

    A row is one place in memory to wait for, and its loop ends where a processor expects it: 0.4 to 0.6 of build_short's
    time on avazu-shaped data. Rows that follow each other, as a root's do, are asked for a few at once: 0.7 of the time.
    Where no cache holds the slots of rare bins, a processor does not look far enough ahead not to wait for them: they are
    asked for as well, in 0.4 to 0.7 of the time with 370,000 bins.
    """
    n_rows, step, is_far = uint64(len(rows)), uint64(stride), len(acc) > CACHED_SLOTS
    if not is_far and n_rows > _0 and uint64(rows[n_rows - _1] - rows[_0]) == n_rows - _1:
        first, in_order, per_line = step * uint64(rows[_0]), n_rows & ~_3, uint64(_LINE // bins.itemsize)
        for i in range(_0, in_order, _4):
            prefetch(packed, i + _FOLLOWING_AHEAD)
            for k in range(_0, _4 * step, per_line):
                prefetch_far(bins, first + step * (i + _FOLLOWING_AHEAD) + k)
            for j in range(i, i + _4):
                _add_padded(bins, first + step * j, step, as_slot(packed, j), acc)
        for i in range(in_order, n_rows):
            _add_padded(bins, first + step * i, step, as_slot(packed, i), acc)
    else:
        rare = uint64(max(0, n_held - _LAST_PLACES))
        for i in range(min(n_rows, _PADDED_FAR_AHEAD)):
            prefetch_far(bins, step * uint64(rows[i]))
        for i in range(n_rows):
            if i + _PADDED_FAR_AHEAD < n_rows:
                prefetch_far(bins, step * uint64(rows[i + _PADDED_FAR_AHEAD]))
            if i + _PADDED_AHEAD < n_rows:
                prefetch(bins, step * uint64(rows[i + _PADDED_AHEAD]))
            if is_far and i + _PADDED_SLOTS_AHEAD < n_rows:
                later = step * uint64(rows[i + _PADDED_SLOTS_AHEAD])
                for k in range(rare, step):
                    prefetch_far(acc, uint64(bins[later + k]))
            _add_padded(bins, step * uint64(rows[i]), step, as_slot(packed, i), acc)
    for b in range(len(acc) - N_NONE, len(acc)):
        acc[b] = 0


@kernel_for(ROWS, WIDTHS, signature=lambda indptr, bins, width: void(IN[indptr], IN[bins], IN[int32], IN[width], OUT[int64]))
def build_pairs(indptr, bins, rows, packed, acc):
    """`build` into pairs, for sums that one slot does not hold."""
    n_rows, n_bins, per_line = uint64(len(rows)), uint64((len(acc) >> 1) - N_NONE), uint64(_LINE // bins.itemsize)
    for i in range(n_rows):
        if i + _PLACE_AHEAD < n_rows:
            prefetch(indptr, uint64(rows[i + _PLACE_AHEAD]))
        if i + _BINS_AHEAD < n_rows:
            row = uint64(rows[i + _BINS_AHEAD])
            for k in range(uint64(indptr[row]), uint64(indptr[row + _1]), per_line):
                prefetch(bins, k)
        row = uint64(rows[i])
        grad, hess = grad_and_hess(packed, i)
        for k in range(uint64(indptr[row]), uint64(indptr[row + _1])):
            if bins[k] >= n_bins:
                break
            slot = _2 * uint64(bins[k])
            acc[slot] += grad
            acc[slot + _1] += hess


@inline
def span_size(span):
    """How many rows lie from span[0] to span[1], span[2] to span[3] and so on."""
    n_rows = int64(0)
    for c in range(0, len(span), 2):
        n_rows += span[c + 1] - span[c]
    return n_rows


@inline
def _build_packed(indptr, bins, stride, n_stored, rows, packed, acc):
    """`build`, by what takes the least time; n_stored: how many bins all rows hold."""
    n_rows = len(indptr) - 1
    if stride > 0:
        build_padded(bins, stride, n_stored // max(1, n_rows), rows, packed, acc)
    elif len(acc) > _MANY_SLOTS and n_stored > _MANY_BINS * n_rows:
        build_scattered(indptr, bins, rows, packed, acc)
    elif n_stored <= _FEW * n_rows:
        build_few(indptr, bins, rows, packed, acc)
    elif n_stored * bins.itemsize <= _SHORT * n_rows:
        build_short(indptr, bins, rows, packed, acc)
    else:
        build(indptr, bins, rows, packed, acc)


@inline
def _build_in_pieces(indptr, bins, stride, posting_offsets, rows, span, packed, n_fit, acc):
    """Pairs, all 0, by packed slots, of so many rows at once as fit. Only bins of more rows need pairs before all are added
    up: bin b has no more than posting_offsets says. In 0.3 to 0.5 of build_pairs' time.
    """
    n_bins, n_frequent = int64(len(posting_offsets) - 1), 0
    most = posting_offsets[n_bins] // n_fit  # such bins there are at most
    frequent, sums = np.empty(most, np.int64), np.zeros(2 * most, np.int64)
    for b in range(n_bins):
        if posting_offsets[b + 1] - posting_offsets[b] > n_fit:
            frequent[n_frequent] = b
            n_frequent += 1
    slots = acc[: n_bins + N_NONE]
    for c in range(0, len(span), 2):
        for first in range(span[c], span[c + 1], n_fit):
            last = min(first + n_fit, span[c + 1])
            _build_packed(indptr, bins, stride, posting_offsets[n_bins], rows[first:last], packed[first:last], slots)
            for i in range(n_frequent):
                grad, hess = read(slots, False, frequent[i])
                sums[2 * i] += grad
                sums[2 * i + 1] += hess
                slots[frequent[i]] = 0
    for b in range(n_bins - 1, -1, -1):  # a slot is read before its pair, or one of more, takes its place
        grad, hess = read(slots, False, b)
        write(grad, hess, True, b, acc)
    for i in range(n_frequent):
        write(sums[2 * i], sums[2 * i + 1], True, frequent[i], acc)


@kernel_for(
    ROWS, WIDTHS,
    signature=lambda indptr, bins, width: void(
        IN[indptr], IN[bins], int64, IN[int64], IN[int32], IN[int64], IN[width], boolean, int64, OUT[int64]
    ),
)  # fmt: skip
def build_by_rows(indptr, bins, stride, posting_offsets, rows, span, packed, pairs, n_fit, acc):
    """What a node's rows, rows[span[0] : span[1]] and so on, add to each of their bins, in acc, which was all 0.

    posting_offsets  its differences are how many rows hold each bin
    n_fit            what so many rows come to fits a packed slot
    """
    n_rows, n_stored, n_own = max(1, len(indptr) - 1), posting_offsets[-1], span_size(span)
    if pairs and n_fit >= _LEAST_FIT and n_stored // n_rows * n_own >= len(posting_offsets):
        _build_in_pieces(indptr, bins, stride, posting_offsets, rows, span, packed, n_fit, acc)
        return
    for c in range(0, len(span), 2):
        own, own_packed = rows[span[c] : span[c + 1]], packed[span[c] : span[c + 1]]
        if pairs:
            build_pairs(indptr, bins, own, own_packed, acc)
        else:
            _build_packed(indptr, bins, stride, n_stored, own, own_packed, acc)


@kernel_for(WIDTHS, signature=lambda width: void(IN[int64], IN[int32], int64, IN[width], boolean, OUT[int64]))
def build_by_bins(posting_offsets, posting_rows, too_many, packed, pairs, acc):
    """Sets every bin of `acc`, packed or in pairs, to the sums over its rows; but perhaps those of so many rows or more.
    `packed` is of all rows.

    Of bins of few rows, whose loops would end where no processor expects it, by sums that run on from bin to bin: what a
    bin adds is right even where they overflow.
    """
    n_bins, running = uint64(len(posting_offsets) - 1), np.empty(_RUNNING + 1, np.int64)
    running[0] = 0
    for first in range(uint64(0), n_bins, _BINS_RUNNING):
        last = min(first + _BINS_RUNNING, n_bins)
        begin, end = uint64(posting_offsets[first]), uint64(posting_offsets[last])
        if not pairs and end - begin <= uint64(_RUNNING):
            total, before = int64(0), int64(0)
            for k in range(end - begin):
                total += as_slot(packed, uint64(posting_rows[begin + k]))
                running[k + _1] = total
            for b in range(first, last):
                here = running[uint64(posting_offsets[b + _1]) - begin]
                acc[b] = here - before
                before = here
        else:
            for b in range(first, last):
                begin, end = uint64(posting_offsets[b]), uint64(posting_offsets[b + _1])
                if end - begin >= uint64(too_many):
                    continue
                grad, hess = int64(0), int64(0)
                for k in range(begin, end):
                    grad_of_row, hess_of_row = grad_and_hess(packed, uint64(posting_rows[k]))
                    grad += grad_of_row
                    hess += hess_of_row
                write(grad, hess, pairs, b, acc)


@kernel_for(ROWS, signature=lambda indptr, bins: void(IN[indptr], IN[bins], int64, IN[int32], int64, OUT[int64]))
def clear(indptr, bins, stride, rows, width, acc):
    """Sets the slots (width 1: packed, 2: pairs) of every bin that a row of `rows` holds to 0."""
    n_rows, step = uint64(len(rows)), uint64(width)
    for i in range(n_rows):
        if i + _BINS_AHEAD < n_rows:
            prefetch(bins, bins_of(indptr, stride, uint64(rows[i + _BINS_AHEAD]))[0])
        begin, end = bins_of(indptr, stride, uint64(rows[i]))
        for k in range(begin, end):
            slot = step * uint64(bins[k])
            acc[slot] = 0
            acc[slot + step - _1] = 0


@kernel_for(ROWS, signature=lambda indptr, bins: void(IN[indptr], IN[bins], int64, int64, IN[int32], OUT[uint64]))
def mark_bins(indptr, bins, stride, n_bins, rows, marks):
    """Sets the bit of every bin that a row of `rows` holds: bit b % 64 of marks[b // 64]."""
    n_rows, none = uint64(len(rows)), uint64(n_bins)
    for i in range(n_rows):
        if i + _BINS_AHEAD < n_rows:
            prefetch(bins, bins_of(indptr, stride, uint64(rows[i + _BINS_AHEAD]))[0])
        begin, end = bins_of(indptr, stride, uint64(rows[i]))
        for k in range(begin, end):
            b = uint64(bins[k])
            if b >= none:
                break
            marks[b >> _6] |= _1 << (b & _63)


_ENTRIES = types.Tuple([types.Array(kind, 1, "C") for kind in (int64, int32, int64, int64)])


@kernel(_ENTRIES(IN[int64], IN[int32], IN[int64], IN[int64], int64, int64))
def restrict(offsets, bins, grads, hesses, begin, end):
    """offsets, bins, grads, hesses of the entries of each node with begin <= bin < end, bins counted from begin."""
    lows, part_offsets = np.empty(len(offsets), np.int64), np.zeros(len(offsets), np.int64)
    for i in range(len(offsets) - 1):
        lows[i] = first_from(begin, bins, offsets[i], offsets[i + 1])
        part_offsets[i + 1] = part_offsets[i] + first_from(end, bins, lows[i], offsets[i + 1]) - lows[i]
    n_entries = part_offsets[-1]
    part_bins, part_grads = np.empty(n_entries, np.int32), np.empty(n_entries, np.int64)
    part_hesses = np.empty(n_entries, np.int64)
    for i in range(len(offsets) - 1):
        at, to = uint64(lows[i]), uint64(part_offsets[i])
        for k in range(uint64(part_offsets[i + 1] - part_offsets[i])):
            part_bins[to + k] = int64(bins[at + k]) - begin
            part_grads[to + k], part_hesses[to + k] = grads[at + k], hesses[at + k]
    return part_offsets, part_bins, part_grads, part_hesses
