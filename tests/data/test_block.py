"""Blocks: bin ids by row and rows by bin id, beside a naive twin; what falls in no bin, and too many bins."""

from dataclasses import fields
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.data import block as block_module
from psboost.data.block import (
    NARROW_BINS,
    DenseBlock,
    Members,
    SparseBlock,
    bin_offsets_of,
    bins_of,
    build_block,
    tilings_of,
)
from psboost.data.columns import to_columns
from psboost.data.cut_points import CutPoints
from psboost.data.sketches import Sketches
from psboost.errors import DataError
from psboost.kernels import binning as kernels
from psboost.kernels.words import n_words_of
from tests.naive import binning as naive
from tests.naive import routing as naive_routing
from tests.plain import as_kernel

FLOAT_MAX = float(np.finfo(np.float32).max)
RULES = [True, False, "unstored"]
VALUES = st.sampled_from([-3.0, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, float("nan"), float("inf"), FLOAT_MAX])
CUTS = st.one_of(
    st.just([]),
    st.sets(st.sampled_from([-1.0, 0.0, 1.0, 1.25, 2.0])).map(lambda cuts: [*sorted(cuts), FLOAT_MAX]),
)


@st.composite
def problem(draw):
    """(rows as lists of (feature, value), cuts by feature, has_missing by feature)"""
    cuts = draw(st.lists(CUTS, max_size=5))
    has_missing = [int(bool(own) and draw(st.booleans())) for own in cuts]
    features = st.sets(st.integers(0, len(cuts) - 1)) if cuts else st.just(set())
    values = draw(st.just(VALUES) | VALUES.map(st.just))
    rows = [[(f, draw(values)) for f in sorted(draw(features))] for _ in range(draw(st.integers(0, 8)))]
    return rows, cuts, has_missing


def columns_of(rows, n_features):
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    features = np.array([f for row in rows for f, _ in row], np.int32)
    return to_columns([(indptr, features, np.array([v for row in rows for _, v in row], np.float32))], n_features)


def cut_points_of(cuts, has_missing):
    offsets = np.cumsum([0, *map(len, cuts)])
    values = np.array([cut for own in cuts for cut in own], np.float32)
    return CutPoints(offsets, values, np.array(has_missing, np.uint8))


def rows_of(block):
    """Each row's bins, without what pads them."""
    rows = [block.bins[b:e].tolist() for b, e in pairwise(block.indptr)]
    if block.stride:
        assert block.indptr.tolist() == [block.stride * row for row in range(block.n_rows + 1)]
        assert block.bins.ctypes.data % 64 == 0 and block.stride * block.bins.itemsize <= 64
        for row in rows:
            n_own = sum(b < block.n_bins for b in row)
            assert row[n_own:] == [block.n_bins + k for k in range(n_own, block.stride)]
            del row[n_own:]
    return rows


def check(rows, cuts, has_missing, zero_as_missing):
    block = check_sparse(rows, cuts, has_missing, zero_as_missing)
    columns, points = columns_of(rows, len(cuts)), cut_points_of(cuts, has_missing)
    check_dense(build_block(columns, points, zero_as_missing, dense=True), block)
    return block


def check_sparse(rows, cuts, has_missing, zero_as_missing):
    columns, points = columns_of(rows, len(cuts)), cut_points_of(cuts, has_missing)
    block = build_block(columns, points, zero_as_missing, dense=False)
    by_row, postings = naive.scatter_bins(
        naive.scatter_columns(rows, len(cuts)), cuts, has_missing, zero_as_missing is False, len(rows)
    )
    assert (block.n_rows, block.n_features, block.n_bins) == (len(rows), len(cuts), len(postings))
    assert rows_of(block) == by_row
    held = zip(block.posting_offsets, block.posting_offsets[1:], strict=False)
    assert [block.posting_rows[b:e].tolist() for b, e in held] == postings
    assert np.diff(block.bin_offsets).tolist() == [len(c) + m for c, m in zip(cuts, has_missing, strict=True)]
    assert block.n_cuts.tolist() == [len(own) for own in cuts]
    spent = build_block(columns, points, zero_as_missing, dense=False, overwrite=True)
    if columns.value is None:
        assert spent.posting_rows.size == 0 or np.shares_memory(spent.posting_rows, columns.values)
    elif all(cuts):
        assert np.shares_memory(spent.posting_rows, columns.rows)
    for name in ("indptr", "bins", "posting_offsets", "posting_rows"):
        np.testing.assert_array_equal(getattr(spent, name), getattr(block, name))
    return block


