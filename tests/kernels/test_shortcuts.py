"""What numba compiles by shortcuts is what it compiles without them, and they are taken for kernels only."""

from contextlib import nullcontext

import numpy as np
import pytest
from numba import boolean, float32, float64, int32, int64, types, uint8, uint64, void
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher

from psboost.kernels import shortcuts
from psboost.kernels.compile import IN, IN2, OUT, OUT2
from psboost.kernels.shortcuts import LinkedCompiler, LinkedDispatcher, ShorterCompiler


class OfOneName(Compiler):
    """Two compilations of a function come to the same symbols."""

    def _compile_bytecode(self):
        self.state.func_id.unique_id = 1
        return super()._compile_bytecode()


class ShorterOfOneName(OfOneName, ShorterCompiler):
    pass


def read_by_kinds_of_index(values, signed, unsigned):
    return values[signed] + values[unsigned] + values[-1] + values[3]


def write_what_is_to_be_cast(values, number, flags):
    values[number] = number
    flags[0], flags[-1] = values[0] > 1.5, flags[1]


def sum_of_rows(table, sums):
    for i in range(len(sums)):
        for j in range(table.shape[1]):
            sums[i] += table[i, j] * table[-1, uint64(j)]
            table[i, j] = 0


def of_a_row(table, row, found):
    line = table[row]
    found[0], found[1] = line[-1], len(line)


def of_a_part_and_a_copy(values, begin, end):
    part, made = values[begin:end], np.empty(3, np.int64)
    made[0] = len(part)
    part[0] = made[0]
    return part[0]


def of_a_tuple(pair, values):
    return values[pair[1]] if pair[0] else values[pair[2]]


CASES = [
    (read_by_kinds_of_index, int64(IN[int32], int32, uint8)),
    (read_by_kinds_of_index, float32(OUT[float32], int64, uint64)),
    (read_by_kinds_of_index, int64(types.Array(int64, 1, "C", aligned=False), int64, uint64)),
    (read_by_kinds_of_index, int64(types.Array(int64, 1, "A"), int64, uint64)),
    (write_what_is_to_be_cast, void(OUT[float64], int64, OUT[boolean])),
    (sum_of_rows, void(OUT2[int64], OUT[int64])),
    (of_a_row, void(IN2[uint8], int64, OUT[int64])),
    (of_a_part_and_a_copy, int64(OUT[uint64], int64, int64)),
    (of_a_tuple, int64(types.Tuple([boolean, int64, uint64]), IN[int64])),
]


def compiled(function, signature, compiler, shorter) -> tuple:
    options = {"nopython": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    dispatcher = CPUDispatcher(function, targetoptions=options, pipeline_class=compiler)
    with shorter:
        dispatcher.compile(signature)
    return dispatcher, dispatcher.overloads[signature.args].library._get_compiled_object()


@pytest.mark.parametrize("function, signature", CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_compiled_code_is_the_same(function, signature):
    _, usual = compiled(function, signature, OfOneName, nullcontext())
    _, shorter = compiled(function, signature, ShorterOfOneName, shortcuts.shortcuts())
    assert shorter == usual


def test_view_holds_its_array():
    def as_signed(n):
        return np.full(n, 2**64 - 1, np.uint64).view(np.int64)

    function, _ = compiled(as_signed, types.Array(int64, 1, "C")(int64), ShorterCompiler, shortcuts.shortcuts())
    made = function(100_000)
    others = [np.zeros(100_000) for _ in range(10)]
    assert made.dtype == np.int64 and (made == -1).all() and not any(other.any() for other in others)


def test_view_of_another_size_is_that_of_numpy():
    def as_bytes(values):
        return values.view(np.uint8)

    function, _ = compiled(as_bytes, types.Array(uint8, 1, "C")(OUT[int64]), ShorterCompiler, shortcuts.shortcuts())
    np.testing.assert_array_equal(function(np.array([258, -1])), [2, 1, *[0] * 6, *[255] * 8])


def test_shortcuts_end_with_the_last_that_takes_them():
    before = [getattr(owner, name) for owner, name, _ in shortcuts._SHORTER]
    with shortcuts.shortcuts():
        with pytest.raises(ZeroDivisionError), shortcuts.shortcuts():
            1 / 0  # noqa: B018
        assert all(getattr(owner, name) is shorter for owner, name, shorter in shortcuts._SHORTER)
    assert [getattr(owner, name) for owner, name, _ in shortcuts._SHORTER] == before


def test_what_is_linked_only_is_called_by_others():
    helper = LinkedDispatcher(lambda number: number + 1, targetoptions={"nopython": True}, pipeline_class=LinkedCompiler)

    def call(number):
        return helper(number) * 2

    function, _ = compiled(call, int64(int64), Compiler, nullcontext())
    assert function(20) == 42
