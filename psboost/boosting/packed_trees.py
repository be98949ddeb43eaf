"""Knows all nodes of a forest in one numbering, and lays them out as kernels take them; does not know rows.

Where bitvectors are sent, a tree's leaves are put in an order: at each node first those below the child that an unstored
value goes to. A node then acts on a row only if the row holds a value that sends it the other way, and zeroes the leaves
of its default child, which lie together:

                  f1 < 5                    a stored f1 = 13 goes right: leaves 0, 1 are lost, 1100 remains
       unstored  /      \\                   (lowest bit = leaf 0). Rows that do not store f1 pay nothing,
          f2 < 1         f3 < 500           and without any stored value the exit leaf is leaf 0.
    unstored /  \\        /  \\ unstored
       leaf 0  leaf 1  leaf 3  leaf 2

QuickScorer: Lucchese et al., SIGIR 2015.
"""

from dataclasses import dataclass

import numpy as np

from psboost.kernels import exits, scoring, walking
from psboost.kernels.words import n_words_of

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class Lists:
    """The node lists of a range of trees, as kernels/exits.py draws them."""

    starts: np.ndarray  # int64 (3 k + 1)
    nodes: np.ndarray  # NODE
    word_begin: np.ndarray  # int64 (n_trees + 1)
    leaf_values: np.ndarray  # float32 (64 * words)

    def state(self) -> np.ndarray:
        return np.empty(self.word_begin[-1], np.uint64)


