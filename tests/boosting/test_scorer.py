"""Knows that routing by bitvectors is walking the tree; does not know files."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.boosting.forest import Forest, Tree
from psboost.boosting.scorer import Scorer
from psboost.errors import ProtocolError
from psboost.kernels import scoring
from psboost.kernels.lanes import LANES
from tests.naive import scoring as naive

RULES = [True, False, "unstored"]
METHODS = ["bits", "walk", None]
FORESTS = st.lists(st.sampled_from([1, 2, 3, 7, 20, 64, 65, 100, 150, 200]), min_size=1, max_size=5)


def make_cells(X, stored, rng=None):
    """What a source hands over; with `rng` the columns of a row come in any order."""
    rows, columns = np.nonzero(stored)
    if rng is not None:
        order = np.lexsort([rng.random(len(rows)), rows])
        columns = columns[order]
    return SimpleNamespace(
        indptr=np.concatenate([[0], np.cumsum(stored.sum(axis=1))]).astype(np.int64),
        columns=columns.astype(np.int32 if rng is None else np.int64),
        values=np.ascontiguousarray(X[rows, columns], np.float32),
    )


def make_rows(X, stored, scorer, shard=None):
    """Rows as a source reads them with keep=scorer.features, or only the features of one shard."""
    kept = stored[:, scorer.features].copy()
    if shard is not None:
        kept[:, ~shard] = False
    rows, positions = np.nonzero(kept)
    return SimpleNamespace(
        indptr=np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int64),
        features=positions.astype(np.int32),
        values=np.ascontiguousarray(X[:, scorer.features][rows, positions]),
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), FORESTS, st.sampled_from(RULES), st.integers(1, 12), st.integers(0, 30))
def test_bitvectors_route_as_walking_does(seed, n_leaves, rule, n_features, n_rows):
    rng = np.random.default_rng(seed)
    forest = naive.random_forest(rng, n_leaves, n_features, rule)
    X, stored = naive.random_rows(rng, n_rows, n_features)
    if rule is False:
        stored = stored | np.isnan(X)
    expected = naive.margins(forest.trees, naive.cells(X, stored, rule), forest.base_margin)
    for rows in (make_cells(X, stored), make_cells(X, stored, rng)):
        for method in METHODS:
            np.testing.assert_array_equal(forest.scorer.margins(rows, method), expected)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), FORESTS, st.sampled_from(RULES), st.integers(1, 12), st.integers(0, 150))
def test_dense_rows_of_every_layout(seed, n_leaves, rule, n_features, n_rows):
    rng = np.random.default_rng(seed)
    forest = naive.random_forest(rng, n_leaves, n_features, rule)
    X, _ = naive.random_rows(rng, n_rows, n_features)
    X[rng.random(X.shape) < 0.1] = np.nan
    expected = naive.margins(forest.trees, naive.cells(X, np.ones(X.shape, bool), rule), forest.base_margin)
    spaced = np.full((2 * n_rows, 3 * n_features), -7, np.float32)
    spaced[::2, ::3] = X
    for values in (X, np.asfortranarray(X), spaced[::2, ::3], X[::-1].copy()[::-1]):
        for method in METHODS:
            got = forest.scorer.margins(SimpleNamespace(values=values), method)
            np.testing.assert_array_equal(got, expected)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), FORESTS, st.sampled_from(RULES), st.integers(1, 4), st.integers(0, 20))
def test_feature_shards_give_the_margins_of_the_whole(seed, n_leaves, rule, n_shards, n_rows):
    rng = np.random.default_rng(seed)
    forest = naive.random_forest(rng, n_leaves, 9, rule)
    scorer = forest.scorer
    X, stored = naive.random_rows(rng, n_rows, 9)
    shard_of = rng.integers(0, n_shards, len(scorer.features))
    border = int(rng.integers(0, scorer.n_trees + 1))
    margins = np.full(n_rows, scorer.base_margin, np.float32)
    for first, n_trees in ((0, border), (border, scorer.n_trees - border)):
        parts = [
            scorer.partial_exits(make_rows(X, stored, scorer, shard_of == shard), first, n_trees)
            for shard in range(n_shards)
        ]
        for positions, masks in parts:
            assert positions.dtype == np.int64 and masks.dtype == np.uint64
            assert masks.shape == (len(positions), scorer.n_words)
            assert (np.diff(positions) > 0).all()
            assert (masks != np.uint64(2**64 - 1)).any(axis=1).all()
        positions, masks = scorer.and_exits(parts)
        scorer.margins_from_exits(positions, masks, n_rows, first, n_trees, margins)
    np.testing.assert_array_equal(margins, scorer.margins(make_cells(X, stored)))


def test_the_posters_worked_example():
    # F1 < 5 (root), F2 < 1 (left), F3 < 500 (right); D1 .. D4 from left to right; false goes right. The
    # poster's row with F2 = 1 passes F2 < 1, so that node means "at most 1": its threshold is the next float.
    tree = Tree(
        left=np.array([1, 3, 5, -1, -1, -1, -1], np.int32),
        right=np.array([2, 4, 6, -1, -1, -1, -1], np.int32),
        feature=np.array([0, 1, 2, -1, -1, -1, -1], np.int64),
        threshold=np.array([5, np.nextafter(np.float32(1), np.float32(2)), 500, 0, 0, 0, 0], np.float32),
        default_left=np.array([1, 1, 1, 0, 0, 0, 0], np.uint8),
        value=np.array([0, 0, 0, 1, 2, 3, 4], np.float32),
        gain=np.zeros(7, np.float32),
        sum_hess=np.zeros(7, np.float32),
    )
    scorer = Scorer([tree], zero_as_missing=True)
    X = np.array([[13, 0, 488], [7, 1, 667], [3.5, 0, 122], [1.6, 2, 366]], np.float32)
    first_column = np.array([True, False, False])

    def text(exits):
        """One bitstring for each of two rows, leftmost bit = leftmost leaf."""
        masks = dict(zip(exits[0].tolist(), exits[1][:, 0].tolist(), strict=True))
        return [format(masks.get(row, 2**64 - 1) & 15, "04b")[::-1] for row in range(2)]

    servers = []
    for rows, of_workers in (
        (slice(0, 2), (["0011", "0011"], ["1111", "1101"])),
        (slice(2, 4), (["1111", "1111"], ["1111", "0111"])),
    ):
        stored = X[rows] != 0
        parts = [
            scorer.partial_exits(make_rows(X[rows], stored, scorer, shard), 0, 1) for shard in (first_column, ~first_column)
        ]
        assert [text(part) for part in parts] == list(of_workers)
        servers.append(scorer.and_exits(parts))
    assert [text(exits) for exits in servers] == [["0011", "0001"], ["1111", "0111"]]
    margins = np.zeros(4, np.float32)
    for exits, part in zip(servers, (margins[:2], margins[2:]), strict=True):
        scorer.margins_from_exits(*exits, 2, 0, 1, part)
    assert margins.tolist() == [3, 4, 1, 2]


@pytest.mark.parametrize("rule", RULES)
def test_a_chain_of_300_leaves(rule):
    rng = np.random.default_rng(5)
    n = 300
    left, right = np.full(2 * n - 1, -1, np.int32), np.full(2 * n - 1, -1, np.int32)
    for split in range(n - 1):
        node = 0 if split == 0 else 2 * split
        left[node], right[node] = 2 * split + 1, 2 * split + 2
    inner = left >= 0
    tree = naive.random_tree(rng, n, np.arange(4), rng.normal(size=9))
    tree = Tree(
        **{
            **tree.__dict__, "left": left, "right": right,
            "feature": np.where(inner, rng.integers(0, 4, 2 * n - 1), -1),
            "threshold": np.where(inner, np.linspace(-3, 3, 2 * n - 1), 0).astype(np.float32),
            "default_left": (inner & (rng.random(2 * n - 1) < 0.05)).astype(np.uint8),
        }
    )  # fmt: skip
    forest = Forest([tree], "reg:squarederror", 0.0, 4, rule)
    forest.check()
    X = rng.normal(size=(50, 4)).astype(np.float32) * 2
    stored = rng.random(X.shape) < 0.7
    X[~stored] = 0
    expected = naive.margins([tree], naive.cells(X, stored, rule), 0)
    for method in ("bits", "walk"):
        got = forest.scorer.margins(make_cells(X, stored), method)
        np.testing.assert_array_equal(got, expected)
    assert forest.scorer.n_words == 5


@pytest.mark.parametrize("rule", RULES)
def test_several_blocks_of_rows_and_parts_of_bitvectors(rule, monkeypatch):
    from psboost.boosting import scorer as module

    rng = np.random.default_rng(2)
    forest = naive.random_forest(rng, [30, 1, 300, 8, 9, 64, 2] * 4, 6, rule)
    n_rows = 4 * LANES + 60
    X, stored = naive.random_rows(rng, n_rows, 6)
    if rule is False:
        stored = stored | np.isnan(X)
    stored[: LANES + 9, 0] = stored[LANES:, 1] = False  # in some blocks by few rows or none
    thin = stored[LANES : 3 * LANES]  # two blocks of few values; in the second, most are of one feature
    thin &= rng.random(thin.shape) < np.where(np.arange(len(thin))[:, None] < LANES, 0.03, [0, 0.01, 0.2, 0.01, 0, 0.01])
    X[~stored] = 0
    expected = naive.margins(forest.trees, naive.cells(X, stored, rule), forest.base_margin)
    monkeypatch.setattr(module, "CACHE_BYTES", 2000)
    monkeypatch.setattr(module, "MASK_BYTES", 1000)
    scorer = Scorer(forest.trees, rule, forest.base_margin)
    for method in METHODS:
        np.testing.assert_array_equal(scorer.margins(make_cells(X, stored), method), expected)
    rows = make_rows(X, stored, scorer)
    margins = np.full(n_rows, forest.base_margin, np.float32)
    scorer.margins_from_exits(*scorer.partial_exits(rows, 0, 28), n_rows, 0, 28, margins)
    np.testing.assert_array_equal(margins, expected)


def test_few_rows_are_walked_and_many_are_not(monkeypatch):
    from psboost.boosting import scorer as module

    rng = np.random.default_rng(2)
    scorer = naive.random_forest(rng, [64] * 40, 6, True).scorer
    assert scorer._walk_is_faster(1)
    assert not scorer._walk_is_faster(1000)
    monkeypatch.setattr(module, "MOST_FEATURES", len(scorer.features) - 1)
    assert scorer._walk_is_faster(1000)


def test_no_trees_and_bad_ranges():
    scorer = Scorer([], base_margin=0.5)
    for cells in (make_cells(np.ones((3, 2)), np.ones((3, 2), bool)), SimpleNamespace(values=np.ones((3, 2), np.float32))):
        for method in METHODS:
            assert scorer.margins(cells, method).tolist() == [0.5, 0.5, 0.5]
    rows = make_rows(np.zeros((3, 0), np.float32), np.zeros((3, 0), bool), scorer)
    positions, masks = scorer.partial_exits(rows, 0, 0)
    assert len(positions) == 0 and masks.shape == (0, 1)
    with pytest.raises(ValueError, match="trees 0 \\+ 1 of a forest of 0"):
        scorer.partial_exits(rows, 0, 1)
    with pytest.raises(ValueError, match="unknown method"):
        scorer.margins(cells, "run")
    with pytest.raises(ValueError, match="2 margins for 3 rows"):
        scorer.margins_from_exits(positions, masks, 3, 0, 0, np.zeros(2, np.float32))


def test_exits_that_no_worker_makes():
    """As a server might get: they lead nowhere, and nowhere outside the arrays."""
    rng = np.random.default_rng(0)
    scorer = naive.random_forest(rng, [100, 3], 9, "unstored").scorer
    X, stored = naive.random_rows(rng, 20, 9)
    positions, masks = scorer.partial_exits(make_rows(X, stored, scorer), 0, 2)
    margins = np.zeros(20, np.float32)
    scorer.margins_from_exits(positions, masks, 20, 0, 2, margins)
    for wrong in (masks[:, :1], masks[1:]):
        with pytest.raises(ProtocolError, match="exits of"):
            scorer.and_exits([(positions, wrong)])
    for places, wrong in ((positions, masks & np.uint64(0)), (positions[::-1].copy(), masks), (positions + 40, masks)):
        with pytest.raises(ProtocolError, match="not of these rows"):
            scorer.margins_from_exits(places, wrong, 20, 0, 2, margins)


@pytest.mark.parametrize("rule", RULES)
def test_features_of_very_many_thresholds_and_wide_rows(rule):
    rng = np.random.default_rng(11)
    thresholds = rng.normal(size=5000).astype(np.float32)
    numbers = np.array([3, 5_000, 70_000, 2**40])
    trees = [naive.random_tree(rng, 200, np.arange(4), thresholds) for _ in range(20)]
    wide = [Tree(**{**tree.__dict__, "feature": np.where(tree.left >= 0, numbers[tree.feature], -1)}) for tree in trees]
    scorer = Scorer(wide, rule, 0.25)
    assert len(scorer.margins(make_cells(np.zeros((1, 1)), np.zeros((1, 1), bool)), "bits")) == 1
    X = rng.choice(np.concatenate([thresholds, [np.nan, 0, -0.0]]).astype(np.float32), (150, 4))
    stored = rng.random(X.shape) < 0.8
    X[~stored] = 0
    expected = naive.margins(trees, naive.cells(X, stored, rule), 0.25)
    # Each row stores some 2,000 other columns too, more than are filtered together.
    indptr, columns, values = [0], [], []
    for row in range(len(X)):
        others = np.setdiff1d(rng.integers(0, 2**41, 2000 * (row % 2)), numbers)
        columns += [others, numbers[stored[row]]]
        values += [rng.normal(size=len(others)), X[row, stored[row]]]
        indptr.append(indptr[-1] + len(others) + stored[row].sum())
    cells = SimpleNamespace(
        indptr=np.array(indptr, np.int64), columns=np.concatenate(columns), values=np.concatenate(values).astype(np.float32)
    )
    for method in METHODS:
        np.testing.assert_array_equal(scorer.margins(cells, method), expected)


def test_columns_are_found_alike_by_table_and_by_hash(monkeypatch):
    from psboost.boosting import scorer as module

    rng = np.random.default_rng(4)
    numbers = np.array([1, 2, 4, 7, 8, 10])  # gaps before, between and behind them
    trees = naive.random_forest(rng, [30] * 10, 6, True).trees
    trees = [Tree(**{**tree.__dict__, "feature": np.where(tree.left >= 0, numbers[tree.feature], -1)}) for tree in trees]
    X, stored = naive.random_rows(rng, 100, 15)
    by_table = Scorer(trees, True)
    margins = by_table.margins(make_cells(X, stored), "bits")
    np.testing.assert_array_equal(margins, by_table.margins(make_cells(X, stored), "walk"))
    monkeypatch.setattr(module, "TABLE_SHARE", 0)
    by_hash = Scorer(trees, True)
    np.testing.assert_array_equal(by_hash.margins(make_cells(X, stored), "bits"), margins)
    assert len(by_table._places) == 12 and len(by_hash._places) == 0


def test_trees_of_more_leaves_than_numbers_tell_apart_are_walked(monkeypatch):
    rng = np.random.default_rng(3)
    forest = naive.random_forest(rng, [2048, 5], 6, True)
    X, stored = naive.random_rows(rng, 70, 6)
    cells = make_cells(X, stored)
    expected = naive.margins(forest.trees, naive.cells(X, stored, True), forest.base_margin)
    for method in METHODS:
        np.testing.assert_array_equal(forest.scorer.margins(cells, method), expected)
    monkeypatch.setattr(scoring, "MOST_LEAVES", 2047)
    assert forest.scorer._walk_is_faster(1 << 40)
    with pytest.raises(ValueError, match="a tree of 2048 leaves is walked"):
        Scorer(forest.trees, True, forest.base_margin).margins(cells, "bits")
    np.testing.assert_array_equal(Scorer(forest.trees, True, forest.base_margin).margins(cells), expected)
