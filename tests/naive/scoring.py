"""Knows how to walk trees one row and one node at a time, and makes some; does not know bitvectors."""

import numpy as np

from psboost.boosting.forest import Forest, Tree


def cells(X, stored, zero_as_missing):
    """What the dense rows X hold by the forest's rule, NaN for missing; `stored` says which cells are."""
    X = np.array(X, np.float32)
    if zero_as_missing is True:
        X[X == 0] = np.nan
    elif zero_as_missing == "unstored":
        X[~stored] = np.nan
    return X


def exit_leaf(tree, row):
    """The node in which `row` (cells) ends."""
    node = 0
    while tree.left[node] >= 0:
        value = row[tree.feature[node]]
        goes_left = tree.default_left[node] if np.isnan(value) else value < tree.threshold[node]
        node = tree.left[node] if goes_left else tree.right[node]
    return node


def margins(trees, cells, base_margin):
    """float32: summed in tree order."""
    out = np.full(len(cells), base_margin, np.float32)
    for i, row in enumerate(cells):
        for tree in trees:
            out[i] = out[i] + tree.value[exit_leaf(tree, row)]
    return out


def random_tree(rng, n_leaves, features, thresholds):
    """Splits a random leaf until there are n_leaves; some values are 0."""
    left, right, feature, threshold = [-1], [-1], [-1], [0.0]
    leaves = [0]
    while len(leaves) < n_leaves:
        node = leaves.pop(rng.integers(len(leaves)))
        left[node], right[node] = len(left), len(left) + 1
        feature[node], threshold[node] = rng.choice(features), rng.choice(thresholds)
        for array, blank in ((left, -1), (right, -1), (feature, -1), (threshold, 0.0)):
            array.extend([blank, blank])
        leaves += [left[node], right[node]]
    n = len(left)
    inner = np.array(left) >= 0
    return Tree(
        left=np.array(left, np.int32),
        right=np.array(right, np.int32),
        feature=np.array(feature, np.int64),
        threshold=np.array(threshold, np.float32),
        default_left=(inner & (rng.random(n) < 0.5)).astype(np.uint8),
        value=rng.normal(size=n).astype(np.float32),
        gain=np.where(inner, rng.random(n), 0).astype(np.float32),
        sum_hess=rng.random(n).astype(np.float32),
    )


def random_forest(rng, n_leaves, n_features, zero_as_missing, objective="binary:logistic", base_score=0.3):
    """One tree per entry of n_leaves; thresholds collide with each other, with 0 and with values."""
    thresholds = np.array([-1.5, -1, -0.25, 0, 1e-30, 0.25, 0.5, 1, 1, 2.5], np.float32)
    trees = [random_tree(rng, n, np.arange(n_features), thresholds) for n in n_leaves]
    return Forest(trees, objective, base_score, n_features, zero_as_missing)


def random_rows(rng, n_rows, n_features):
    """(X, stored): dense values, with NaN and zeros, and which cells are stored; the others are 0."""
    X = rng.choice(np.array([-2, -1, -0.25, 0, 0, 0.25, 0.7, 1, 3, np.nan], np.float32), (n_rows, n_features))
    stored = rng.random((n_rows, n_features)) < rng.choice([0.1, 0.5, 1.0])
    X[~stored] = 0
    return X, stored


def to_csr(X, stored):
    """A scipy CSR matrix with just these cells stored, zeros among them."""
    from scipy import sparse

    rows, columns = np.nonzero(stored)
    return sparse.csr_array((X[rows, columns], (rows, columns)), shape=X.shape)
