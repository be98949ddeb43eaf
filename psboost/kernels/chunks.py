"""Knows sums of bins as float64, dense and as lists, and how they are added; does not know messages, or who adds them.

A chunk is a range of bins, counted from 0, of several nodes. `sums` holds a grad and a hess for each bin, as whole numbers
in float64, which is exact up to 2^53.

    dense    sums [node 0: g h g h g h ... | node 1: ...]          all bins
    lists    offsets [0 2 5]   bins [3 7 | 0 3 8]   sums [g h g h | g h g h g h]     node i's are offsets[i] .. offsets[i+1]
"""

from psboost.kernels.compile import IN, OUT, boolean, float64, int32, int64, kernel, uint64, void
from psboost.kernels.slots import read

_1, _2 = uint64(1), uint64(2)


@kernel(void(IN[int64], boolean, OUT[float64]))
def to_floats(acc, pairs, sums):
    """Sets `sums` to the bins of an accumulator (kernels.histograms)."""
    for b in range(uint64(len(sums)) >> _1):
        grad, hess = read(acc, pairs, b)
        sums[_2 * b], sums[_2 * b + _1] = float64(grad), float64(hess)


@kernel(boolean(IN[int64], IN[int32], int64))
def is_list(offsets, bins, n_bins):
    """Whether bins ascend within each node, lie in 0 .. n_bins, and are all some node's."""
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(bins):
        return False
    for node in range(len(offsets) - 1):
        begin, end, last = offsets[node], offsets[node + 1], int64(-1)
        if end < begin or end > len(bins):
            return False
        for k in range(begin, end):
            if bins[k] <= last or bins[k] >= n_bins:
                return False
            last = int64(bins[k])
    return True


@kernel(void(IN[int64], IN[int32], IN[float64], int64, OUT[float64]))
def scatter(offsets, bins, sums, n_bins, dense):
    """Adds lists to the dense sums of as many nodes."""
    for node in range(uint64(len(offsets) - 1)):
        first = node * uint64(n_bins)
        for k in range(uint64(offsets[node]), uint64(offsets[node + _1])):
            slot = _2 * (first + uint64(bins[k]))
            dense[slot] += sums[_2 * k]
            dense[slot + _1] += sums[_2 * k + _1]


@kernel(
    int64(
        IN[int64], IN[int32], IN[float64], IN[int64], IN[int32], IN[float64], OUT[int64], OUT[int32], OUT[float64]
    )
)  # fmt: skip
def merge(a_offsets, a_bins, a_sums, b_offsets, b_bins, b_sums, offsets, bins, sums):
    """Writes the sum of two lists of as many nodes to offsets, bins and sums (OUT); returns how many entries it has."""
    at = _1 - _1
    offsets[0] = 0
    for node in range(uint64(len(offsets) - 1)):
        a, a_end = uint64(a_offsets[node]), uint64(a_offsets[node + _1])
        b, b_end = uint64(b_offsets[node]), uint64(b_offsets[node + _1])
        while a < a_end or b < b_end:
            takes_a = a < a_end and (b == b_end or a_bins[a] <= b_bins[b])
            takes_b = b < b_end and (a == a_end or b_bins[b] <= a_bins[a])
            grad, hess, bin_ = 0.0, 0.0, int32(0)
            if takes_a:
                grad, hess, bin_ = a_sums[_2 * a], a_sums[_2 * a + _1], a_bins[a]
            if takes_b:
                grad, hess, bin_ = grad + b_sums[_2 * b], hess + b_sums[_2 * b + _1], b_bins[b]
            bins[at], sums[_2 * at], sums[_2 * at + _1] = bin_, grad, hess
            a += uint64(takes_a)
            b += uint64(takes_b)
            at += _1
        offsets[node + _1] = at
    return int64(at)


@kernel(void(IN[int32], IN[float64], int64, OUT[int64]))
def load(bins, sums, first_bin, acc):
    """Sets the pairs of `acc`, whose bins are counted from first_bin, to those of a list."""
    for k in range(uint64(len(bins))):
        slot = _2 * uint64(int64(bins[k]) - first_bin)
        acc[slot], acc[slot + _1] = int64(sums[_2 * k]), int64(sums[_2 * k + _1])


@kernel(void(IN[int32], int64, OUT[int64]))
def unload(bins, first_bin, acc):
    """Sets what `load` has set to 0."""
    for k in range(uint64(len(bins))):
        slot = _2 * uint64(int64(bins[k]) - first_bin)
        acc[slot] = acc[slot + _1] = 0
