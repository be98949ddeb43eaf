"""Weighted summaries: their rank errors on random and on mean data, their merging, their bytes and the cuts they give."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.data.columns import Columns, DenseColumns, sort_columns
from psboost.data.runs import Runs, count_runs
from psboost.data.sketches import ENTRIES_PER_BIN, Sketches, most_entries
from psboost.data.weighted import Summaries, weigh, weights_before
from psboost.errors import DataError, ProtocolError
from psboost.kernels import quantile_sketch as kernels
from psboost.kernels import sorted_columns
from tests.naive import quantile_sketch as xgboosts
from tests.naive import summaries as naive
from tests.plain import as_python

VALUES = st.one_of(
    st.sampled_from([-1.0, 0.0, 0.5, 2.0, float("nan"), float("inf"), float("-inf"), 3.4028234663852886e38]),
    st.floats(width=32).map(lambda value: value + 0.0),  # -0.0 is never stored
)
COLUMNS = st.lists(st.lists(VALUES, max_size=12), max_size=4)
WEIGHTS = st.one_of(st.integers(0, 3), st.sampled_from([1, 1000, 2**20, 2**40]))
WEIGHED = st.dictionaries(st.integers(0, 200).map(float), WEIGHTS.map(lambda weight: weight + 1), min_size=1, max_size=40)


def columns_of(lists, n_rows=None):
    """Columns of these values, in rows 0, 1, ..."""
    offsets = np.cumsum([0, *map(len, lists)])
    rows = [row for column in lists for row in range(len(column))]
    values = np.array([value for column in lists for value in column], np.float32)
    n_rows = max(map(len, lists), default=0) if n_rows is None else n_rows
    return Columns(n_rows, len(lists), offsets, np.array(rows, np.int32), values)


def summary_of(weighed):
    """The exact summary, as feature 0, of a dict from values to weights."""
    values = np.array(sorted(weighed), np.float32)
    counts = np.array([weighed[value] for value in sorted(weighed)], np.int64)
    return Summaries.of(Runs(np.array([0, len(values)]), values, counts), np.array([0]))


def entries_of(summaries, i=0):
    held = slice(summaries.offsets[i], summaries.offsets[i + 1])
    pairs = zip(summaries.values[held].tolist(), summaries.masses[held].tolist(), strict=True)
    return [(value, *masses) for value, masses in pairs]


def same(left, right):
    return all(
        a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(left.to_arrays(), right.to_arrays(), strict=True)
    )


def sketch(values, weights=None, max_bin=4, zeros=0, in_order=False):
    """Of one feature with these values, put in order before or not, and `zeros` rows that do not store it."""
    columns = columns_of([list(values)], len(values) + zeros)
    columns = sort_columns(columns, 0, 1) if in_order else columns
    if weights is not None:
        weights = np.concatenate([weights, np.ones(zeros, np.int64)])
    return Sketches.summarise(columns, 0, 1, columns.n_rows, max_bin=max_bin, kind="weighted", weights=weights)


def cuts_of(sketches, max_bin=4, zero_as_missing=True):
    points = sketches.cut_points(max_bin=max_bin, zero_as_missing=zero_as_missing)
    return [points.cuts[b:e].tolist() for b, e in zip(points.offsets[:-1], points.offsets[1:], strict=True)]


# --- the kernels, beside their slow twins


@pytest.mark.parametrize("run", [sorted_columns.sort_columns, as_python(sorted_columns).sort_columns])
@settings(deadline=None)
@given(lists=COLUMNS)
def test_sort_columns(run, lists):
    check_sorted(run, lists)


@pytest.mark.parametrize("run", [sorted_columns.sort_columns, as_python(sorted_columns).sort_columns])
@pytest.mark.parametrize("values", ["random", "few", "close", "descending", "nan"])
def test_sort_long_columns(run, values):
    """By their bytes, of which some are the same in all values."""
    rng = np.random.default_rng(0)
    column = {
        "random": rng.standard_normal(300) * 10.0 ** rng.integers(-30, 30, 300),
        "few": rng.choice([-2, -1, 0.5, 3], 300),
        "close": 1 + rng.integers(0, 99, 300) / 2**20,
        "descending": np.arange(300, 0, -1) - 150.5,
        "nan": np.where(rng.random(300) < 0.5, np.nan, rng.standard_normal(300)),
    }[values]
    check_sorted(run, [[1.0], column.astype(np.float32).tolist(), [2.0, 1.0]])


def check_sorted(run, lists):
    columns = columns_of(lists)
    rows, values = columns.rows.copy(), columns.values.copy()
    run(columns.offsets, rows, values)
    for f, column in enumerate(lists):
        held = slice(columns.offsets[f], columns.offsets[f + 1])
        expected = naive.sort_columns(list(enumerate(np.array(column, np.float32).tolist())))
        assert rows[held].tolist() == [row for row, _ in expected]
        np.testing.assert_array_equal(values[held], np.array([value for _, value in expected], np.float32))


@pytest.mark.parametrize("run", [kernels.weigh_columns, as_python(kernels).weigh_columns])
@settings(deadline=None)
@given(lists=COLUMNS, weights=st.lists(WEIGHTS, min_size=12, max_size=12), most=st.integers(2, 6))
def test_weigh_columns(run, lists, weights, most):
    columns = sort_columns(columns_of(lists, 12), 0, len(lists))
    offsets, values, masses, missing = room_for(columns, most)
    run(columns.offsets, columns.rows, columns.values, before_of(weights), most, offsets, values, masses, missing)
    for f, column in enumerate(lists):
        stored = list(enumerate(np.array(column, np.float32).tolist()))
        expected, of_nan = naive.weigh_columns(stored, weights, most)
        got = entries_of(Summaries(np.arange(len(lists)), offsets, values, masses), f)
        assert [entry[:3] for entry in got] == expected
        assert [after for *_, after in got[:-1]] == [before for _, _, before, _ in got[1:]]
        assert missing[f] == of_nan


def room_for(columns, most):
    """Offsets, values, masses and what is missing, of summaries of these columns."""
    n, n_columns = int(np.minimum(1 + np.diff(columns.offsets), most).sum()), len(columns.offsets) - 1
    return (
        np.empty(n_columns + 1, np.int64), np.empty(n, np.float32), np.zeros((n, 3), np.int64),
        np.empty(n_columns, np.int64),
    )  # fmt: skip


@pytest.mark.parametrize("run", [sorted_columns.runs_of_sorted, as_python(sorted_columns).runs_of_sorted])
@settings(deadline=None)
@given(lists=COLUMNS, most=st.integers(1, 6))
def test_runs_of_sorted(run, lists, most):
    columns = sort_columns(columns_of(lists, 12), 0, len(lists))
    offsets, values, masses, missing = room_for(columns, most)
    counts = masses[:, 0].copy()
    run(columns.offsets, columns.values, most, offsets, values, counts, missing)
    by_column = [columns.values[a:b] for a, b in zip(columns.offsets, columns.offsets[1:], strict=False)]
    runs, of_nan = count_runs(by_column, most) if lists else (Runs(offsets, values, counts), missing)
    np.testing.assert_array_equal(of_nan, missing)
    for f, column in enumerate(lists):
        numbers = np.array(column, np.float32)
        expected = [pair.tolist() for pair in np.unique(numbers[~np.isnan(numbers)], return_counts=True)]
        if len(expected[0]) > most:
            expected = [[], []]
        held = slice(offsets[f], offsets[f + 1])
        assert [values[held].tolist(), counts[held].tolist()] == expected
        assert [runs.values[held].tolist(), runs.counts[held].tolist()] == expected
        assert missing[f] == np.isnan(numbers).sum()


def before_of(weights):
    """What all rows before each one weigh, and what all weigh."""
    return np.empty(0, np.int64) if weights is None else np.cumsum([0, *weights])


def check_sketches(run, columns, weights, max_bin, per_bin, with_zeros=False):
    """That sketch_columns makes what XGBoost would, of rows that are stored, or of all: what is not stored is 0."""
    offsets, values, masses, missing = room_for(columns, max_bin * per_bin)
    starts, ends, n_rows = columns.offsets[:-1], columns.offsets[1:], columns.n_rows if with_zeros else 0
    held = columns.rows, columns.values, before_of(weights), n_rows
    run(starts, ends, *held, max_bin, per_bin, offsets, values, masses, missing)
    if weights is None:
        weights = [1] * columns.n_rows
    for f, (start, end) in enumerate(zip(starts, ends, strict=True)):
        stored = list(zip(columns.rows[start:end].tolist(), columns.values[start:end].tolist(), strict=True))
        if with_zeros and not np.isnan(columns.values[start:end]).all():
            stored = list({**dict.fromkeys(range(columns.n_rows), 0.0), **dict(stored)}.items())
        expected, of_nan = xgboosts.sketch(stored, weights, max_bin, per_bin)
        assert entries_of(Summaries(np.arange(len(starts)), offsets, values, masses), f) == expected
        assert missing[f] == of_nan


SKETCHES = [kernels.sketch_columns, as_python(kernels).sketch_columns]


@pytest.mark.parametrize("run", SKETCHES)
@settings(deadline=None)
@given(
    lists=COLUMNS, weights=st.none() | st.lists(WEIGHTS, min_size=12, max_size=12), max_bin=st.integers(2, 3),
    per_bin=st.integers(1, 2), kept=st.none() | st.lists(st.booleans(), min_size=12, max_size=12),
)  # fmt: skip
def test_sketch_columns(run, lists, weights, max_bin, per_bin, kept):
    columns = columns_of(lists, 12)
    if kept is not None:
        columns = some_rows_of(columns, np.array(kept))
    check_sketches(run, columns, weights, max_bin, per_bin, with_zeros=kept is not None)


def some_rows_of(columns, kept):
    """The entries of some rows alone."""
    are_kept = kept[columns.rows]
    offsets = np.concatenate([[0], np.cumsum(are_kept)])[columns.offsets]
    return Columns(columns.n_rows, columns.n_features, offsets, columns.rows[are_kept], columns.values[are_kept])


@pytest.mark.parametrize("run", SKETCHES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("values", ["random", "few", "repeated", "ascending", "nan"])
def test_sketch_long_columns(run, weighted, values):
    """Of several levels, some of which hold all that they have seen; the shorter one after the longer."""
    rng, n = np.random.default_rng(1), 700
    column = {
        "random": rng.standard_normal(n),
        "few": rng.integers(0, 20, n),
        "repeated": np.repeat(rng.integers(0, 90, n // 7), 7),
        "ascending": np.arange(n),
        "nan": np.where(rng.random(n) < 0.5, np.nan, rng.standard_normal(n)),
    }[values].astype(np.float32)
    weights = rng.choice([0, 1, 5, 10**12], n).tolist() if weighted else None
    columns = columns_of([column, column[:100], column[:-1]], n)
    check_sketches(run, columns, weights, 4, 4)
    for stored in (0.2, 0.99):
        check_sketches(run, some_rows_of(columns, rng.random(n) < stored), weights, 4, 4, with_zeros=True)


@pytest.mark.parametrize("run", [kernels.prune, as_python(kernels).prune])
@settings(deadline=None)
@given(parts=st.lists(WEIGHED, min_size=1, max_size=3), most=st.integers(2, 9), first=st.integers(2, 20))
def test_prune(run, parts, most, first):
    whole = Summaries.merge([summary_of(part).prune(first) for part in parts])
    offsets, values, masses = np.empty(2, np.int64), np.empty(most, np.float32), np.empty((most, 3), np.int64)
    run(whole.offsets, whole.values, whole.masses, most, offsets, values, masses)
    n = int(offsets[1])
    expected = naive.prune(entries_of(whole), most)
    assert [(v, *m) for v, m in zip(values[:n].tolist(), masses[:n].tolist(), strict=True)] == expected
    pruned = whole.prune(most)
    assert entries_of(pruned) == expected
    assert pruned.sums().tolist() == whole.sums().tolist() == [sum(sum(part.values()) for part in parts)]


# --- ranks


def check_ranks(summary, weighed, eps):
    """That the summary's bounds hold the true ranks, and are no further apart than eps of all weight, at any value."""
    total = sum(weight for _, weight in weighed)
    entries = entries_of(summary)
    asked = sorted({value for value, _ in weighed} | {value + 0.5 for value, _ in weighed})
    for value in [asked[0] - 1, *asked, asked[-1] + 1]:
        less, up_to, own = naive.exact_bounds(weighed, value)
        lower, upper, kept = naive.bounds(entries, value)
        assert lower <= less and up_to <= upper
        assert kept <= own
        slack = Fraction(total, 2**20) + 1  # of target ranks in float32, which XGBoost rounds them to
        assert upper - lower - kept <= eps * total + slack


