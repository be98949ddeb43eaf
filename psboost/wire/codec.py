"""Knows how any message becomes frames and back; does not know what messages mean or which socket takes them.

    frame 0     header, msgpack: [PROTOCOL_VERSION, kind, run, sender, sequence, tree, level,
                                  the other fields in their order]
    frame 1 ..  one for each large array (wire/arrays.py), in the order of the header

What a field may hold follows from its annotation in messages.py: int, float, str, bool, dict (string keys;
msgpack's types), tuples of any of int, float, str, and numpy arrays, alone or as a tuple, of any dtype and shape or of those
that the annotation says.
"""

import operator
import secrets
import zlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import msgpack
import numpy as np

from psboost.errors import ProtocolError
from psboost.wire.arrays import Frames, Unfit, array_codec, read_array, write_array
from psboost.wire.kinds import Message
from psboost.wire.messages import ALL_KINDS

_ENVELOPE_SIZE = 5  # version, kind, run, sender, sequence


class Envelope(NamedTuple):
    """Who sent a message; `run` tells trainings apart."""

    run: int
    sender: str
    sequence: int


def new_run() -> int:
    """A number for a run that no other has; all are as long on the wire, so bytes do not depend on it."""
    return secrets.randbits(30) | 1 << 30


# --- fields: one (write, read) pair for each annotation


def _read_exactly(kind: type) -> Callable:
    def read(value: Any, frames: list) -> Any:
        if type(value) is not kind:
            raise Unfit(f"expected {kind.__name__}, got {type(value).__name__}")
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


_SCALARS: dict[type, tuple[Callable, Callable]] = {
    int: (_write_int, _read_exactly(int)),
    float: (_write_float, _read_exactly(float)),
    str: (_write_str, _read_exactly(str)),
    bool: (_write_bool, _read_exactly(bool)),
    dict: (_write_dict, _read_exactly(dict)),
    np.ndarray: (write_array, read_array),
}


def _field_codec(annotation: Any) -> tuple[Callable, Callable]:
    """(write, read) of a field: write(value, frames out) -> header item; read(item, frames in) -> value."""
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is dict:
        return _SCALARS[dict]
    if origin is Annotated and arguments[0] is np.ndarray:
        return array_codec(np.dtype(arguments[1]), arguments[2:])
    if origin is tuple and arguments[1:] == (...,) and get_origin(arguments[0]) is not tuple:
        write, read = _field_codec(arguments[0])

        def write_all(values: Sequence, frames: list) -> list:
            return [write(value, frames) for value in values]

        def read_all(items: Any, frames: list) -> tuple:
            if not isinstance(items, list):
                raise Unfit(f"expected a list, got {type(items).__name__}")
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
    "small arrays in the header", "bytes alone where their form is known", "marks of pairs in parts",
    "by range of the sender's shard", "no last splits for servers", "all best splits of a tree, where workers choose",
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
            raise Unfit(f"expected {len(layout)} fields, got {len(items)}")
        remaining = [memoryview(frame) for frame in reversed(frames)]
        values = {}
        for (name, plain, _, read), item in zip(layout, items, strict=True):
            try:
                values[name] = item if type(item) is plain else read(item, remaining)
            except Unfit as error:
                raise Unfit(f"{name}: {error}") from error
        if remaining:
            raise Unfit(f"{len(remaining)} frames more than arrays")
    except Unfit as error:
        raise ProtocolError(f"{_source(sender)}, {kind.__name__} {sequence}: {error}") from error
    return Envelope(run, sender, sequence), kind(**values)


def _source(sender: Any) -> str:
    return (
        f"a message from {sender!r:.100}" if isinstance(sender, str) else "a message from an unknown sender"
    )


def _no_extension(code: int, data: bytes) -> None:
    raise ValueError(f"extension type {code}")
