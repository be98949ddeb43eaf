"""Knows numba and the array types of all kernels; does not know what any kernel computes.

A kernel is declared with its signatures, so it is compiled once for each, and never again for a read-only array; when it is
first called for it, unless `prepare` did it before:

    @kernel(void(IN[int32], IN[int64], OUT[int64]))
    def build(bins, packed, acc): ...

`IN[t]` is a C-contiguous 1-d array that the kernel reads (read-only arrays fit), `OUT[t]` one that it changes.

numba would compile a kernel again in each kernel that calls it, and helpers for Python, which does not call them. Here a
kernel is called where it is, as in C, and a helper is for kernels only: compiling takes two thirds of the time. What is
called must then be there, under the same name, in every process that loads the caller from the cache: a kernel is loaded
after those that it calls, and its name holds the line that it starts at, not the order of compiling.
"""

import os
import pickle
import sys
from collections.abc import Callable, Iterable, Sequence, Set
from functools import cached_property
from itertools import chain, product, repeat
from pathlib import Path
from typing import Any

from numba import boolean, float32, float64, int8, int32, int64, types, uint8, uint16, uint32, uint64, void
from numba.core.compiler import compile_result
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.typing.typeof import typeof_impl

from psboost.interrupts import interrupts_wait
from psboost.kernels import CACHE_FOLDER, linking
from psboost.kernels.linking import Code
from psboost.kernels.prepare import alone
from psboost.kernels.shortcuts import LinkedCompiler, LinkedDispatcher, LinkedLibrary, ShorterCompiler, shortcuts

__all__ = [
    "IN", "IN2", "OUT", "OUT2", "boolean", "estimate", "float32", "float64", "inline", "int8", "int32", "int64",
    "kernel", "kernel_for", "optimised", "types", "uint8", "uint16", "uint32", "uint64", "void",
]  # fmt: skip

_SCALARS = (int8, uint8, boolean, int32, uint16, uint32, int64, uint64, float32, float64)
IN = {scalar: types.Array(scalar, 1, "C", readonly=True) for scalar in _SCALARS}
OUT = {scalar: types.Array(scalar, 1, "C") for scalar in _SCALARS}
IN2 = {scalar: types.Array(scalar, 2, "C", readonly=True) for scalar in _SCALARS}
OUT2 = {scalar: types.Array(scalar, 2, "C") for scalar in _SCALARS}


