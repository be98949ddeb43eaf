"""Knows how one array lies in a message, in its header or as a frame; does not know messages.

    a large array       [dtype code, *shape], and its bytes, raw and little-endian, as the next frame
    a small array       [dtype code, *shape[1:], its bytes], which tell its first length; where both sides know all else, its
                        bytes alone

A frame costs the sender and the receiver more time than the rest of a small message together, and as many bytes as
msgpack puts in front of bytes, or more: so most messages are one frame.
"""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

if sys.byteorder != "little":
    raise ImportError("psboost sends arrays as they lie in memory and needs a little-endian machine")

# a code is a place in this list
_DTYPES = [np.dtype(name) for name in ("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f4", "<f8")]
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_MAX_DIMENSIONS = 4
_SMALL = 1 << 14  # bytes; copying so many takes less time than a frame of their own

Frame = bytes | memoryview


class Frames(list[Frame]):
    """The frames of one message; `payload`: how many of their bytes are those of arrays."""

    payload = 0


class Unfit(ValueError):
    """What a peer sent does not fit; decode adds the kind and the sender."""


def write_array(array: np.ndarray, frames: Frames) -> list:
    """What the header says of the array; if it is large, its bytes become a frame that no later assignment can change."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected numpy array, got {type(array).__name__}")
    if array.ndim > _MAX_DIMENSIONS:
        raise TypeError(f"arrays of {array.ndim} dimensions cannot be sent")
    frames.payload += array.nbytes
    code = _CODES.get(array.dtype)
    if code is not None and array.nbytes <= _SMALL and array.ndim > 0 and 0 not in array.shape[1:]:
        return [code, *array.shape[1:], _bytes_of(array)]
    array = _frozen(array)
    frames.append(array.reshape(-1).view(np.uint8).data)
    return [_CODES[array.dtype], *array.shape]


def _bytes_of(array: np.ndarray) -> bytes:
    """A small array's. It becomes read-only as if it were large: whoever may not change one learns it from the first."""
    if array.flags.owndata:
        array.setflags(write=False)
    return array.tobytes()


def _frozen(array: np.ndarray) -> np.ndarray:
    """The array as it can be sent: one that owns its data is made read-only for good, a view is copied."""
    dtype = array.dtype.newbyteorder("<")
    if dtype not in _CODES:
        raise TypeError(f"arrays of {array.dtype} cannot be sent")
    if array.dtype != dtype or not array.flags.c_contiguous or not array.flags.aligned:
        array = np.array(array, dtype, order="C")
    elif not array.flags.owndata and not _is_constant(array):
        array = array.copy()
    array.flags.writeable = False
    return array


def _is_constant(array: np.ndarray) -> bool:
    """True for a view of memory that nobody writes: every owner up to the last is read-only."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        if owner.flags.owndata:
            return True
        owner = owner.base
    return isinstance(owner, bytes) or (isinstance(owner, memoryview) and owner.readonly)


def read_array(descriptor: Any, frames: list) -> np.ndarray:
    """A read-only array of the header's bytes, or of the next frame's; a copy only where those are not aligned."""
    if type(descriptor) is not list or not descriptor or type(descriptor[0]) is not int:
        raise Unfit("an array that is not described by [dtype code, *shape], with its bytes or without")
    if not 0 <= descriptor[0] < len(_DTYPES):
        raise Unfit(f"an array of unknown dtype or shape {descriptor!r:.100}")
    dtype, data = _DTYPES[descriptor[0]], descriptor[-1]
    if type(data) is bytes:
        lengths, size = descriptor[1:-1], dtype.itemsize
        if lengths:
            known = len(lengths) < _MAX_DIMENSIONS and _are_lengths(lengths)
            size *= math.prod(lengths) if known else 0
        if data and size and len(data) % size == 0:
            array = np.frombuffer(data, dtype)  # read-only, as bytes are
            return array.reshape(-1, *lengths) if lengths else array
        return _shaped(data, dtype, [len(data) // max(size, 1), *lengths])
    shape = descriptor[1:]
    if not frames:
        raise Unfit("fewer frames than arrays")
    array = _shaped(frames.pop(), dtype, shape)
    if not array.flags.aligned:
        array = array.copy()
        array.flags.writeable = False
    return array


def _shaped(data: bytes | memoryview, dtype: np.dtype, shape: list) -> np.ndarray:
    if len(shape) > _MAX_DIMENSIONS or not _are_lengths(shape):
        raise Unfit(f"an array of unknown dtype or shape {shape!r:.100}")
    n_values, n_bytes = math.prod(shape), memoryview(data).nbytes  # Python's integers: cannot overflow
    if n_values * dtype.itemsize != n_bytes:
        raise Unfit(f"{n_bytes} bytes for {dtype} of shape {tuple(shape)}")
    if n_values == 0:
        return _empty(dtype, shape)
    array = np.frombuffer(data, dtype).reshape(shape)
    array.flags.writeable = False
    return array


def _are_lengths(shape: list) -> bool:
    for length in shape:  # noqa: SIM110 - a generator takes longer than what it does
        if type(length) is not int or length < 0:
            return False
    return True


def _empty(dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
    try:
        array = np.empty(shape, dtype)
    except ValueError as error:  # no values, but lengths beyond what numpy holds
        raise Unfit(f"an array of shape {tuple(shape)!r:.100}") from error
    array.flags.writeable = False
    return array


def array_codec(dtype: np.dtype, lengths: tuple[int | None, ...]) -> tuple[Callable, Callable]:
    """(write, read) of arrays of this dtype whose dimensions behind the first are so long; None: of any length."""
    row_size = 0 if None in lengths else dtype.itemsize * math.prod(lengths)  # bytes; 0: not known
    spelled = f"{dtype} of shape ({', '.join(['n', *('any' if length is None else str(length) for length in lengths)])})"

    def misfit(array: np.ndarray) -> str:
        """What is wrong with an array, if anything is."""
        if array.dtype == dtype and array.ndim == 1 + len(lengths):
            own = array.shape[1:]
            if own == lengths or all([want in (None, length) for want, length in zip(lengths, own, strict=True)]):
                return ""
        return f"expected {spelled}, got {array.dtype} of shape {array.shape}"

    def write(array: np.ndarray, frames: Frames) -> list | bytes:
        if isinstance(array, np.ndarray):
            if wrong := misfit(array):
                raise TypeError(wrong)
            if row_size and array.nbytes <= _SMALL:
                frames.payload += array.nbytes
                return _bytes_of(array)
        return write_array(array, frames)

    def read(descriptor: Any, frames: list) -> np.ndarray:
        if row_size and type(descriptor) is bytes:
            n, rest = divmod(len(descriptor), row_size)
            if rest:
                raise Unfit(f"expected {spelled}, got {len(descriptor)} bytes")
            return np.ndarray((n, *lengths), dtype, descriptor)  # read-only, as bytes are
        array = read_array(descriptor, frames)
        if wrong := misfit(array):
            raise Unfit(wrong)
        return array

    return write, read
