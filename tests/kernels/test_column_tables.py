"""Knows what is counted and found by column, in tables and hash tables, compiled and as plain Python."""

from collections import Counter

import numpy as np
import pytest

from psboost.data.column_tables import NARROW, WIDE, ColumnCounter, ColumnLookup, hash_of
from psboost.kernels import column_tables as kernels
from tests.plain import both_ways

SLOTS = pytest.mark.parametrize("slots", [NARROW, WIDE], ids=["narrow", "wide"])


def some(slots):
    """400 columns, most of them several times, as large as such slots take, and values of which a third are 0."""
    rng = np.random.default_rng(0)
    columns = np.concatenate([rng.integers(0, 40, 100), rng.integers(0, 2**32 if slots == NARROW else 2**62, 60)])
    return rng.choice(columns, 400), rng.integers(0, 3, 400).astype(np.float32)


def empty(n_slots, slots):
    return np.full(n_slots, kernels.FREE) if slots == NARROW else np.tile(np.array([-1, 0]), n_slots)


def held(table):
    """{column: what is known of it}"""
    if table.dtype == NARROW:
        return {word >> 32: word % 2**32 for word in table.tolist() if word != 2**64 - 1}
    return {column: known for column, known in table.reshape(-1, 2).tolist() if column != -1}


@SLOTS
@pytest.mark.parametrize("run", both_ways(kernels))
@pytest.mark.parametrize("n_low", [0, 20, 40])
@pytest.mark.parametrize("keep_zeros", [True, False])
def test_counts_of_columns_until_the_hash_table_is_half_full(run, n_low, keep_zeros, slots):
    columns, values = some(slots)
    counts, table = np.zeros(n_low, np.uint32), empty(64, slots)
    with np.errstate(over="ignore"):
        end, n_keys = run.count_columns(columns, values, keep_zeros, False, 5, 0, counts, table)
    expected = Counter(columns[5:end][keep_zeros | (values[5:end] != 0)].tolist())
    assert n_keys == len(held(table)) == 32 and end < 400 and columns[end] not in held(table)  # the next one has no room
    assert held(table) | {column: n for column, n in enumerate(counts.tolist()) if n} == expected


@SLOTS
@pytest.mark.parametrize("run", both_ways(kernels))
def test_what_is_put_into_a_hash_table_is_found(run, slots):
    columns = np.unique(some(slots)[0])
    table, located = empty(256, slots), np.empty(len(columns), np.int32)
    put = {column: column % 1000 for column in columns[::2].tolist()}
    with np.errstate(over="ignore"):
        run.fill_hash(np.array(list(put.items())).reshape(-1), table)
        run.locate_by_hash(columns, table, located)
        assert located.tolist() == [put.get(column, -1) for column in columns.tolist()]
        for others in {slots, WIDE}:
            moved = empty(512, others)
            run.fill_hash(table, moved)
            assert held(moved) == held(table) == put


@pytest.mark.parametrize("run", both_ways(kernels))
def test_wide_columns_are_not_found_among_narrow_ones(run):
    table, located = empty(16, NARROW), np.empty(4, np.int32)
    with np.errstate(over="ignore"):
        run.fill_hash(np.array([5, 0, 2**32 - 1, 1]), table)
        run.locate_by_hash(np.array([5, 2**32 + 5, 2**32 - 1, 2**62]), table, located)
    assert located.tolist() == [0, -1, 1, -1]


@pytest.mark.parametrize("run", both_ways(kernels))
def test_columns_beyond_a_table_are_not_found(run):
    located = np.empty(3, np.int32)
    run.locate_by_table(np.array([1, 0, 2], np.int32), np.array([7, 8], np.int32), located)
    assert located.tolist() == [8, 7, -1]


@pytest.mark.parametrize("spread", [1, 800_000, 10**9, 2**40])
def test_many_columns_are_counted_and_found(spread):
    rng = np.random.default_rng(1)
    columns = np.sort(rng.integers(0, 5000, 30_000)) * spread  # so that some pieces are of narrow ones alone
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


@SLOTS
def test_a_hash_table_of_no_columns_has_none(slots):
    located = np.empty(2, np.int32)
    kernels.locate_by_hash(np.array([0, 7]), hash_of(np.empty(0, np.int64), 0, slots), located)
    assert located.tolist() == [-1, -1]
