"""Columns from rows, beside a naive twin; the distinct values of a column, compiled and as plain Python."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psboost.data import columns as module
from psboost.data.columns import ColumnsBuilder, DenseColumns, OnlyValue, sort_columns, stack_columns, to_columns
from psboost.errors import DataError
from psboost.kernels import columns as kernels
from tests.naive import binning as naive
from tests.plain import as_python, both_ways

VALUES = st.one_of(
    st.sampled_from([1.0, -1.0, 0.5, 2.0, float("nan"), float("inf"), 3.4028234663852886e38]),
    st.floats(width=32, allow_nan=True).filter(lambda value: value != 0),
)


@st.composite
def csr(draw, max_rows=8, max_features=6):
    """(rows as lists of (feature, value), n_features)"""
    n_features = draw(st.integers(0, max_features))
    features = st.sets(st.integers(0, n_features - 1)) if n_features else st.just(set())
    n_rows, values = draw(st.integers(0, max_rows)), draw(st.just(VALUES) | VALUES.map(st.just))
    return [[(f, draw(values)) for f in sorted(draw(features))] for _ in range(n_rows)], n_features


def arrays(rows):
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    features = np.array([f for row in rows for f, _ in row], np.int32)
    return indptr, features, np.array([v for row in rows for _, v in row], np.float32)


@given(csr())
def test_columns_hold_what_the_rows_hold(data):
    rows, n_features = data
    columns = to_columns([arrays(rows)], n_features)
    assert (columns.n_rows, columns.n_features) == (len(rows), n_features)
    for f, expected in enumerate(naive.scatter_columns(rows, n_features)):
        held = slice(columns.offsets[f], columns.offsets[f + 1])
        np.testing.assert_array_equal(columns.rows[held], [row for row, _ in expected])
        np.testing.assert_array_equal(columns.values[held], np.array([v for _, v in expected], np.float32))
    distinct = {v for row in rows for _, v in row}
    assert columns.value == (distinct.pop() if len(distinct) == 1 and all(v == v for v in distinct) else None)


@given(csr())
def test_column_kernels_as_plain_python(data):
    rows, n_features = data
    indptr, features, values = arrays(rows)
    expected = to_columns([(indptr, features, values)], n_features)
    offsets = np.zeros(n_features + 1, np.int64)
    plain = as_python(kernels)
    plain.count_occurrences(features, offsets[1:])
    np.cumsum(offsets, out=offsets)
    got_rows, got_values = np.empty(len(features), np.int32), np.empty(len(features), np.float32)
    cursors = offsets[:-1].copy()
    assert plain.scatter_columns(indptr, features, values, True, True, 0, cursors, got_rows, got_values)
    np.testing.assert_array_equal(cursors, offsets[1:])
    np.testing.assert_array_equal(offsets, expected.offsets)
    np.testing.assert_array_equal(got_rows, expected.rows)
    np.testing.assert_array_equal(got_values, expected.values)
    if expected.value is not None:
        cursors, alone = offsets[:-1].copy(), np.empty(len(features), np.int32)
        assert plain.scatter_rows(indptr, features, values, expected.value, 0, cursors, alone)
        np.testing.assert_array_equal(cursors, offsets[1:])
        np.testing.assert_array_equal(alone, got_rows)


@pytest.mark.parametrize("run", both_ways(kernels))
@given(
    data=csr(), spare=st.integers(0, 2), cuts=st.lists(st.integers(0, 8), min_size=3, max_size=3).map(sorted),
    keep_zeros=st.booleans(), keep_nan=st.booleans(),
)  # fmt: skip
def test_rows_in_parts_and_pieces_with_room_to_spare(run, data, spare, cuts, keep_zeros, keep_nan):
    rows, n_features = data
    rows = [[(f, 0.0 if v == 1.0 else v) for f, v in row] for row in rows]
    kept = [[(f, v) for f, v in row if f != 1 and (v != 0 or keep_zeros) and (v == v or keep_nan)] for row in rows]
    edges = [0, *(min(cut, len(rows)) for cut in cuts), len(rows)]
    pieces = [slice(*edge) for edge in zip(edges, edges[1:], strict=False)]
    parts = [pieces[:1], pieces[1:3], pieces[3:]]
    columns = [naive.scatter_columns(kept[part[0].start : part[-1].stop], n_features) for part in parts]
    counts = np.array([[len(column) for column in of_part] for of_part in columns], np.int64).reshape(3, n_features)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "kernels", run)
        builder = ColumnsBuilder("X", counts + spare, [part[-1].stop - part[0].start for part in parts])
        for i in (2, 0, 1):
            for piece in parts[i]:
                indptr, features, values = arrays(rows[piece])
                features = np.where(features == 1, -1, features).astype(np.int32)
                builder.add(i, indptr, features, values, keep_zeros, keep_nan)
        same(builder.columns(), to_columns([arrays(kept)], n_features))


@pytest.mark.parametrize("run", both_ways(kernels))
@pytest.mark.parametrize("n_features", [0, 1, 3])
@pytest.mark.parametrize("only", [None, np.float32(2)])
def test_more_cells_than_are_looked_ahead(run, n_features, only, monkeypatch):
    monkeypatch.setattr(module, "kernels", run)
    features = (np.arange(300) % 5).astype(np.int32)
    features[features >= n_features] = -1
    values = np.full(300, only) if only else np.arange(300, dtype=np.float32)
    builder = ColumnsBuilder("X", np.full((1, n_features), 60), [300], only)
    builder.add(0, np.arange(301), features, values, True, True)
    columns = builder.columns()
    for f in range(n_features):
        held = slice(columns.offsets[f], columns.offsets[f + 1])
        assert columns.rows[held].tolist() == list(range(f, 300, 5))
        np.testing.assert_array_equal(columns.values[held], values[f::5])


@pytest.mark.parametrize("n_rows", [1, 2, 3, 4])
@pytest.mark.parametrize("features", [[0, 0, 1], [1, 1, 1], [0, 1]])
def test_other_rows_than_were_counted_are_refused(n_rows, features):
    def build():
        builder = ColumnsBuilder("a.svm", np.array([[1, 2]]), [n_rows])
        indptr, values = np.arange(len(features) + 1), np.ones(len(features), np.float32)
        builder.add(0, indptr, np.array(features, np.int32), values, True, True)
        return builder.columns()

    if (n_rows, len(features)) == (2, 2):
        assert build().offsets.tolist() == [0, 1, 2]
        return
    with pytest.raises(DataError, match="a.svm changed between counting and reading it"):
        build()


@given(csr(), st.integers(0, 8))
def test_columns_that_hold_a_single_value_are_stacked_and_sorted_as_others(data, cut):
    rows, n_features = data
    parts = [to_columns([arrays(of_part)], n_features) for of_part in (rows[:cut], rows[cut:])]
    full = [replace(part, values=part.values.copy()) for part in parts]
    same(stack_columns(parts).part(0, n_features), stack_columns(full).part(0, n_features))
    same(sort_columns(parts[0], 0, n_features), sort_columns(full[0], 0, n_features))


@pytest.mark.parametrize(
    "features, values, fits",
    [
        ([0, -1, 1], [2, 2, 2], True),
        ([0, -1, 1], [2, 2, 3], False),
        ([0, -1, 1], [2, 2, 0], False),
        ([0, -1, 1], [2, 2, np.nan], False),
        ([0, -1, 0], [2, 2, 2], False),
        ([0, -1, -1], [2, 2, 2], False),
    ],
)
def test_other_cells_than_the_only_value_counted_are_refused(features, values, fits):
    def build():
        builder = ColumnsBuilder("a.svm", np.array([[1, 1]]), [3], np.float32(2))
        builder.add(0, np.arange(4), np.array(features, np.int32), np.array(values, np.float32), False, False)
        return builder.columns()

    if fits:
        assert (build().value, build().rows.tolist()) == (2, [0, 2])
        return
    with pytest.raises(DataError, match="a.svm changed between counting and reading it"):
        build()


@pytest.mark.parametrize(
    "pieces, value",
    [([], None), ([[]], None), ([[], [3, 3], [3]], 3), ([[3], [3, 4]], None), ([[0, 0]], None), ([[np.nan] * 2], None)],
)
def test_only_value(pieces, value):
    only = OnlyValue()
    for piece in pieces:
        only.add(np.array(piece, np.float32))
    assert only.value == value


@pytest.mark.parametrize("run", [kernels.prefix_ends, as_python(kernels).prefix_ends])
@given(data=csr(), n_count_rows=st.integers(0, 9))
def test_prefix_ends(run, data, n_count_rows):
    rows, n_features = data
    columns = to_columns([arrays(rows)], n_features)
    ends = np.empty(n_features, np.int64)
    run(columns.offsets, columns.rows, n_count_rows, ends)
    counted = naive.scatter_columns(rows[:n_count_rows], n_features)
    assert (ends - columns.offsets[:-1]).tolist() == [len(column) for column in counted]


@pytest.mark.parametrize("run", [kernels.find_runs, as_python(kernels).find_runs])
@given(columns=st.lists(st.lists(VALUES, max_size=12), max_size=5), limit=st.integers(2, 6))
def test_find_runs(run, columns, limit):
    lengths = np.array([len(column) for column in columns], np.int64)
    ends = np.cumsum(lengths)
    values = np.array([v for column in columns for v in column], np.float32)
    room = int(np.minimum(lengths, limit).sum())
    offsets, n_missing = np.empty(len(columns) + 1, np.int64), np.empty(len(columns), np.int64)
    run_values, run_counts = np.empty(room, np.float32), np.empty(room, np.int64)
    run(ends - lengths, ends, values, limit, offsets, run_values, run_counts, n_missing)
    for f, column in enumerate(columns):
        runs, missing = naive.find_runs(np.array(column, np.float32).tolist())
        held = slice(offsets[f], offsets[f + 1])
        got = list(zip(run_values[held].tolist(), run_counts[held].tolist(), strict=True))
        assert got == (runs if len(runs) <= limit else [])
        assert n_missing[f] == missing


@pytest.mark.parametrize("n", [2, 14, 41, 1000])
def test_many_runs_come_in_order(n):
    """The first values are alike: a long column that begins with new ones is left to others."""
    runs = np.random.default_rng(n).permutation(np.arange(n, dtype=np.float32) - n // 2)
    values = np.concatenate([np.repeat(runs[0], 200), runs, runs])
    offsets, n_missing = np.empty(2, np.int64), np.empty(1, np.int64)
    run_values, run_counts = np.empty(n, np.float32), np.empty(n, np.int64)
    kernels.find_runs(np.array([0]), np.array([len(values)]), values, n, offsets, run_values, run_counts, n_missing)
    assert (offsets.tolist(), n_missing.tolist()) == ([0, n], [0])
    assert run_values.tolist() == sorted(runs.tolist())
    assert run_counts.tolist() == [202 if value == runs[0] else 2 for value in run_values]


@pytest.mark.parametrize(
    "indptr, features, n_values, n_features",
    [
        ([0, 1], [3], 1, 3),
        ([0, 1], [-1], 1, 3),
        ([0, 2], [1], 1, 3),
        ([0, 1], [1], 2, 3),
        ([1, 1], [1], 1, 3),
        ([0, 2, 1], [1], 1, 3),
        ([], [], 0, 3),
        ([0], [], 0, 2**31),
    ],
)
def test_arrays_that_do_not_fit_are_refused(indptr, features, n_values, n_features):
    with pytest.raises(DataError):
        values = np.ones(n_values, np.float32)
        to_columns([(np.array(indptr, np.int64), np.array(features, np.int32), values)], n_features)


@st.composite
def dense(draw):
    """(float32 matrix, keep, keep_zeros, keep_nan)"""
    n_rows, n_columns = draw(st.integers(0, 9)), draw(st.integers(1, 6))
    cells = st.sampled_from([0.0, -0.0, 1.0, -2.5, float("nan")])
    flat = draw(st.lists(cells, min_size=n_rows * n_columns, max_size=n_rows * n_columns))
    keep = draw(st.permutations(range(n_columns)))[: draw(st.integers(0, n_columns))]
    matrix = np.array(flat, draw(st.sampled_from([np.float32, np.float64, np.float16, ">f4"]))).reshape(n_rows, n_columns)
    return matrix, np.array(keep, np.int64), draw(st.booleans()), draw(st.booleans())


def same(a, b):
    assert (a.n_rows, a.n_features) == (b.n_rows, b.n_features)
    for name in ("offsets", "rows", "values"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        assert getattr(a, name).dtype == getattr(b, name).dtype
        assert getattr(a, name).flags.c_contiguous


def columns_of_dense(matrix, keep, keep_zeros, keep_nan):
    """By to_columns."""
    rows = [
        [(f, row[column]) for f, column in enumerate(keep)
         if (keep_zeros or row[column] != 0) and (keep_nan or row[column] == row[column])]
        for row in matrix.tolist()
    ]  # fmt: skip
    return to_columns([arrays(rows)], len(keep))


@given(dense(), st.sampled_from([1, 7, 1000]), st.sampled_from([1, 4, 1000]))
def test_columns_of_a_dense_array_are_those_of_its_sparse_rows(data, group_cells, piece_cells):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GROUP_CELLS", group_cells)
        patch.setattr(module, "CONVERTED_CELLS", piece_cells)
        columns, expected = DenseColumns(*data), columns_of_dense(*data)
        n_nan = int(np.isnan(data[0][:, data[1]]).sum())
        n_features = len(data[1])
        assert 0 <= columns.n_stored(0, n_features) - expected.n_stored(0, n_features) <= n_nan
        for layout in (np.asarray, np.asfortranarray):
            columns = DenseColumns(layout(data[0]), *data[1:])
            same(columns.part(0, len(data[1])), expected)
            at = 0
            for begin, end in columns.groups(0, len(data[1])):
                assert begin == at < end
                same(columns.part(begin, end), expected.part(begin, end))
                at = end
            assert at == len(data[1])


def unaligned(matrix):
    held = np.empty(matrix.nbytes + 1, np.uint8)[1:].view(matrix.dtype).reshape(matrix.shape)
    held[:] = matrix
    return held


@pytest.mark.parametrize("run", both_ways(kernels))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", [np.asarray, np.asfortranarray, unaligned, lambda matrix: matrix[::-1, ::-1]])
def test_columns_of_more_rows_of_a_dense_array_than_are_read_at_once(run, dtype, layout, monkeypatch):
    monkeypatch.setattr(module, "kernels", run)
    cells = [0.0, -0.0, 1e-50, -1e-50, np.nan, 1.5, 2.5]  # in float32 the first four are 0
    matrix = layout(np.random.default_rng(0).choice(cells, (600, 3)).astype(dtype))
    matrix.flags.writeable = False
    keep = np.array([2, 0])
    columns = DenseColumns(matrix, keep, False, True)
    expected = columns_of_dense(matrix.astype(np.float32), keep, False, True)
    assert columns.n_stored(0, 2) == expected.n_stored(0, 2)
    same(columns.part(0, 2), expected)
    with_zeros = DenseColumns(matrix, keep, True, False).part(0, 2)
    same(with_zeros, columns_of_dense(matrix.astype(np.float32), keep, True, False))
    assert not np.signbit(with_zeros.values[with_zeros.values == 0]).any()


def test_two_columns_of_many_are_read_at_once_however_long():
    for n_columns, width in ((32, 2), (31, 1)):
        matrix = np.broadcast_to(np.float32(0), (module.GROUP_CELLS + 1, n_columns))
        groups = list(DenseColumns(matrix, np.arange(n_columns), True, True).groups(0, n_columns))
        assert groups[0] == (0, width) and groups[-1][1] == n_columns


@given(dense(), st.sampled_from([1, 7, 1000]))
def test_stacked_columns_are_those_of_the_stacked_rows(data, group_cells):
    matrix, *how = data
    cut = len(matrix) // 3
    expected = columns_of_dense(matrix, *how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GROUP_CELLS", group_cells)
        for make in (DenseColumns, columns_of_dense):
            stacked = stack_columns([make(matrix[:cut], *how), DenseColumns(matrix[cut:], *how)])
            assert stacked.n_features == expected.n_features
            assert stacked.n_stored(0, len(how[0])) >= expected.n_stored(0, len(how[0]))
            for begin, end in stacked.groups(0, len(how[0])):
                same(stacked.part(begin, end), expected.part(begin, end))
