"""Slow twins of psboost/kernels/chunks.py: a chunk is a list of nodes, each {bin: (grad, hess)} of its present bins."""

from tests.naive import histograms


def is_list(offsets, bins, n_bins):
    """Whether bins ascend within each node, lie in 0 .. n_bins, and are all some node's."""
    if not offsets or offsets != sorted(offsets) or offsets[0] != 0 or offsets[-1] != len(bins):
        return False
    nodes = [bins[begin:end] for begin, end in zip(offsets, offsets[1:], strict=False)]
    return all(node == sorted(set(node)) and set(node) <= set(range(n_bins)) for node in nodes)


def scatter(nodes, n_bins):
    """The dense sums: [[(grad, hess) of bin 0, of bin 1, ...] of node 0, ...]"""
    return [[node.get(b, (0, 0)) for b in range(n_bins)] for node in nodes]


def merge(a, b):
    """The sum of two chunks, node by node."""
    return [histograms.merge(x, y) for x, y in zip(a, b, strict=True)]
