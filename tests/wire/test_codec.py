"""Knows that every message survives its frames and that no frames do harm; does not know sockets."""

import typing

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from psboost.errors import ProtocolError
from psboost.wire import arrays, codec
from psboost.wire.codec import Envelope, decode, encode
from psboost.wire.kinds import Message
from psboost.wire.ledger import measure
from psboost.wire.messages import ALL_KINDS, Beat, PushHistograms, PushMargins, PushPartialExits, PushSketches

INTEGERS = st.integers(-(2**63), 2**63 - 1)
DTYPES = ["u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f4", "<f8"]
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
)
LENGTHS = st.integers(0, 5)
SMALLEST_LARGE = 60  # bytes; in place of arrays._SMALL, so that the arrays above are of both sorts
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | INTEGERS
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
STRATEGIES = {
    int: INTEGERS,
    float: st.floats(),
    str: st.text(max_size=20),
    bool: st.booleans(),
    dict: st.dictionaries(st.text(max_size=5), PLAIN, max_size=4),
    np.ndarray: ARRAYS,
}
ENVELOPES = st.builds(Envelope, INTEGERS, st.text(max_size=20), INTEGERS)


@pytest.fixture(autouse=True, scope="module")
def few_bytes_are_large():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "_SMALL", SMALLEST_LARGE - 1)
        yield


def field_strategy(annotation):
    if annotation in STRATEGIES:
        return STRATEGIES[annotation]
    if typing.get_origin(annotation) is dict:
        return STRATEGIES[dict]
    if typing.get_origin(annotation) is typing.Annotated:
        _, dtype, *lengths = typing.get_args(annotation)
        shape = st.tuples(LENGTHS, *(LENGTHS if length is None else st.just(length) for length in lengths))
        return hnp.arrays(dtype, shape)
    assert typing.get_origin(annotation) is tuple
    return st.lists(field_strategy(typing.get_args(annotation)[0]), max_size=3).map(tuple)


def message_strategy(kind):
    return st.builds(kind, **{name: field_strategy(annotation) for name, annotation in kind.types.items()})


MESSAGES = st.sampled_from(list(ALL_KINDS.values())).flatmap(message_strategy)


def assert_same(sent, received):
    if isinstance(sent, np.ndarray):
        assert (sent.dtype, sent.shape) == (received.dtype, received.shape)
        assert sent.tobytes() == received.tobytes()
        assert received.flags.c_contiguous and received.flags.aligned and not received.flags.writeable
    elif isinstance(sent, tuple):
        assert type(received) is tuple and len(sent) == len(received)
        for one, other in zip(sent, received, strict=True):
            assert_same(one, other)
    elif isinstance(sent, float):
        assert np.float64(sent).tobytes() == np.float64(received).tobytes() or sent != sent
    else:
        assert type(sent) is type(received) and sent == received


@pytest.mark.parametrize("kind", ALL_KINDS.values(), ids=ALL_KINDS)
@settings(max_examples=20, deadline=None)
@given(data=st.data(), envelope=ENVELOPES)
def test_every_kind_survives(kind, data, envelope):
    message = data.draw(message_strategy(kind))
    frames = encode(envelope, message)
    assert all(isinstance(frame, bytes | memoryview) for frame in frames)
    for received in (frames, [bytes(frame) for frame in frames]):
        got_envelope, got = decode(received)
        assert got_envelope == envelope
        assert type(got) is kind
        for name in kind.types:
            assert_same(getattr(message, name), getattr(got, name))


def test_a_message_has_its_fields_and_never_changes():
    message = PushMargins(margins=np.zeros(2), level=3)
    assert (message.tree, message.level, message.step) == (-1, 3, (-1, 3))
    assert repr(message) == "PushMargins(tree=-1, level=3, margins=array([0., 0.]))"
    with pytest.raises(AttributeError, match="PushMargins.level: a message never changes"):
        message.level = 4
    with pytest.raises(TypeError, match="PushMargins without margins"):
        PushMargins(level=3)
    with pytest.raises(TypeError, match="Beat has no bytes"):
        Beat(bytes=3)


@settings(max_examples=300, deadline=None)
@given(message=MESSAGES, data=st.data())
def test_broken_frames_are_a_protocol_error_or_another_message(message, data):
    frames = [bytearray(frame) for frame in encode(Envelope(1, "worker-0-1", 7), message)]
    which = data.draw(st.integers(0, len(frames) - 1))
    how = data.draw(st.sampled_from(["flip", "cut", "grow", "drop", "repeat"]))
    frame = frames[which]
    if how == "flip" and frame:
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    elif how == "cut":
        del frame[data.draw(st.integers(0, len(frame))) :]
    elif how == "grow":
        frame += data.draw(st.binary(min_size=1, max_size=9))
    elif how == "drop":
        del frames[which]
    else:
        frames.insert(which, frame)
    try:
        _, got = decode(frames)
    except ProtocolError:
        return
    assert isinstance(got, Message)


