"""Arithmetic on the bits of float64, beside Python's, compiled and as plain Python."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psboost.kernels import doubles
from psboost.kernels.compile import float64, int64, numba, uint64
from tests.plain import as_python

WAYS = pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
FUNCTIONS = {"exp": float64(float64), "floor": int64(float64), "fraction": float64(uint64)}


@pytest.fixture(scope="module")
def functions():
    """By name: as kernels, as they are only ever compiled into others; and as plain Python."""

    def compiled(name, signature):
        function = getattr(doubles, name)
        return numba.njit(signature, error_model="numpy")(lambda x: function(x))

    plain = vars(as_python(doubles))
    return {True: {name: compiled(name, kind) for name, kind in FUNCTIONS.items()}, False: plain}


@WAYS
@given(x=st.floats(-700, 700))
def test_exp(functions, compiled, x):
    assert functions[compiled]["exp"](x) == pytest.approx(math.exp(x), rel=1e-15, abs=0)


@WAYS
@given(x=st.one_of(st.floats(-(2.0**50), 2.0**50), st.integers(-(2**50), 2**50).map(float), st.floats(-2, 2)))
def test_floor(functions, compiled, x):
    assert functions[compiled]["floor"](x) == math.floor(x)


@WAYS
@given(x=st.integers(0, 2**32 - 1))
def test_fraction(functions, compiled, x):
    assert functions[compiled]["fraction"](np.uint64(x)) == x / 2**32


@WAYS
def test_exp_at_its_ends(functions, compiled):
    exp = functions[compiled]["exp"]
    assert exp(0.0) == 1.0
    for x in (-700.0, 700.0, 0.5 * math.log(2), -0.5 * math.log(2), 5e-324):
        assert exp(x) == pytest.approx(math.exp(x), rel=1e-15, abs=0)