@dataclass(frozen=True)
class Nodes:
    """All nodes of all trees in one numbering, tree after tree, with their leaves in default-first order."""

    features: np.ndarray  # int64 (k)
    begin: np.ndarray  # int64 (n_trees + 1): tree t's nodes are begin[t] .. begin[t+1]
    tree: np.ndarray  # int64 (n), as all below
    left: np.ndarray
    right: np.ndarray
    position: np.ndarray  # in features, 0 for leaves
    threshold: np.ndarray
    value: np.ndarray
    missing_left: np.ndarray  # bool
    unstored_left: np.ndarray  # bool
    first_leaf: np.ndarray  # within its tree
    n_lost: np.ndarray  # leaves below the default child, 0 for leaves
    levels: list  # of arrays of nodes, from the roots down
    n_leaves: np.ndarray  # int64 (n_trees)

    @classmethod
    def of(cls, trees, unstored):
        begin = np.zeros(len(trees) + 1, np.int64)
        np.cumsum([len(tree.left) for tree in trees], out=begin[1:])
        tree = np.repeat(np.arange(len(trees)), np.diff(begin))

        def joined(name, dtype):
            return np.concatenate([getattr(t, name) for t in trees] or [[]]).astype(dtype)

        left, right = joined("left", np.int64), joined("right", np.int64)
        inner = left >= 0
        left, right = np.where(inner, left + begin[tree], -1), np.where(inner, right + begin[tree], -1)
        feature, threshold = joined("feature", np.int64), joined("threshold", np.float32)
        features = np.unique(feature[inner])
        missing_left = joined("default_left", bool)
        unstored_left = missing_left if np.isnan(unstored) else unstored < threshold

        levels = [begin[:-1]]
        while len(levels[-1]):
            parents = levels[-1][inner[levels[-1]]]
            levels.append(np.stack([left[parents], right[parents]], axis=1).ravel())
        n_leaves = np.ones(len(left), np.int64)
        for nodes in reversed(levels):
            nodes = nodes[inner[nodes]]
            n_leaves[nodes] = n_leaves[left[nodes]] + n_leaves[right[nodes]]
        near, far = np.where(unstored_left, left, right), np.where(unstored_left, right, left)
        first_leaf = np.zeros(len(left), np.int64)
        for nodes in levels:
            nodes = nodes[inner[nodes]]
            first_leaf[near[nodes]] = first_leaf[nodes]
            first_leaf[far[nodes]] = first_leaf[nodes] + n_leaves[near[nodes]]
        return cls(
            features, begin, tree, left, right,
            np.searchsorted(features, np.where(inner, feature, -1)), threshold,
            joined("value", np.float32), missing_left, unstored_left, first_leaf,
            np.where(inner, n_leaves[near], 0), levels, n_leaves[begin[:-1]],
        )  # fmt: skip

    @property
    def n_words(self) -> np.ndarray:
        """int64 (n_trees): 64 leaves each."""
        return n_words_of(self.n_leaves)

    def depths(self) -> np.ndarray:
        """float64 (n_trees): how many nodes lead to the average leaf."""
        n_leaves = np.zeros(len(self.n_leaves))
        depths = np.zeros(len(self.n_leaves))
        for depth, nodes in enumerate(self.levels):
            leaves = np.bincount(self.tree[nodes[self.left[nodes] < 0]], minlength=len(depths))
            n_leaves += leaves
            depths += depth * leaves
        return depths / n_leaves

    def lists(self, first_tree, n_trees) -> Lists:
        word_begin = np.zeros(n_trees + 1, np.int64)
        np.cumsum(self.n_words[first_tree : first_tree + n_trees], out=word_begin[1:])
        nodes = np.arange(self.begin[first_tree], self.begin[first_tree + n_trees])
        leaves = nodes[self.left[nodes] < 0]
        leaf_values = np.zeros(64 * word_begin[-1], np.float32)
        places = 64 * word_begin[self.tree[leaves] - first_tree] + self.first_leaf[leaves]
        leaf_values[places] = self.value[leaves]

        nodes = nodes[self.left[nodes] >= 0]
        which = np.where(self.unstored_left[nodes], 0, 1)
        on_nan = nodes[self.unstored_left[nodes] != self.missing_left[nodes]]
        nodes, which = np.concatenate([nodes, on_nan]), np.concatenate([which, np.full(len(on_nan), 2)])

        of, word, lost = self._lost(nodes)
        records = np.empty(len(of), exits.NODE_RECORD)
        records["threshold"] = self.threshold[nodes][of]
        records["word"] = word_begin[self.tree[nodes][of] - first_tree] + word
        records["mask"] = ~lost

        key = 3 * self.position[nodes][of] + which[of]
        order = np.lexsort([np.where(which[of] == 0, records["threshold"], -records["threshold"]), key])
        starts = np.zeros(3 * len(self.features) + 1, np.int64)
        np.cumsum(np.bincount(key, minlength=3 * len(self.features)), out=starts[1:])
        return Lists(starts, records[order], word_begin, leaf_values)

    def blocks(self, unstored: np.float32) -> tuple:
        """The forest as scoring.add_scores takes it: condition_begin .. leaf_values; `unstored`: what such a cell holds."""
        if self.n_leaves.max(initial=1) > scoring.MOST_LEAVES:
            raise ValueError(f"a tree of {self.n_leaves.max()} leaves is walked: numbers tell {scoring.MOST_LEAVES} apart")
        order = self._by_level()
        inner = self.left[order] >= 0
        branch_begin = np.zeros(len(self.n_leaves) + 1, np.int64)
        np.cumsum(self.n_leaves - 1, out=branch_begin[1:])
        nodes, leaves = order[inner], order[~inner]
        place = np.empty(len(order), np.int64)
        place[nodes] = np.arange(len(nodes)) - branch_begin[self.tree[nodes]]
        leaf_begin = branch_begin[:-1] + np.arange(len(self.n_leaves))
        place[leaves] = np.arange(len(leaves)) - leaf_begin[self.tree[leaves]] + (self.n_leaves - 1)[self.tree[leaves]]

        position, nan_left = self.position[nodes], self.missing_left[nodes]
        threshold = self.threshold[nodes] + np.float32(0)  # -0.0 asks what 0.0 does
        by_feature = np.lexsort([threshold, nan_left, position])
        asked = np.stack([column[by_feature] for column in (position, nan_left, threshold)])
        is_new = np.ones(len(nodes), bool)
        is_new[1:] = (asked[:, 1:] != asked[:, :-1]).any(axis=0)
        condition = np.empty(len(nodes), np.int64)
        condition[by_feature] = np.cumsum(is_new) - 1
        first = by_feature[is_new]
        thresholds, nan_left = threshold[first], nan_left[first]
        condition_begin = np.searchsorted(position[first], np.arange(len(self.features) + 1))
        goes_left = nan_left if np.isnan(unstored) else unstored < thresholds
        branches = np.empty(len(nodes), scoring.BRANCH)
        branches["condition"] = condition
        branches["left"], branches["right"] = place[self.left[nodes]], place[self.right[nodes]]
        return (
            condition_begin.astype(np.int64), thresholds, nan_left, np.where(goes_left, ALL, np.uint64(0)),
            unstored, branches, branch_begin, self.value[leaves],
        )  # fmt: skip

    def _by_level(self) -> np.ndarray:
        """All nodes, tree by tree, from the root down."""
        order = np.concatenate(self.levels)
        return order[np.argsort(self.tree[order], kind="stable")]

    def _lost(self, nodes):
        """(index into `nodes`, word, mask) for each word that holds lost leaves of a node."""
        first, end = self.first_leaf[nodes], self.first_leaf[nodes] + self.n_lost[nodes]
        n_words = (end - 1) // 64 - first // 64 + 1
        of = np.repeat(np.arange(len(nodes)), n_words)
        word = first[of] // 64 + np.arange(len(of)) - np.repeat(np.cumsum(n_words) - n_words, n_words)
        lost = _ones_below(end[of] - 64 * word) & ~_ones_below(first[of] - 64 * word)
        return of, word, lost

    def steps(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """STEP records, each tree's together, where the trees begin and how many steps to take."""
        order = self._by_level()
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order))
        inner = self.left[order] >= 0
        steps = np.empty(len(order), walking.STEP)
        steps["threshold"] = np.where(inner, self.threshold[order], np.nan)
        steps["feature"] = np.where(inner, 2 * self.position[order] + self.missing_left[order], 0)
        steps["left"] = np.where(inner, place[self.left[order]], np.arange(len(order)) - 1)
        steps["value"] = self.value[order]
        return steps, self.begin[:-1], np.ceil(self.depths()).astype(np.int64)


def _ones_below(n) -> np.ndarray:
    """uint64 with bits [0, n) set; n is cut to 0 .. 64."""
    n = np.clip(n, 0, 64)
    return np.where(n == 64, ALL, (np.uint64(1) << np.minimum(n, 63).astype(np.uint64)) - np.uint64(1))
