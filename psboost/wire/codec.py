"""Knows how any message becomes frames and back; does not know what messages mean or which socket takes them.

    frame 0     header, msgpack: [PROTOCOL_VERSION, kind, run, sender, sequence, tree, level,
                                  the other fields in their order]
    frame 1 ..  one for each large array, raw, little-endian, in the order of the header

    a large array       [dtype code, *shape]
    a small array       [dtype code, *shape[1:], its bytes], which tell its first length

A frame costs the sender and the receiver more time than the rest of a small message together, and as many bytes as
msgpack puts in front of bytes, or more: so most messages are one frame.

What a field may hold follows from its annotation in messages.py: int, float, str, bool, dict (string keys;
msgpack's types), tuples of any of int, float, str, and numpy arrays, alone or as a tuple, of any dtype and shape or of those
that the annotation says.
"""

import math
import operator
import secrets
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import msgpack
import numpy as np

from psboost.errors import ProtocolError
from psboost.wire.messages import ALL_KINDS, Message

if sys.byteorder != "little":
    raise ImportError("psboost sends arrays as they lie in memory and needs a little-endian machine")

# a code is a place in this list
_DTYPES = [np.dtype(name) for name in ("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f4", "<f8")]
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_MAX_DIMENSIONS = 4
_ENVELOPE_SIZE = 5  # version, kind, run, sender, sequence
_SMALL = 1 << 14  # bytes; copying so many takes less time than a frame of their own

Frame = bytes | memoryview


class Frames(list[Frame]):
    """The frames of one message; `payload`: how many of their bytes are those of arrays."""

    payload = 0


class Envelope(NamedTuple):
    """Who sent a message; `run` tells trainings apart."""

    run: int
    sender: str
    sequence: int


def new_run() -> int:
    """A number for a run that no other has; all are as long on the wire, so bytes do not depend on it."""
    return secrets.randbits(30) | 1 << 30


class _Unfit(ValueError):
    """What a peer sent does not fit; decode adds the kind and the sender."""


# --- fields: one (write, read) pair for each annotation


def _read_exactly(kind: type) -> Callable:
    def read(value: Any, frames: list) -> Any:
        if type(value) is not kind:
            raise _Unfit(f"expected {kind.__name__}, got {type(value).__name__}")
        return value

    return read


def _write_int(value: int, frames: list) -> int:
    return int(operator.index(value))


def _write_float(value: float, frames: list) -> float:
    if not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"expected float, got {type(value).__name__}")
    return float(value)


def _write_str(value: str, frames: list) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected str, got {type(value).__name__}")
    return str(value)


def _write_bool(value: bool, frames: list) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"expected bool, got {type(value).__name__}")
    return bool(value)


def _write_dict(value: dict, frames: list) -> dict:
    """A copy in msgpack's types (numpy scalars become Python's, tuples lists); TypeError for other types."""
    if not isinstance(value, dict):
        raise TypeError(f"expected dict, got {type(value).__name__}")
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"dicts in messages have string keys, not {list(value)!r:.100}")
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    raise TypeError(f"dicts in messages cannot hold {type(value).__name__}")


