"""Knows runs (value, count), cut points and bin ids; does not know sketches, files or feature names."""

import numpy as np

from psboost.kernels.compile import (
    IN,
    OUT,
    boolean,
    float32,
    float64,
    inline,
    int32,
    int64,
    kernel,
    kernel_for,
    uint64,
    void,
)
from psboost.kernels.floats import FLOAT32_MAX
from psboost.kernels.prefetch import place_ahead, prefetch_far
from psboost.kernels.row_bins import ROWS

SEARCHED = 1024  # values at once: what is known of them stays in the cache from one step of the search to the next
_0, _1 = uint64(0), uint64(1)


@kernel(void(IN[int64], IN[float32], IN[int64], OUT[int64], OUT[float32], OUT[int64]))
def append_runs(offsets, values, counts, cursors, out_values, out_counts):
    """Copy the runs of each feature f to cursors[f], and move cursors[f] behind them."""
    for f in range(len(offsets) - 1):
        at = cursors[f]
        for run in range(offsets[f], offsets[f + 1]):
            out_values[at] = values[run]
            out_counts[at] = counts[run]
            at += 1
        cursors[f] = at


@kernel(void(IN[int64], IN[int32], IN[int64], OUT[float32], OUT[int64], OUT[int64]))
def collapse_runs(offsets, places, counts, values, out_offsets, out_counts):
    """Adds up each feature's runs of equal value, leaving no gaps; `values`, which ascend, in place.

    Feature f's runs are offsets[f] .. offsets[f+1] before, out_offsets[f] .. out_offsets[f+1] after; the count of the
    i-th of them is the places[i]-th of this feature's.
    """
    written = 0
    out_offsets[0] = 0
    for f in range(len(offsets) - 1):
        first = written
        for run in range(offsets[f], offsets[f + 1]):
            count = counts[offsets[f] + places[run]]
            if written > first and values[written - 1] == values[run]:
                out_counts[written - 1] += count
            else:
                values[written] = values[run]
                out_counts[written] = count
                written += 1
        out_offsets[f + 1] = written


@inline
def _fit_float32(least, greatest, n):
    """Whether float32 holds the ranks, which are multiples of a power of two if weights are in steps."""
    bits = int64(0)
    for i in range(uint64(n)):
        bits |= least[i] | greatest[i]
    return least[uint64(n) - _1] // (bits & -bits) < 16777216


@inline
def _target_rank(k, n, first, spread, fit):
    """Twice the rank of the k-th of n even steps, rounded to float32 as XGBoost does, as long as ranks fit; and rounded down
    to an integer, as integers are all that it is compared with."""
    if fit:
        return int64(float32(2) * (float32(float32(float32(k) * float32(spread)) / float32(n)) + float32(first)))
    return int64(2.0 * (k * float64(spread) / n + first))


@inline
def _exact_ranks(weights, begin, end, least, greatest):
    """The ranks of runs that leave nothing out: the weight of lesser values, and that of values up to each."""
    below = int64(0)
    for i in range(end - begin):
        least[i] = below
        below += weights[begin + i]
        greatest[i] = below


@inline
def pick_even(least, greatest, weights, n, n_picks, picks):
    """Picks at most `n_picks` of n values, evenly by rank, the first and the last among them; returns how many.

    XGBoost's WQSummary::SetPrune (quantile.h): of each value, `least` is the weight of lesser ones at least, `greatest`
    that of values up to it at most, and `weights` its own. For each of the even ranks the nearer of the values around it is
    picked.
    """
    end = uint64(n) - _1
    first_rank, spread = greatest[0], least[end] - greatest[0]
    fit = _fit_float32(least, greatest, n)
    picks[0] = 0
    n_picked, at, last = _1, _1, _0
    for k in range(1, n_picks - 1):
        target = _target_rank(k, n_picks - 1, first_rank, spread, fit)
        while at < end and target >= least[at + _1] + greatest[at + _1]:
            at += _1
        if at == end:
            break
        between = least[at] + weights[at] + greatest[at + _1] - weights[at + _1]
        pick = at if target < between else at + _1
        picks[n_picked] = pick
        n_picked += uint64(pick != last)
        last = pick
    picks[n_picked] = end
    return int64(n_picked + uint64(last != end))


