"""Knows numba and the array types of all kernels; does not know what any kernel computes.

A kernel is declared with its signature, so it is compiled once, for exactly these types, and never again for a
read-only array; when it is first called, unless `prepare` did it before:

    @kernel(void(IN[int32], IN[int64], OUT[int64]))
    def build(bins, packed, acc): ...

`IN[t]` is a C-contiguous 1-d array that the kernel reads (read-only arrays fit), `OUT[t]` one that it changes.

numba would compile a kernel again in each kernel that calls it, and helpers for Python, which does not call them. Here a
kernel is called where it is, as in C, and a helper is for kernels only: compiling takes two thirds of the time. What is
called must then be there, under the same name, in every process that loads the caller from the cache: a kernel is loaded
after those that it calls, and its name holds the line that it starts at, not the order of compiling.
"""

import inspect

from llvmlite import binding
from numba import boolean, float32, float64, int8, int32, int64, types, uint8, uint16, uint32, uint64, void
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.runtime._nrt_python import c_helpers

from psboost.interrupts import interrupts_wait
from psboost.kernels import CACHE_FOLDER

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


_OPTIONS = {"nopython": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


class _KernelCompiler(Compiler):
    def _compile_bytecode(self):
        self.state.func_id.unique_id = self.state.func_id.firstlineno
        return super()._compile_bytecode()


class _HelperCompiler(Compiler):
    def compile_extra(self, func):
        self.state.flags.no_compile = True  # into what Python can call
        return super().compile_extra(func)


class Kernel(CPUDispatcher):
    """A function compiled for its declared signatures, when it is first called: loaded, if the cache has it."""

    _places = set()  # where kernels start: two of one name would be one to those that call them

    def __init__(self, function, declared: list):
        place = function.__module__, function.__qualname__, function.__code__.co_firstlineno
        if place in self._places:
            raise ValueError(f"a kernel of its name starts there already: {place}")
        self._places.add(place)
        super().__init__(function, targetoptions=_OPTIONS, pipeline_class=_KernelCompiler)
        self._declared = declared

    def load(self) -> None:
        """Has it ready to be called."""
        with global_compiler_lock, interrupts_wait():
            if self._can_compile:  # no other thread was quicker
                self._cache = _Cache(self.py_func)
                for kernel in _called_by(self.py_func):
                    kernel.load()
                for signature in self._declared:
                    self.compile(signature)
                self.disable_compile()

    def add_overload(self, cres):
        """For callers: what is called where it is, and is no part of theirs."""
        super().add_overload(cres)
        self.targetctx.remove_user_function(cres.entry_point)
        self.targetctx.insert_user_function(cres.entry_point, cres.fndesc)

    def _compile_for_args(self, *args, **kws):
        """Called by the first call, which then calls what is returned."""
        self.load()
        return self


class Helper(CPUDispatcher):
    """A function that is compiled into the kernels that call it; to Python, it is what it was."""

    def __init__(self, function, **options):
        options = {**_OPTIONS, "no_cpython_wrapper": True, "forceinline": True, **options}
        super().__init__(function, targetoptions=options, pipeline_class=_HelperCompiler)

    def __call__(self, *args):
        return self.py_func(*args)

    def add_overload(self, cres):
        cres = cres._replace(entry_point=object())  # by which callers find it
        self.overloads[tuple(cres.signature.args)] = cres
        self.targetctx.insert_user_function(cres.entry_point, cres.fndesc, [cres.library])


def _called_by(function) -> list[Kernel]:
    """The kernels that a function calls, itself or in a helper."""
    around = inspect.getclosurevars(function)
    called = [*around.globals.values(), *around.nonlocals.values()]
    for module in filter(inspect.ismodule, tuple(called)):
        called += [vars(module).get(name) for name in function.__code__.co_names]
    of_helpers = [_called_by(each.py_func) for each in called if isinstance(each, Helper)]
    return sum(of_helpers, [each for each in called if isinstance(each, Kernel)])


class _InFolder(UserProvidedCacheLocator):
    """Keeps kernels in CACHE_FOLDER, wherever numba was told to keep other code."""

    def __init__(self, function, file: str):
        super().__init__(function, file)
        self._cache_path = str(CACHE_FOLDER / self.get_suitable_cache_subpath(file))

    @classmethod
    def from_function(cls, function, file: str):
        return super(UserProvidedCacheLocator, cls).from_function(function, file)


class _Results(CompileResultCacheImpl):
    """numba's, but without a kernel's bitcode: its callers make no code of it."""

    _locator_classes = [_InFolder]

    def reduce(self, cres):
        (name, kind, (code, _)), *others = super().reduce(cres)
        return (name, kind, (code, _NO_BITCODE)), *others

    def rebuild(self, target_context, payload):
        _, function, *_ = payload
        names = {function.llvm_func_name, function.llvm_cpython_wrapper_name, function.env_name}
        target_context.codegen()._engine._defined_symbols |= names  # as read from the bitcode
        return super().rebuild(target_context, payload)


for _name, _address in c_helpers.items():  # what compiled code calls, by the names that numba gives it when it compiles
    binding.add_symbol(_name if _name.startswith("_") else f"NRT_{_name}", _address)


class _Cache(FunctionCache):
    """numba's, which loads and compiles all that compiling takes before it looks: half a second, and 40 MB."""

    _impl_class = _Results

    def load_overload(self, sig, target_context):
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


def kernel(signature):
    """Decorator: compile for `signature` or several, serial, without the GIL, without fast-math (sums keep their order)."""
    return lambda function: Kernel(function, signature if isinstance(signature, list) else [signature])


def inline(function):
    """Decorator: a helper of kernels, compiled into each of its callers."""
    return Helper(function)


def estimate(function):
    """Decorator: the same for a sum whose last bits do not matter, as they depend on the machine: it takes many at once."""
    return Helper(function, fastmath={"reassoc"})
