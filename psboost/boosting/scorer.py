"""Knows trees as bitvectors, default child first; does not know files, objectives or who holds which feature.

A tree's leaves are put in an order: at each node first those below the child that an unstored value goes to.
A node then acts on a row only if the row holds a value that sends it the other way, and zeroes the leaves
of its default child, which lie together:

                  f1 < 5                    a stored f1 = 13 goes right: leaves 0, 1 are lost, 1100 remains
       unstored  /      \\                   (lowest bit = leaf 0). Rows that do not store f1 pay nothing,
          f2 < 1         f3 < 500           and without any stored value the exit leaf is leaf 0.
    unstored /  \\        /  \\ unstored
       leaf 0  leaf 1  leaf 3  leaf 2

QuickScorer: Lucchese et al., SIGIR 2015; by blocks of rows and on bytes: RapidScorer, Ye et al., KDD 2018. Forests
of very large trees are faster to walk.
"""

from dataclasses import dataclass

import numpy as np

from psboost.data import zeros
from psboost.kernels import cells, scoring

MASK_BYTES = 1 << 22  # how much of its bitvectors partial_exits holds at a time
CHUNK_PLANES = 2048  # the trees of a block's state are cut to so many planes, to stay in a core's cache
CACHE_BYTES = 1 << 18  # and walked rows to this size
MOST_LEAVES = 2048  # that the planes of a tree can number
WALK_FROM = 48  # records for each step of a walk; measured on depths 6 to 12
TABLE_SHARE = 4  # a table holds at most so many columns for each of the forest's own features
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Scorer:
    """A forest's bitvectors.

    features     int64 (k): the forest's own features, ascending user numbers
    n_words      words of a bitvector: the largest tree's, 64 leaves each
    base_margin  float32: what a row's margin starts with
    """

    def __init__(self, trees, zero_as_missing=zeros.UNSTORED, base_margin=0.0):
        """`zero_as_missing`: the rule for zeros (data/zeros.py)."""
        self.n_trees = len(trees)
        self.base_margin = np.float32(base_margin)
        self._skip_zeros = zero_as_missing is True
        self._unstored = np.float32(np.nan if zeros.unstored_is_missing(zero_as_missing) else 0.0)
        self._nodes = _Nodes.of(trees, self._unstored)
        self.features = self._nodes.features
        self.n_words = int(self._nodes.n_words.max(initial=1))
        self._lists = {}
        self._lookup = self._places = self._blocks = self._walked = None

    def margins(self, rows, method=None) -> np.ndarray:
        """float32 (n_rows): base margin + leaf values, added in float32 in tree order.

        rows    source.Cells, columns in any order but once in a row, or source.DenseCells
        method  "quickscorer", "walk", or None for what promises to be faster; all give the same bits
        """
        dense = rows.values.ndim == 2
        margins = np.full(len(rows.values) if dense else len(rows.indptr) - 1, self.base_margin, np.float32)
        if method is None:
            method = "walk" if self._walk_is_faster() else "quickscorer"
        if method not in ("quickscorer", "walk"):
            raise ValueError(f"unknown method {method!r}")
        if self._lookup is None:
            self._lookup, self._places = _lookup(self.features), _places(self.features)
        if method == "walk":
            self._walk(rows, margins)
            return margins
        if self._blocks is None:
            self._blocks = self._nodes.blocks()
        if dense:
            scoring.add_dense_scores(
                rows.values, self._skip_zeros, self.features, *self._blocks, *_scratch(self._blocks), margins
            )
        else:
            scoring.add_scores(
                rows.indptr, rows.columns, rows.values, self._skip_zeros, *self._lookup, self._places, _found(),
                *self._blocks, *_scratch(self._blocks), margins,
            )  # fmt: skip
        return margins

    def partial_exits(self, rows, first_tree, n_trees) -> tuple[np.ndarray, np.ndarray]:
        """Where the rows' stored values narrow a tree's bitvector, and to what; for feature shards.

        rows       CSR whose `features` are positions in self.features (source.Rows, read with keep=self.features)

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
        k = len(self.features)
        n_together = min(max(1, CACHE_BYTES // (4 * max(k, 1))), 64)
        for begin in range(0, len(margins), n_together):
            part = margins[begin : begin + n_together]
            if rows.values.ndim == 2:
                laid_out = rows.values[begin : begin + n_together, self.features].ravel()
                if self._skip_zeros:
                    laid_out[laid_out == 0] = np.nan
            else:
                laid_out = np.full(len(part) * k, self._unstored)
                scoring.lay_out(
                    rows.indptr, rows.columns, rows.values, self._skip_zeros, *self._lookup, _found(), begin, k, laid_out
                )
            scoring.walk(laid_out, k, *self._walked, part)

    def _walk_is_faster(self) -> bool:
        """Whether nodes lose so many leaves that going down each tree touches less."""
        n_records, n_steps = self._nodes.n_records().sum(), self._nodes.depths().sum()
        return n_records > WALK_FROM * n_steps or self._nodes.n_leaves.max(initial=1) > MOST_LEAVES

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
        return -(-self.n_leaves // 64)

    def n_records(self) -> np.ndarray:
        """int64 (n): how many planes hold leaves that the node can lose; 0 for leaves."""
        end = self.first_leaf + self.n_lost
        return np.where(self.n_lost > 0, (end - 1) // 8 - self.first_leaf // 8 + 1, 0)

    def depths(self) -> np.ndarray:
        """float64 (n_trees): how many nodes lead to the average leaf."""
        n_leaves = np.zeros(len(self.n_leaves))
        depths = np.zeros(len(self.n_leaves))
        for depth, nodes in enumerate(self.levels):
            leaves = np.bincount(self.tree[nodes[self.left[nodes] < 0]], minlength=len(depths))
            n_leaves += leaves
            depths += depth * leaves
        return depths / n_leaves

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

        of, word, lost = self._lost(nodes, 64)
        records = np.empty(len(of), scoring.NODE)
        records["threshold"] = self.threshold[nodes][of]
        records["word"] = word_begin[self.tree[nodes][of] - first_tree] + word
        records["mask"] = ~lost

        key = 3 * self.position[nodes][of] + which[of]
        order = np.lexsort([np.where(which[of] == 0, records["threshold"], -records["threshold"]), key])
        starts = np.zeros(3 * len(self.features) + 1, np.int64)
        np.cumsum(np.bincount(key, minlength=3 * len(self.features)), out=starts[1:])
        return _Lists(starts, records[order], word_begin, leaf_values)

    def blocks(self) -> tuple[np.ndarray, ...]:
        """The forest as scoring.add_scores takes it: thresholds .. leaf_values."""
        if self.n_leaves.max(initial=1) > MOST_LEAVES:
            raise ValueError(f"a tree of {self.n_leaves.max()} leaves is walked: planes number {MOST_LEAVES}")
        k = len(self.features)
        nodes = np.flatnonzero(self.left >= 0)
        position, threshold, left = self.position[nodes], self.threshold[nodes], self.unstored_left[nodes]

        # Each feature's distinct thresholds, by key; `rank`: of a node's among its key's.
        order = np.lexsort([threshold, position])
        new = np.ones(len(nodes), bool)
        new[1:] = (np.diff(position[order]) != 0) | (np.diff(threshold[order]) != 0)
        own, values = position[order][new], threshold[order][new]
        n_distinct = np.bincount(own, minlength=k)
        key_begin = np.zeros(k + 1, np.int64)
        np.cumsum(-(-n_distinct // scoring.KEY_THRESHOLDS), out=key_begin[1:])
        number = np.arange(len(own)) - (np.cumsum(n_distinct) - n_distinct)[own]
        slice_, rank = np.divmod(number, scoring.KEY_THRESHOLDS)
        keys = key_begin[own] + slice_
        at = np.empty(len(nodes), np.int64)
        at[order] = np.cumsum(new) - 1
        key, least = keys[at], np.where(left, rank[at] + 2, 255 - rank[at])

        on_nan = left != self.missing_left[nodes]
        nan_features = np.unique(position[on_nan])
        nan_keys = np.full(k, -1)
        nan_keys[nan_features] = key_begin[-1] + np.arange(len(nan_features))
        n_keys = int(key_begin[-1]) + len(nan_features)
        thresholds, searches = _searches(keys, rank, values, n_keys)
        nodes = np.concatenate([nodes, nodes[on_nan]])
        key = np.concatenate([key, nan_keys[position[on_nan]]])
        least = np.concatenate([least, np.ones(on_nan.sum(), np.int64)])
        which = np.concatenate([~left, np.zeros(on_nan.sum(), bool)])

        plane_begin = np.zeros(len(self.n_leaves) + 1, np.int64)
        np.cumsum(-(-self.n_leaves // 8), out=plane_begin[1:])
        leaves = np.flatnonzero(self.left < 0)
        leaf_values = np.zeros(8 * plane_begin[-1], np.float32)
        leaf_values[8 * plane_begin[self.tree[leaves]] + self.first_leaf[leaves]] = self.value[leaves]
        tree_begin = [0]
        while tree_begin[-1] < len(self.n_leaves):
            end = np.searchsorted(plane_begin, plane_begin[tree_begin[-1]] + CHUNK_PLANES, side="right") - 1
            tree_begin.append(max(int(end), tree_begin[-1] + 1))
        tree_begin = np.array(tree_begin)

        of, byte, lost = self._lost(nodes, 8)
        tree = self.tree[nodes[of]]
        chunk = np.searchsorted(tree_begin, tree, side="right") - 1
        records = np.empty(len(of), scoring.RECORD)
        records["least"] = least[of]
        records["kept"] = ~lost & np.uint64(255)
        records["plane"] = plane_begin[tree] + byte - plane_begin[tree_begin[chunk]]
        list_ = 2 * (chunk * n_keys + key[of]) + which[of]
        starts = np.zeros(2 * n_keys * (len(tree_begin) - 1) + 1, np.int64)
        np.cumsum(np.bincount(list_, minlength=len(starts) - 1), out=starts[1:])
        order = np.lexsort([records["plane"], records["least"], list_])
        return (
            thresholds, searches, key_begin, nan_keys, starts, records[order], tree_begin, plane_begin, leaf_values,
        )  # fmt: skip

    def _lost(self, nodes, size):
        """(index into `nodes`, word, mask) for each word of `size` bits that holds lost leaves of a node."""
        first, end = self.first_leaf[nodes], self.first_leaf[nodes] + self.n_lost[nodes]
        n_words = (end - 1) // size - first // size + 1
        of = np.repeat(np.arange(len(nodes)), n_words)
        word = first[of] // size + np.arange(len(of)) - np.repeat(np.cumsum(n_words) - n_words, n_words)
        lost = _ones_below(end[of] - size * word) & ~_ones_below(first[of] - size * word)
        return of, word, lost

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


def _searches(keys, ranks, values, n_keys) -> tuple[np.ndarray, np.ndarray]:
    """(thresholds, searches) of add_scores; threshold `values` is the ranks-th of its key."""
    group = scoring.COUNTED
    n_own = np.bincount(keys, minlength=n_keys)
    grouped = n_own >= group
    n_places = group * (n_own // group + 1 + grouped)
    first = group + np.cumsum(n_places) - n_places  # behind the group that keys of one group share
    searches = np.stack([np.where(grouped, first, 0), first + group * grouped], axis=1).astype(np.int32)
    thresholds = np.full(group + n_places.sum(), np.inf, np.float32)
    thresholds[searches[keys, 1] + ranks] = values
    last = ranks % group == group - 1
    thresholds[searches[keys[last], 0] + ranks[last] // group] = values[last]
    return thresholds, searches.ravel()


def _lookup(features) -> tuple[np.ndarray, int, np.ndarray, np.ndarray]:
    """members, shift, hash_keys, hash_positions of add_scores."""
    n_bits = max(32 * len(features), 1 << 12).bit_length()
    bits = (features.astype(np.uint64) * np.uint64(scoring.MIX)) >> np.uint64(64 - n_bits)
    members = np.zeros((1 << n_bits) // 64, np.uint64)
    np.bitwise_or.at(members, (bits >> np.uint64(6)).astype(np.int64), np.uint64(1) << (bits & np.uint64(63)))
    hash_keys = np.full(1 << (4 * max(len(features), 8) - 1).bit_length(), -1, np.int64)
    hash_positions = np.zeros(len(hash_keys), np.int32)
    cells.fill_hash(features, np.arange(len(features), dtype=np.int32), hash_keys, hash_positions)
    return members, 64 - n_bits, hash_keys, hash_positions


def _places(features) -> np.ndarray:
    """places of add_scores; empty if most columns below the last are not the forest's: then a filter skips them sooner."""
    if len(features) == 0 or TABLE_SHARE * len(features) <= features[-1]:
        return np.empty(0, np.int32)
    places = np.full(features[-1] + 2, -1, np.int32)
    places[features] = np.arange(len(features))
    return places


