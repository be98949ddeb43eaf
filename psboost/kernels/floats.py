"""Knows how floats lie in memory, and what needs it: an exponential, rounding; does not know what is computed with them.

Nothing here calls a library or branches: loops with it are vectorised, and its results are the same on every machine.
"""

import math

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic, overload

from psboost.kernels.compile import float32, float64, inline, int32, int64

FLOAT32_MAX = np.finfo(np.float32).max
MOST = np.float32(87.0)  # e^x and e^-x are neither infinite nor denormal up to here
_1 = np.float32(1)
_SHIFT = np.float32(12582912.0)  # 1.5 * 2^23: adding it rounds |x| < 2^22 to an integer, which is left in the lowest bits
_PER_LN_2 = np.float32(1.4426950408889634)
_LN_2_HIGH, _LN_2_LOW = np.float32(0.693359375), np.float32(-2.12194440054690583e-4)  # n times the first is exact
_C2, _C3, _C4, _C5, _C6, _C7 = (np.float32(1.0 / math.factorial(k)) for k in range(2, 8))  # of Taylor's series
_EXPONENT_BIAS, _EXPONENT_AT = 127, 23
WHOLE_BITS = 51  # `whole` takes float64 below 2^51
_WHOLE_SHIFT = 1.5 * 2.0**52  # as _SHIFT, of a float64
_BITS_OF_WHOLE_SHIFT = int(np.float64(_WHOLE_SHIFT).view(np.int64))


def bits_of(x):
    """int32: the bits of a float32."""
    return np.float32(x).view(np.int32)


def float_of(bits):
    """The float32 of int32 bits."""
    return np.int64(bits).astype(np.int32).view(np.float32)


def _cast(result, llvm_type):
    @intrinsic
    def cast(typing_context, x):
        return result(x), lambda context, builder, signature, args: builder.bitcast(args[0], llvm_type)

    return cast


_to_bits, _to_float = _cast(int32, ir.IntType(32)), _cast(float32, ir.FloatType())
_to_wide_bits = _cast(int64, ir.IntType(64))


@overload(bits_of)
def _compiled_bits_of(x):
    return lambda x: _to_bits(x)


@overload(float_of)
def _compiled_float_of(bits):
    return lambda bits: _to_float(int32(bits))


def whole(x):
    """int64: the integer nearest to a float64, |x| < 2^WHOLE_BITS; of two the even one."""
    return np.int64(np.rint(x))


@overload(whole)
def _compiled_whole(x):
    return lambda x: _to_wide_bits(float64(x) + _WHOLE_SHIFT) - int64(_BITS_OF_WHOLE_SHIFT)


@inline
def exp(x):
    """e^x to an ulp or two, for |x| <= MOST (float32): 2^n e^r, n whole and |r| <= ln(2) / 2."""
    shifted = x * _PER_LN_2 + _SHIFT
    n = shifted - _SHIFT
    r = (x - n * _LN_2_HIGH) - n * _LN_2_LOW
    r2 = r * r
    series = ((_1 + r) + r2 * (_C2 + r * _C3)) + (r2 * r2) * ((_C4 + r * _C5) + r2 * (_C6 + r * _C7))
    return series * float_of((bits_of(shifted) + int32(_EXPONENT_BIAS)) << int32(_EXPONENT_AT))
