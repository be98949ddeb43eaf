"""Columns from rows, beside a naive twin; the distinct values of a column, compiled and as plain Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psboost.data.columns import to_columns
from psboost.errors import DataError
from psboost.kernels import columns as kernels
from tests.naive import binning as naive

VALUES = st.one_of(
    st.sampled_from([1.0, -1.0, 0.5, 2.0, float("nan"), float("inf"), 3.4028234663852886e38]),
    st.floats(width=32, allow_nan=True).filter(lambda value: value != 0),
)


@st.composite
def csr(draw, max_rows=8, max_features=6):
    """(rows as lists of (feature, value), n_features)"""
    n_features = draw(st.integers(0, max_features))
    features = st.sets(st.integers(0, n_features - 1)) if n_features else st.just(set())
    n_rows = draw(st.integers(0, max_rows))
    return [[(f, draw(VALUES)) for f in sorted(draw(features))] for _ in range(n_rows)], n_features


def arrays(rows):
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    features = np.array([f for row in rows for f, _ in row], np.int32)
    return indptr, features, np.array([v for row in rows for _, v in row], np.float32)


@given(csr())
def test_columns_hold_what_the_rows_hold(data):
    rows, n_features = data
    columns = to_columns(*arrays(rows), n_features)
    assert (columns.n_rows, columns.n_features) == (len(rows), n_features)
    for f, expected in enumerate(naive.scatter_columns(rows, n_features)):
        held = slice(columns.offsets[f], columns.offsets[f + 1])
        np.testing.assert_array_equal(columns.rows[held], [row for row, _ in expected])
        np.testing.assert_array_equal(columns.values[held], np.array([v for _, v in expected], np.float32))


@given(csr())
def test_column_kernels_as_plain_python(data):
    rows, n_features = data
    indptr, features, values = arrays(rows)
    expected = to_columns(indptr, features, values, n_features)
    offsets = np.zeros(n_features + 1, np.int64)
    kernels.count_features.py_func(features, offsets[1:])
    np.cumsum(offsets, out=offsets)
    got_rows, got_values = np.empty(len(features), np.int32), np.empty(len(features), np.float32)
    kernels.scatter_columns.py_func(indptr, features, values, offsets[:-1].copy(), got_rows, got_values)
    np.testing.assert_array_equal(offsets, expected.offsets)
    np.testing.assert_array_equal(got_rows, expected.rows)
    np.testing.assert_array_equal(got_values, expected.values)


@pytest.mark.parametrize("run", [kernels.prefix_ends, kernels.prefix_ends.py_func])
@given(data=csr(), n_count_rows=st.integers(0, 9))
def test_prefix_ends(run, data, n_count_rows):
    rows, n_features = data
    columns = to_columns(*arrays(rows), n_features)
    ends = np.empty(n_features, np.int64)
    run(columns.offsets, columns.rows, n_count_rows, ends)
    counted = naive.scatter_columns(rows[:n_count_rows], n_features)
    assert (ends - columns.offsets[:-1]).tolist() == [len(column) for column in counted]


@pytest.mark.parametrize("run", [kernels.find_runs, kernels.find_runs.py_func])
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
        to_columns(np.array(indptr, np.int64), np.array(features, np.int32), values, n_features)
