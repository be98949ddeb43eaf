"""Knows how columns are sorted, weighed and summarised (data.weighted), on plain lists; does not know numba."""

import math

import numpy as np


def sort_columns(column):
    """A column of (row, value) by value, NaN last."""
    return sorted(column, key=lambda entry: (math.isnan(entry[1]), 0 if math.isnan(entry[1]) else entry[1]))


def weigh_columns(column, weights, most):
    """([(value, weight, gap), ...], weight of NaN) of a column of (row, value)."""
    weighed, missing = {}, 0
    for row, value in column:
        if math.isnan(value):
            missing += weights[row]
        elif weights[row]:
            weighed[value] = weighed.get(value, 0) + weights[row]
    entries = [(value, weight, 0, 0) for value, weight in sorted(weighed.items())]
    return [(value, weight, before) for value, weight, before, _ in prune(entries, most)], missing


def ranks(entries):
    """What is less than each of (value, weight, before, after), at least; and what is up to it, at most."""
    least = [sum(w + b for _, w, b, _ in entries[: i + 1]) - entries[i][1] for i in range(len(entries))]
    greatest = [sum(w + a for _, w, _, a in entries[: i + 1]) - entries[i][3] for i in range(len(entries))]
    return least, greatest


def prune(entries, most):
    """XGBoost's SetPrune, transcribed: at most `most` of (value, weight, before, after), evenly by rank.

    In float32 as there, but where ranks are too large for it.
    """
    if len(entries) <= most:
        return entries
    rmin, rmax = ranks(entries)
    f = np.float32 if rmin[-1] < 2**24 else float
    begin, spread, n = f(rmax[0]), f(rmin[-1] - rmax[0]), most - 1
    picked, i = [0], 1
    for k in range(1, n):
        dx2 = f(2) * (f(k) * spread / f(n) + begin)
        while i < len(entries) - 1 and dx2 >= rmax[i + 1] + rmin[i + 1]:
            i += 1
        if i == len(entries) - 1:
            break
        chosen = i if dx2 < rmin[i] + entries[i][1] + rmax[i + 1] - entries[i + 1][1] else i + 1
        if chosen != picked[-1]:
            picked.append(chosen)
    if picked[-1] != len(entries) - 1:
        picked.append(len(entries) - 1)
    weights = [entries[i][1] for i in picked]
    lower, upper = [rmin[i] for i in picked], [rmax[i] for i in picked]
    before = [0, *(lower[k] - lower[k - 1] - weights[k - 1] for k in range(1, len(picked)))]
    after = [*(upper[k + 1] - weights[k + 1] - upper[k] for k in range(len(picked) - 1)), 0]
    return [(entries[i][0], *masses) for i, *masses in zip(picked, weights, before, after, strict=True)]


def bounds(entries, value):
    """What is less than `value` at least, what is up to it at most, and what it weighs itself, by a summary."""
    rmin, rmax = ranks(entries)
    lower, upper = 0, rmax[-1]
    for (kept, weight, _, _), less, up_to in zip(reversed(entries), reversed(rmin), reversed(rmax), strict=True):
        if kept == value:
            return less, up_to, weight
        if kept > value:
            upper = up_to - weight
        else:
            lower = less + weight
            break
    return lower, upper, 0


def exact_bounds(weighed, value):
    """The same of (value, weight) pairs themselves."""
    less = sum(weight for held, weight in weighed if held < value)
    own = sum(weight for held, weight in weighed if held == value)
    return less, less + own, own