@kernel(void(IN[int64], IN[float32], IN[int64], int64, OUT[int64], OUT[float32]))
def choose_cuts(offsets, values, counts, max_bin, cut_offsets, cuts):
    """Cut points of each feature from its runs; room for cuts: sum(min(n_runs, max_bin)).

    Up to max_bin distinct values: each is a bin. More: max_bin + 1 of them are picked evenly by rank; the first
    opens the first bin, the others but the last are cuts. That is how XGBoost cuts, so the bins are its bins
    where the runs are exact. The last cut is float32's maximum.
    """
    most = 0
    for f in range(len(offsets) - 1):
        most = max(most, offsets[f + 1] - offsets[f])
    least, greatest = np.empty(most, np.int64), np.empty(most, np.int64)
    picks = np.empty(max_bin + 1, np.int64)
    written = 0
    cut_offsets[0] = 0
    for f in range(len(offsets) - 1):
        begin, end = offsets[f], offsets[f + 1]
        n_picked = end - begin
        if n_picked > max_bin + 1:
            _exact_ranks(counts, begin, end, least, greatest)
            n_picked = pick_even(least, greatest, counts[begin:end], n_picked, max_bin + 1, picks)
        else:
            for i in range(n_picked):
                picks[i] = i
        for i in range(1, min(n_picked, max_bin)):
            if values[begin + picks[i]] < FLOAT32_MAX:
                cuts[written] = values[begin + picks[i]]
                written += 1
        if begin < end:
            cuts[written] = FLOAT32_MAX
            written += 1
        cut_offsets[f + 1] = written


@inline
def find_bin(cuts, begin, end, value):
    """The bin that `value` falls in: how many of cuts[begin : end-1] are <= value (the last is not asked)."""
    low = begin
    n = end - 1 - begin
    while n > 0:
        half = (n + 1) >> 1
        low += half if cuts[low + half - 1] <= value else 0
        n -= half
    return low - begin


@inline
def find_bins(cuts, begin, end, values, first, last, nan_bin, found):
    """The same of values[first:last], in found[: last - first] (OUT); NaN fall in `nan_bin`.

    All searches take a step together: none waits for the one before it, and the compiler makes vectors of them.
    """
    for low in range(first, last, SEARCHED):
        high, to, n = min(low + SEARCHED, last), low - first, end - 1 - begin
        for i in range(high - low):
            found[to + i] = 0
        while n > 0:
            half = (n + 1) >> 1
            middle = uint64(begin + half) - _1
            for i in range(uint64(high - low)):
                is_right = cuts[middle + uint64(found[uint64(to) + i])] <= values[uint64(low) + i]
                found[uint64(to) + i] += int32(half) if is_right else int32(0)
            n -= half
        for i in range(high - low):
            if np.isnan(values[low + i]):
                found[to + i] = nan_bin


@inline
def missing_bin(n_bins, n_cuts, keep_nan):
    """The bin of a feature's NaNs: the one behind the numeric ones or, with keep_nan, the last of these; -1 for none."""
    return n_bins - 1 if n_bins > n_cuts or keep_nan else np.int64(-1)


@kernel(void(IN[int64], IN[float32], float32, OUT[int32]))
def find_bins_of(cut_offsets, cuts, value, bins):
    """The bin of one value in each feature; -1 for a feature without cuts."""
    for f in range(len(cut_offsets) - 1):
        begin, end = cut_offsets[f], cut_offsets[f + 1]
        bins[f] = find_bin(cuts, begin, end, value) if begin < end else -1


_bin_columns = int64(
    IN[int64], IN[int32], IN[float32], IN[int64], IN[float32], IN[int32], boolean, OUT[int64], OUT[int32]
)


