"""Knows loads; does not know whose they are."""

from psboost.kernels.compile import IN, OUT, int32, int64, kernel, void


@kernel(void(IN[int64], IN[int64], OUT[int64], OUT[int32]))
def deal(loads, shares, totals, parts):
    """parts[i]: the part that item i is dealt to: the one with the least load so far for its share, the first of equals.

    `shares` (above 0; one for each part) say how the load is to be spread. `totals` (one for each part) holds the loads so
    far, and is added to. With falling loads and equal shares this is Graham's LPT rule.
    """
    for i in range(len(loads)):
        least = 0
        for part in range(1, len(totals)):
            if totals[part] * shares[least] < totals[least] * shares[part]:
                least = part
        totals[least] += loads[i]
        parts[i] = least
