"""Knows what rows a forest scores and how: by blocks of rows, by walking, or from bitvectors; does not know files.

By blocks, as kernels/scoring.py says. Partial bitvectors (boosting/packed_trees.py) are for workers that hold some of the
features each. Few rows are faster to walk; forests of very many features, and trees of very many leaves, are walked too.
"""

from functools import cached_property

import numpy as np

from psboost.boosting.packed_trees import Lists, Nodes
from psboost.data import zeros
from psboost.data.aligned import aligned
from psboost.data.column_tables import WIDE, hash_of
from psboost.errors import ProtocolError
from psboost.kernels import column_tables, exits, scoring, walking
from psboost.kernels.lanes import LANES, WORDS

MASK_BYTES = 1 << 22  # how much of its bitvectors partial_exits holds at a time
CACHE_BYTES = 1 << 18  # walked rows are laid out in pieces of this size, to stay in a core's cache
STEPS_OF_TREE, STEPS_OF_NODE = 30.0, 1.0  # of a walk, in the time that a block takes for a tree, and for a node of it
MOST_FEATURES = 1 << 16  # of which a block holds the cells of all its rows, 1 KiB a feature
TABLE_SHARE = 4  # a table holds at most so many columns for each of the forest's own features
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Scorer:
    """Scores rows by a forest.

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
        self._nodes = Nodes.of(trees, self._unstored)
        self.features = self._nodes.features
        self.n_words = int(self._nodes.n_words.max(initial=1))
        self._lists = {}

    def margins(self, rows, method=None) -> np.ndarray:
        """float32 (n_rows): base margin + leaf values, added in float32 in tree order.

        rows    data.rows.Cells, columns in any order but once in a row, or data.rows.DenseCells
        method  "bits", "walk", or None for what promises to be faster; all give the same bits
        """
        dense = rows.values.ndim == 2
        margins = np.full(len(rows.values) if dense else len(rows.indptr) - 1, self.base_margin, np.float32)
        if method is None:
            method = "walk" if self._walk_is_faster(len(margins)) else "bits"
        if method not in ("bits", "walk"):
            raise ValueError(f"unknown method {method!r}")
        if method == "walk":
            self._walk(rows, margins)
            return margins
        if dense:
            scoring.add_dense_scores(rows.values, self._skip_zeros, self.features, *self._blocks, *self._scratch(), margins)
        else:
            scoring.add_scores(
                rows.indptr, rows.columns, rows.values, self._skip_zeros, *self._lookup, self._places, _found(),
                *self._blocks, *_lists_of_block(len(self.features)), *self._scratch(), margins,
            )  # fmt: skip
        return margins

    def partial_exits(self, rows, first_tree, n_trees) -> tuple[np.ndarray, np.ndarray]:
        """Where the rows' stored values narrow a tree's bitvector, and to what; for feature shards.

        rows       CSR whose `features` are positions in self.features (data.rows.Rows, read with keep=self.features)

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
            n = exits.narrowed_exits(
                rows.indptr, rows.features, rows.values, self._skip_zeros, lists.starts, lists.nodes,
                lists.word_begin, begin, min(begin + n_together, n_rows), lists.state(), positions, masks,
            )  # fmt: skip
            parts.append((positions[:n].copy(), masks[:n].copy()))
        if not parts:
            return positions, masks
        return np.concatenate([p for p, _ in parts]), np.concatenate([m for _, m in parts])

    def and_exits(self, parts) -> tuple[np.ndarray, np.ndarray]:
        """The AND of the partial exits of one or more feature shards, over the same rows and trees. ProtocolError if some
        are not as partial_exits makes them."""
        for positions, masks in parts:
            shape = len(positions), self.n_words
            if masks.shape != shape:
                raise ProtocolError(f"exits of shape {masks.shape}, expected {shape}")
        positions = np.concatenate([p for p, _ in parts])
        masks = np.concatenate([m for _, m in parts])
        if len(parts) == 1 or len(positions) == 0:
            return positions, masks
        order = np.argsort(positions, kind="stable")
        positions, masks = positions[order], masks[order]
        starts = np.flatnonzero(np.r_[True, positions[1:] != positions[:-1]])
        return positions[starts], np.bitwise_and.reduceat(masks, starts, axis=0)

    def margins_from_exits(self, positions, masks, n_rows, first_tree, n_trees, margins):
        """Adds the trees' leaf values to `margins` (float32, OUT), which start at `base_margin`. ProtocolError if the exits
        are not of these rows and trees."""
        if len(margins) != n_rows:
            raise ValueError(f"{len(margins)} margins for {n_rows} rows")
        lists = self._lists_of(first_tree, n_trees)
        if not exits.add_exits(positions, masks, lists.word_begin, lists.leaf_values, margins):
            raise ProtocolError("exits that are not of these rows and trees")

    def _walk(self, rows, margins):
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
                walking.lay_out(
                    rows.indptr, rows.columns, rows.values, self._skip_zeros, *self._lookup, _found(), begin, k, laid_out
                )
            walking.walk(laid_out, k, *self._walked, part)

    def _walk_is_faster(self, n_rows: int) -> bool:
        """Whether going down each tree row by row takes less time than sorting whole blocks into nodes, or less room."""
        if self._most_leaves > scoring.MOST_LEAVES or len(self.features) > MOST_FEATURES:
            return True
        return -(-n_rows // LANES) * self._steps_of_block > n_rows * self._steps_of_row

    # What rows are scored by is made when it is first needed, by whichever thread needs it.

    @cached_property
    def _lookup(self) -> tuple[np.ndarray, int, np.ndarray]:
        return _lookup(self.features)

    @cached_property
    def _places(self) -> np.ndarray:
        return _places(self.features)

    @cached_property
    def _blocks(self) -> tuple[np.ndarray, ...]:
        return self._nodes.blocks(self._unstored)

    @cached_property
    def _walked(self) -> tuple[np.ndarray, ...]:
        return self._nodes.steps()

    @cached_property
    def _most_leaves(self) -> int:
        return int(self._nodes.n_leaves.max(initial=1))

    @cached_property
    def _steps_of_block(self) -> float:
        return STEPS_OF_TREE * self.n_trees + STEPS_OF_NODE * float(self._nodes.n_leaves.sum())

    @cached_property
    def _steps_of_row(self) -> float:
        return float(self._nodes.depths().sum())

    def _scratch(self) -> tuple[np.ndarray, ...]:
        """What add_scores and add_dense_scores work on: cells, conditions, reached, planes, sums."""
        usual = self._blocks[3]
        reached = aligned((2 * self._most_leaves + 7) * WORDS, np.uint64, 0)
        reached[:WORDS] = _ALL
        conditions = aligned(len(usual) * WORDS, np.uint64, 0)
        conditions.reshape(-1, WORDS)[:] = usual[:, None]
        return (
            aligned((len(self.features) + 1) * LANES, np.float32, self._unstored), conditions, reached,
            aligned(scoring.NUMBER_BITS * WORDS, np.uint64, 0), aligned(LANES, np.float32, 0),
        )  # fmt: skip

    def _lists_of(self, first_tree, n_trees) -> Lists:
        key = first_tree, n_trees
        if key not in self._lists:
            if not 0 <= first_tree <= first_tree + n_trees <= self.n_trees:
                raise ValueError(f"trees {first_tree} + {n_trees} of a forest of {self.n_trees}")
            self._lists[key] = self._nodes.lists(first_tree, n_trees)
        return self._lists[key]


def _lookup(features) -> tuple[np.ndarray, int, np.ndarray]:
    """members, shift, table of add_scores."""
    n_bits = max(32 * len(features), 1 << 12).bit_length()
    bits = (features.astype(np.uint64) * np.uint64(column_tables.MIX)) >> np.uint64(64 - n_bits)
    members = np.zeros((1 << n_bits) // 64, np.uint64)
    np.bitwise_or.at(members, (bits >> np.uint64(6)).astype(np.int64), np.uint64(1) << (bits & np.uint64(63)))
    return members, 64 - n_bits, hash_of(features, 2 * len(features), WIDE)


def _places(features) -> np.ndarray:
    """places of add_scores; empty if most columns below the last are not the forest's: then a filter skips them sooner."""
    if len(features) == 0 or TABLE_SHARE * len(features) <= features[-1]:
        return np.empty(0, np.int32)
    places = np.full(features[-1] + 2, len(features), np.int32)
    places[features] = np.arange(len(features))
    return places


def _found() -> np.ndarray:
    return np.empty(column_tables.FILTERED + 1, np.int32)


def _lists_of_block(n_features: int) -> tuple[np.ndarray, ...]:
    """stored, n_stored, touched of add_scores."""
    n = n_features + 1
    return np.empty(n * scoring.FEW, np.uint8), np.zeros(n, np.int32), np.empty(n, np.int32)
