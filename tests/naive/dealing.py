"""The slow twin of psboost/kernels/dealing.py."""


from fractions import Fraction


def deal(loads, shares, totals):
    """(part of each item, loads of the parts after that): each item to the part with the least so far for its share."""
    totals, parts = list(totals), []
    for load in loads:
        part = min(range(len(totals)), key=lambda i: Fraction(totals[i], shares[i]))
        totals[part] += load
        parts.append(part)
    return parts, totals
