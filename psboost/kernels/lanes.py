"""Knows vectors of LANES bytes, a byte for each row of a block; does not know what the bytes stand for.

They are written as LLVM's own vectors, which become those of the processor: no loop has to be recognised as one.
No index is checked.
"""

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from psboost.kernels.compile import types, void

LANES = 64
COUNTED = 16  # values that count_at_most compares at once

_BIT, _BYTE, _HALF, _WORD, _LONG = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
_BYTES, _HALVES = ir.VectorType(_BYTE, LANES), ir.VectorType(_HALF, LANES)
_FLOATS = ir.VectorType(ir.FloatType(), COUNTED)


@intrinsic
def narrow(typing_context, state, at, codes, where, least, kept):
    """state[at + lane] &= kept in each lane with codes[where + lane] >= least."""

    def generate(context, builder, signature, args):
        place = _pointer(context, builder, state, args[0], args[1], _BYTES)
        given = builder.load(_pointer(context, builder, codes, args[2], args[3], _BYTES), align=1)
        acts = builder.icmp_unsigned(">=", given, _spread(builder, _BYTES, args[4]))
        mask = builder.or_(_spread(builder, _BYTES, args[5]), builder.not_(builder.sext(acts, _BYTES)))
        builder.store(builder.and_(builder.load(place, align=1), mask), place, align=1)
        return context.get_dummy_value()

    return void(state, at, codes, where, least, kept), generate


@intrinsic
def take_lowest(typing_context, state, begin, end, numbers):
    """numbers[lane]: of the lowest 1 bit of the lane's bytes in the vectors begin .. end of `state`, all ones then."""

    def generate(context, builder, signature, args):
        none, ones = ir.Constant(_BYTES, None), ir.Constant(_BYTES, [255] * LANES)
        lowest, number = (cgutils.alloca_once_value(builder, none) for _ in range(2))
        count = builder.sub(args[2], args[1])
        with cgutils.for_range(builder, count) as loop:  # from the last vector to the first
            index = builder.sub(builder.sub(count, loop.index), ir.Constant(count.type, 1))
            at = builder.mul(builder.add(args[1], index), ir.Constant(count.type, LANES))
            place = _pointer(context, builder, state, args[0], at, _BYTES)
            bits = builder.load(place, align=1)
            some = builder.icmp_unsigned("!=", bits, none)
            here = _spread(builder, _BYTES, builder.trunc(index, _BYTE))
            builder.store(builder.select(some, bits, builder.load(lowest)), lowest)
            builder.store(builder.select(some, here, builder.load(number)), number)
            builder.store(ones, place, align=1)
        kind = ir.FunctionType(_BYTES, [_BYTES, _BIT])
        find = cgutils.get_or_insert_function(builder.module, kind, f"llvm.cttz.v{LANES}i8")
        bit = builder.zext(builder.call(find, [builder.load(lowest), ir.Constant(_BIT, 1)]), _HALVES)
        byte = builder.zext(builder.load(number), _HALVES)
        numbered = builder.or_(builder.shl(byte, ir.Constant(_HALVES, [3] * LANES)), bit)
        first = ir.Constant(args[1].type, 0)
        builder.store(numbered, _pointer(context, builder, numbers, args[3], first, _HALVES), align=1)
        return context.get_dummy_value()

    return void(state, begin, end, numbers), generate


@intrinsic
def negate(typing_context, codes, where, negated):
    """negated[lane] = 256 - codes[where + lane], 0 if that is 0."""

    def generate(context, builder, signature, args):
        given = builder.load(_pointer(context, builder, codes, args[0], args[1], _BYTES), align=1)
        first = ir.Constant(args[1].type, 0)
        builder.store(builder.neg(given), _pointer(context, builder, negated, args[2], first, _BYTES), align=1)
        return context.get_dummy_value()

    return void(codes, where, negated), generate


@intrinsic
def count_at_most(typing_context, values, at, value):
    """How many of values[at : at + COUNTED], float32, are <= value."""

    def generate(context, builder, signature, args):
        many = builder.load(_pointer(context, builder, values, args[0], args[1], _FLOATS), align=4)
        found = builder.fcmp_ordered("<=", many, _spread(builder, _FLOATS, args[2]))
        return builder.zext(builder.ctpop(builder.bitcast(found, _HALF)), _LONG)

    return types.uint64(values, at, value), generate


def _spread(builder, kind, value):
    """A vector of this kind with `value` in each lane."""
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(_WORD, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_WORD, kind.count), None))


def _pointer(context, builder, array_type, array, at, kind):
    """Where element `at` of an array lies, as the place of a vector."""
    view = cgutils.create_struct_proxy(array_type)(context, builder, value=array)
    return builder.bitcast(builder.gep(view.data, [at]), kind.as_pointer())
