"""Knows what is counted and found by column, in tables and hash tables, compiled and as plain Python."""

from collections import Counter

import numpy as np
import pytest

from psboost.data.column_tables import ColumnCounter, ColumnLookup, hash_of
from psboost.kernels import column_tables as kernels
from tests.plain import both_ways


@pytest.fixture
def some():
    """400 columns, most of them several times, and values of which a third are 0."""
    rng = np.random.default_rng(0)
    columns = np.concatenate([rng.integers(0, 40, 100), rng.integers(0, 2**62, 60)])
    return rng.choice(columns, 400), rng.integers(0, 3, 400).astype(np.float32)


@pytest.mark.parametrize("run", both_ways(kernels))
@pytest.mark.parametrize("n_low", [0, 20, 40])
@pytest.mark.parametrize("keep_zeros", [True, False])
def test_counts_of_columns_until_the_hash_table_is_half_full(run, n_low, keep_zeros, some):
    columns, values = some
    counts, table = np.zeros(n_low, np.uint32), np.tile(np.array([-1, 0]), 64)
    with np.errstate(over="ignore"):
        end, n_keys = run.count_columns(columns, values, keep_zeros, False, 5, 0, counts, table)
    expected = Counter(columns[5:end][keep_zeros | (values[5:end] != 0)].tolist())
    held = {column: n for column, n in table.reshape(-1, 2).tolist() if column != -1}
    assert n_keys == len(held) == 32 and end < 400 and columns[end] not in held  # who comes next has no room
    assert held | {column: n for column, n in enumerate(counts.tolist()) if n} == expected


@pytest.mark.parametrize("run", both_ways(kernels))
def test_what_is_put_into_a_hash_table_is_found(run, some):
    columns = np.unique(some[0])
    table = np.tile(np.array([-1, 0]), 256)
    with np.errstate(over="ignore"):
        run.fill_hash(np.column_stack([columns[::2], columns[::2] % 1000]).reshape(-1), table)
        located = np.empty(len(columns), np.int32)
        run.locate_by_hash(columns, table, located)
    assert located[::2].tolist() == (columns[::2] % 1000).tolist() and (located[1::2] == -1).all()
    moved = np.tile(np.array([-1, 0]), 512)
    with np.errstate(over="ignore"):
        run.fill_hash(table, moved)
    assert sorted(moved.reshape(-1, 2).tolist())[512 - len(columns[::2]) :] == sorted(
        slot for slot in table.reshape(-1, 2).tolist() if slot[0] != -1
    )


@pytest.mark.parametrize("run", both_ways(kernels))
def test_columns_beyond_a_table_are_not_found(run):
    located = np.empty(3, np.int32)
    run.locate_by_table(np.array([1, 0, 2], np.int32), np.array([7, 8], np.int32), located)
    assert located.tolist() == [8, 7, -1]


@pytest.mark.parametrize("spread", [1, 10**9, 2**40])
def test_many_columns_are_counted_and_found(spread):
    rng = np.random.default_rng(1)
    columns = rng.integers(0, 5000, 30_000) * spread
    counter = ColumnCounter(True)
    for piece in np.array_split(columns, 7):
        counter.add(piece, np.ones(len(piece), np.float32))
    features, counts = counter.result()
    expected = np.unique(columns, return_counts=True)
    assert features.dtype == counts.dtype == np.int64
    np.testing.assert_array_equal((features, counts), expected)
    keep = rng.permutation(features)[::2]
    located = ColumnLookup(keep).locate(columns)
    is_kept = np.isin(columns, keep)
    assert (keep[located[is_kept]] == columns[is_kept]).all() and (located[~is_kept] == -1).all()


def test_a_hash_table_of_no_columns_has_none():
    located = np.empty(2, np.int32)
    kernels.locate_by_hash(np.array([0, 7]), hash_of(np.empty(0, np.int64), 0), located)
    assert located.tolist() == [-1, -1]
