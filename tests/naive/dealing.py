"""The slow twin of psboost/kernels/dealing.py."""


def deal(loads, totals):
    """(part of each item, loads of the parts after that): each item to the part with the least so far."""
    totals, parts = list(totals), []
    for load in loads:
        part = totals.index(min(totals))
        totals[part] += load
        parts.append(part)
    return parts, totals
