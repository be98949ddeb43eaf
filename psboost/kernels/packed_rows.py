"""Knows how a row's grad and hess lie in one integer: 32 bits each in an int64, 16 in an int32; does not know sums.

The int32 takes half the room in the cache, which is what the reading of gradients waits for. hess is without a sign.
"""

import numpy as np
from numba.extending import overload

from psboost.kernels.compile import int32, int64

WIDTHS = {"16 bits": int32, "32 bits": int64}
_HALF_BITS = {4: 16, 8: 32}  # by bytes


def most_grad(itemsize):
    """The greatest grad that fits."""
    return (1 << _HALF_BITS[itemsize] - 1) - 1


def hess_mask(itemsize):
    """The bits of a packed row that are its hess."""
    return (1 << _HALF_BITS[itemsize]) - 1


def grad_and_hess(packed, row):
    """int64 grad, hess of a row."""
    value = np.int64(packed[row])
    return value >> np.int64(_HALF_BITS[packed.itemsize]), value & np.int64(hess_mask(packed.itemsize))


def as_slot(packed, row):
    """A row's values as they are added to a packed slot (kernels.slots): (grad << 32) + hess."""
    grad, hess = grad_and_hess(packed, row)
    return (grad << np.int64(32)) + hess


def pack(grad, hess, like):
    """grad, hess (int64) as the array `like` holds them; a grad that does not fit becomes the greatest that does."""
    grad = min(int(grad), most_grad(like.itemsize))
    return like.dtype.type((grad << _HALF_BITS[like.itemsize]) + int(hess))


@overload(grad_and_hess, jit_options={"forceinline": True})
def _grad_and_hess(packed, row):
    itemsize = packed.dtype.bitwidth // 8
    bits, mask = _HALF_BITS[itemsize], hess_mask(itemsize)

    def compiled(packed, row):
        value = int64(packed[row])
        return value >> int64(bits), value & int64(mask)

    return compiled


@overload(as_slot, jit_options={"forceinline": True})
def _as_slot(packed, row):
    if packed.dtype == int64:
        return lambda packed, row: packed[row]

    def compiled(packed, row):
        value = int64(packed[row])
        return ((value >> int64(16)) << int64(32)) + (value & int64(0xFFFF))

    return compiled


@overload(pack, jit_options={"forceinline": True})
def _pack(grad, hess, like):
    kind, itemsize = like.dtype, like.dtype.bitwidth // 8
    bits, most = _HALF_BITS[itemsize], most_grad(itemsize)

    def compiled(grad, hess, like):
        return kind(kind(min(kind(grad), kind(most)) << kind(bits)) + kind(hess))

    return compiled
