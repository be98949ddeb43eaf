"""Knows loads; does not know whose they are."""

import numpy as np

from psboost.kernels.compile import IN, OUT, int32, int64, kernel, void
from psboost.kernels.fills import fill


@kernel(void(IN[int64], IN[int64], int64, OUT[int64], OUT[int32]))
def deal(loads, shares, most, totals, parts):
    """parts[i]: the part that item i is dealt to: the one with the least load so far for its share, the first of equals.

    `shares` (above 0; one for each part) say how the load is to be spread. No part gets more than `most` items, which leaves
    room for all. `totals` (one for each part) holds the loads so far, and is added to. With falling loads and equal shares
    this is Graham's LPT rule.
    """
    free = np.empty(len(totals), np.int64)
    fill(free, most)
    for i in range(len(loads)):
        least = 0
        while free[least] == 0:
            least += 1
        for part in range(least + 1, len(totals)):
            if free[part] > 0 and totals[part] * shares[least] < totals[least] * shares[part]:
                least = part
        totals[least] += loads[i]
        free[least] -= 1
        parts[i] = least