def _found() -> np.ndarray:
    return np.empty(scoring.FILTERED + 1, np.int32)


def _scratch(blocks) -> tuple[np.ndarray, ...]:
    """What add_scores works on: codes, tops, touched, state, negated, leaves, sums."""
    searches, tree_begin, plane_begin = blocks[1], blocks[6], blocks[7]
    n_keys = len(searches) // 2
    n_planes = int(np.diff(plane_begin[tree_begin]).max(initial=0))
    lanes = scoring.LANES
    return (
        _aligned(n_keys * lanes, np.uint8, 0), np.zeros(n_keys, np.uint8), np.empty(n_keys + 1, np.int64),
        _aligned(n_planes * lanes, np.uint8, 255), _aligned(lanes, np.uint8, 0),
        _aligned(lanes, np.uint16, 0), _aligned(lanes, np.float32, 0),
    )  # fmt: skip


def _aligned(n, dtype, value) -> np.ndarray:
    """n times `value`, from an address that a whole vector is loaded from at once."""
    size = n * np.dtype(dtype).itemsize
    buffer = np.empty(size + 64, np.uint8)
    array = buffer[-buffer.ctypes.data % 64 :][:size].view(dtype)
    array[:] = value
    return array


def _ones_below(n) -> np.ndarray:
    """uint64 with bits [0, n) set; n is cut to 0 .. 64."""
    n = np.clip(n, 0, 64)
    return np.where(n == 64, ALL, (np.uint64(1) << np.minimum(n, 63).astype(np.uint64)) - np.uint64(1))
