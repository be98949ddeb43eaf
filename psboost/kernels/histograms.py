"""Knows bin ids and packed sums; does not know nodes, features' names or messages.

A packed value holds two sums in one int64: (grad << 32) + hess, hess >= 0, so one addition adds both. Whoever calls
bounds the number of rows so that neither half overflows (fixed_point.rows_per_sum).

    rows      [ 3 | 7 | 9 ]                  rows of one node
    indptr    row -> its bins                bins [ 0 4 17 | 0 5 | ... ]
    acc       one slot for each bin of the block, all 0 between calls
"""

from psboost.kernels.compile import IN, OUT, inline, int32, int64, kernel, void

_LOW = 0xFFFFFFFF


@kernel(void(IN[int64], IN[int32], IN[int32], IN[int64], OUT[int64]))
def build(indptr, bins, rows, packed, acc):
    """acc[b] += packed[row] for every bin b that a row of `rows` holds."""
    for row in rows:
        value = packed[row]
        for k in range(indptr[row], indptr[row + 1]):
            acc[bins[k]] += value


@kernel(void(IN[int64], IN[int32], IN[int32], IN[int64], OUT[int64]))
def build_wide(indptr, bins, rows, packed, acc):
    """acc[2b] += grad, acc[2b + 1] += hess: for values too wide to be added in pairs."""
    for row in rows:
        hess = packed[row] & int64(_LOW)
        grad = packed[row] >> int64(32)
        for k in range(indptr[row], indptr[row + 1]):
            acc[2 * bins[k]] += grad
            acc[2 * bins[k] + 1] += hess


@kernel(void(OUT[int64], OUT[int64]))
def widen(acc, wide):
    """Moves the packed sums of `acc` to the pairs of `wide`, and clears `acc`."""
    for b in range(len(acc)):
        value = acc[b]
        if value != 0:
            wide[2 * b] += value >> int64(32)
            wide[2 * b + 1] += value & int64(_LOW)
            acc[b] = 0


@kernel(int64(IN[int32], IN[int32], IN[int64], int64, OUT[int32], OUT[int64], OUT[int64]))
def extract(features, bin_offsets, acc, at, bins, grads, hesses):
    """Writes the present bins of `features` (ascending) from position `at` on; returns the end."""
    for feature in features:
        for b in range(bin_offsets[feature], bin_offsets[feature + 1]):
            value = acc[b]
            if value != 0:
                bins[at] = b
                grads[at] = value >> int64(32)
                hesses[at] = value & int64(_LOW)
                at += 1
    return at


@kernel(int64(IN[int32], IN[int32], IN[int64], int64, OUT[int32], OUT[int64], OUT[int64]))
def extract_wide(features, bin_offsets, acc, at, bins, grads, hesses):
    """`extract` from pairs."""
    for feature in features:
        for b in range(bin_offsets[feature], bin_offsets[feature + 1]):
            if acc[2 * b + 1] != 0:
                bins[at] = b
                grads[at] = acc[2 * b]
                hesses[at] = acc[2 * b + 1]
                at += 1
    return at


@kernel(void(IN[int64], IN[int32], IN[int32], OUT[int64]))
def clear(indptr, bins, rows, acc):
    """acc[b] = 0 for every bin that a row of `rows` holds: cheaper than clearing all when the rows are few."""
    for row in rows:
        for k in range(indptr[row], indptr[row + 1]):
            acc[bins[k]] = 0


@kernel(void(IN[int32], IN[int64], OUT[int64]))
def sum_packed(rows, packed, sums):
    """Adds the grads and hesses of `rows` to sums[0:2]."""
    for row in rows:
        sums[0] += packed[row] >> int64(32)
        sums[1] += packed[row] & int64(_LOW)


@inline
def _merge_node(a, a_end, b, b_end, at, a_bins, a_grads, a_hesses, b_bins, b_grads, b_hesses, bins, grads, hesses):
    """Adds two ascending lists into the output from `at` on; returns the end."""
    while a < a_end and b < b_end:
        if a_bins[a] < b_bins[b]:
            bins[at], grads[at], hesses[at] = a_bins[a], a_grads[a], a_hesses[a]
            a += 1
        elif a_bins[a] > b_bins[b]:
            bins[at], grads[at], hesses[at] = b_bins[b], b_grads[b], b_hesses[b]
            b += 1
        else:
            bins[at], grads[at], hesses[at] = a_bins[a], a_grads[a] + b_grads[b], a_hesses[a] + b_hesses[b]
            a += 1
            b += 1
        at += 1
    while a < a_end:
        bins[at], grads[at], hesses[at] = a_bins[a], a_grads[a], a_hesses[a]
        a += 1
        at += 1
    while b < b_end:
        bins[at], grads[at], hesses[at] = b_bins[b], b_grads[b], b_hesses[b]
        b += 1
        at += 1
    return at


_LISTS = (IN[int64], IN[int32], IN[int64], IN[int64])


@kernel(void(*_LISTS, *_LISTS, OUT[int64], OUT[int32], OUT[int64], OUT[int64]))
def merge(
    a_offsets, a_bins, a_grads, a_hesses, b_offsets, b_bins, b_grads, b_hesses, offsets, bins, grads, hesses
):  # fmt: skip
    """Node by node the sum of two sets of histograms (Histograms' four arrays each)."""
    at = int64(0)
    offsets[0] = 0
    for node in range(len(a_offsets) - 1):
        at = _merge_node(
            a_offsets[node], a_offsets[node + 1], b_offsets[node], b_offsets[node + 1], at,
            a_bins, a_grads, a_hesses, b_bins, b_grads, b_hesses, bins, grads, hesses,
        )  # fmt: skip
        offsets[node + 1] = at


_LIST = (IN[int32], IN[int64], IN[int64])


@kernel(int64(*_LIST, *_LIST, OUT[int32], OUT[int64], OUT[int64]))
def subtract(p_bins, p_grads, p_hesses, c_bins, c_grads, c_hesses, bins, grads, hesses):
    """parent - child; a bin whose hess comes to 0 is absent. Returns the count, -1 if child is not part of parent."""
    at = int64(0)
    c = 0
    for p in range(len(p_bins)):
        grad, hess = p_grads[p], p_hesses[p]
        if c < len(c_bins) and c_bins[c] == p_bins[p]:
            grad -= c_grads[c]
            hess -= c_hesses[c]
            c += 1
            if hess < 0:
                return int64(-1)
            if hess == 0:
                continue
        bins[at], grads[at], hesses[at] = p_bins[p], grad, hess
        at += 1
    return at if c == len(c_bins) else int64(-1)
