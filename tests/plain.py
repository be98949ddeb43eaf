"""Runs kernels as the plain Python that they are written in, and helpers as kernels; knows none of them."""

import sys
import types
from functools import cache

import numba
import numpy as np


@cache
def as_python(module):
    """The functions of a kernel module, and those of other kernel modules that they call, uncompiled."""
    names = dict(vars(module))
    for name, value in vars(module).items():
        if hasattr(value, "py_func"):
            home = value.py_func.__module__
            own = home == module.__name__
            plain = types.FunctionType(value.py_func.__code__, names, name) if own else None
            names[name] = _quiet(plain) if own else vars(as_python(sys.modules[home]))[value.py_func.__name__]
        elif isinstance(value, types.ModuleType) and value.__name__.startswith("psboost.kernels."):
            names[name] = as_python(value)
    return types.SimpleNamespace(**names)


def _quiet(function):
    """Compiled integers wrap around without a word, and so do these."""

    def call(*args):
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return function(*args)

    return call


def both_ways(module):
    """Parameters for pytest: the kernels of `module`, compiled and as plain Python."""
    return [module, as_python(module)]


@cache
def as_kernel(helper):
    """What a helper is in the kernels that it is compiled into; by itself it is plain Python."""
    return numba.njit(error_model="numpy")(lambda *args: helper(*args))


def helper(function):
    """Of either of both_ways: the helper as a kernel, or as it is."""
    return as_kernel(function) if hasattr(function, "py_func") else function
