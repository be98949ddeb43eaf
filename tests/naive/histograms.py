"""Slow twins of psboost/kernels/histograms.py: a histogram is {bin: (grad, hess)}, a row a list of bins."""


def build(rows, which, values):
    """The histogram of the rows in `which`, values[row] = (grad, hess) each; present where hess is not 0."""
    histogram = {}
    for row in which:
        for bin_ in rows[row]:
            grad, hess = histogram.get(bin_, (0, 0))
            histogram[bin_] = grad + values[row][0], hess + values[row][1]
    return {bin_: sums for bin_, sums in sorted(histogram.items()) if sums[1] != 0}


def restrict(histogram, bins):
    """What of it lies in `bins`."""
    return {bin_: sums for bin_, sums in histogram.items() if bin_ in bins}


def merge(a, b):
    """Their sum."""
    zero = (0, 0)
    return {
        bin_: tuple(x + y for x, y in zip(a.get(bin_, zero), b.get(bin_, zero), strict=True))
        for bin_ in sorted(a.keys() | b.keys())
    }


def subtract(parent, child):
    """parent - child without the bins whose hess comes to 0; None if child is not part of parent."""
    if not child.keys() <= parent.keys() or any(child[bin_][1] > parent[bin_][1] for bin_ in child):
        return None
    zero = (0, 0)
    rest = {
        bin_: (grad - child.get(bin_, zero)[0], hess - child.get(bin_, zero)[1])
        for bin_, (grad, hess) in parent.items()
    }
    return {bin_: sums for bin_, sums in rest.items() if sums[1] != 0 or bin_ not in child}


def by_feature(histogram, bin_offsets, least):
    """{feature: its part} of the features whose hesses come to `least` (D3)."""
    features = {}
    for bin_, sums in histogram.items():
        feature = max(f for f, offset in enumerate(bin_offsets) if offset <= bin_)
        features.setdefault(feature, {})[bin_] = sums
    return {f: part for f, part in features.items() if sum(hess for _, hess in part.values()) >= least}


def sums(which, values):
    """(grad, hess) over the rows in `which`."""
    return sum(values[row][0] for row in which), sum(values[row][1] for row in which)
