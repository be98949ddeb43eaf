"""Tuples of arrays that one kernel keeps and another reads."""

from typing import NamedTuple

import numpy as np

from psboost.kernels.compile import IN, OUT, OUT2, boolean, float64, int32, int64, kernel, types, void
from psboost.kernels.kept import keep, reader, words_of


class Inner(NamedTuple):
    numbers: np.ndarray
    factor: int


class Outer(NamedTuple):
    inner: Inner
    table: np.ndarray
    counts: bool


def _outer(number):
    return types.NamedTuple((types.NamedTuple((IN[number], int64), Inner), OUT2[float64], boolean), Outer)


_WORDS = words_of(_outer(int32))
_read = reader(_outer, _WORDS)


@kernel(void(IN[int32], int64, OUT2[float64], boolean, int64, OUT[int64]))
def keep_outer(numbers, factor, table, counts, k, memory):
    keep(Outer(Inner(numbers, factor), table, counts), k, memory, _WORDS)


@kernel(float64(OUT[int64], int64, IN[int32]))
def use_outer(memory, k, like):
    outer, total = _read(memory, k, (like,)), 0.0
    for number in outer.inner.numbers:
        total += outer.inner.factor * number
    outer.table[1, 2] += total
    return total + (1000.0 if outer.counts else 0.0)


def test_what_was_kept_is_read_by_its_number_and_changed_where_it_is():
    memory, like = np.zeros(3 * _WORDS, np.int64), np.zeros(0, np.int32)
    tables = [np.full((2, 3), 0.5) for _ in range(3)]
    for k in (2, 0, 1):
        numbers = np.arange(k + 2, dtype=np.int32)
        numbers.flags.writeable = k != 1
        keep_outer(numbers, k + 1, tables[k], k == 1, k, memory)
        tables[k] = tables[k], numbers  # which would go away
    assert [use_outer(memory, k, like) for k in range(3)] == [1.0, 2 * 3 + 1000.0, 3 * 6.0]
    assert [table[1, 2] for table, _ in tables] == [1.5, 6.5, 18.5]
    assert all(table.sum() == 3.0 + total for (table, _), total in zip(tables, [1, 6, 18], strict=True))
