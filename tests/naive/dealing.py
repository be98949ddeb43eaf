"""The slow twin of psboost/kernels/dealing.py."""


from fractions import Fraction


def deal(loads, shares, most, totals):
    """(part of each item, loads of the parts after that): each item to the part with the least so far for its share, of
    those with fewer than `most` items."""
    totals, parts = list(totals), []
    for load in loads:
        free = [i for i in range(len(totals)) if parts.count(i) < most]
        part = min(free, key=lambda i: Fraction(totals[i], shares[i]))
        totals[part] += load
        parts.append(part)
    return parts, totals
