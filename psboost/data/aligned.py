"""Knows memory that begins with a cache line; does not know what is in it."""

import numpy as np

LINE = 64  # bytes, and those of the widest vector that is loaded at once


def aligned(n: int, dtype, value) -> np.ndarray:
    """n times `value`."""
    array = aligned_empty(n, dtype)
    array[:] = value
    return array


def aligned_empty(n: int, dtype) -> np.ndarray:
    """n of any content."""
    size = n * np.dtype(dtype).itemsize
    buffer = np.empty(size + LINE, np.uint8)
    return buffer[-buffer.ctypes.data % LINE :][:size].view(dtype)
