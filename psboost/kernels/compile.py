"""Knows numba and the array types of all kernels; does not know what any kernel computes.

A kernel is declared with its signature, so it is compiled once, when its module is imported, for exactly these
types, and never again for a read-only array:

    @kernel(void(IN[int32], IN[int64], OUT[int64]))
    def build(bins, packed, acc): ...

`IN[t]` is a C-contiguous 1-d array that the kernel reads (read-only arrays fit), `OUT[t]` one that it changes.
"""

import numba
from numba import boolean, float32, float64, int8, int32, int64, types, uint8, uint16, uint32, uint64, void

from psboost.kernels import CACHE_FOLDER

assert str(CACHE_FOLDER) == numba.config.CACHE_DIR, "numba was set up before psboost.kernels was imported"

__all__ = [
    "IN", "IN2", "OUT", "OUT2", "boolean", "float32", "float64", "inline", "int8", "int32", "int64", "kernel",
    "types", "uint8", "uint16", "uint32", "uint64", "void",
]  # fmt: skip

_SCALARS = (int8, uint8, boolean, int32, uint16, uint32, int64, uint64, float32, float64)
IN = {scalar: types.Array(scalar, 1, "C", readonly=True) for scalar in _SCALARS}
OUT = {scalar: types.Array(scalar, 1, "C") for scalar in _SCALARS}
IN2 = {scalar: types.Array(scalar, 2, "C", readonly=True) for scalar in _SCALARS}
OUT2 = {scalar: types.Array(scalar, 2, "C") for scalar in _SCALARS}


def kernel(signature):
    """Decorator: compile for `signature`, serial, without the GIL, without fast-math (sums keep their order)."""
    return numba.njit(signature, nogil=True, cache=True, error_model="numpy")


def inline(function):
    """Decorator: a helper of kernels, compiled into each of its callers."""
    return numba.njit(function, forceinline=True, nogil=True, error_model="numpy")
