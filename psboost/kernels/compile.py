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
import os
import pickle
import sys
from collections.abc import Callable
from functools import cached_property

from numba import boolean, float32, float64, int8, int32, int64, types, uint8, uint16, uint32, uint64, void
from numba.core.compiler import Compiler, compile_result
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.typing.typeof import typeof_impl

from psboost.interrupts import interrupts_wait
from psboost.kernels import CACHE_FOLDER, linking
from psboost.kernels.linking import Code

__all__ = [
    "IN", "IN2", "OUT", "OUT2", "boolean", "estimate", "float32", "float64", "inline", "int8", "int32", "int64", "kernel",
    "types", "uint8", "uint16", "uint32", "uint64", "void",
]  # fmt: skip

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
    """A function compiled for its declared signatures, when it is first called: linked, if the cache has its code."""

    _all: dict[tuple, "Kernel"] = {}  # by where they start: two of one name would be one to those that call them

    def __init__(self, function, declared: list):
        place = function.__module__, function.__qualname__, function.__code__.co_firstlineno
        if place in self._all:
            raise ValueError(f"a kernel of its name starts there already: {place}")
        self._all[place] = self
        super().__init__(function, targetoptions=_OPTIONS, pipeline_class=_KernelCompiler)
        self._declared, self._place = declared, place
        self._linked: list[tuple[Callable, bytes]] = []  # of each signature, and its descriptor; none if compiled here

    @property
    def is_ready(self) -> bool:
        """Whether it is there to be called at once."""
        return not self._can_compile

    @property
    def nopython_signatures(self) -> list:
        """By which numba finds the one for given types."""
        return self._declared

    def load(self) -> None:
        """Has it ready to be called."""
        with global_compiler_lock, interrupts_wait():
            if self.is_ready:  # another thread was quicker
                return
            path, source = CACHE_FOLDER / "{}.{}-{}".format(*self._place), os.stat(self.py_func.__code__.co_filename)
            stamp = source.st_mtime_ns, source.st_size
            match linking.kept(path):
                case (written, called, codes) if written == stamp and self._all.keys() >= set(called):
                    for place in called:
                        self._all[place].load()
                    self._link(codes)
                case _:
                    called = _called_by(self.py_func)
                    codes = self._compile(called)
                    linking.keep(path, (stamp, [kernel._place for kernel in called], codes))

    def _link(self, codes: list[Code]) -> None:
        """Has it ready by code for each signature."""
        engine, (module, name, _) = self.targetctx.codegen()._engine._ee, self._place
        for signature, code in zip(self._declared, codes, strict=True):
            function = linking.link(code, name, sys.modules[module], engine)
            self._insert([argument._code for argument in signature.args], function, False)
            self._linked.append((function, code.descriptor))
        self._can_compile = False

    def _compile(self, called: "list[Kernel]") -> list[Code]:
        """Has it ready, which calls these, by numba; returns its code for each signature."""
        for kernel in called:
            kernel.load()
            kernel._describe()
        for signature in self._declared:
            self.compile(signature)
        self.disable_compile()
        return [_code_of(self.overloads[signature.args]) for signature in self._declared]

    def _describe(self) -> None:
        """Has it ready for a caller to be compiled."""
        for signature, (function, descriptor) in zip(self._declared, self._linked, strict=False):
            known = pickle.loads(descriptor)
            self.overloads[signature.args] = compile_result(
                entry_point=function, fndesc=known, signature=signature, objectmode=False
            )
            self.targetctx.insert_user_function(function, known)
        self._linked.clear()

    def add_overload(self, cres):
        """For callers: what is called where it is, and is no part of theirs."""
        super().add_overload(cres)
        self.targetctx.remove_user_function(cres.entry_point)
        self.targetctx.insert_user_function(cres.entry_point, cres.fndesc)

    def _compile_for_args(self, *args, **kws):
        """Called by the first call, which then calls what is returned."""
        self.load()
        return self


class Helper:
    """A function that is compiled into the kernels that call it; to Python, it is what it was."""

    def __init__(self, function, **options):
        self.py_func = function
        self._options = {**_OPTIONS, "no_cpython_wrapper": True, "forceinline": True, **options}

    def __call__(self, *args):
        return self.py_func(*args)

    @cached_property
    def to_compile(self) -> "_InlineDispatcher":
        """What numba takes in its place. Most processes compile nothing, and to make one for each helper takes long."""
        return _InlineDispatcher(self.py_func, targetoptions=self._options, pipeline_class=_HelperCompiler)


@typeof_impl.register(Helper)
def _type_of_helper(helper: Helper, context):
    return helper.to_compile._numba_type_


class _InlineDispatcher(CPUDispatcher):
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
    return list(dict.fromkeys(sum(of_helpers, [each for each in called if isinstance(each, Kernel)])))


def _code_of(compiled) -> Code:
    """What numba made of a kernel for one signature."""
    descriptor = compiled.fndesc
    descriptor.typemap = descriptor.calltypes = None
    environments = compiled.environment, *compiled._find_referenced_environments()
    return Code(
        object_file=compiled.library._get_compiled_object(),
        symbol=descriptor.llvm_cpython_wrapper_name,
        constants={each.env_name: each.consts for each in environments if each.consts or each is compiled.environment},
        descriptor=pickle.dumps(descriptor),
    )


def kernel(signature):
    """Decorator: compile for `signature` or several, serial, without the GIL, without fast-math (sums keep their order)."""
    return lambda function: Kernel(function, signature if isinstance(signature, list) else [signature])


def inline(function):
    """Decorator: a helper of kernels, compiled into each of its callers."""
    return Helper(function)


def estimate(function):
    """Decorator: the same for a sum whose last bits do not matter, as they depend on the machine: it takes many at once."""
    return Helper(function, fastmath={"reassoc"})
