"""Knows numba and the array types of all kernels; does not know what any kernel computes.

A kernel is declared with its signature, so it is compiled once, for exactly these types, and never again for a
read-only array; when it is first called, unless `prepare` did it before:

    @kernel(void(IN[int32], IN[int64], OUT[int64]))
    def build(bins, packed, acc): ...

`IN[t]` is a C-contiguous 1-d array that the kernel reads (read-only arrays fit), `OUT[t]` one that it changes.
"""

import numba
from llvmlite import binding
from numba import boolean, float32, float64, int8, int32, int64, types, uint8, uint16, uint32, uint64, void
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys

from psboost.interrupts import interrupts_wait
from psboost.kernels import CACHE_FOLDER

assert str(CACHE_FOLDER) == numba.config.CACHE_DIR, "numba was set up before psboost.kernels was imported"

__all__ = [
    "IN", "IN2", "OUT", "OUT2", "boolean", "estimate", "float32", "float64", "inline", "int8", "int32", "int64", "kernel",
    "types", "uint8", "uint16", "uint32", "uint64", "void",
]  # fmt: skip

_NO_BITCODE = binding.parse_assembly("").as_bitcode()
_SCALARS = (int8, uint8, boolean, int32, uint16, uint32, int64, uint64, float32, float64)
IN = {scalar: types.Array(scalar, 1, "C", readonly=True) for scalar in _SCALARS}
OUT = {scalar: types.Array(scalar, 1, "C") for scalar in _SCALARS}
IN2 = {scalar: types.Array(scalar, 2, "C", readonly=True) for scalar in _SCALARS}
OUT2 = {scalar: types.Array(scalar, 2, "C") for scalar in _SCALARS}


class Kernel(CPUDispatcher):
    """A function compiled for its declared signatures, when it is first called: loaded, if the cache has it."""

    def __init__(self, function, declared: list):
        super().__init__(function, targetoptions={"nopython": True, "nogil": True, "error_model": "numpy"})
        self._declared = declared
        self._cache = _Cache(function)

    def load(self) -> None:
        """Has it ready to be called."""
        with global_compiler_lock, interrupts_wait():
            if self._can_compile:  # no other thread was quicker
                for signature in self._declared:
                    self.compile(signature)
                self.disable_compile()

    def _compile_for_args(self, *args, **kws):
        """Called by the first call, which then calls what is returned."""
        self.load()
        return self

    def get_call_template(self, args, kws):
        """Called where another kernel that is being compiled calls this one, whose code it takes over."""
        self.load()
        for signature, result in zip(self._declared, self.overloads.values(), strict=True):
            self._cache.complete(signature, result.library, self.targetctx)
        return super().get_call_template(args, kws)


class _Results(CompileResultCacheImpl):
    """numba's, which also reads a kernel's bitcode, though only callers that are to be compiled want it: nearly as much time
    as all the rest."""

    def __init__(self, function):
        super().__init__(function)
        self.without_bitcode = []  # libraries

    def rebuild(self, target_context, payload):
        (name, kind, (code, _)), function, *others = payload
        names = {function.llvm_func_name, function.llvm_cpython_wrapper_name, function.llvm_cfunc_wrapper_name}
        target_context.codegen()._engine._defined_symbols |= {*names, function.env_name}  # as read from the bitcode
        result = super().rebuild(target_context, ((name, kind, (code, _NO_BITCODE)), function, *others))
        self.without_bitcode.append(result.library)
        return result


class _Cache(FunctionCache):
    """numba's, which loads all that compiling takes before it looks: half a second, and 18 MB."""

    _impl_class = _Results

    def load_overload(self, sig, target_context):
        rtsys.initialize(target_context)  # what compiled code calls
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def complete(self, sig, library, target_context) -> None:
        """Has the bitcode of what was loaded there, for a caller."""
        if library in self._impl.without_bitcode:
            (_, _, (_, bitcode)), *_ = self._cache_file.load(self._index_key(sig, target_context.codegen()))
            library._shared_module = binding.parse_bitcode(bitcode)
            self._impl.without_bitcode.remove(library)


def kernel(signature):
    """Decorator: compile for `signature` or several, serial, without the GIL, without fast-math (sums keep their order)."""
    return lambda function: Kernel(function, signature if isinstance(signature, list) else [signature])


def inline(function):
    """Decorator: a helper of kernels, compiled into each of its callers."""
    return numba.njit(function, forceinline=True, nogil=True, error_model="numpy")


def estimate(function):
    """Decorator: the same for a sum whose last bits do not matter, as they depend on the machine: it takes many at once."""
    return numba.njit(function, forceinline=True, nogil=True, error_model="numpy", fastmath={"reassoc"})
