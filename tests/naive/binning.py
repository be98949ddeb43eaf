"""Knows what kernels/columns.py and binning.py compute, on plain lists; does not know numpy or numba."""

import math
from collections import Counter
from itertools import accumulate

import numpy as np

FLOAT_MAX = 3.4028234663852886e38


def scatter_columns(rows, n_features):
    """Columns as lists of (row, value) from rows as lists of (feature, value)."""
    columns = [[] for _ in range(n_features)]
    for row, held in enumerate(rows):
        for feature, value in held:
            columns[feature].append((row, value))
    return columns


def find_runs(values):
    """([(value, count), ...] ascending, number of NaNs) of a list of values."""
    numbers = [value for value in values if not math.isnan(value)]
    return sorted(Counter(numbers).items()), len(values) - len(numbers)


def collapse_runs(*parts):
    """The sum of several lists of (value, count)."""
    total = Counter()
    for part in parts:
        for value, count in part:
            total[value] += count
    return sorted(total.items())


def choose_cuts(runs, max_bin):
    """Cuts of one feature from its (value, count) runs: XGBoost's SetPrune and AddCutPoint, transcribed."""
    distinct = [value for value, _ in runs]
    if not distinct:
        return []
    chosen = distinct if len(distinct) <= max_bin + 1 else prune([count for _, count in runs], distinct, max_bin + 1)
    return [cut for cut in chosen[1:max_bin] if cut < FLOAT_MAX] + [FLOAT_MAX]


def prune(counts, distinct, size):
    """At most `size` of the values, evenly by rank."""
    f = np.float32
    rmax = list(accumulate(counts))
    rmin = [upper - count for upper, count in zip(rmax, counts, strict=True)]
    begin, spread, n = f(rmax[0]), f(rmin[-1] - rmax[0]), size - 1
    picked, i, last = [0], 1, 0
    for k in range(1, n):
        dx2 = f(2) * (f(k) * spread / f(n) + begin)
        while i < len(counts) - 1 and dx2 >= rmax[i + 1] + rmin[i + 1]:
            i += 1
        if i == len(counts) - 1:
            break
        next_of_i, before_next = rmin[i] + counts[i], rmax[i + 1] - counts[i + 1]
        chosen = i if dx2 < next_of_i + before_next else i + 1
        if chosen != last:
            picked.append(chosen)
            last = chosen
    if last != len(counts) - 1:
        picked.append(len(counts) - 1)
    return [distinct[at] for at in picked]


def bin_columns(value, cuts, has_missing, keep_nan):
    """The bin within the feature of one value; None if it is left out."""
    if not cuts:
        return None
    if math.isnan(value):
        if has_missing:
            return len(cuts)
        return len(cuts) - 1 if keep_nan else None
    return next((b for b, cut in enumerate(cuts) if value < cut), len(cuts) - 1)


def scatter_bins(columns, cuts, has_missing, keep_nan, n_rows):
    """(rows as lists of bin ids, rows by bin id) of columns as lists of (row, value)."""
    rows = [[] for _ in range(n_rows)]
    postings = []
    for column, own_cuts, missing in zip(columns, cuts, has_missing, strict=True):
        first = len(postings)
        postings += [[] for _ in range(len(own_cuts) + missing)]
        for row, value in column:
            bin_ = bin_columns(value, own_cuts, missing, keep_nan)
            if bin_ is not None:
                postings[first + bin_].append(row)
                rows[row].append(first + bin_)
    return [sorted(bins) for bins in rows], postings
