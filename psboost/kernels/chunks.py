"""Knows how sums of bins become float64 and back; does not know messages, nodes or who adds them up.

A chunk is a range of bins; `sums` holds a grad and a hess for each of its bins, as whole numbers in float64, which is exact
up to 2^53.
"""

from psboost.kernels.compile import IN, OUT, boolean, float64, int64, kernel, uint64, void
from psboost.kernels.histograms import read


@kernel(void(IN[int64], boolean, int64, OUT[float64]))
def to_floats(acc, pairs, first, sums):
    """Sets `sums` to the bins of an accumulator (kernels.histograms) from bin `first` on."""
    for b in range(uint64(len(sums)) >> uint64(1)):
        grad, hess = read(acc, pairs, uint64(first) + b)
        slot = uint64(2) * b
        sums[slot], sums[slot + uint64(1)] = float64(grad), float64(hess)


@kernel(void(IN[float64], OUT[int64]))
def to_pairs(sums, acc):
    """Sets the pairs of `acc` to `sums`, which is as long."""
    for i in range(uint64(len(sums))):
        acc[i] = int64(sums[i])
