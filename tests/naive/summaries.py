"""Knows how columns are sorted, weighed and summarised (data.weighted), on plain lists; does not know numba."""

import math

from tests.naive.quantile_sketch import masses_of, set_prune


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
    """XGBoost's SetPrune of (value, weight, before, after)."""
    ranked = zip(*ranks(entries), entries, strict=True)
    return masses_of(set_prune([(rmin, rmax, entry[1], entry[0]) for rmin, rmax, entry in ranked], most))


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
