"""Summaries of columns: exact runs and KLL, their merging, their wire form and the cut points they give."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from datasketches import kll_floats_sketch
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.data.columns import to_columns
from psboost.data.cut_points import CutPoints
from psboost.data.sketch_bytes import SketchBytes, feature_bytes
from psboost.data.sketches import Sketches, _weighted
from psboost.errors import DataError, ParameterError, ProtocolError
from psboost.kernels import binning as kernels
from tests.naive import binning as naive

FEW = st.sampled_from([-2.0, -1.0, 0.25, 0.5, 1.0, 3.0, float("nan")])
FLOAT_MAX = np.finfo(np.float32).max


@st.composite
def dense(draw, values=FEW):
    """A table of rows; 0 is not stored."""
    n_rows, n_features = draw(st.integers(0, 10)), draw(st.integers(0, 4))
    cell = st.one_of(st.just(0.0), values)
    cells = draw(st.lists(cell, min_size=n_rows * n_features, max_size=n_rows * n_features))
    return np.array(cells, np.float32).reshape(n_rows, n_features)


def columns_of(table, stored=None):
    rows, features = np.nonzero(table if stored is None else stored)
    indptr = np.zeros(len(table) + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=len(table)), out=indptr[1:])
    return to_columns([(indptr, features.astype(np.int32), table[rows, features])], table.shape[1])


def summarise(table, max_bin=4, kind="exact", **counted):
    columns = columns_of(table, counted.get("stored"))
    n_count_rows = counted.get("n_count_rows", len(table))
    return Sketches.summarise(columns, 0, columns.n_features, n_count_rows, max_bin=max_bin, kind=kind)


def column(values, max_bin=4, kind="exact"):
    return summarise(np.array(values, np.float32).reshape(-1, 1), max_bin, kind)


def cuts_of(sketches, max_bin=4, zero_as_missing=True, n_rows=10):
    points = replace(sketches, weight=n_rows).cut_points(max_bin=max_bin, zero_as_missing=zero_as_missing)
    return [points.cuts[b:e].tolist() for b, e in zip(points.offsets[:-1], points.offsets[1:], strict=True)]


def same(left, right):
    return all(np.array_equal(a, b) for a, b in zip(left.to_arrays(), right.to_arrays(), strict=True))


@given(dense(), st.booleans(), st.integers(2, 5))
def test_exact_cut_points_are_those_of_the_naive_twin(table, zero_as_missing, max_bin):
    got = cuts_of(summarise(table, max_bin), max_bin, zero_as_missing, len(table))
    for f in range(table.shape[1]):
        stored = [v for v in table[:, f].tolist() if v != 0]
        runs, n_missing = naive.find_runs(stored)
        zeros = [] if zero_as_missing or not stored else [(0.0, len(table) - len(stored))]
        if not zero_as_missing and n_missing and not runs:
            zeros = [(0.0, 1)]
        runs = naive.collapse_runs(runs, [run for run in zeros if run[1] > 0])
        assert got[f] == naive.choose_cuts(runs, max_bin)


@given(dense(), st.integers(2, 5), st.integers(0, 99))
def test_stored_zeros_are_values(table, max_bin, seed):
    stored = (table != 0) | (np.random.default_rng(seed).random(table.shape) < 0.5)
    stored &= ~np.isnan(table)
    got = cuts_of(summarise(table, max_bin, stored=stored), max_bin, "unstored", len(table))
    for f, cuts in enumerate(got):
        runs, _ = naive.find_runs(table[stored[:, f], f].tolist())
        assert cuts == naive.choose_cuts(runs, max_bin)


@pytest.mark.parametrize("run", [kernels.choose_cuts, kernels.choose_cuts.py_func])
@settings(deadline=None)
@given(
    columns=st.lists(
        st.dictionaries(st.floats(width=32, allow_nan=False), st.integers(1, 50), max_size=20), max_size=4
    ),
    max_bin=st.integers(2, 6),
)
def test_choose_cuts(run, columns, max_bin):
    runs = [sorted(column.items()) for column in columns]
    offsets = np.cumsum([0, *map(len, runs)])
    values = np.array([v for each in runs for v, _ in each], np.float32)
    counts = np.array([c for each in runs for _, c in each], np.int64)
    cut_offsets, cuts = np.empty(len(runs) + 1, np.int64), np.empty(len(values), np.float32)
    run(offsets, values, counts, max_bin, cut_offsets, cuts)
    for f, each in enumerate(runs):
        got = cuts[cut_offsets[f] : cut_offsets[f + 1]]
        assert got.tolist() == naive.choose_cuts(each, max_bin)
        assert len(got) <= max_bin
        assert np.all(np.diff(got.astype(np.float64)) > 0)


RUNS = st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 1.0, 2.0, 5.0]), st.integers(1, 9)), max_size=8)


@pytest.mark.parametrize("run", [kernels.collapse_runs, kernels.collapse_runs.py_func])
@given(features=st.lists(RUNS, max_size=4))
def test_collapse_runs(run, features):
    offsets = np.cumsum([0, *map(len, features)])
    counts = np.array([c for runs in features for _, c in runs], np.int64)
    order = [sorted(range(len(runs)), key=lambda i: runs[i][0]) for runs in features]
    places = np.array([i for places in order for i in places], np.int32)
    values = np.array([runs[i][0] for runs, places in zip(features, order, strict=True) for i in places], np.float32)
    out_offsets, sums = np.empty_like(offsets), np.empty_like(counts)
    run(offsets, places, counts, values, out_offsets, sums)
    for f, runs in enumerate(features):
        held = slice(out_offsets[f], out_offsets[f + 1])
        got = list(zip(values[held].tolist(), sums[held].tolist(), strict=True))
        assert got == naive.collapse_runs(runs)


@pytest.mark.parametrize("run", [kernels.append_runs, kernels.append_runs.py_func])
def test_append_runs(run):
    values, counts, cursors = np.zeros(5, np.float32), np.zeros(5, np.int64), np.array([0, 3])
    run(np.array([0, 1, 2]), np.float32([1, 2]), np.array([10, 20]), cursors, values, counts)
    run(np.array([0, 2, 2]), np.float32([3, 4]), np.array([30, 40]), cursors, values, counts)
    assert values.tolist() == [1, 3, 4, 2, 0]
    assert counts.tolist() == [10, 30, 40, 20, 0]
    assert cursors.tolist() == [3, 4]


@given(dense(), st.lists(st.integers(0, 3), min_size=10, max_size=10), st.permutations(range(4)))
def test_exact_sketches_do_not_depend_on_the_partition_or_order(table, owners, order):
    owners = np.array(owners[: len(table)], np.int64)
    whole = summarise(table)
    parts = [summarise(table[owners == order[i]]) for i in range(4)]
    assert same(Sketches.merge(parts), whole)


@given(dense(), st.integers(0, 10), st.integers(0, 4), st.integers(0, 4))
def test_only_the_asked_for_rows_and_features_count(table, n_count_rows, begin, end):
    begin, end = sorted((min(begin, table.shape[1]), min(end, table.shape[1])))
    part = Sketches.summarise(columns_of(table), begin, end, n_count_rows, max_bin=4, kind="exact")
    assert same(part, summarise(table[:n_count_rows, begin:end]))


@given(dense(st.just(2.5) | st.just(0.0)), st.sampled_from(["kll", "exact", "weighted"]), st.integers(0, 10))
def test_columns_that_hold_a_single_value_are_summarised_as_others(table, kind, n_count_rows):
    columns, stored = columns_of(table), np.count_nonzero(table)
    assert columns.value == (2.5 if stored else None)
    of_columns = [
        Sketches.summarise(of_kind, 0, columns.n_features, n_count_rows, max_bin=4, kind=kind)
        for of_kind in (columns, replace(columns, values=columns.values.copy()))
    ]
    assert same(*of_columns)


@given(dense(), st.sampled_from(["kll", "exact", "weighted"]))
def test_wire_form_returns_the_same_sketches(table, kind):
    sketches = summarise(table, kind=kind)
    copy = Sketches.from_arrays(sketches.to_arrays(), table.shape[1])
    assert same(copy, sketches)
    assert cuts_of(copy) == cuts_of(sketches)


def test_each_distinct_value_is_a_bin():
    assert cuts_of(column([3, 1, 2, 1])) == [[2, 3, FLOAT_MAX]]
    assert cuts_of(column([-1, 2, 2]), zero_as_missing=False) == [[0, 2, FLOAT_MAX]]
    assert cuts_of(column([7] * 10)) == cuts_of(column([7])) == [[FLOAT_MAX]]


def test_features_without_a_value_get_no_cuts_and_all_missing_ones_a_single_cut():
    assert cuts_of(column([0, 0])) == cuts_of(column([0, 0]), zero_as_missing=False, n_rows=2) == [[]]
    all_missing = column([np.nan, np.nan])
    points = all_missing.cut_points(max_bin=4, zero_as_missing=False)
    assert points.cuts.tolist() == [FLOAT_MAX]
    assert points.has_missing.tolist() == [1]
    assert cuts_of(all_missing) == [[]]
    assert cuts_of(summarise(np.zeros((0, 3), np.float32))) == [[], [], []]


@pytest.mark.parametrize("zero_as_missing", [True, False, "unstored"])
@pytest.mark.parametrize("n_rows", [50, 300, 500])
def test_exact_cut_points_are_xgboosts(zero_as_missing, n_rows):
    xgboost = pytest.importorskip("xgboost")
    if n_rows > 64 and tuple(map(int, xgboost.__version__.split(".")[:2])) >= (3, 3):
        pytest.skip("from 3.3 on its sketches hold fewer values than these (dmlc/xgboost pull request 12167)")
    rng = np.random.default_rng(n_rows)
    table = rng.standard_normal((n_rows, 5)).astype(np.float32)
    table[:, 1] = np.round(table[:, 1], 1) + 0.05  # few distinct values, uneven counts, none of them 0
    table[:, 2] = np.where(rng.random(n_rows) < 0.9, 7, table[:, 2])  # one heavy value
    table[:, 3] = np.exp(3 * table[:, 3])
    table[rng.random((n_rows, 5)) < 0.3] = np.nan if zero_as_missing else 0
    if zero_as_missing == "unstored":
        table[rng.random((n_rows, 5)) < 0.1] = 0
        table[rng.random((n_rows, 5)) < 0.1] = -0.0  # the same value; sources hand out 0.0
    data = xgboost.QuantileDMatrix(table, np.zeros(n_rows), max_bin=64, nthread=1)
    offsets, cuts = data.get_quantile_cut()
    stored = ~np.isnan(table) if zero_as_missing == "unstored" else None
    summary = summarise(np.abs(table, out=np.nan_to_num(table), where=table == 0), 64, "kll", stored=stored)
    ours = cuts_of(summary, 64, zero_as_missing, n_rows)
    for f, own in enumerate(ours):
        theirs = cuts[int(offsets[f]) + 1 : int(offsets[f + 1])]  # the first is below the least value
        assert own[:-1] == theirs[:-1].tolist()  # the last is above the greatest, ours above every value


@pytest.mark.parametrize("step", [None, 1, 2.0**-12], ids=["not weighted", "weighted", "weighted in steps"])
@pytest.mark.parametrize("zeros", [0, 0.02, 0.7])
def test_cut_points_of_many_values_are_xgboosts(step, zeros):
    """Of more values than are held exactly, in the order of their rows: by XGBoost's own sketch, level by level."""
    xgboost = pytest.importorskip("xgboost")
    if tuple(map(int, xgboost.__version__.split(".")[:2])) >= (3, 3):
        pytest.skip("from 3.3 on its sketches hold fewer values than these (dmlc/xgboost pull request 12167)")
    rng, n_rows = np.random.default_rng(0), 20_000
    table = rng.standard_normal((n_rows, 4)).astype(np.float32)
    table[rng.random((n_rows, 4)) < zeros] = 0  # which are not stored
    table[:, 1] = np.repeat(table[: n_rows // 5, 1], 5)  # side by side they are one
    table[:, 2] = np.sort(table[:, 2])
    table[rng.random(n_rows) < 0.4, 3] = np.nan
    weights = None if step is None else rng.integers(0, 4, n_rows)
    in_steps = None if step is None else (weights / step).astype(np.int64)
    data = xgboost.QuantileDMatrix(table, np.zeros(n_rows), max_bin=16, nthread=1, weight=weights)
    offsets, cuts = data.get_quantile_cut()
    rules = {"max_bin": 16, "zero_as_missing": False}
    sketches = Sketches.summarise(columns_of(table), 0, 4, n_rows, kind="weighted", weights=in_steps, **rules)
    points = sketches.cut_points(**rules)
    for f, (begin, end) in enumerate(pairwise(points.offsets.tolist())):
        assert points.cuts[begin : end - 1].tolist() == cuts[int(offsets[f]) + 1 : int(offsets[f + 1]) - 1].tolist()


def test_kll_only_for_features_of_many_values():
    table = np.zeros((4800, 3), np.float32)
    table[:, 0] = np.arange(1, 4801)
    table[:, 1] = 1 + np.arange(4800) % 4096
    sketches = summarise(table, max_bin=256, kind="kll")
    assert list(sketches.klls) == [0]
    assert not summarise(table, max_bin=256).klls
    # exact parts whose union has too many values turn into a sketch
    quarters = [summarise(table[i : i + 1200], 256, "kll") for i in range(0, 4800, 1200)]
    assert not any(part.klls for part in quarters)
    merged = Sketches.merge(quarters)
    assert list(merged.klls) == [0]
    assert merged.klls[0].n == 4800
    assert list(Sketches.merge([sketches, quarters[0]]).klls) == [0]


@pytest.mark.parametrize("max_bin", [16, 256, 512])
@pytest.mark.parametrize("zero_as_missing", [True, False])
def test_kll_bins_are_nearly_even(max_bin, zero_as_missing):
    n = 60_000
    values = np.random.default_rng(1).standard_normal(n).astype(np.float32)
    parts = [column(values[i::4], max_bin, "kll") for i in range(4)]
    merged = Sketches.merge([Sketches.from_arrays(part.to_arrays(), 1) for part in parts])
    n_rows = n if zero_as_missing else 2 * n
    (cuts,) = cuts_of(merged, max_bin, zero_as_missing, n_rows)
    if not zero_as_missing:
        values = np.concatenate([values, np.zeros(n, np.float32)])
        assert 0.0 in cuts
    sizes = np.bincount(np.searchsorted(cuts, values, side="right"), minlength=len(cuts))
    sizes = sizes[sizes < n / 2]  # but for the zeros
    assert sizes.min() > 0
    assert sizes.max() < 2 * n_rows / max_bin
    assert len(cuts) >= 0.45 * max_bin
    assert len(cuts) <= max_bin


def test_missing_beside_a_sketch():
    values = np.concatenate([np.arange(1, 401), [np.nan] * 7])
    sketches = column(values, 16, "kll")
    assert sketches.klls[0].n == 400
    points = Sketches.merge([sketches, sketches]).cut_points(max_bin=16, zero_as_missing=False)
    assert points.has_missing.tolist() == [1]
    assert len(points.cuts) == 16


def test_wrong_uses_are_refused():
    with pytest.raises(ParameterError, match="kind"):
        column([1], kind="gk")
    with pytest.raises(ParameterError, match="max_bin"):
        column([1], max_bin=1)
    with pytest.raises(ParameterError, match="max_bin"):
        cuts_of(column([1]), max_bin=8)
    with pytest.raises(DataError, match="2 values in 1 rows"):
        cuts_of(column([1, 2]), zero_as_missing=False, n_rows=1)
    with pytest.raises(ProtocolError):
        Sketches.merge([column([1]), column([1], kind="kll")])


def damages(arrays):
    """(name, arrays) of messages that no correct worker sends."""
    settings, n_runs, values, counts, missing, missing_counts, sketched, sizes, serial = range(9)

    def change(which, to):
        return [to if i == which else array for i, array in enumerate(arrays)]

    yield "short", arrays[:-1]
    yield "settings", change(settings, np.array([4, 0]))
    yield "kind", change(settings, np.array([4, 3, 100]))
    yield "another kind", change(settings, np.array([4, 2, 100]))
    yield "max_bin", change(settings, np.array([0, 0, 100]))
    yield "n_runs", change(n_runs, np.uint8([1, 1, 0]))
    yield "huge runs", change(n_runs, np.uint64([2**63, 2**63 + 2, 0]))
    yield "dtype", change(values, arrays[values].astype(np.float64))
    yield "flat", change(values, arrays[values].reshape(1, -1))
    yield "descending", change(values, arrays[values][::-1].copy())
    yield "nan", change(values, np.float32([1, np.nan]))
    yield "no count", change(counts, np.uint8([0, 1]))
    yield "counts", change(counts, np.uint8([1]))
    yield "negative feature", change(missing, np.int32([-1]))
    yield "far feature", change(missing, np.int32([3]))
    yield "missing counts", change(missing_counts, np.uint8([]))
    yield "both", change(sketched, np.int32([0]))
    yield "sizes", change(sizes, arrays[sizes] - 1)
    yield "size -1", change(sizes, -arrays[sizes])
    yield "serial", change(serial, np.zeros_like(arrays[serial]))
    yield "empty sketch", change(serial, arrays[serial][:0])


def test_nonsense_from_the_wire_is_refused():
    table = np.zeros((100, 3), np.float32)
    table[:3, 0] = [1, 2, np.nan]
    table[:, 1] = np.arange(1, 101)
    arrays = summarise(table, kind="kll").to_arrays()
    Sketches.from_arrays(arrays, 3)
    with pytest.raises(ProtocolError):
        Sketches.from_arrays(arrays, 4)
    for name, damaged in damages(arrays):
        with pytest.raises(ProtocolError):
            Sketches.from_arrays(tuple(damaged), 3)
            pytest.fail(f"accepted: {name}")


def test_cut_points_parts_join_again():
    points = CutPoints(np.array([0, 2, 2, 3]), np.float32([1, 2, 3]), np.uint8([0, 1, 0]))
    joined = CutPoints.join([points.part(0, 1), points.part(1, 1), points.part(1, 3)])
    for got, expected in zip(joined.to_arrays(), points.to_arrays(), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("n", [1, 2, 199, 201, 5000, 100_000])
def test_weights_of_a_sketch_agree_with_its_own_ranks(n):
    kll = kll_floats_sketch(200)
    kll.update(np.random.default_rng(n).permutation(n).astype(np.float32))
    values, weights = _weighted(kll)
    assert weights.sum() == n
    order = np.argsort(values)
    ranks = kll.get_cdf(values[order].tolist(), inclusive=True)[:-1]
    np.testing.assert_allclose(np.cumsum(weights[order]) / n, ranks)


def test_cut_points_through_the_wire():
    table = np.float32([[1, 5, 0, np.nan], [2, 5, 0, np.nan], [3, 0, 0, 7]])
    points = summarise(table).cut_points(max_bin=4, zero_as_missing=False)
    back = CutPoints.from_arrays(points.to_arrays(), 4)
    for name in ("offsets", "cuts", "has_missing"):
        np.testing.assert_array_equal(getattr(back, name), getattr(points, name))
    n_cuts, cuts, has_missing = points.to_arrays()
    negative, huge = n_cuts.astype(np.int64), n_cuts.astype(np.uint64)
    negative[0], huge[0] = -1, 2**60
    for damaged in (
        (n_cuts, cuts), (n_cuts, cuts[1:], has_missing), (n_cuts, cuts, has_missing[1:]), (negative, cuts, has_missing),
        (huge, cuts, has_missing), (n_cuts, cuts[::-1].copy(), has_missing),
    ):  # fmt: skip
        with pytest.raises(ProtocolError):
            CutPoints.from_arrays(damaged, 4)
    for n_features in (3, 5):
        with pytest.raises(ProtocolError, match=f"cut points of 4 and 4 features instead of {n_features}"):
            CutPoints.from_arrays(points.to_arrays(), n_features)


@settings(max_examples=30)
@given(st.lists(dense(), min_size=1, max_size=3), st.sampled_from(["kll", "exact", "weighted"]))
def test_the_bytes_of_features_come_to_those_of_the_message(tables, kind):
    taken = SketchBytes()
    for table in tables:
        many = np.tile(np.arange(1, 101, dtype=np.float32)[:, None], table.shape[1])
        arrays = summarise(np.concatenate([table, many]), kind=kind).to_arrays()
        of_features = feature_bytes(arrays)
        assert len(of_features) == table.shape[1]
        assert of_features.sum() + arrays[0].nbytes == sum(array.nbytes for array in arrays)
        taken += SketchBytes.of(arrays)
    assert taken.n_messages == len(tables)
    ways = taken.three_ways(n_features=50, n_senders=3)
    assert ways["padded"] == 150 * taken.largest and ways["with_headers"] == taken.held + 150 * 16 + 8 * len(tables)
