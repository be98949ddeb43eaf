"""Knows where numba takes longer to compile than it must, and how it comes to the same code sooner.

numba is written for all of Python; kernels know numbers and C-contiguous arrays. Two thirds of the time is numba's own, not
the optimiser's: it asks anew for each `+` which of numpy's ufuncs may be meant, writes a copy of the array for each element
that is read, looks in each number for references to release, and goes over all again in passes for what no kernel holds.
While kernels are compiled, and only then, some of its functions are replaced by those below, which know the usual case, and
leave others to numba.
"""

import operator
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import BuiltinFunctionType

from llvmlite import ir as llvm
from llvmlite.binding import ffi
from numba.core import cgutils, ir, types
from numba.core.base import BaseContext
from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import PassManager
from numba.core.imputils import impl_ret_borrowed
from numba.core.lowering import Lower
from numba.core.registry import CPUDispatcher
from numba.core.runtime.context import NRTContext
from numba.core.types.functions import BaseFunction
from numba.core.typing.templates import _OverloadFunctionTemplate
from numba.np.numpy_support import as_dtype

_OPERATORS = {bool, *(held for held in vars(operator).values() if isinstance(held, BuiltinFunctionType))}
_PLAIN = types.Number, types.Boolean, types.Array
_MEMINFO, _DATA, _SHAPE = 0, 4, 5  # of numba's arrays: meminfo, parent, nitems, itemsize, data, shape, strides
_PASSES_WITHOUT_USE = {
    "WithLifting", "InlineClosureLikes", "RewriteDynamicRaises", "MakeFunctionToJitFunction", "InlineInlinables",
    "FindLiterallyCalls", "LiteralUnroll", "LiteralPropagationSubPipelinePass", "InlineOverloads", "NopythonRewrites",
    "DumpParforDiagnostics",
}  # fmt: skip


class ShorterCompiler(Compiler):
    """numba's, without its passes for closures, `with`, literals as types, and expressions of whole arrays."""

    def define_pipelines(self):
        [usual] = super().define_pipelines()
        shorter = PassManager(usual.pipeline_name)
        shorter.passes = [each for each in usual.passes if each[0].__name__ not in _PASSES_WITHOUT_USE]
        shorter.finalize()
        return [shorter]


class LinkedLibrary(JITCodeLibrary):
    """Code that becomes the processor's only where it is linked in."""

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._finalized = True


class LinkedCompiler(ShorterCompiler):
    """Makes what is linked into its callers, and nothing that could be called by itself."""

    library = LinkedLibrary

    def compile_extra(self, func):
        self.state.flags.no_compile = True
        self.state.library = self.library(self.state.targetctx.codegen(), func.__qualname__)
        return super().compile_extra(func)


class LinkedDispatcher(CPUDispatcher):
    def add_overload(self, compiled):
        compiled = compiled._replace(entry_point=object())  # by which callers find it
        self.overloads[tuple(compiled.signature.args)] = compiled
        self.targetctx.insert_user_function(compiled.entry_point, compiled.fndesc, [compiled.library])


@contextmanager
def shortcuts() -> Iterator[None]:
    """numba takes them meanwhile; for who holds its global lock."""
    with ExitStack() as stack:
        for owner, name, shorter in _SHORTER:
            before = getattr(owner, name)
            if before is not shorter:  # else a caller of a caller has replaced it, and will put it back
                stack.callback(setattr, owner, name, before)
                setattr(owner, name, shorter)
        yield


_get_call_type = BaseFunction.get_call_type
_call_types: dict[tuple, object] = {}


def _known_call_type(function, context, args, kws):
    """The signature that is meant by an operator between these types; for functions, it is another one for each caller."""
    if kws or function.typing_key not in _OPERATORS or not all(isinstance(arg, _PLAIN) for arg in args):
        return _get_call_type(function, context, args, kws)
    if (found := _call_types.get((function, args))) is None:
        found = _call_types[function, args] = _get_call_type(function, context, args, kws)
    return found


def _listed_vars(inst, held) -> list[ir.Var]:
    """The variables in what an instruction holds."""
    kind = type(held)
    if kind is ir.Var:
        return [held]
    if kind is dict:
        held = held.values()
    elif kind is not list and kind is not tuple:
        return held.list_vars() if isinstance(held, ir.Inst) else []
    return [var for each in held for var in _listed_vars(inst, each)]


def _linked_only(template):
    """The decorator of what numba has in place of a function of Python or numpy: kernels call it, and nobody else."""
    return lambda **options: lambda function: LinkedDispatcher(
        function, targetoptions={**options, "no_cfunc_wrapper": True}, pipeline_class=LinkedCompiler
    )


_get_function = BaseContext.get_function


