"""Knows arrays that ascend; does not know what they hold."""

from psboost.kernels.compile import inline


@inline
def first_from(least, values, begin, end):
    """The first place of begin .. end whose value is at least this, or end; these values ascend."""
    while begin < end:
        middle = (begin + end) // 2
        if values[middle] < least:
            begin = middle + 1
        else:
            end = middle
    return begin