_OPTIONS = {"nopython": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_KERNEL_OPTIONS = {**_OPTIONS, "fastmath": False, "forceinline": False}  # not those of the helper that calls it


class _KernelCompiler(ShorterCompiler):
    def _compile_bytecode(self):
        self.state.func_id.unique_id = self.state.func_id.firstlineno
        return super()._compile_bytecode()


class _HelperLibrary(LinkedLibrary):
    """Code that is optimised only where it is linked in: compiling takes less time."""

    def _optimize_final_module(self):
        pass


class _HelperCompiler(LinkedCompiler):
    library = _HelperLibrary


class Kernel(CPUDispatcher):
    """A function that is compiled for a declared signature when it is first called for it: linked, if the cache has that."""

    _all: dict[tuple, "Kernel"] = {}  # by where they start: two of one name would be one to those that call them
    _by_symbol: dict[str, tuple[tuple, int]] = {}  # in compiled code, of those that callers know: place and signature

    def __init__(self, function, declared: list[tuple]):
        """`declared`: signatures, each with the names of what it is for."""
        place = function.__module__, function.__qualname__, function.__code__.co_firstlineno
        if place in self._all:
            raise ValueError(f"a kernel of its name starts there already: {place}")
        self._all[place] = self
        super().__init__(function, targetoptions=_KERNEL_OPTIONS, pipeline_class=_KernelCompiler)
        self._place, self._declared = place, [signature for signature, *_ in declared]
        self._variants = [frozenset(names) - {""} for _, *names in declared]
        self._functions: dict[int, Callable] = {}  # by the number of the signature
        self._inserted: set[tuple] = set()  # types of arguments, by their numbers
        self._descriptors: dict[int, bytes] = {}  # of functions that were linked, and that callers do not know yet

    @property
    def n_ready(self) -> int:
        """Of its signatures, how many are there to be called at once."""
        return len(self._functions)

    @property
    def nopython_signatures(self) -> list:
        """By which numba finds the one for given types."""
        return self._declared

    def of_variant(self, variant: Set) -> list[int]:
        """The numbers of the signatures of a variant, or of those of none."""
        return [
            number for number, names in enumerate(self._variants) if names <= variant and bool(names) == bool(variant)
        ]  # fmt: skip

    def load(self, variant: Set = frozenset()) -> None:
        """Has the signatures of a variant, or those of none, ready to be called."""
        for number in self.of_variant(variant):
            self._load(number)

    def link(self) -> None:
        """Has all that the cache holds ready to be called."""
        with global_compiler_lock, interrupts_wait():
            for number in range(len(self._declared)):
                self._link(number)

    def _load(self, number: int) -> None:
        """Has a signature ready to be called."""
        with global_compiler_lock, interrupts_wait():
            if self._link(number):
                return
        with alone(), global_compiler_lock, interrupts_wait():  # in this order: who is alone waits for the other lock
            if not self._link(number):
                stamp = self._stamp()
                called, code = self._compile(number)
                linking.keep(self._path(number), (stamp, called, code))

    def _path(self, number: int) -> Path:
        return CACHE_FOLDER / "{}.{}-{}-{}".format(*self._place, number)

    def _stamp(self) -> tuple[int, int]:
        """Which source this is of."""
        source = os.stat(self.py_func.__code__.co_filename)
        return source.st_mtime_ns, source.st_size

    def _link(self, number: int) -> bool:
        """Has a signature ready by what the cache holds of it; False if that is not for this source."""
        if number in self._functions:  # called by another, or another thread was quicker
            return True
        match linking.kept(self._path(number)):
            case (written, called, code) if written == self._stamp() and all(
                place in self._all and self._all[place]._link(of_called) for place, of_called in called
            ):
                module, name, _ = self._place
                engine = self.targetctx.codegen()._engine._ee
                self._functions[number] = linking.link(code, name, sys.modules[module], engine)
                self._descriptors[number] = code.descriptor
                return True
        return False

    def _compile(self, number: int) -> tuple[list, Code]:
        """Has a signature ready by numba; returns the signatures of kernels that it calls, and its code."""
        signature = self._declared[number]
        with shortcuts():
            super().compile(signature)
        compiled = self.overloads[signature.args]
        self._functions[number] = compiled.entry_point
        self._by_symbol[compiled.fndesc.llvm_func_name] = self._place, number
        missing = {function.name for function in compiled.library._final_module.functions if function.is_declaration}
        return [self._by_symbol[symbol] for symbol in missing & self._by_symbol.keys()], _code_of(compiled)

    def compile(self, types_given) -> None:
        """Called by numba for a caller with arguments of these types: which will find what it calls, if there is that."""
        if (number := self._number_of(types_given)) is not None:
            self._load(number)
            if number in self._descriptors:
                self._describe(number)

    def _number_of(self, types_given: tuple) -> int | None:
        """The signature that fits them best."""
        best = self.typingctx.resolve_overload(self.py_func, self._declared, types_given, {})
        return None if best is None else self._declared.index(best)

    def _describe(self, number: int) -> None:
        """Has a function that was linked ready for callers to be compiled."""
        signature, function = self._declared[number], self._functions[number]
        known = pickle.loads(self._descriptors.pop(number))
        self._by_symbol[known.llvm_func_name] = self._place, number
        self.overloads[signature.args] = compile_result(
            entry_point=function, fndesc=known, signature=signature, objectmode=False
        )
        self.targetctx.insert_user_function(function, known)

    def add_overload(self, compiled):
        """For callers: what is called where it is, and is no part of theirs."""
        self.overloads[tuple(compiled.signature.args)] = compiled
        self.targetctx.remove_user_function(compiled.entry_point)
        self.targetctx.insert_user_function(compiled.entry_point, compiled.fndesc)

    def _compile_for_args(self, *args, **kws):
        """Called for arguments of other types than before; what it returns is then called."""
        given = tuple(self.typeof_pyval(value) for value in args)
        self._types_active_call.clear()
        if (number := self._number_of(given)) is None:
            raise TypeError(f"No matching definition of {self.__name__} for {', '.join(map(str, given))}")
        self._load(number)
        codes = tuple(argument._code for argument in given)
        with global_compiler_lock:
            if codes not in self._inserted:  # by another thread: of two alike, Python's calls would find neither
                self._insert(codes, self._functions[number], False)
                self._inserted.add(codes)
        return self._functions[number]


class Helper:
    """A function that is compiled into the kernels that call it; to Python, it is what it was."""

    def __init__(self, function, compiler: type[LinkedCompiler] = _HelperCompiler, **options):
        self.py_func, self._compiler = function, compiler
        self._options = {**_OPTIONS, "no_cpython_wrapper": True, "forceinline": True, **options}

    def __call__(self, *args):
        return self.py_func(*args)

    @cached_property
    def to_compile(self) -> LinkedDispatcher:
        """What numba takes in its place. Most processes compile nothing, and to make one for each helper takes long."""
        return LinkedDispatcher(self.py_func, targetoptions=self._options, pipeline_class=self._compiler)


@typeof_impl.register(Helper)
def _type_of_helper(helper: Helper, context):
    return helper.to_compile._numba_type_


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


def kernel(signature=(), seldom: Sequence = ()):
    """Decorator: compile for `signature` or several, serial, without the GIL, without fast-math (sums keep their order).

    Those that are `seldom` called for are not compiled before they are.
    """
    usual = signature if isinstance(signature, Sequence) else [signature]
    return lambda function: Kernel(function, [(one, "") for one in usual] + [(one, "seldom") for one in seldom])


def kernel_for(*choices: dict[str, Any] | Iterable, signature: Callable):
    """Decorator: a kernel with the signature that is made for each combination of one of each of these choices.

    A choice is a type or a tuple of types; by name, if what it is for is to be compiled only where that occurs (variants in
    kernels.prepare), or "seldom".
    """
    named = [choice.items() if isinstance(choice, dict) else zip(repeat(""), choice, strict=False) for choice in choices]
    declared = []
    for combined in product(*named):
        names, chosen = zip(*combined, strict=True)
        of_choices = chain.from_iterable(one if isinstance(one, tuple) else (one,) for one in chosen)
        declared.append((signature(*of_choices), *names))
    return lambda function: Kernel(function, declared)


def inline(function):
    """Decorator: a helper of kernels, compiled into each of its callers."""
    return Helper(function)


def optimised(function):
    """Decorator: the same, optimised by itself before it is with its callers: longer to compile, at times quicker."""
    return Helper(function, LinkedCompiler)


def estimate(function):
    """Decorator: the same for a sum whose last bits do not matter, as they depend on the machine: it takes many at once."""
    return Helper(function, fastmath={"reassoc"})