@settings(max_examples=200, deadline=None)
@given(frames=st.lists(st.binary(max_size=30), max_size=4), values=st.lists(PLAIN, max_size=9))
def test_nonsense_is_a_protocol_error(frames, values):
    with pytest.raises(ProtocolError):
        decode(frames)
    with pytest.raises(ProtocolError):
        decode([msgpack.packb(values), *frames])


def header_of(message, **changes):
    frames = encode(Envelope(1, "worker-0-1", 7), message)
    header = msgpack.unpackb(frames[0])
    for place, value in changes.items():
        header[int(place.removeprefix("at"))] = value
    return [msgpack.packb(header), *frames[1:]]


SMALL = PushMargins(level=0, margins=np.zeros(3, "f4"))
LARGE = PushMargins(level=0, margins=np.zeros(5000, "f4"))  # also before few_bytes_are_large


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (header_of(Beat(), at0=-1), "version -1"),
        (header_of(Beat(), at1=200), "unknown kind 200"),
        (header_of(Beat(), at1=-1), "unknown kind -1"),
        (header_of(Beat(), at2="1"), "envelope"),
        (header_of(Beat(), at5=0.5), "tree: expected int, got float"),
        (header_of(Beat(), at7=True), "expected int, got bool"),
        (header_of(Beat()) + [b""], "1 frames more"),
        (header_of(LARGE)[:1], "fewer frames"),
        (header_of(LARGE, at7=[8, 5001]), "20000 bytes for float32"),
        (header_of(LARGE, at7=[8, -5000]), "unknown dtype or shape"),
        (header_of(LARGE, at7=[8, 1, 1, 1, 1, 5000]), "unknown dtype or shape"),
        (header_of(LARGE, at7=[99, 5000]), "unknown dtype or shape"),
        (header_of(LARGE, at7=[8, 0, 2**63, 2**63]), "20000 bytes"),
        (header_of(SMALL, at7=[8, bytes(13)]), "13 bytes for float32"),
        (header_of(SMALL, at7=[8, 2, 2, bytes(18)]), "18 bytes for float32"),
        (header_of(SMALL, at7=[8, 2.0, bytes(16)]), "unknown dtype or shape"),
        (header_of(SMALL, at7=[10, bytes(12)]), "unknown dtype or shape"),
        (header_of(SMALL, at7=bytes(13)), "float32 of shape (n), got 13 bytes"),
        (header_of(SMALL, at7=7), "not described"),
        (header_of(SMALL, at7=[8, 0, 2**63, 2**63, b""]), "of shape"),
    ],
)
def test_errors_name_the_sender_and_the_fault(frames, said):
    with pytest.raises(ProtocolError, match="worker-0-1") as caught:
        decode(frames)
    assert said in str(caught.value)


def test_numpy_scalars_are_accepted():
    kinds = {"a": np.int32(3), "b": (np.float64(0.5), np.bool_(True)), "c": {"d": np.str_("e")}}
    message = ALL_KINDS["AssignRoles"](
        tree=np.int64(5), name=np.str_("w"), addresses={}, job=kinds
    )
    _, got = decode(encode(Envelope(1, "c", 0), message))
    assert (got.tree, got.name) == (5, "w") and type(got.tree) is int
    assert got.job == {"a": 3, "b": [0.5, True], "c": {"d": "e"}}
    _, got = decode(
        encode(Envelope(1, "c", 0), ALL_KINDS["PushMaxima"](max_grad=np.float32(2), max_hess=1))
    )
    assert (got.max_grad, got.max_hess) == (2.0, 1.0)


@pytest.mark.parametrize(
    "message",
    [
        Beat(bytes_sent=1.5),
        Beat(bytes_sent="1"),
        ALL_KINDS["PushMaxima"](max_grad="1", max_hess=1.0),
        PushMargins(level=0, margins=[1.0]),
        PushMargins(level=0, margins=np.array(["a"])),
        PushMargins(level=0, margins=np.array([None])),
        ALL_KINDS["AssignRoles"](name="w", addresses={1: "a"}, job={}),
        ALL_KINDS["AssignRoles"](name="w", addresses={}, job={"a": np.zeros(3)}),
    ],
)
def test_what_does_not_fit_its_field_is_never_sent(message):
    with pytest.raises(TypeError, match=type(message).__name__):
        encode(Envelope(1, "w", 0), message)


