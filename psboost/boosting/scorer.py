"""Knows trees as bitvectors, default child first; does not know files, objectives or who holds which feature.

A tree's leaves are put in an order: at each node first those below the child that an unstored value goes to.
A node then acts on a row only if the row holds a value that sends it the other way, and zeroes the leaves
of its default child, which lie together:

                  f1 < 5                    a stored f1 = 13 goes right: leaves 0, 1 are lost, 1100 remains
       unstored  /      \\                   (lowest bit = leaf 0). Rows that do not store f1 pay nothing,
          f2 < 1         f3 < 500           and without any stored value the exit leaf is leaf 0.
    unstored /  \\        /  \\ unstored
       leaf 0  leaf 1  leaf 3  leaf 2

QuickScorer: Lucchese et al., SIGIR 2015. Rows that store most of the forest's features are faster to walk.
"""

from dataclasses import dataclass

import numpy as np

from psboost.kernels import scoring

MASK_BYTES = 1 << 22  # how much of its bitvectors partial_exits holds at a time
CACHE_BYTES = 1 << 18  # node lists and walked rows are cut to this size, to stay in a core's cache
WALK_FROM = 8  # nodes that a row meets in the lists for each step of a walk; measured on depths 4 to 9
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Scorer:
    """A forest's bitvectors. `rows` hold values by their position in `features`, in any order within a row.

    features     int64 (k): the forest's own features, ascending user numbers
    n_words      words of a bitvector: the largest tree's, 64 leaves each
    base_margin  float32: what a row's margin starts with
    """

    def __init__(self, trees, zero_as_missing=None, base_margin=0.0):
        """`zero_as_missing` None: unstored cells and NaN are missing, stored zeros are zeros."""
        self.n_trees = len(trees)
        self.base_margin = np.float32(base_margin)
        self._skip_zeros = zero_as_missing is True
        self._unstored = np.float32(0.0 if zero_as_missing is False else np.nan)
        self._nodes = _Nodes.of(trees, self._unstored)
        self.features = self._nodes.features
        self.n_words = int(self._nodes.n_words.max(initial=1))
        self._lists = {}
        self._walked = None

    def margins(self, rows, method=None) -> np.ndarray:
        """float32 (n_rows): base margin + leaf values, added in float32 in tree order.

        `method`: "quickscorer", "walk", or None for what promises to be faster; all give the same bits.
        """
        n_rows = len(rows.indptr) - 1
        margins = np.full(n_rows, self.base_margin, np.float32)
        if method is None:
            method = "walk" if self._walk_is_faster(rows) else "quickscorer"
        if method == "walk":
            self._walk(rows, margins)
            return margins
        if method != "quickscorer":
            raise ValueError(f"unknown method {method!r}")
        for first, n_trees in self._chunks():
            lists = self._lists_of(first, n_trees)
            scoring.add_scores(
                rows.indptr, rows.features, rows.values, self._skip_zeros, lists.starts, lists.nodes,
                lists.word_begin, lists.leaf_values, lists.state(), margins,
            )  # fmt: skip
        return margins

    def partial_exits(self, rows, first_tree, n_trees) -> tuple[np.ndarray, np.ndarray]:
        """Where the rows' stored values narrow a tree's bitvector, and to what.

        positions  int64 (m): row * n_trees + (tree - first_tree), ascending
        masks      uint64 (m, n_words): never all-ones
        """
        lists = self._lists_of(first_tree, n_trees)
        n_rows = len(rows.indptr) - 1
        n_together = max(1, MASK_BYTES // (8 * self.n_words * max(n_trees, 1)))
        positions = np.empty(min(n_together, n_rows) * n_trees, np.int64)
        masks = np.empty((len(positions), self.n_words), np.uint64)
        parts = []
        for begin in range(0, n_rows, n_together):
            n = scoring.narrowed_exits(
                rows.indptr, rows.features, rows.values, self._skip_zeros, lists.starts, lists.nodes,
                lists.word_begin, begin, min(begin + n_together, n_rows), lists.state(), positions, masks,
            )  # fmt: skip
            parts.append((positions[:n].copy(), masks[:n].copy()))
        if not parts:
            return positions, masks
        return np.concatenate([p for p, _ in parts]), np.concatenate([m for _, m in parts])

    @staticmethod
    def and_exits(parts) -> tuple[np.ndarray, np.ndarray]:
        """The AND of the partial exits of one or more feature shards, over the same rows and trees."""
        positions = np.concatenate([p for p, _ in parts])
        masks = np.concatenate([m for _, m in parts])
        if len(parts) == 1 or len(positions) == 0:
            return positions, masks
        order = np.argsort(positions, kind="stable")
        positions, masks = positions[order], masks[order]
        starts = np.flatnonzero(np.r_[True, positions[1:] != positions[:-1]])
        return positions[starts], np.bitwise_and.reduceat(masks, starts, axis=0)

    def margins_from_exits(self, positions, masks, n_rows, first_tree, n_trees, margins):
        """Adds the trees' leaf values to `margins` (float32, OUT), which start at `base_margin`."""
        if len(margins) != n_rows:
            raise ValueError(f"{len(margins)} margins for {n_rows} rows")
        lists = self._lists_of(first_tree, n_trees)
        scoring.add_exits(positions, masks, lists.word_begin, lists.leaf_values, margins)

    def _walk(self, rows, margins):
        if self._walked is None:
            self._walked = self._nodes.steps()
        steps, roots, depths = self._walked
        k = max(len(self.features), 1)
        n_together = min(max(1, CACHE_BYTES // (4 * k)), 64)
        scoring.walk(
            rows.indptr, rows.features, rows.values, self._skip_zeros, self._unstored, steps, roots,
            depths, len(self.features), np.empty(n_together * k, np.float32), margins,
        )  # fmt: skip

    def _walk_is_faster(self, rows) -> bool:
        """Whether the stored values meet so many nodes that going down each tree touches fewer."""
        n_rows = max(len(rows.indptr) - 1, 1)
        n_met = self._nodes.n_inner / max(len(self.features), 1) * len(rows.values) / n_rows
        return n_met > WALK_FROM * self._nodes.depths().sum()

    def _chunks(self):
        """(first tree, number of trees), so many that their lists stay in cache."""
        size = np.cumsum(self._nodes.n_list_bytes)
        first = 0
        while first < self.n_trees:
            done = size[first - 1] if first else 0
            end = max(int(np.searchsorted(size, done + CACHE_BYTES, side="right")), first + 1)
            yield first, end - first
            first = end

    def _lists_of(self, first_tree, n_trees) -> "_Lists":
        key = first_tree, n_trees
        if key not in self._lists:
            if not 0 <= first_tree <= first_tree + n_trees <= self.n_trees:
                raise ValueError(f"trees {first_tree} + {n_trees} of a forest of {self.n_trees}")
            self._lists[key] = self._nodes.lists(first_tree, n_trees)
        return self._lists[key]


@dataclass(frozen=True)
class _Lists:
    """The node lists of a range of trees, as kernels/scoring.py draws them."""

    starts: np.ndarray  # int64 (3 k + 1)
    nodes: np.ndarray  # NODE
    word_begin: np.ndarray  # int64 (n_trees + 1)
    leaf_values: np.ndarray  # float32 (64 * words)

    def state(self) -> np.ndarray:
        return np.empty(self.word_begin[-1], np.uint64)


@dataclass(frozen=True)
class _Nodes:
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
    n_words: np.ndarray  # int64 (n_trees)

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
            np.where(inner, n_leaves[near], 0), levels, -(-n_leaves[begin[:-1]] // 64),
        )  # fmt: skip

    @property
    def n_inner(self) -> int:
        return int((self.left >= 0).sum())

    def depths(self) -> np.ndarray:
        """float64 (n_trees): how many nodes lead to the average leaf."""
        n_leaves = np.zeros(len(self.n_words))
        depths = np.zeros(len(self.n_words))
        for depth, nodes in enumerate(self.levels):
            leaves = np.bincount(self.tree[nodes[self.left[nodes] < 0]], minlength=len(depths))
            n_leaves += leaves
            depths += depth * leaves
        return depths / n_leaves

    @property
    def n_list_bytes(self) -> np.ndarray:
        """int64 (n_trees): about the size of each tree's part of the lists."""
        return scoring.NODE.itemsize * np.diff(self.begin) // 2 + 256 * self.n_words

    def lists(self, first_tree, n_trees) -> _Lists:
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

        # One record for each word that the node's lost leaves touch.
        first, end = self.first_leaf[nodes], self.first_leaf[nodes] + self.n_lost[nodes]
        n_records = (end - 1) // 64 - first // 64 + 1
        of = np.repeat(np.arange(len(nodes)), n_records)
        word = first[of] // 64 + np.arange(len(of)) - np.repeat(np.cumsum(n_records) - n_records, n_records)
        lost = _ones_below(end[of] - 64 * word) & ~_ones_below(first[of] - 64 * word)
        records = np.empty(len(of), scoring.NODE)
        records["threshold"] = self.threshold[nodes][of]
        records["word"] = word_begin[self.tree[nodes][of] - first_tree] + word
        records["mask"] = ~lost

        key = 3 * self.position[nodes][of] + which[of]
        order = np.lexsort([np.where(which[of] == 0, records["threshold"], -records["threshold"]), key])
        starts = np.zeros(3 * len(self.features) + 1, np.int64)
        np.cumsum(np.bincount(key, minlength=3 * len(self.features)), out=starts[1:])
        return _Lists(starts, records[order], word_begin, leaf_values)

    def steps(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """STEP records, each tree's together, where the trees begin and how many steps to take."""
        order = np.concatenate(self.levels)
        order = order[np.argsort(self.tree[order], kind="stable")]
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order))
        inner = self.left[order] >= 0
        steps = np.empty(len(order), scoring.STEP)
        steps["threshold"] = np.where(inner, self.threshold[order], np.nan)
        steps["feature"] = np.where(inner, 2 * self.position[order] + self.missing_left[order], 0)
        steps["left"] = np.where(inner, place[self.left[order]], np.arange(len(order)) - 1)
        steps["value"] = self.value[order]
        return steps, self.begin[:-1], np.ceil(self.depths()).astype(np.int64)


def _ones_below(n) -> np.ndarray:
    """uint64 with bits [0, n) set; n is cut to 0 .. 64."""
    n = np.clip(n, 0, 64)
    return np.where(n == 64, ALL, (np.uint64(1) << np.minimum(n, 63).astype(np.uint64)) - np.uint64(1))