@given(WEIGHED, st.integers(1, 30))
def test_pruning_costs_one_nth(weighed, n):
    check_ranks(summary_of(weighed).prune(n + 1), list(weighed.items()), Fraction(1, n))


@given(st.lists(WEIGHED, min_size=1, max_size=5), st.integers(1, 20))
def test_merging_costs_nothing(parts, n):
    weighed = [pair for part in parts for pair in part.items()]
    check_ranks(Summaries.merge([summary_of(part).prune(n + 1) for part in parts]), weighed, Fraction(1, n))


@given(st.lists(WEIGHED, min_size=4, max_size=7), st.integers(1, 20), st.integers(1, 20))
def test_merges_of_pruned_merges(parts, n, m):
    weighed = [pair for part in parts for pair in part.items()]
    leaves = [summary_of(part).prune(n + 1) for part in parts]
    pairs = [Summaries.merge(leaves[:2]).prune(m + 1), Summaries.merge(leaves[2:]).prune(m + 1)]
    check_ranks(Summaries.merge(pairs), weighed, Fraction(1, n) + Fraction(1, m))


@pytest.mark.parametrize("data", ["normal", "sorted shards", "one heavy", "exponential weights", "growing", "alternating"])
def test_ranks_of_mean_data(data):
    """Shards of which each holds other values; weights that all lie in a few rows, or at one end."""
    rng, n, n_parts, most = np.random.default_rng(3), 4000, 4, 51
    values, weights = rng.standard_normal(n).astype(np.float32), np.ones(n, np.int64)
    if data == "sorted shards":
        values = np.sort(values)
    elif data == "one heavy":
        weights[7] = 10**9
    elif data == "exponential weights":
        weights = (2.0 ** rng.integers(0, 40, n)).astype(np.int64)
    elif data == "growing":
        values, weights = np.sort(values), np.arange(1, n + 1) ** 2
    elif data == "alternating":
        values = np.where(np.arange(n) % 2, values, values * np.float32(1e-30))
    parts = []
    for part in np.split(np.arange(n), n_parts):
        in_order = sort_columns(columns_of([values[part].tolist()]), 0, 1)
        parts.append(weigh(in_order, weights_before(weights[part], in_order.n_rows), most)[2])
        assert len(parts[-1].values) <= most
    merged = Summaries.merge(parts)
    order, rng = np.argsort(values, kind="stable"), np.random.default_rng(4)
    below = np.concatenate([[0], np.cumsum(weights[order])])
    entries, total = entries_of(merged), int(weights.sum())
    for value in rng.choice(values, 50).tolist():
        less = int(below[np.searchsorted(values[order], value, side="left")])
        up_to = int(below[np.searchsorted(values[order], value, side="right")])
        lower, upper, kept = naive.bounds(entries, value)
        assert lower <= less < up_to <= upper
        assert upper - lower - kept <= total / (most - 1) * 1.00001 + 1


