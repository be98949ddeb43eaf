"""Knows loads; does not know whose they are."""

from psboost.kernels.compile import IN, OUT, int32, int64, kernel, void


@kernel(void(IN[int64], OUT[int64], OUT[int32]))
def deal(loads, totals, parts):
    """parts[i]: the part that item i is dealt to: the one with the least load so far, the first of equals.

    `totals` (one for each part) holds the loads so far, and is added to. With falling loads this is Graham's LPT rule.
    """
    for i in range(len(loads)):
        least = 0
        for part in range(1, len(totals)):
            if totals[part] < totals[least]:
                least = part
        totals[least] += loads[i]
        parts[i] = least