@pytest.mark.parametrize("frequent", [1, 3])
def test_the_rows_of_frequent_bins_by_tiles(frequent):
    """Bins of no row to all rows, 10 tiles of 5 rows, the last of which has 3, and 6 of 8."""
    rng, n_rows, most = np.random.default_rng(frequent), 48, 2**31 - 1
    postings = [np.sort(rng.choice(n_rows, n, replace=False)) for n in (0, 2, 14, 6, 48, 38, 8, 31)]
    offsets, rows = np.cumsum([0, *map(len, postings)]), np.concatenate(postings).astype(np.int32)
    tilings = tilings_of(offsets, rows, n_rows, True, [(5, frequent), (8, 1)])
    for tiles, size, least in zip(tilings, (5, 8), (10 * frequent, 6), strict=True):
        assert tiles.bins.tolist() == [b for b, own in enumerate(postings) if least < len(own) < most] != []
        assert (tiles.size, tiles.least) == (size, least + 1)
        held = np.split(tiles.rows, np.cumsum(tiles.counts, dtype=np.int64)[:-1])
        for i, b in enumerate(tiles.bins):
            of_bin = [size * tile + own.astype(int) for tile, own in enumerate(held[i :: len(tiles.bins)])]
            of_tiles = np.bincount(postings[b] // size, minlength=-(-n_rows // size))
            assert [len(own) for own in of_bin] == of_tiles.tolist()
            assert np.concatenate(of_bin).tolist() == postings[b].tolist()
        most = tiles.least


def test_no_bins_in_a_few_large_tiles():
    offsets, rows = np.array([0, 48]), np.arange(48, dtype=np.int32)
    made = tilings_of(offsets, rows, 48, True, [(16, 1), (8, 10), (5, 1), (5, 1)])  # three tiles; bins of more rows
    assert [len(tiles.bins) for tiles in made] == [0, 0, 1, 0]
    assert [tiles.least for tiles in made] == [2**31 - 1, 61, 11, 11]


def check_dense(dense, sparse):
    """Both hold the same."""
    for name in ("bin_offsets", "n_cuts"):
        np.testing.assert_array_equal(getattr(dense, name), getattr(sparse, name))
    n_bins = np.diff(dense.bin_offsets)
    cells = dense.cells.reshape(dense.n_rows, dense.n_features)
    assert dense.cells.dtype == (np.uint8 if dense.stride <= 256 else np.uint16)
    assert (cells < dense.stride).all()
    for row, own in enumerate(rows_of(sparse)):
        stored = np.flatnonzero(cells[row] < n_bins)
        assert (cells[row] <= n_bins).all()
        np.testing.assert_array_equal(dense.bin_offsets[stored] + cells[row, stored], own)
    for feature in range(dense.n_features):
        for bin_, nan_left, unstored_left in product(range(sparse.n_cuts[feature]), (0, 1), (0, 1)):
            check_clear_bits(dense, sparse, feature, bin_, nan_left, unstored_left)


def check_clear_bits(dense, sparse, feature, bin_, nan_left, unstored_left):
    """A split of node 1, a third of the rows, as bits and as a list; one of node 2 by a feature of another part's."""
    rows_of = [np.arange(node, dense.n_rows, 3, dtype=np.int32) for node in range(3)]
    is_in = [[row % 3 == node for row in range(dense.n_rows)] for node in range(3)]
    words = np.array([naive_routing.to_words(own) for own in is_in], np.uint64)
    lists, middle = np.concatenate([rows_of[2], rows_of[1]]), len(rows_of[2])
    how, found = (bin_, nan_left, unstored_left, 1), []
    splits = np.array([(1, 5, 7 + feature, *how), (2, 5, 6, *how), (2, 4, 7 + feature, *how)], np.int32)
    for block in (dense, sparse):
        for where in ([1, 0, 0], [-1, middle, len(lists)]):
            members = Members(words, lists, np.array([[0, 0, 0], where, [-1, 0, middle]]))
            bits, half = np.full(n_words_of(dense.n_rows), np.uint64(2**64 - 1)), dense.n_rows // 128 * 64
            for rows in (slice(0, half), slice(half, dense.n_rows)):
                block.clear_bits(splits, 5, 7, rows, members, bits)
            found.append(np.unpackbits(bits.view(np.uint8), bitorder="little")[: dense.n_rows].tolist())
    first, n_cuts = sparse.bin_offsets[feature], sparse.n_cuts[feature]
    away = list(range(bin_ + 1, n_cuts) if unstored_left else range(bin_ + 1))
    if sparse.bin_offsets[feature + 1] - first > n_cuts and nan_left != unstored_left:
        away.append(n_cuts)
    leave = [sparse.posting_rows[slice(*sparse.posting_offsets[first + b : first + b + 2])] for b in away]
    leave = np.concatenate([np.empty(0, np.int32), *leave])
    expected = [int(row % 3 != 1 or row not in leave) for row in range(dense.n_rows)]
    assert found == [expected] * 4


def test_cells_widen_when_a_feature_with_all_of_256_bins_is_not_stored_everywhere():
    cuts = [[*np.arange(1.0, 256.0).tolist(), FLOAT_MAX], [FLOAT_MAX]]
    rows = [[(0, row + 0.5), (1, 1.0)] for row in range(256)]
    assert check(rows, cuts, [0, 0], True).n_bins == 257
    points = cut_points_of(cuts, [0, 0])
    assert build_block(columns_of(rows, 2), points, True).cells.dtype == np.uint8
    rows[7] = [(1, 1.0)]
    block = build_block(columns_of(rows, 2), points, True)
    assert (block.cells.dtype, block.stride, block.cells[2 * 7]) == (np.uint16, 257, 256)


def test_cells_that_are_0_are_in_its_bin_rather_than_widen_all():
    cuts = [[*np.arange(-99.0, 156.0).tolist(), FLOAT_MAX], [FLOAT_MAX]]
    rows = [[(0, row - 99.5), (1, 1.0)] for row in range(256)]
    rows[7] = rows[200] = [(1, 1.0)]
    block = build_block(columns_of(rows, 2), cut_points_of(cuts, [0, 0]), False)
    assert (block.cells.dtype, block.stride) == (np.uint8, 256)
    assert [int(cell) for cell in block.columns[0]] == [100 if row in (7, 200) else row for row in range(256)]
    assert (block.columns == block.cells.reshape(256, 2).T).all()


def test_the_form_follows_the_share_of_cells_that_are_stored():
    points = cut_points_of([[FLOAT_MAX]] * 4, [0] * 4)
    assert isinstance(build_block(columns_of([[(0, 1.0), (2, 1.0)]], 4), points, True), DenseBlock)
    assert isinstance(build_block(columns_of([[(0, 1.0)]], 4), points, True), SparseBlock)


@given(problem(), st.sampled_from(RULES))
def test_block_is_that_of_the_naive_twin(data, zero_as_missing):
    rows, cuts, has_missing = data
    block = check(rows, cuts, has_missing, zero_as_missing)
    no_arrays = "n_rows", "stride", "rows_ascend", "bitmaps", "tilings"
    arrays = [field.name for field in fields(block) if field.name not in no_arrays]
    dtypes = {name: getattr(block, name).dtype for name in arrays}
    others = {"bins": np.uint16, "posting_offsets": np.int64}
    assert dtypes == {name: np.dtype(others.get(name, np.int32)) for name in dtypes}


@pytest.mark.parametrize(("most", "n_full", "stride"), [(4, 10, 4), (5, 10, 8), (16, 10, 16), (17, 10, 0), (16, 3, 0)])
def test_rows_are_padded_where_all_are_short_and_most_have_some_bins(most, n_full, stride):
    rows = [[(f, 1.0) for f in range(most)]] * n_full + [[]] * (10 - n_full)
    assert check(rows, [[np.inf]] * most, [0] * most, True).stride == stride


@pytest.mark.parametrize("n_features", [NARROW_BINS, NARROW_BINS + 1])
def test_rows_are_narrow_where_that_holds_all_bins(n_features):
    rows = [[(0, 1.0), (n_features - 1, 1.0)], [], [(7, 1.0)]]
    block = check_sparse(rows, [[np.inf]] * n_features, [0] * n_features, True)
    is_narrow = n_features == NARROW_BINS
    dtypes = (np.int32, np.uint16) if is_narrow else (np.int64, np.int32)
    assert (block.indptr.dtype, block.bins.dtype) == dtypes and n_features - 1 in block.bins


def test_block_with_the_kernels_as_plain_python(monkeypatch):
    monkeypatch.setattr(block_module, "count_occurrences", block_module.count_occurrences.py_func)
    for name in ("bin_columns", "find_bins_of", "scatter_bins", "pad_rows"):
        monkeypatch.setattr(kernels, name, getattr(kernels, name).py_func)

    @settings(deadline=None)
    @given(problem(), st.sampled_from(RULES))
    def test(data, zero_as_missing):
        check(*data, zero_as_missing)

    test()


@settings(deadline=None)  # the first one compiles
@given(st.lists(st.floats(width=32, allow_nan=False), max_size=9), st.floats(width=32, allow_nan=False))
def test_value_below_a_cut_exactly_when_its_bin_is_not_above(others, value):
    cuts = np.array(sorted({c for c in others if c < FLOAT_MAX}) + [FLOAT_MAX], np.float32)
    found = as_kernel(kernels.find_bin)(cuts, 0, len(cuts), np.float32(value))
    assert kernels.find_bin(cuts, 0, len(cuts), np.float32(value)) == found
    if value < FLOAT_MAX:
        assert [value < float(cut) for cut in cuts] == [found <= b for b in range(len(cuts))]
    else:
        assert found == len(cuts) - 1


@pytest.mark.parametrize("kind", ["kll", "exact"])
@pytest.mark.parametrize("zero_as_missing", RULES)
def test_values_and_their_bins_agree_with_the_cut_points(kind, zero_as_missing):
    rng = np.random.default_rng(0)
    n_rows, n_train, n_features = 3000, 2500, 6
    table = rng.standard_normal((n_rows, n_features)).astype(np.float32)
    table[:, 1] = np.round(table[:, 1]) + 0.0  # -0.0 is never stored
    table[:, 2] = 1
    table[:, 3] = 0
    table[rng.random(table.shape) < 0.3] = 0
    if not zero_as_missing:
        table[rng.random(table.shape) < 0.1] = np.nan
    stored = table != 0
    if zero_as_missing == "unstored":
        stored |= rng.random(table.shape) < 0.1
    rows = [[(f, row[f]) for f in np.flatnonzero(held)] for row, held in zip(table, stored, strict=True)]
    columns = columns_of(rows, n_features)
    sketches = Sketches.summarise(columns, 0, n_features, n_train, max_bin=32, kind=kind)
    points = sketches.cut_points(max_bin=32, zero_as_missing=zero_as_missing)
    block = build_block(columns, points, zero_as_missing, dense=False)
    assert block.n_cuts.max() in range(20, 33)  # the heavy zero takes the place of some
    of_rows = rows_of(block)
    for row in range(n_rows):
        for bin_id in of_rows[row]:
            f = int(np.searchsorted(block.bin_offsets, bin_id, side="right")) - 1
            b = bin_id - block.bin_offsets[f]
            own = points.cuts[points.offsets[f] : points.offsets[f + 1]]
            value = table[row, f]
            if b == len(own):
                assert np.isnan(value)
            else:
                assert value < own[b]
                assert b == 0 or value >= own[b - 1]
    dense = build_block(columns, points, zero_as_missing, dense=True)
    cells = dense.cells.reshape(n_rows, n_features)
    held_rows, held = np.nonzero(cells < np.diff(dense.bin_offsets))
    np.testing.assert_array_equal(dense.bin_offsets[held] + cells[held_rows, held], sum(of_rows, []))
    assert np.bincount(held_rows, minlength=n_rows).tolist() == [*map(len, of_rows)]
    known = np.diff(points.offsets) > 0
    assert len(block.posting_rows) == np.count_nonzero(stored[:, known])
    train = np.diff(block.posting_offsets)
    numeric = np.ones(block.n_bins, bool)
    if not zero_as_missing:  # no row stores the bin of 0
        numeric[bins_of(points, 0.0)[known] + block.bin_offsets[:-1][known]] = False
    assert train[numeric].min() > 0


def test_empty_blocks():
    check([], [], [], True)
    check([[], []], [], [], False)
    check([], [[1.0, FLOAT_MAX], []], [0, 0], True)
    check([[]], [[FLOAT_MAX], []], [1, 0], False)


def test_one_row():
    check([[(0, 1.0), (2, float("nan"))]], [[FLOAT_MAX], [0.5, FLOAT_MAX], [FLOAT_MAX]], [0, 0, 1], False)


def test_more_bins_than_int32_holds_are_refused():
    class Huge:
        offsets = np.array([0, 2**31 - 2, 2**31 - 1])
        has_missing = np.zeros(2, np.uint8)

    with pytest.raises(DataError, match="2147483647 bins"):
        bin_offsets_of(Huge)
    Huge.offsets = Huge.offsets - [0, 1, 1]
    assert bin_offsets_of(Huge).tolist() == Huge.offsets.tolist()


def test_cut_points_of_other_features_are_refused():
    points = cut_points_of([[FLOAT_MAX]] * 3, [0] * 3)
    with pytest.raises(DataError, match="3 features for a block of 2"):
        build_block(columns_of([[]], 2), points, True)
    with pytest.raises(DataError, match="3 features for a block of 2"):
        build_block(columns_of([[]], 4), points, True, begin=2)


@pytest.mark.parametrize("dense", [False, True])
def test_a_block_of_some_of_the_features(dense):
    rows = [[(0, 1.0), (1, 0.5), (2, 3.0)], [(1, 2.0)], [(2, 0.5)]]
    cuts = [[FLOAT_MAX], [1.0, FLOAT_MAX], [1.0, FLOAT_MAX]]
    part = build_block(columns_of(rows, 3), cut_points_of(cuts[1:], [0, 0]), True, begin=1, dense=dense)
    own = [[(f - 1, value) for f, value in row if f] for row in rows]
    whole = build_block(columns_of(own, 2), cut_points_of(cuts[1:], [0, 0]), True, dense=dense)
    assert dense or all(len(tiles.bins) == 0 for block in (part, whole) for tiles in block.tilings)
    for field in (field for field in fields(whole) if field.name not in ("bitmaps", "tilings")):
        np.testing.assert_array_equal(getattr(part, field.name), getattr(whole, field.name))
    if not dense:
        for own, expected in zip(part.bitmaps, whole.bitmaps, strict=True):
            np.testing.assert_array_equal(own, expected)


def test_bins_of_more_than_a_part_of_the_rows_have_bitmaps():
    """Of 130 rows, feature f of 0 .. 11 is stored in the last f."""
    rows = [[(f, 1.0) for f in range(12) if row >= 130 - f] for row in range(130)]
    block = build_block(columns_of(rows, 12), cut_points_of([[FLOAT_MAX]] * 12, [0] * 12), True, dense=False)
    assert block.bitmaps.of_bins.tolist() == [-1] * 9 + [0, 1, 2]  # 9 is more than 130 / FREQUENT
    for bitmap, n in zip(block.bitmaps.words, range(9, 12), strict=True):
        assert bitmap.tolist() == naive_routing.to_words([row >= 130 - n for row in range(130)])