# --- merging


@given(st.lists(WEIGHED, min_size=3, max_size=3), st.integers(2, 9), st.permutations(range(3)))
def test_merging_in_any_order_and_nesting(parts, most, order):
    a, b, c = (summary_of(part).prune(most) for part in parts)
    whole = Summaries.merge([a, b, c])
    assert same(Summaries.merge([Summaries.merge([a, b]), c]), whole)
    assert same(Summaries.merge([a, Summaries.merge([b, c])]), whole)
    assert same(Summaries.merge([(a, b, c)[i] for i in order]), whole)


def test_exact_parts_join_a_summary():
    """A feature that is held exactly by one part and summarised by another, and one that nobody summarises."""
    many, few = np.arange(1, 101, dtype=np.float32), np.float32([3, 3, 50.5])
    left = Sketches.summarise(columns_of([many, few[:2]], 100), 0, 2, 100, max_bin=4, kind="weighted")
    right = Sketches.summarise(columns_of([few, few], 100), 0, 2, 100, max_bin=4, kind="weighted")
    assert left.summaries.features.tolist() == [0] and right.summaries.features.tolist() == []
    for merged in (Sketches.merge([left, right]), Sketches.merge([right, left])):
        assert merged.summaries.features.tolist() == [0]
        assert np.diff(merged.runs.offsets).tolist() == [0, 2]
        entries = entries_of(merged.summaries)
        assert [value for value, *_ in entries].count(50.5) == 1
        assert merged.summaries.sums().tolist() == [103]
        assert merged.weight == 200
        assert same(Sketches.from_arrays(merged.to_arrays(), 2), merged)


