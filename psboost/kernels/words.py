"""Knows how the 1 bits of a word are counted and found; does not know what a bit stands for."""

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic, overload

from psboost.kernels.compile import uint64


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
