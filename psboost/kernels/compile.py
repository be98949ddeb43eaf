"""Knows numba and the array types of all kernels; does not know what any kernel computes.

A kernel is declared with its signature, so it is compiled once, when its module is imported, for exactly these
types, and never again for a read-only array:

    @kernel(void(IN[int32], IN[int64], OUT[int64]))
    def build(bins, packed, acc): ...

`IN[t]` is a C-contiguous 1-d array that the kernel reads (read-only arrays fit), `OUT[t]` one that it changes.
"""

from pathlib import Path

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
    """Decorator: compile for `signature` or several, serial, without the GIL, without fast-math (sums keep their order)."""

    def compiled(function):
        dispatcher = numba.njit(function, nogil=True, cache=True, error_model="numpy")
        signatures = signature if isinstance(signature, list) else [signature]
        if _claims is None or _claims.claim(function):
            _compile(dispatcher, signatures)
        else:
            _claims.left.append((dispatcher, signatures))
        return dispatcher

    return compiled


def _compile(dispatcher, signatures) -> None:
    for one in signatures:
        dispatcher.compile(one)
    dispatcher.disable_compile()


class Claims:
    """Which kernels this process compiles, of several that compile at the same time: who claims a kernel first.

    While it is entered, other kernels are left uncompiled.
    """

    def __init__(self, folder: Path):
        """`folder` is the same for all of them, and empty at first."""
        self._folder = folder
        self.left: list[tuple] = []

    def __enter__(self) -> "Claims":
        global _claims
        _claims = self
        return self

    def __exit__(self, *_) -> None:
        global _claims
        _claims = None

    def claim(self, function) -> bool:
        try:
            (self._folder / f"{function.__module__}.{function.__name__}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def compile_left(self) -> None:
        """Those that were left: out of the cache, where the others have put them."""
        for dispatcher, signatures in self.left:
            _compile(dispatcher, signatures)
        self.left = []


_claims: Claims | None = None


def inline(function):
    """Decorator: a helper of kernels, compiled into each of its callers."""
    return numba.njit(function, forceinline=True, nogil=True, error_model="numpy")
