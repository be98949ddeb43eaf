"""Knows arrays that ascend; does not know what they hold."""

from psboost.kernels.compile import IN, OUT, inline, int32, int64, kernel, uint8, uint64, void


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


@kernel(void(IN[int32], IN[int32], OUT[uint8]))
def find_members(members, values, flags):
    """flags[k] (OUT): 1 if values[k] is one of `members`, else 0; both ascend, and every member is a value."""
    n_found, n_members = uint64(0), uint64(len(members))
    for k in range(uint64(len(values))):
        if n_found == n_members:
            flags[k] = 0
        else:
            is_member = values[k] == members[n_found]
            flags[k] = is_member
            n_found += uint64(is_member)


@kernel(int64(IN[int32], IN[uint8], OUT[int32]))
def choose(values, flags, chosen):
    """Writes the values whose flag is 1, not 0, to `chosen`, which has room for one more; returns how many."""
    n_chosen = uint64(0)
    for k in range(uint64(len(values))):
        chosen[n_chosen] = values[k]
        n_chosen += uint64(flags[k])
    return int64(n_chosen)
