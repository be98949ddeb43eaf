"""Runs compiled kernels as the plain Python that they are written in; knows no kernel."""

import types

import numpy as np


def as_python(module):
    """The functions of a kernel module, and the helpers that they call, uncompiled."""
    names = dict(vars(module))
    for name, function in vars(module).items():
        if hasattr(function, "py_func"):
            is_own = function.py_func.__module__ == module.__name__
            known = names if is_own else function.py_func.__globals__
            plain = types.FunctionType(function.py_func.__code__, known, name)
            names[name] = _quiet(plain)
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
