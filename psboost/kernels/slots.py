"""Knows the two forms in which sums of grads and hesses are held, packed and in pairs; does not know of what they are sums.

A packed slot holds two sums in one int64: (grad << 32) + hess, 0 <= hess < 2^32, so one addition adds both. Whoever
calls sees to it that neither half overflows, and takes pairs where one might: sums[2k] is the grad of slot k, sums[2k + 1]
its hess.
"""

from psboost.kernels.compile import inline, int64, uint64

LOW, HALF = 0xFFFFFFFF, 1 << 31
GRADS_FIT, HESSES_FIT = 1 << 31, 1 << 32  # with less in a node, no packed sum of it overflows
CACHED_SLOTS = 1 << 17  # about so many a core's second cache holds


@inline
def read(sums, pairs, k):
    """grad, hess of slot k."""
    if pairs:
        slot = uint64(2) * uint64(k)
        return sums[slot], sums[slot + uint64(1)]
    value = sums[uint64(k)]
    return value >> int64(32), value & int64(LOW)


@inline
def write(grad, hess, pairs, k, sums):
    """Sets slot k."""
    if pairs:
        slot = uint64(2) * uint64(k)
        sums[slot], sums[slot + uint64(1)] = grad, hess
    else:
        sums[uint64(k)] = (grad << int64(32)) + hess


@inline
def rows_that_fit(most_grad, most_hess):
    """How many rows surely come to one packed slot, whose greatest absolute grad and hess these are."""
    return min(GRADS_FIT // (most_grad + 1), HESSES_FIT // (most_hess + 1))
