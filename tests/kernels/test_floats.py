"""An exponential and rounding on the bits of floats, beside Python's, compiled and as plain Python."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from psboost.kernels import floats
from tests.plain import as_kernel, as_python


@pytest.fixture(scope="module")
def exps():
    """As a kernel, as it is only ever compiled into others; and as plain Python."""
    return {
        "compiled": as_kernel(floats.exp),
        "plain": as_python(floats).exp,
    }


@pytest.fixture(scope="module")
def wholes():
    return {"compiled": as_kernel(floats.whole), "plain": as_python(floats).whole}


@pytest.mark.parametrize("way", ["compiled", "plain"])
@settings(deadline=None)  # the first one compiles
@given(x=st.floats(-87, 87, width=32))
def test_exp(exps, way, x):
    assert exps[way](np.float32(x)) == pytest.approx(math.exp(x), rel=2.5e-7, abs=0)


@pytest.mark.parametrize("way", ["compiled", "plain"])
def test_exp_at_its_ends(exps, way):
    assert exps[way](np.float32(0)) == 1
    for x in np.array([-87, 87, 0.5 * math.log(2), -0.5 * math.log(2), 1e-45], np.float32):
        assert exps[way](x) == pytest.approx(math.exp(x), rel=2.5e-7, abs=0)


def test_both_ways_give_the_same_bits(exps):
    for x in np.random.default_rng(0).uniform(-87, 87, 2000).astype(np.float32):
        assert exps["compiled"](x) == exps["plain"](x)


@pytest.mark.parametrize("way", ["compiled", "plain"])
@settings(deadline=None)
@given(x=st.floats(-(2.0**51), 2.0**51, exclude_min=True, exclude_max=True))
@example(x=2.0**51 - 0.5)
@example(x=-(2.0**51) + 0.5)
@example(x=-0.5)
@example(x=1.5)
@example(x=2.5)
@example(x=5e-324)
def test_whole(wholes, way, x):
    assert wholes[way](x) == round(x)