# --- sketches


@pytest.mark.parametrize("n_count_rows", [2000, 1100])
def test_no_weights_are_ones(n_count_rows):
    """Features that are looked up and ones that are sorted: of few values and of many, short and long, with NaN."""
    rng, n = np.random.default_rng(7), 2000
    table = [
        rng.standard_normal(n), rng.integers(0, 70, n), rng.integers(0, 500, n), np.arange(n) % 200, np.ones(n),
        np.arange(n) % 100, rng.standard_normal(100), np.where(rng.random(n) < 0.5, np.nan, rng.standard_normal(n)),
        np.full(9, np.nan),
    ]  # fmt: skip
    columns = columns_of([column.astype(np.float32).tolist() for column in table], n)
    arguments = {"max_bin": 16, "kind": "weighted"}
    plain = Sketches.summarise(columns, 0, len(table), n_count_rows, **arguments)
    ones = Sketches.summarise(columns, 0, len(table), n_count_rows, weights=np.ones(n_count_rows, np.int64), **arguments)
    assert plain.summaries.features.tolist() == [0, 2, 3, 7]
    assert all(np.array_equal(a, b) for a, b in zip(plain.to_arrays(), ones.to_arrays(), strict=True))


@pytest.mark.parametrize("kind", ["exact", "kll"])
def test_other_kinds_do_not_heed_weights(kind):
    columns = columns_of([np.arange(200, dtype=np.float32).tolist()], 200)
    plain, weighted = (
        Sketches.summarise(columns, 0, 1, 200, max_bin=16, kind=kind, weights=weights)
        for weights in (None, np.arange(200))
    )
    assert weighted.weight == 200 and same(plain, weighted)


