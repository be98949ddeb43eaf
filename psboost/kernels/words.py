"""Knows how the 1 bits of words are counted, found, made by comparing and obeyed; does not know what a bit stands for."""

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic, overload

from psboost.kernels.compile import inline, types, uint64, void

_WORD, _BYTE, _INDEX = ir.IntType(64), ir.IntType(8), ir.IntType(32)
_BYTES = ir.VectorType(_BYTE, 128)
_1, _2, _3, _4 = (uint64(k) for k in (1, 2, 3, 4))


def n_words_of(n_bits):
    """How many words so many bits take: of a number, or of each of an array."""
    return (n_bits + 63) // 64


def spread(builder, kind, value):
    """In LLVM: a vector of this kind with `value` in each lane."""
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(_INDEX, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_INDEX, kind.count), None))


def pointer(context, builder, array_type, array, at, kind):
    """In LLVM: where element `at` of an array lies, as the place of a `kind`."""
    view = cgutils.create_struct_proxy(array_type)(context, builder, value=array)
    return builder.bitcast(builder.gep(view.data, [at]), kind.as_pointer())


def count_ones(word):
    """How many bits of a word are 1."""
    return np.uint64(int(word).bit_count())


@intrinsic
def _count_ones(typing_context, word):
    def generate(context, builder, signature, args):
        return builder.ctpop(args[0])

    return uint64(word), generate


@overload(count_ones)
def _compiled_count_ones(word):
    return lambda word: _count_ones(word)


def lowest_one(word):
    """Number of the lowest 1 bit of a word, 64 if there is none."""
    return np.uint64((int(word) & -int(word)).bit_length() - 1 if word else 64)


@intrinsic
def _lowest_one(typing_context, word):
    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.IntType(1)(0))

    return uint64(word), generate


@overload(lowest_one)
def _compiled_lowest_one(word):
    return lambda word: _lowest_one(word)


@inline
def list_ones(word, first, at, room_end, places):
    """Writes first + the number of each 1 bit of a word to `places` from `at` on; returns the end. What is behind it, before
    room_end, is lost: four at once, wanted or not, without a branch to guess for each, take half the time where a word has
    a few.
    """
    end = at + count_ones(word)
    while at < end and at + _4 <= uint64(room_end):
        places[at] = first + lowest_one(word)
        word &= word - _1
        places[at + _1] = first + lowest_one(word)
        word &= word - _1
        places[at + _2] = first + lowest_one(word)
        word &= word - _1
        places[at + _3] = first + lowest_one(word)
        word &= word - _1
        at += _4
    while at < end:
        places[at] = first + lowest_one(word)
        word &= word - _1
        at += _1
    return end


def bit_length(word):
    """Number of the highest 1 bit of a word and one more, 0 if there is none."""
    return np.uint64(int(word).bit_length())


@intrinsic
def _bit_length(typing_context, word):
    def generate(context, builder, signature, args):
        return builder.sub(ir.Constant(_WORD, 64), builder.ctlz(args[0], ir.IntType(1)(0)))

    return uint64(word), generate


@overload(bit_length)
def _compiled_bit_length(word):
    return lambda word: _bit_length(word)


def are_above(numbers, limit):
    """Two words, a bit for each of 128 numbers (uint8, no fewer), from the lowest bit of the first on: 1 if it is above."""
    words = np.packbits(numbers[:128] > limit, bitorder="little").view(np.uint64)
    return words[0], words[1]


@intrinsic
def _are_above(typing_context, numbers, limit):
    def generate(context, builder, signature, args):
        held = builder.load(pointer(context, builder, numbers, args[0], ir.Constant(_WORD, 0), _BYTES), align=1)
        limits = spread(builder, _BYTES, builder.trunc(args[1], _BYTE))
        words = builder.bitcast(builder.icmp_unsigned(">", held, limits), ir.VectorType(_WORD, 2))
        both = [builder.extract_element(words, ir.Constant(_INDEX, i)) for i in range(2)]
        return context.make_tuple(builder, signature.return_type, both)

    return types.UniTuple(uint64, 2)(numbers, limit), generate


@overload(are_above)
def _compiled_are_above(numbers, limit):
    return lambda numbers, limit: _are_above(numbers, limit)


def are_within(numbers, at, first, last, other):
    """A word, a bit for each of the 64 numbers (uint8 or uint16) from numbers[at] on, which must be there, from the lowest
    bit on: 1 if it is one of first .. last, or `other`. All three are such numbers, first <= last."""
    some = numbers[int(at) : int(at) + 64]
    return np.packbits((some >= first) & (some <= last) | (some == other), bitorder="little").view(np.uint64)[0]


@intrinsic
def _are_within(typing_context, numbers, at, first, last, other):
    def generate(context, builder, signature, args):
        kind = ir.IntType(numbers.dtype.bitwidth)
        kinds = ir.VectorType(kind, 64)
        some = builder.load(pointer(context, builder, numbers, args[0], args[1], kinds), align=kind.width // 8)
        first_, last_, other_ = (spread(builder, kinds, builder.trunc(arg, kind)) for arg in args[2:])
        # what is below the first one is, less it, above all others
        is_within = builder.icmp_unsigned("<=", builder.sub(some, first_), builder.sub(last_, first_))
        return builder.bitcast(builder.or_(is_within, builder.icmp_unsigned("==", some, other_)), _WORD)

    return uint64(numbers, at, first, last, other), generate


@overload(are_within)
def _compiled_are_within(numbers, at, first, last, other):
    return lambda numbers, at, first, last, other: _are_within(numbers, at, first, last, other)


def write_where(word, value, numbers, at):
    """Sets those of 64 numbers from numbers[at] on, which must be there, to `value` whose bits are 1, from the lowest on."""
    is_one = np.unpackbits(np.array([word], np.uint64).view(np.uint8), bitorder="little").astype(bool)
    numbers[int(at) : int(at) + 64][is_one] = value


@intrinsic
def _write_where(typing_context, word, value, numbers, at):
    def generate(context, builder, signature, args):
        kind = ir.IntType(numbers.dtype.bitwidth)
        kinds, align = ir.VectorType(kind, 64), kind.width // 8
        place = pointer(context, builder, numbers, args[2], args[3], kinds)
        is_one = builder.bitcast(args[0], ir.VectorType(ir.IntType(1), 64))
        values = spread(builder, kinds, builder.trunc(args[1], kind))
        builder.store(builder.select(is_one, values, builder.load(place, align=align)), place, align=align)
        return context.get_dummy_value()

    return void(word, value, numbers, at), generate


@overload(write_where)
def _compiled_write_where(word, value, numbers, at):
    return lambda word, value, numbers, at: _write_where(word, value, numbers, at)
