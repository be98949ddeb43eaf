"""Knows where ranges of columns have to end so that no row has two of one; does not know what becomes of them.

    between   int64 (MOST_BORDERS, 2), ascending: a range begins behind between[i, 0], and not behind between[i, 1], which
              leaves rows that were seen one column in each range
"""

from psboost.kernels.compile import IN, OUT2, inline, int32, int64, kernel

MOST_BORDERS = 63
TOO_MANY = -1


@inline
def _part(low, high, n, between):
    """Sees to it that a range begins behind column `low`, and not behind `high`; returns how many borders there are then, or
    TOO_MANY."""
    i = 0
    while i < n and between[i, 1] <= low:
        i += 1
    for k in range(i, min(i + 2, n)):  # the borders are apart: if the first is no part of low .. high, the next may be
        if low <= between[k, 0] and between[k, 1] <= high:
            return n
    if i < n and between[i, 0] < high:
        between[i, 0], between[i, 1] = max(low, between[i, 0]), min(high, between[i, 1])
        return n
    if n == MOST_BORDERS:
        return TOO_MANY
    for k in range(n, i, -1):
        between[k, 0], between[k, 1] = between[k - 1, 0], between[k - 1, 1]
    between[i, 0], between[i, 1] = low, high
    return n + 1


@kernel([int64(IN[int64], IN[columns], int64, OUT2[int64]) for columns in (int32, int64)])
def part_rows(indptr, columns, n, between):
    """Parts the columns of CSR rows, which ascend in each, by n borders (OUT) and more; returns how many there are then.

    Rows of one-hot data have their k-th column in the k-th range, which is looked at first. TOO_MANY if there is no room.
    """
    for row in range(len(indptr) - 1):
        begin = indptr[row]
        for i in range(begin + 1, indptr[row + 1]):
            low, high, k = int64(columns[i - 1]), int64(columns[i]), i - begin - 1
            if k < n and low <= between[k, 0] and between[k, 1] <= high:
                continue
            n = _part(low, high, n, between)
            if n == TOO_MANY:
                return int64(TOO_MANY)
    return int64(n)
