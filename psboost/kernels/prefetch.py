"""Knows how memory is loaded ahead of its use, and read eight bytes at a time; does not know what lies there."""

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic, overload

from psboost.kernels.compile import inline, uint64, void

_READ, _DATA = 0, 1
_NEAREST, _SECOND = 3, 2  # caches, as LLVM numbers them
# Before the turn of what goes where a cursor says: when the place is asked for, and when the cursor is.
_AHEAD, _FAR_AHEAD = 32, 64


def prefetch(array, index):
    """Begins to load array[index] into the nearest cache. A hint: it changes nothing, and an index out of bounds does no
    harm."""


def prefetch_far(array, index):
    """Begins to load array[index] into the second cache, long before its turn: a core can wait for many more lines there,
    and so they come two to three times as fast. Where a line is read and not only added to, `prefetch` should follow shortly
    before the turn."""


def _prefetch_into(cache):
    @intrinsic
    def hint(typing_context, array, index):
        def generate(context, builder, signature, args):
            view = cgutils.create_struct_proxy(array)(context, builder, value=args[0])
            address = builder.bitcast(builder.gep(view.data, [args[1]]), ir.IntType(8).as_pointer())
            word = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [address.type, word, word, word])
            function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
            builder.call(function, [address, word(_READ), word(cache), word(_DATA)])
            return context.get_dummy_value()

        return void(array, index), generate

    return hint


_into_nearest, _into_second = _prefetch_into(_NEAREST), _prefetch_into(_SECOND)


@overload(prefetch)
def _compiled_prefetch(array, index):
    return lambda array, index: _into_nearest(array, index)


@overload(prefetch_far)
def _compiled_prefetch_far(array, index):
    return lambda array, index: _into_second(array, index)


@inline
def place_ahead(numbers, i, cursors):
    """Where cursors[numbers[k]] points now, for some k behind i: nearly where k will go: few of its number lie between. Any
    place if there is no such k, or its number is negative. Begins to load the cursor of one later still.
    """
    if len(cursors) == 0 or i + uint64(_FAR_AHEAD) >= uint64(len(numbers)):
        return uint64(0)
    prefetch(cursors, uint64(max(numbers[i + uint64(_FAR_AHEAD)], 0)))
    return uint64(cursors[uint64(max(numbers[i + uint64(_AHEAD)], 0))])


def touch(array, index):
    """Loads array[index], which must be there, for nothing but to have it in the cache. Of many in order, processors load
    ahead by themselves, which takes less time than to ask for each."""


@intrinsic
def _touch(typing_context, array, index):
    def generate(context, builder, signature, args):
        view = cgutils.create_struct_proxy(array)(context, builder, value=args[0])
        value = builder.load(builder.gep(view.data, [args[1]]))
        nobody = ir.InlineAsm(ir.FunctionType(ir.VoidType(), [value.type]), "", "r", side_effect=True)
        builder.call(nobody, [value])
        return context.get_dummy_value()

    return void(array, index), generate


@overload(touch)
def _compiled_touch(array, index):
    return lambda array, index: _touch(array, index)


def load_word(array, index):
    """The eight bytes (little-endian uint64) that begin at array[index], aligned or not. They must be there."""
    return int.from_bytes(array[int(index) :].tobytes()[:8], "little")


@intrinsic
def _load_word(typing_context, array, index):
    def generate(context, builder, signature, args):
        view = cgutils.create_struct_proxy(array)(context, builder, value=args[0])
        address = builder.bitcast(builder.gep(view.data, [args[1]]), ir.IntType(64).as_pointer())
        return builder.load(address, align=1)

    return uint64(array, index), generate


@overload(load_word)
def _compiled_load_word(array, index):
    return lambda array, index: _load_word(array, index)