@kernel(_bin_columns)
def bin_columns(
    offsets, rows, values, cut_offsets, cuts, bin_offsets, keep_nan, posting_offsets, posting_rows
):  # fmt: skip
    """Number of entries binned; the rows of each bin id, ascending, by a counting sort within each column.

        posting_rows     | rows of bin 0 | rows of bin 1 | ... of the same feature | next feature ...
        posting_offsets  ^               ^               ^

    A feature's NaNs go to its missing bin. If it has none, they are left out, or with keep_nan go to the last
    numeric bin, which lies right of every split, as missing does where a split has seen none.
    Columns without cuts are left out. posting_rows may be the memory of `values`: no row is written before its column's
    values were read.
    """
    longest = 0
    widest = 0
    for f in range(len(offsets) - 1):
        longest = max(longest, offsets[f + 1] - offsets[f])
        widest = max(widest, np.int64(bin_offsets[f + 1] - bin_offsets[f]))
    found = np.empty(longest, np.int32)
    cursors = np.empty(widest + 1, np.int64)
    written = 0
    posting_offsets[0] = 0
    for f in range(len(offsets) - 1):
        begin, end = offsets[f], offsets[f + 1]
        first_cut, end_cut = cut_offsets[f], cut_offsets[f + 1]
        n_cuts = end_cut - first_cut
        first_bin = np.int64(bin_offsets[f])
        n_bins = np.int64(bin_offsets[f + 1]) - first_bin
        if n_cuts == 0:
            continue
        nan_bin = missing_bin(n_bins, n_cuts, keep_nan)
        if n_bins == 1:
            for i in range(begin, end):
                if nan_bin >= 0 or not np.isnan(values[i]):
                    posting_rows[written] = rows[i]
                    written += 1
            posting_offsets[first_bin + 1] = written
            continue
        cursors[: n_bins + 1] = 0
        find_bins(cuts, first_cut, end_cut, values, begin, end, nan_bin, found)
        for i in range(end - begin):
            cursors[found[i] + 1] += 1  # of those left out, in cursors[0]
        cursors[0] = written
        for bin_ in range(n_bins):
            cursors[bin_ + 1] += cursors[bin_]
            posting_offsets[first_bin + bin_ + 1] = cursors[bin_ + 1]
        written = cursors[n_bins]
        for i in range(begin, end):
            bin_ = found[i - begin]
            if bin_ >= 0:
                posting_rows[cursors[bin_]] = rows[i]
                cursors[bin_] += 1
    return written


@kernel(seldom=[_bin_columns])
def bin_sorted(
    offsets, rows, values, cut_offsets, cuts, bin_offsets, keep_nan, posting_offsets, posting_rows
):  # fmt: skip
    """The same of columns that are sorted by value: a bin's rows lie together, and are in the order of their values."""
    written = 0
    posting_offsets[0] = 0
    for f in range(len(offsets) - 1):
        at, end = offsets[f], offsets[f + 1]
        first_cut, end_cut = cut_offsets[f], cut_offsets[f + 1]
        if first_cut == end_cut:
            continue
        first_bin, end_bin = np.int64(bin_offsets[f]), np.int64(bin_offsets[f + 1])
        for bin_ in range(end_cut - first_cut):
            is_last = bin_ == end_cut - first_cut - 1
            while at < end and (values[at] < cuts[first_cut + bin_] or (is_last and not np.isnan(values[at]))):
                posting_rows[written] = rows[at]
                written += 1
                at += 1
            posting_offsets[first_bin + bin_ + 1] = written
        if missing_bin(end_bin - first_bin, end_cut - first_cut, keep_nan) >= 0:
            for i in range(at, end):
                posting_rows[written] = rows[i]
                written += 1
            posting_offsets[end_bin] = written
    return written


@kernel_for(ROWS.values(), signature=lambda offset, bins: void(IN[int64], IN[int32], OUT[offset], OUT[bins]))
def scatter_bins(posting_offsets, posting_rows, cursors, bins):
    """CSR rows of bin ids from postings; cursors[r] is where row r begins, and at the end where it stops.

    Bins are visited in order, so they ascend within each row.
    """
    for bin_ in range(len(posting_offsets) - 1):
        for i in range(uint64(posting_offsets[bin_]), uint64(posting_offsets[bin_ + 1])):
            prefetch_far(bins, place_ahead(posting_rows, i, cursors))
            row = uint64(posting_rows[i])
            at = uint64(cursors[row])
            cursors[row] = at + _1
            bins[at] = bin_


@kernel_for(ROWS.values(), signature=lambda offset, bins: void(int64, int64, IN[offset], OUT[bins]))
def pad_rows(stride, n_bins, ends, bins):
    """Writes what is behind the bins of padded rows (kernels.row_bins); ends[r] is where those of row r end."""
    for row in range(len(ends)):
        for k in range(ends[row] - row * stride, stride):
            bins[row * stride + k] = n_bins + k