@pytest.mark.parametrize("zero_as_missing", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_rows_that_do_not_count_change_nothing(zero_as_missing, weighted):
    """Those of evaluation sets, which stand behind the others."""
    rng, n, n_count_rows = np.random.default_rng(8), 4000, 1100
    table = np.where(rng.random((n, 3)) < 0.2, 0, rng.standard_normal((n, 3))).astype(np.float32)
    arguments = {
        "max_bin": 4, "kind": "weighted", "zero_as_missing": zero_as_missing,
        "weights": rng.integers(0, 9, n_count_rows) if weighted else None,
    }  # fmt: skip
    of_all, alone = (
        Sketches.summarise(DenseColumns(table[:n_rows], np.arange(3), False, True), 0, 3, n_count_rows, **arguments)
        for n_rows in (n, n_count_rows)
    )
    assert len(alone.summaries.features) == 3 and same(of_all, alone)


@given(
    st.lists(st.tuples(VALUES, st.integers(1, 4)), min_size=1, max_size=60), st.sampled_from([True, False]),
    st.sampled_from([True, False]),
)  # fmt: skip
def test_a_weight_is_a_row_repeated(weighed, zero_as_missing, in_order):
    """Of more values than are held, where they are in order: else they are sketched for as many rows as there are."""
    values, weights = zip(*(weighed if in_order else weighed[: most_entries(4)]), strict=True)
    by_weight = sketch(values, np.array(weights), in_order=in_order)
    repeated = sketch(np.repeat(np.float32(values), weights).tolist(), in_order=in_order)
    assert same(by_weight, repeated)
    assert cuts_of(by_weight, 4, zero_as_missing) == cuts_of(repeated, 4, zero_as_missing)


def test_rows_of_weight_0_do_not_count():
    weights = np.array([1, 0, 2, 0, 1])
    assert same(sketch([1, 7, 2, np.nan, 3], weights), sketch([1, 2, 2, 3]))
    assert cuts_of(sketch([5.0, 6.0], np.array([0, 0]))) == [[]]


@pytest.mark.parametrize("zero_as_missing", [True, False, "unstored"])
def test_few_values_are_cut_as_exactly(zero_as_missing):
    rng = np.random.default_rng(0)
    values = rng.choice(np.arange(-10, 22, dtype=np.float32) + 0.5, 500)
    values[rng.random(500) < 0.1] = np.nan
    columns = columns_of([values.tolist()], 600)
    exact = Sketches.summarise(columns, 0, 1, 600, max_bin=4, kind="exact")
    whole = sketch(values, zeros=100)
    parts = [sketch(values[i::3], zeros=200 - len(values[i::3])) for i in range(3)]
    assert len(np.unique(values[~np.isnan(values)])) == most_entries(4)
    merged = Sketches.merge([Sketches.from_arrays(part.to_arrays(), 1) for part in parts])
    expected = exact.cut_points(max_bin=4, zero_as_missing=zero_as_missing).to_arrays()
    assert len(expected[1]) == 3
    for sketches in (whole, merged):
        got = sketches.cut_points(max_bin=4, zero_as_missing=zero_as_missing).to_arrays()
        assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("zero_as_missing", [True, False])
@pytest.mark.parametrize("max_bin", [16, 256])
def test_bins_of_many_values_are_nearly_even(max_bin, zero_as_missing):
    n = 40_000
    rng = np.random.default_rng(1)
    values, weights = rng.standard_normal(n).astype(np.float32), rng.integers(1, 100, n)
    n_zeros = 0 if zero_as_missing else n
    parts = [sketch(values[i::4], weights[i::4], max_bin, n_zeros // 4) for i in range(4)]
    assert all(len(part.summaries.values) == most_entries(max_bin) for part in parts)
    (cuts,) = cuts_of(Sketches.merge(parts), max_bin, zero_as_missing)
    values = np.concatenate([values, np.zeros(n_zeros, np.float32)])
    weights = np.concatenate([weights, np.ones(n_zeros, np.int64)])
    sizes = np.bincount(np.searchsorted(cuts, values, side="right"), weights, len(cuts))
    even = weights.sum() / max_bin
    assert len(cuts) >= max_bin - 4  # the heavy zero takes the place of some
    assert sizes.max() < even * (1 + 2 / ENTRIES_PER_BIN) + (n_zeros and n_zeros + even)
    assert np.median(sizes) > even * (1 - 2 / ENTRIES_PER_BIN)


def test_the_same_rows_give_the_same_bytes():
    """In any order, where all values are held or are put in order before; else in the same."""
    rng = np.random.default_rng(5)
    order, weights = rng.permutation(5000), rng.integers(0, 9, 5000)
    many, few = rng.standard_normal(5000).astype(np.float32), rng.integers(1, 30, 5000).astype(np.float32)
    for values, in_order in ((many, True), (few, False), (many, False)):
        first = sketch(values, weights, in_order=in_order)
        more = [] if values is many and not in_order else [sketch(values[order], weights[order], in_order=in_order)]
        for again in (sketch(values, weights, in_order=in_order), *more):
            assert [array.tobytes() for array in again.to_arrays()] == [array.tobytes() for array in first.to_arrays()]


def test_a_summary_is_about_as_large_as_kll_of_twice_its_entries():
    """Eight bytes or so an entry; KLL has four a value, of which it keeps about as many again to be less exact."""
    values = np.random.default_rng(6).standard_normal(100_000).astype(np.float32)
    columns = columns_of([values.tolist()])
    sizes = {}
    for kind in ("kll", "weighted"):
        arrays = Sketches.summarise(columns, 0, 1, len(values), max_bin=256, kind=kind).to_arrays()
        sizes[kind] = sum(array.nbytes for array in arrays)
    assert sizes["weighted"] < 7 * most_entries(256) + 100
    assert sizes["weighted"] < 2 * sizes["kll"]


def test_more_weight_than_all_rows_is_refused():
    arrays = sketch([1, 2, 3]).to_arrays()
    arrays[0][2] = 2
    with pytest.raises(DataError, match="3 values in 2 rows"):
        Sketches.from_arrays(arrays, 1).cut_points(max_bin=4, zero_as_missing=False)


def damages(arrays):
    """(name, arrays) of messages that no correct worker sends."""
    setting, n_runs, *_ = range(6)
    features, sizes, values, weights, before, after = range(6, 12)

    def change(which, to):
        return [to if i == which else array for i, array in enumerate(arrays)]

    yield "short", arrays[:-1]
    yield "as exact", arrays[:9]
    yield "kind", change(setting, np.array([4, 0, 100]))
    yield "weight", change(setting, np.array([4, 2, -1]))
    yield "far feature", change(features, np.int32([3]))
    yield "both", change(features, np.int32([0]))
    yield "no feature", change(features, np.int32([]))
    yield "sizes", change(sizes, arrays[sizes] - np.uint8(1))
    yield "huge size", change(sizes, np.uint64([2**63]))
    yield "dtype", change(values, arrays[values].astype(np.float64))
    yield "signed", change(weights, arrays[weights].astype(np.int8))
    yield "descending", change(values, arrays[values][::-1].copy())
    yield "nan", change(values, np.where(np.arange(len(arrays[values])) == 3, np.nan, arrays[values]).astype(np.float32))
    yield "no weight", change(weights, np.zeros_like(arrays[weights]))
    yield "too much", change(before, arrays[before].astype(np.uint64) * np.uint64(2**62))
    yield "before the first", change(before, np.ones_like(arrays[before]))
    yield "after the last", change(after, np.ones(len(arrays[values]), np.uint8))
    yield "after", change(after, np.ones(1, np.uint8))


def test_nonsense_from_the_wire_is_refused():
    columns = columns_of([[1.0, 2.0], list(range(1, 101)), []], 100)
    sketches = Sketches.summarise(columns, 0, 3, 100, max_bin=4, kind="weighted")
    arrays = sketches.to_arrays()
    assert same(Sketches.from_arrays(arrays, 3), sketches)
    for name, damaged in damages(arrays):
        with pytest.raises(ProtocolError):
            Sketches.from_arrays(tuple(damaged), 3)
            pytest.fail(f"accepted: {name}")