def _function_of_elements(context, function, signature, _firstcall=True):
    """What writes the code of a call."""
    key, args = getattr(function, "typing_key", None), signature.as_function().args
    if key is operator.getitem and _is_element(*args):
        return lambda builder, values, *_: _read(context, builder, args, values)
    if key is operator.setitem and _is_element(*args[:2]) and isinstance(args[2], types.Number | types.Boolean):
        return lambda builder, values, *_: _write(context, builder, args, values)
    if key == "array.view" and _has_same_size(*args):
        return lambda builder, values, *_: _view(context, builder, args[0], signature.return_type, values[0])
    if key is len and type(args[0]) is types.Array:
        return lambda builder, values, *_: builder.extract_value(values[0], (_SHAPE, 0))
    return _get_function(context, function, signature, _firstcall)


def _is_element(array: types.Type, index: types.Type) -> bool:
    """One of a C-contiguous array, by a number for each of its dimensions."""
    of_dimensions = index.types if isinstance(index, types.BaseTuple) else (index,)
    return (
        type(array) is types.Array and array.layout == "C" and isinstance(array.dtype, types.Number | types.Boolean)
        and len(of_dimensions) == array.ndim and all(isinstance(each, types.Integer) for each in of_dimensions)
    )  # fmt: skip


def _read(context, builder, args, values):
    array, index = args
    return context.unpack_value(builder, array.dtype, _place(context, builder, array, index, *values), align=_align(array))


def _write(context, builder, args, values):
    array, index, kind = args
    place = _place(context, builder, array, index, *values[:2])
    context.pack_value(builder, array.dtype, context.cast(builder, values[2], kind, array.dtype), place, align=_align(array))


def _align(array: types.Array) -> int | None:
    return None if array.aligned else 1


def _place(context, builder, array, index, value, at):
    """Where the element is."""
    kinds, numbers = (index,), (at,)
    if isinstance(index, types.BaseTuple):
        kinds, numbers = index.types, cgutils.unpack_tuple(builder, at)
    offset = _from_begin(context, builder, kinds[0], numbers[0], value, 0)
    for axis in range(1, len(kinds)):
        steps = builder.mul(offset, builder.extract_value(value, (_SHAPE, axis)))
        offset = builder.add(steps, _from_begin(context, builder, kinds[axis], numbers[axis], value, axis))
    return builder.gep(builder.extract_value(value, _DATA), [offset])


def _from_begin(context, builder, kind, number, value, axis):
    """An index of a dimension, which counts from its end if it is below 0."""
    if not kind.signed:
        return context.cast(builder, number, kind, types.uintp)
    number = context.cast(builder, number, kind, types.intp)
    if isinstance(number, llvm.Constant) and number.constant >= 0:
        return number
    size = builder.extract_value(value, (_SHAPE, axis))
    return builder.select(builder.icmp_signed("<", number, number.type(0)), builder.add(number, size), number)


def _has_same_size(array: types.Type, kind: types.Type) -> bool:
    """A view of the array as one of this kind has as many elements."""
    return type(array) is types.Array and as_dtype(array.dtype).itemsize == as_dtype(kind.dtype).itemsize


def _view(context, builder, array, kind, value):
    viewed = llvm.Constant(context.get_value_type(kind), llvm.Undefined)
    for field, of_kind in enumerate(viewed.type.elements):
        held = builder.extract_value(value, field)
        viewed = builder.insert_value(viewed, builder.bitcast(held, of_kind) if field == _DATA else held, field)
    return impl_ret_borrowed(context, builder, kind, viewed)


def _unless_number(count_reference):
    """The same for all but numbers, to which there are no references."""

    def counted(lowering, kind, value):
        if not isinstance(kind, types.Number | types.Boolean | types.NoneType):
            count_reference(lowering, kind, value)

    return counted


_get_meminfos = NRTContext.get_meminfos


def _meminfos(context, builder, kind, value):
    """What counts the references to what a value holds."""
    if type(kind) is types.Array:
        return [(kind, builder.extract_value(value, _MEMINFO))]
    return _get_meminfos(context, builder, kind, value)


def _optimise_own_functions(library, module):
    """Has LLVM go over a module's functions, but for those that are only declared there."""
    module.data_layout = library._codegen._data_layout
    for function in module.functions:
        if not function.is_declaration:
            passes, builder = library._codegen._function_pass_manager()
            passes.run(function, builder)


_SHORTER = [
    (BaseFunction, "get_call_type", _known_call_type),
    (ir.Inst, "_rec_list_vars", _listed_vars),
    (BaseContext, "get_function", _function_of_elements),
    (Lower, "incref", _unless_number(Lower.incref)),
    (Lower, "decref", _unless_number(Lower.decref)),
    (NRTContext, "get_meminfos", _meminfos),
    (_OverloadFunctionTemplate, "_get_jit_decorator", _linked_only),
    (CPUCodeLibrary, "_optimize_functions", _optimise_own_functions),
    (ffi.lib._lock, "_cblist", []),  # who listens to each call of LLVM
]
