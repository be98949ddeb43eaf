"""Knows that routing by bitvectors is walking the tree; does not know files."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.boosting.forest import Forest, Tree
from psboost.boosting.scorer import Scorer
from tests.naive import scoring as naive

RULES = [True, False, None]
FORESTS = st.lists(st.sampled_from([1, 2, 3, 7, 20, 64, 65, 100, 150, 200]), min_size=1, max_size=5)


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
    rows = make_rows(X, stored, forest.scorer)
    expected = naive.margins(forest.trees, naive.cells(X, stored, rule), forest.base_margin)
    np.testing.assert_array_equal(forest._margins(rows, "quickscorer"), expected)
    np.testing.assert_array_equal(forest._margins(rows, "walk"), expected)
    np.testing.assert_array_equal(forest._margins(rows), expected)


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
        positions, masks = Scorer.and_exits(parts)
        scorer.margins_from_exits(positions, masks, n_rows, first, n_trees, margins)
    np.testing.assert_array_equal(margins, scorer.margins(make_rows(X, stored, scorer)))


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
            scorer.partial_exits(make_rows(X[rows], stored, scorer, shard), 0, 1)
            for shard in (first_column, ~first_column)
        ]
        assert [text(part) for part in parts] == list(of_workers)
        servers.append(Scorer.and_exits(parts))
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
    for method in ("quickscorer", "walk"):
        got = forest._margins(make_rows(X, stored, forest.scorer), method)
        np.testing.assert_array_equal(got, expected)
    assert forest.scorer.n_words == 5


def test_many_trees_are_scored_in_chunks(monkeypatch):
    from psboost.boosting import scorer as module

    rng = np.random.default_rng(2)
    forest = naive.random_forest(rng, [30] * 40, 6, True)
    X, stored = naive.random_rows(rng, 60, 6)
    rows = make_rows(X, stored, forest.scorer)
    whole = forest._margins(rows, "quickscorer")
    monkeypatch.setattr(module, "CACHE_BYTES", 2000)
    monkeypatch.setattr(module, "MASK_BYTES", 1000)
    assert len(list(forest.scorer._chunks())) > 5
    np.testing.assert_array_equal(forest._margins(rows, "quickscorer"), whole)
    np.testing.assert_array_equal(forest._margins(rows, "walk"), whole)
    margins = np.full(60, forest.base_margin, np.float32)
    forest.scorer.margins_from_exits(*forest.scorer.partial_exits(rows, 0, 40), 60, 0, 40, margins)
    np.testing.assert_array_equal(margins, whole)


def test_no_trees_and_bad_ranges():
    scorer = Scorer([], base_margin=0.5)
    rows = make_rows(np.zeros((3, 0), np.float32), np.zeros((3, 0), bool), scorer)
    assert scorer.margins(rows).tolist() == [0.5, 0.5, 0.5]
    assert scorer.margins(rows, "walk").tolist() == [0.5, 0.5, 0.5]
    positions, masks = scorer.partial_exits(rows, 0, 0)
    assert len(positions) == 0 and masks.shape == (0, 1)
    with pytest.raises(ValueError, match="trees 0 \\+ 1 of a forest of 0"):
        scorer.partial_exits(rows, 0, 1)
    with pytest.raises(ValueError, match="unknown method"):
        scorer.margins(rows, "run")
    with pytest.raises(ValueError, match="2 margins for 3 rows"):
        scorer.margins_from_exits(positions, masks, 3, 0, 0, np.zeros(2, np.float32))