@pytest.mark.parametrize(
    ("field", "wrong", "expected"),
    [
        ("margins", np.zeros(3), "float32 of shape (n), got float64 of shape (3,)"),
        ("margins", np.zeros((3, 1), "f4"), "float32 of shape (n), got float32 of shape (3, 1)"),
        ("margins", np.zeros((), "f4"), "float32 of shape (n), got float32 of shape ()"),
        ("totals", np.zeros((3, 2), "i8"), "int64 of shape (n, 3), got int64 of shape (3, 2)"),
        ("totals", np.zeros(3, "i8"), "int64 of shape (n, 3), got int64 of shape (3,)"),
        ("twins", (np.zeros(3, "u1"), np.zeros(3, "i1")), "uint8 of shape (n), got int8 of shape (3,)"),
        ("masks", np.zeros(3, "u8"), "uint64 of shape (n, any), got uint64 of shape (3,)"),
    ],
)
def test_arrays_of_another_dtype_or_shape_are_neither_sent_nor_taken(monkeypatch, field, wrong, expected):
    fitting = {
        "margins": PushMargins(level=0, margins=np.zeros(3, "f4")),
        "totals": PushHistograms(totals=np.zeros((3, 3), "i8"), codec="packed", arrays=()),
        "masks": PushPartialExits(n_rows=1, n_positions=0, positions=np.zeros(0, "u1"), masks=np.zeros((0, 2), "u8")),
    }
    message = fitting["totals" if field == "twins" else field]
    decode(encode(Envelope(1, "w", 0), message))
    message = type(message)(**vars(message) | {field: wrong})
    with pytest.raises(TypeError) as refused:
        encode(Envelope(1, "w", 0), message)
    assert str(refused.value) == f"{type(message).__name__}.{field}: expected {expected}"
    kind, loose = type(message), {np.ndarray: np.ndarray, tuple: tuple[np.ndarray, ...]}[type(wrong)]
    with monkeypatch.context() as patch:  # of a peer that does not look at what it sends
        patch.setitem(kind.types, field, loose)
        patch.setitem(codec._LAYOUTS, kind, codec._layout(kind))
        frames = encode(Envelope(1, "w", 0), message)
    with pytest.raises(ProtocolError) as refused:
        decode(frames)
    assert f"{field}: expected {expected}" in str(refused.value)


def test_owned_arrays_freeze_and_views_are_copied():
    owned, base, frozen_base = (np.arange(100, dtype="f4") for _ in range(3))
    frozen_base.flags.writeable = False
    frames = encode(
        Envelope(1, "w", 0),
        PushSketches(sketches=(owned, base[2:50], frozen_base[2:50])),
    )
    with pytest.raises(ValueError, match="read-only"):
        owned[0] = 1
    base[:] = -1
    _, got = decode(frames)
    of_owned, of_base, of_frozen = got.sketches
    assert of_base.tolist() == of_frozen.tolist() == list(range(2, 50))
    assert np.shares_memory(of_owned, owned) and np.shares_memory(of_frozen, frozen_base)
    assert not np.shares_memory(of_base, base)


def test_small_arrays_are_copied_into_the_header():
    array = np.arange(3, dtype="f4")
    frames = encode(Envelope(1, "w", 0), PushMargins(level=0, margins=array[:]))
    array[:] = -1
    assert len(frames) == 1 and frames.payload == 12
    assert msgpack.unpackb(frames[0])[7] == np.arange(3, dtype="f4").tobytes()  # all else is known
    assert decode(frames)[1].margins.tolist() == [0, 1, 2]


@pytest.mark.parametrize("shape", [(0,), (7,), (63,), (64,), (300,), (15, 2), (0, 3), (80, 2), (1, 60), (16, 40)])
def test_a_header_saves_what_a_frame_costs(monkeypatch, shape):
    array = np.zeros(shape, "f4")
    message = PushSketches(sketches=(array,))
    monkeypatch.setattr(arrays, "_SMALL", -1)
    alone = encode(Envelope(1, "w", 0), message)
    monkeypatch.setattr(arrays, "_SMALL", 1 << 20)
    together = encode(Envelope(1, "w", 0), message)
    assert (len(alone), len(together)) == (2, 1)
    assert together.payload == alone.payload == array.nbytes
    one_is_longer = len(together[0]) > 255 >= max(len(frame) for frame in alone)  # than ZMTP's short frames
    assert measure(together)[1] <= measure(alone)[1] + 7 * one_is_longer


def test_layouts_are_made_little_endian_and_contiguous():
    for array in (
        np.arange(6, dtype=">i4"),
        np.arange(60, dtype=">i4"),
        np.arange(12, dtype="i4")[::2],
        np.arange(120, dtype="i4")[::2],
        np.arange(6.0).reshape(3, 2).T,
        np.arange(12.0).reshape(4, 3).T,
    ):
        _, got = decode(encode(Envelope(1, "w", 0), PushSketches(sketches=(array,))))
        assert np.array_equal(got.sketches[0], array)
        assert got.sketches[0].flags.c_contiguous and got.sketches[0].dtype.isnative


def test_arrays_at_odd_addresses_are_copied():
    frames = encode(Envelope(1, "w", 0), PushMargins(level=0, margins=np.arange(40, dtype="f4")))
    shifted = memoryview(b"x" + bytes(frames[1]))[1:]
    for received in (frames[1], shifted):
        assert_same(np.arange(40, dtype="f4"), decode([frames[0], received])[1].margins)


def test_the_header_is_small():
    totals, packed = np.zeros((0, 3), "i8"), np.zeros(1000, "u1")
    message = PushHistograms(tree=3, level=2, totals=totals, codec="packed", arrays=(packed,))
    assert len(encode(Envelope(12345, "worker-0-1", 17), message)[0]) < 64


def test_fields_of_unknown_types_are_refused():
    for annotation in (list, tuple, tuple[int, int], object):
        with pytest.raises(TypeError, match="message field"):
            codec._field_codec(annotation)
