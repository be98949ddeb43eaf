"""Knows how a float64 lies in memory, and arithmetic that needs it; does not know what is computed with it.

Nothing here calls a library or branches: loops with it are vectorised, and its results are the same on every machine.
"""

import math

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic, overload

from psboost.kernels.compile import float64, inline, int64, uint64

_SHIFT = 6755399441055744.0  # 1.5 * 2^52: adding it rounds |x| < 2^51 to an integer, which is left in the lowest bits
_SHIFT_BITS = int(np.float64(_SHIFT).view(np.int64))
_2_52, _2_52_BITS = 4503599627370496.0, 0x4330000000000000
_HALF_WORD = 1.0 / 4294967296.0  # 2^-32

_PER_LN_2 = 1.4426950408889634
_LN_2_HIGH, _LN_2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # n times the first is exact, |n| < 2^20
_C = [1.0 / math.factorial(k) for k in range(14)]  # of Taylor's series, which at |r| < ln(2) / 2 leaves less than an ulp
_C2, _C3, _C4, _C5, _C6, _C7, _C8, _C9, _C10, _C11, _C12, _C13 = _C[2:]
_EXPONENT_BIAS, _EXPONENT_AT = 1023, 52


def bits_of(x):
    """int64: the bits of a float64."""
    return np.float64(x).view(np.int64)


def double_of(bits):
    """The float64 of int64 bits."""
    return np.int64(bits).view(np.float64)


def _cast(result, llvm_type):
    @intrinsic
    def cast(typing_context, x):
        return result(x), lambda context, builder, signature, args: builder.bitcast(args[0], llvm_type)

    return cast


_to_bits, _to_double = _cast(int64, ir.IntType(64)), _cast(float64, ir.DoubleType())


@overload(bits_of)
def _compiled_bits_of(x):
    return lambda x: _to_bits(x)


@overload(double_of)
def _compiled_double_of(bits):
    return lambda bits: _to_double(bits)


@inline
def exp(x):
    """e^x to an ulp or two, for |x| <= 700: 2^n e^r, n whole and |r| <= ln(2) / 2."""
    shifted = x * _PER_LN_2 + _SHIFT
    n = shifted - _SHIFT
    r = (x - n * _LN_2_HIGH) - n * _LN_2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = ((1.0 + r) + r2 * (_C2 + r * _C3)) + r4 * ((_C4 + r * _C5) + r2 * (_C6 + r * _C7))
    high = ((_C8 + r * _C9) + r2 * (_C10 + r * _C11)) + r4 * (_C12 + r * _C13)
    return (low + r4 * r4 * high) * double_of((bits_of(shifted) + int64(_EXPONENT_BIAS)) << int64(_EXPONENT_AT))


@inline
def floor(x):
    """int64: the greatest integer that is not above x, for |x| < 2^51."""
    shifted = x + _SHIFT
    return bits_of(shifted) - int64(_SHIFT_BITS) - int64(shifted - _SHIFT > x)


@inline
def fraction(half_word):
    """uint64 below 2^32 -> half_word / 2^32."""
    return (double_of(int64(half_word | uint64(_2_52_BITS))) - _2_52) * _HALF_WORD