def _write_array(array: np.ndarray, frames: Frames) -> list:
    """What the header says of the array; if it is large, its bytes become a frame that no later assignment can change."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected numpy array, got {type(array).__name__}")
    if array.ndim > _MAX_DIMENSIONS:
        raise TypeError(f"arrays of {array.ndim} dimensions cannot be sent")
    frames.payload += array.nbytes
    code = _CODES.get(array.dtype)
    if code is not None and array.nbytes <= _SMALL and array.ndim > 0 and 0 not in array.shape[1:]:
        if array.flags.owndata:  # as if it were large: whoever may not change an array learns it from the first one
            array.setflags(write=False)
        return [code, *array.shape[1:], array.tobytes()]
    array = _frozen(array)
    frames.append(array.reshape(-1).view(np.uint8).data)
    return [_CODES[array.dtype], *array.shape]


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


def _read_array(descriptor: Any, frames: list) -> np.ndarray:
    """A read-only array of the header's bytes, or of the next frame's; a copy only where those are not aligned."""
    if type(descriptor) is not list or not descriptor or type(descriptor[0]) is not int:
        raise _Unfit("an array that is not described by [dtype code, *shape], with its bytes or without")
    if not 0 <= descriptor[0] < len(_DTYPES):
        raise _Unfit(f"an array of unknown dtype or shape {descriptor!r:.100}")
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
        raise _Unfit("fewer frames than arrays")
    array = _shaped(frames.pop(), dtype, shape)
    if not array.flags.aligned:
        array = array.copy()
        array.flags.writeable = False
    return array


def _shaped(data: bytes | memoryview, dtype: np.dtype, shape: list) -> np.ndarray:
    if len(shape) > _MAX_DIMENSIONS or not _are_lengths(shape):
        raise _Unfit(f"an array of unknown dtype or shape {shape!r:.100}")
    n_values, n_bytes = math.prod(shape), memoryview(data).nbytes  # Python's integers: cannot overflow
    if n_values * dtype.itemsize != n_bytes:
        raise _Unfit(f"{n_bytes} bytes for {dtype} of shape {tuple(shape)}")
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
        raise _Unfit(f"an array of shape {tuple(shape)!r:.100}") from error
    array.flags.writeable = False
    return array


_SCALARS: dict[type, tuple[Callable, Callable]] = {
    int: (_write_int, _read_exactly(int)),
    float: (_write_float, _read_exactly(float)),
    str: (_write_str, _read_exactly(str)),
    bool: (_write_bool, _read_exactly(bool)),
    dict: (_write_dict, _read_exactly(dict)),
    np.ndarray: (_write_array, _read_array),
}


def _array_codec(dtype: np.dtype, lengths: tuple[int | None, ...]) -> tuple[Callable, Callable]:
    """(write, read) of arrays of this dtype whose dimensions behind the first are so long; None: of any length."""
    spelled = f"{dtype} of shape ({', '.join(['n', *('any' if length is None else str(length) for length in lengths)])})"

    def misfit(array: np.ndarray) -> str:
        """What is wrong with an array, if anything is."""
        fits = array.dtype == dtype and array.ndim == 1 + len(lengths)
        if fits and all([want in (None, length) for want, length in zip(lengths, array.shape[1:], strict=True)]):
            return ""
        return f"expected {spelled}, got {array.dtype} of shape {array.shape}"

    def write(array: np.ndarray, frames: Frames) -> list:
        if isinstance(array, np.ndarray) and (wrong := misfit(array)):
            raise TypeError(wrong)
        return _write_array(array, frames)

    def read(descriptor: Any, frames: list) -> np.ndarray:
        array = _read_array(descriptor, frames)
        if wrong := misfit(array):
            raise _Unfit(wrong)
        return array

    return write, read


def _field_codec(annotation: Any) -> tuple[Callable, Callable]:
    """(write, read) of a field: write(value, frames out) -> header item; read(item, frames in) -> value."""
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is dict:
        return _SCALARS[dict]
    if origin is Annotated and arguments[0] is np.ndarray:
        return _array_codec(np.dtype(arguments[1]), arguments[2:])
    if origin is tuple and arguments[1:] == (...,) and get_origin(arguments[0]) is not tuple:
        write, read = _field_codec(arguments[0])

        def write_all(values: Sequence, frames: list) -> list:
            return [write(value, frames) for value in values]

        def read_all(items: Any, frames: list) -> tuple:
            if not isinstance(items, list):
                raise _Unfit(f"expected a list, got {type(items).__name__}")
            return tuple([read(item, frames) for item in items])

        return write_all, read_all
    raise TypeError(f"a message field cannot be {annotation}")


_PLAIN = {int, float, str, bool}  # a value of exactly this type is as it travels: no call is needed to write or read it


def _layout(kind: type[Message]) -> list[tuple[str, type | None, Callable, Callable]]:
    """Of each field, its name, its type if that is plain, and how others are written and read."""
    return [(name, hint if hint in _PLAIN else None, *_field_codec(hint)) for name, hint in kind.types.items()]


_LAYOUTS = {kind: _layout(kind) for kind in ALL_KINDS.values()}
_KINDS = list(ALL_KINDS.values())
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}

# a digest of forms, of who is told what, and of all kinds and fields, so that peers of different versions notice
_FORMS = [
    "small arrays in the header", "marks of pairs in parts", "by range of the sender's shard", "no last splits for servers",
]  # fmt: skip
_SPELLED = repr(_FORMS + [(kind.__name__, list(kind.types.items())) for kind in _KINDS])
PROTOCOL_VERSION = zlib.crc32(_SPELLED.encode()) & 0xFFFF


# --- messages


class Encoded(NamedTuple):
    """What of a message is the same for all receivers."""

    number: int
    fields: list
    frames: Frames  # of large arrays, after an empty one for the header


def encode_fields(message: Message) -> Encoded:
    """The fields of a message: small arrays for its header, large ones without a copy where that is safe.

    An array that owns its data becomes read-only, for it may be read long after the send; a view of an array that
    can still be written is copied. TypeError, naming the field, for a value that does not fit its annotation.
    """
    kind = type(message)
    if kind not in _NUMBERS:
        raise TypeError(f"{kind.__name__} is not a message")
    header, frames, values = [], Frames([b""]), vars(message)
    for name, plain, write, _ in _LAYOUTS[kind]:
        value = values[name]
        try:
            header.append(value if type(value) is plain else write(value, frames))
        except TypeError as error:
            raise TypeError(f"{kind.__name__}.{name}: {error}") from error
    return Encoded(_NUMBERS[kind], header, frames)


def with_envelope(envelope: Envelope, encoded: Encoded) -> Frames:
    """The frames of a message."""
    frames = Frames(encoded.frames)
    frames.payload = encoded.frames.payload
    frames[0] = msgpack.packb([PROTOCOL_VERSION, encoded.number, *envelope, *encoded.fields])
    return frames


def encode(envelope: Envelope, message: Message) -> Frames:
    """encode_fields and with_envelope: for a message with one receiver."""
    return with_envelope(envelope, encode_fields(message))


def decode(frames: Sequence[Any]) -> tuple[Envelope, Message]:
    """The envelope and message of received frames (any buffers); arrays are read-only and share the frames'
    memory.

    ProtocolError, naming the sender if the header says it, for anything that `encode` does not write.
    """
    if not frames:
        raise ProtocolError("a message without frames, from an unknown sender")
    try:
        header = msgpack.unpackb(frames[0], ext_hook=_no_extension, timestamp=0)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise ProtocolError(f"{_source(None)} whose header is not msgpack: {error}") from error
    if not isinstance(header, list) or len(header) < _ENVELOPE_SIZE:
        raise ProtocolError(f"{_source(None)} with a header that is not one of psboost's")
    try:
        return _decode_fields(header, frames[1:])
    except ProtocolError as error:
        error.run = header[2] if type(header[2]) is int else None
        raise


def _decode_fields(header: list, frames: Sequence[Any]) -> tuple[Envelope, Message]:
    version, number, run, sender, sequence = header[:_ENVELOPE_SIZE]
    if version != PROTOCOL_VERSION:
        raise ProtocolError(
            f"{_source(sender)} of version {version!r:.20} of the protocol, where this process speaks {PROTOCOL_VERSION}: "
            "install the same psboost everywhere"
        )
    if type(number) is not int or not 0 <= number < len(_KINDS):
        raise ProtocolError(f"{_source(sender)} of an unknown kind {number!r:.20}")
    if type(sender) is not str or not (type(run) is type(sequence) is int):
        raise ProtocolError(f"{_source(sender)} with an envelope that is not (run, sender, sequence)")
    kind = _KINDS[number]
    layout, items = _LAYOUTS[kind], header[_ENVELOPE_SIZE:]
    try:
        if len(items) != len(layout):
            raise _Unfit(f"expected {len(layout)} fields, got {len(items)}")
        remaining = [memoryview(frame) for frame in reversed(frames)]
        values = {}
        for (name, plain, _, read), item in zip(layout, items, strict=True):
            try:
                values[name] = item if type(item) is plain else read(item, remaining)
            except _Unfit as error:
                raise _Unfit(f"{name}: {error}") from error
        if remaining:
            raise _Unfit(f"{len(remaining)} frames more than arrays")
    except _Unfit as error:
        raise ProtocolError(f"{_source(sender)}, {kind.__name__} {sequence}: {error}") from error
    return Envelope(run, sender, sequence), kind(**values)


def _source(sender: Any) -> str:
    return (
        f"a message from {sender!r:.100}" if isinstance(sender, str) else "a message from an unknown sender"
    )


def _no_extension(code: int, data: bytes) -> None:
    raise ValueError(f"extension type {code}")
