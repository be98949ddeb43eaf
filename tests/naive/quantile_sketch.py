"""Knows XGBoost's WQuantileSketch (src/common/quantile.h, versions up to 3.2), transcribed; does not know numba or columns.

An entry is (rmin, rmax, wmin, value).
"""

import math

import numpy as np


def exact(pairs):
    """MakeSummary of (value, weight)."""
    entries, below = [], 0
    for value in sorted({value for value, _ in pairs}):
        weight = sum(w for v, w in pairs if v == value)
        entries.append((below, below + weight, weight, value))
        below += weight
    return entries


def set_prune(entries, most):
    """In float32 as there, but where it does not hold the ranks."""
    if len(entries) <= most:
        return entries
    unit = math.gcd(2**62, *(rank for rmin, rmax, _, _ in entries for rank in (rmin, rmax)))  # a power of two
    f = np.float32 if entries[-1][0] < 2**24 * unit else float
    begin, spread, n, end = f(entries[0][1]), f(entries[-1][0] - entries[0][1]), most - 1, len(entries) - 1
    kept, i, last = [entries[0]], 1, 0
    for k in range(1, n):
        dx2 = f(2) * (f(k) * spread / f(n) + begin)
        while i < end and dx2 >= entries[i + 1][0] + entries[i + 1][1]:
            i += 1
        if i == end:
            break
        rmin, _, wmin, _ = entries[i]
        _, rmax, next_wmin, _ = entries[i + 1]
        chosen = i if dx2 < rmin + wmin + rmax - next_wmin else i + 1
        if chosen != last:
            kept.append(entries[chosen])
            last = chosen
    return kept if last == end else [*kept, entries[end]]


def set_combine(some, others):
    if not some or not others:
        return some or others
    combined = []
    for own, other in ((some, others), (others, some)):
        by_value = {value: (rmin, rmax, wmin) for rmin, rmax, wmin, value in other}
        for rmin, rmax, wmin, value in own:
            if value in by_value:
                if own is some:
                    more = by_value[value]
                    combined.append((rmin + more[0], rmax + more[1], wmin + more[2], value))
                continue
            less = [entry for entry in other if entry[3] < value]
            greater = [entry for entry in other if entry[3] > value]
            rmin += less[-1][0] + less[-1][2] if less else 0
            rmax += greater[0][1] - greater[0][2] if greater else other[-1][1]
            combined.append((rmin, rmax, wmin, value))
    return sorted(combined, key=lambda entry: entry[3])


class WQuantileSketch:
    def __init__(self, n_values, max_bin, factor):
        n_levels, eps = 1, 1.0 / (min(max(n_values, 1), max_bin) * factor)
        while True:
            self.limit = min(n_values, math.ceil(n_levels / eps) + 1)
            if 2**n_levels * self.limit >= n_values:
                break
            n_levels += 1
        self.queue, self.levels = [], {}

    def push(self, value, weight):
        if weight == 0:
            return
        if self.queue and self.queue[-1][0] == value:
            self.queue[-1] = value, self.queue[-1][1] + weight
            return
        if len(self.queue) == 2 * self.limit:
            self._push_up(exact(self.queue))
            self.queue = []
        self.queue.append((value, weight))

    def _push_up(self, entries):
        level = 1
        while level in self.levels:
            entries = set_combine(set_prune(entries, self.limit), self.levels.pop(level))
            if len(entries) > self.limit:
                level += 1
        self.levels[level] = set_prune(entries, self.limit)

    def summary(self):
        entries = set_prune(exact(self.queue), self.limit)
        for level in sorted(self.levels):
            entries = set_prune(set_combine(entries, self.levels[level]), self.limit)
        return entries


def masses_of(entries):
    """(value, weight, before, after) of each, as data.weighted has them."""
    behind = [0, *(rmin + wmin for rmin, _, wmin, _ in entries)]
    before_next = [*(rmax - wmin for _, rmax, wmin, _ in entries[1:]), entries[-1][1] if entries else 0]
    return [(value, wmin, rmin - behind[i], before_next[i] - rmax) for i, (rmin, rmax, wmin, value) in enumerate(entries)]


def sketch(column, weights, max_bin, factor):
    """([(value, weight, before, after), ...], weight of NaN) of a column of (row, value), in order of row."""
    numbers = [(value, weights[row]) for row, value in column if not math.isnan(value)]
    of_column = WQuantileSketch(len(numbers), max_bin, factor)
    for value, weight in numbers:
        of_column.push(value, weight)
    of_nan = sum(weights[row] for row, value in column if math.isnan(value))
    return masses_of(set_prune(of_column.summary(), max_bin * factor)), of_nan
