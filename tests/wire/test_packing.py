"""Knows that packed forms are small, exact and safe to unpack; compares each kernel with its slow twin.

Every test runs with the kernels compiled and as plain Python.
"""

import types

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from psboost.boosting.histogram import Histograms
from psboost.errors import ParameterError, ProtocolError
from psboost.kernels import packing as kernels
from psboost.wire import packing
from tests.naive import packing as naive

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
BIG = 2**63
WIDTHS = st.sampled_from([0, 1, 2, 5, 13, 31, 32, 33, 62, 63])
SIGNED = WIDTHS.flatmap(lambda width: st.integers(-(2**width), 2**width - 1))
UNSIGNED = st.sampled_from([0, 1, 3, 8, 31, 63, 64]).flatmap(lambda width: st.integers(0, 2**width - 1))


def plain_python():
    """The kernels and their helpers as uncompiled functions."""
    plain = dict(vars(kernels))
    for name, function in vars(kernels).items():
        if hasattr(function, "py_func"):
            plain[name] = types.FunctionType(function.py_func.__code__, plain, name)
    return types.SimpleNamespace(**plain)


@pytest.fixture(autouse=True, params=["compiled", "plain"])
def way(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(packing, "kernels", plain_python())
    return request.param


@st.composite
def long_lists(draw, values):
    """Lists up to a few blocks: some drawn values, repeated, with a few others strewn in."""
    n_values = draw(st.sampled_from([0, 1, 2, 7, 127, 128, 129, 256, 300]))
    few = draw(st.lists(values, min_size=1, max_size=5))
    result = [few[k % len(few)] for k in range(n_values)]
    if n_values:
        for place in draw(st.lists(st.integers(0, n_values - 1), max_size=5)):
            result[place] = draw(values)
    return result


# --- streams and ids


@quick
@given(streams=st.lists(long_lists(UNSIGNED), min_size=1, max_size=3))
def test_blocks(streams):
    packed = packing._pack(*(np.array(values, np.uint64) for values in streams))
    assert packed.tobytes() == b"".join(naive.pack_blocks(values) for values in streams)
    reader = packing._Reader(packed, "test")
    for values in streams:
        assert reader.take(len(values)).tolist() == values
    reader.finish()
    assert naive.unpack_blocks(packed.tobytes(), len(streams[0])) == streams[0]


def test_every_width_leaves_the_next_block_clean():
    """If the last value of a block ends just before a word does, the next block begins with a new word."""
    for width in range(65):
        for n_values in range(1, 18):
            streams = [[2**width - 1] * n_values, [33], [1]]
            dirt = np.full(n_values + 8, 2**64 - 1, np.uint64)
            dirt[0] = position = np.uint64(0)
            for values in streams:
                position = np.uint64(packing.kernels.pack_blocks(np.array(values, np.uint64), position, dirt))
            packed = dirt.tobytes()[: int(position) // 8]
            assert packed == b"".join(naive.pack_blocks(values) for values in streams)


def test_a_block_of_zeros_is_a_byte_and_one_large_value_does_not_widen_a_block():
    assert len(packing._pack(np.zeros(1280, np.uint64))) == 10
    values = np.full(128, 5, np.uint64)
    values[77] = 2**60
    assert len(packing._pack(values)) == 3 + 128 * 3 // 8 + 9


@quick
@given(values=long_lists(SIGNED))
def test_integers(values):
    packed = packing.pack_integers(np.array(values, np.int64))
    assert packing.unpack_integers(packed, len(values)).tolist() == values


@quick
@given(values=long_lists(SIGNED), shift=st.integers(0, 63))
def test_signs_fold(values, shift):
    values = [value >> shift << shift for value in values]
    codes = packing._fold_signs(np.array(values, np.int64), shift)
    assert codes.tolist() == naive.fold_signs(values, shift)
    assert packing._unfold_signs(codes, shift, None).tolist() == values


@quick
@given(values=long_lists(st.integers(1, BIG - 1)), shift=st.integers(0, 62))
def test_counts_lower(values, shift):
    values = [max(value >> shift, 1) << shift for value in values]
    array, codes = np.array(values, np.int64), np.empty(len(values), np.uint64)
    assert packing.kernels.lower_counts(array, np.uint64(shift), codes)
    assert codes.tolist() == naive.lower_counts(values, shift)
    back = np.empty(len(values), np.int64)
    assert packing.kernels.raise_counts(codes, np.uint64(shift), back)
    assert back.tolist() == values


@quick
@given(ids=st.sets(st.integers(0, 40) | st.integers(0, BIG - 1)).map(sorted), small=st.booleans())
def test_ascending(ids, small):
    ids = np.array([k for k in ids if not small or k < 2**31], np.int32 if small else np.int64)
    packed = packing.pack_ascending(ids)
    assert packed.tobytes() == naive.pack_blocks(naive.take_gaps([ids.tolist()]))
    back = packing.unpack_ascending(packed, len(ids))
    assert back.dtype == np.int64 and back.tolist() == ids.tolist()


def test_the_largest_id():
    ids = np.array([0, 2**63 - 1])
    assert packing.unpack_ascending(packing.pack_ascending(ids), 2).tolist() == ids.tolist()
    assert packing.unpack_ascending(packing.pack_ascending(ids[1:]), 1).tolist() == [2**63 - 1]


@pytest.mark.parametrize("ids", [[1, 1], [2, 1], [-1, 5]])
def test_ids_must_ascend(ids):
    with pytest.raises(ValueError, match="ascend"):
        packing.pack_ascending(np.array(ids))


# --- histograms


def make_histograms(nodes, grads, hesses):
    counts = [len(bins) for bins in nodes]
    flat = [bin_id for bins in nodes for bin_id in bins]
    return Histograms(
        np.cumsum([0, *counts]).astype(np.int64),
        np.array(flat, np.int32),
        np.array(grads, np.int64),
        np.array(hesses, np.int64),
    )


@st.composite
def histograms_of(draw, largest=BIG - 1):
    sizes = draw(st.lists(st.integers(0, 6), min_size=1, max_size=30))
    bin_offsets = np.cumsum([0, *sizes]).astype(np.int32)
    n_bins = int(bin_offsets[-1])
    node = st.just(list(range(n_bins))) | st.sets(st.integers(0, max(n_bins - 1, 0))).map(sorted)
    nodes = draw(st.lists(node if n_bins else st.just([]), max_size=5))
    n_entries = sum(len(bins) for bins in nodes)
    scale = draw(st.sampled_from([1, 2, 1 << 14]))
    grad = st.integers(-largest // scale, largest // scale) | st.integers(-3, 3)
    hess = st.integers(1, largest // scale) | st.integers(1, 3)
    few = draw(st.lists(st.tuples(grad, hess), min_size=1, max_size=8))
    pairs = [few[(k * k) % len(few)] for k in range(n_entries)]
    return (
        nodes,
        bin_offsets,
        make_histograms(nodes, [scale * grad for grad, _ in pairs], [scale * hess for _, hess in pairs]),
    )


def assert_round_trip(codec, histograms, bin_offsets):
    arrays = packing.encode_histograms(codec, histograms, bin_offsets)
    for array in arrays:
        array.flags.writeable = False
    back = packing.decode_histograms(codec, arrays, bin_offsets)
    for name in ("offsets", "bins", "grads", "hesses"):
        sent, got = getattr(histograms, name), getattr(back, name)
        assert got.dtype == sent.dtype and got.tolist() == sent.tolist()
    return arrays


@quick
@given(drawn=histograms_of())
def test_packed_histograms(drawn):
    _, bin_offsets, histograms = drawn
    assert len(assert_round_trip("packed", histograms, bin_offsets)) == 1


@quick
@given(drawn=histograms_of(largest=2**53))
def test_csr_histograms(drawn):
    nodes, bin_offsets, histograms = drawn
    *matrix, values = assert_round_trip("csr", histograms, bin_offsets)
    assert [array.tolist() for array in matrix] == list(naive.split_features(nodes, bin_offsets.tolist()))
    assert values[:, 0].tolist() == histograms.grads.tolist()


@pytest.mark.parametrize("codec", packing.histogram_codecs())
@pytest.mark.parametrize("nodes", [[], [[]], [[], [], []], [[0]], [[11]], [[], [3], []]])
def test_few_entries(codec, nodes):
    n_entries = sum(len(bins) for bins in nodes)
    histograms = make_histograms(nodes, [-7] * n_entries, [9] * n_entries)
    assert_round_trip(codec, histograms, np.array([0, 4, 4, 12], np.int32))


@pytest.mark.parametrize("codec", packing.histogram_codecs())
def test_no_features(codec):
    assert_round_trip(codec, make_histograms([[], []], [], []), np.array([0], np.int32))


def test_extreme_sums():
    grads, hesses = [-BIG, BIG - 1, 0, -1, -BIG], [2**62, 1, BIG - 1, 2**62 - 1, 2**62]
    bin_offsets = np.array([0, 9], np.int32)
    histograms = make_histograms([[0, 1], [2, 3, 8]], grads, hesses)
    assert_round_trip("packed", histograms, bin_offsets)
    assert_round_trip("packed", make_histograms([[4]], [-BIG], [2**62]), bin_offsets)
    with pytest.raises(ParameterError, match="packed"):
        packing.encode_histograms("csr", histograms, bin_offsets)


def test_a_constant_hessian_costs_few_bits():
    n_bins = 1280
    grads, counts = np.zeros(n_bins, np.int64), np.arange(n_bins) % 4 + 1
    histograms = make_histograms([list(range(n_bins))], grads, counts << 15)
    (packed,) = packing.encode_histograms("packed", histograms, np.array([0, n_bins], np.int32))
    assert len(packed) < n_bins * 2 // 8 + 3 * n_bins // 128 + 20


def test_full_and_sparse_histograms_of_realistic_size(way):
    n_bins = 200_000 if way == "compiled" else 2_000
    rng = np.random.default_rng(5)
    bin_offsets = np.unique(np.append(rng.integers(0, n_bins, n_bins // 30), [0, n_bins])).astype(np.int32)
    for density in (1.0, 0.3, 0.001):
        nodes = [np.flatnonzero(rng.random(n_bins) < density).tolist() for _ in range(3)]
        n_entries = sum(len(bins) for bins in nodes)
        grads, hesses = rng.normal(0, 3000, n_entries), rng.geometric(1 / 5000, n_entries)
        for codec in packing.histogram_codecs():
            assert_round_trip(codec, make_histograms(nodes, np.rint(grads), hesses), bin_offsets)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bins": np.array([1, 1], np.int32)}, "ascend"),
        ({"bins": np.array([0, 12], np.int32)}, "leave the range"),
        ({"bins": np.array([-1, 2], np.int32)}, "leave the range"),
        ({"hesses": np.array([1, 0])}, "above 0"),
        ({"hesses": np.array([1])}, "fit each other"),
        ({"offsets": np.array([0, 1])}, "fit each other"),
    ],
)
def test_broken_histograms_are_not_sent(change, said):
    good = {"offsets": np.array([0, 2]), "bins": np.array([0, 5], np.int32)}
    good |= {"grads": np.array([1, 2]), "hesses": np.array([1, 2])}
    with pytest.raises(ValueError, match=said):
        packing.encode_histograms("packed", Histograms(**good | change), np.array([0, 12], np.int32))


def test_unknown_codec():
    for call in (packing.encode_histograms, packing.decode_histograms):
        with pytest.raises(ParameterError, match="csr, packed"):
            call("zip", None, np.array([0], np.int32))


def assert_valid(histograms, bin_offsets):
    assert len(histograms.bins) == histograms.offsets[-1] and np.all(np.diff(histograms.offsets) >= 0)
    for begin, end in zip(histograms.offsets, histograms.offsets[1:], strict=False):
        assert np.all(np.diff(histograms.bins[begin:end]) > 0)
    assert np.all((histograms.bins >= 0) & (histograms.bins < bin_offsets[-1]))
    assert np.all(histograms.hesses > 0)


@settings(quick, max_examples=200)
@given(drawn=histograms_of(largest=2**53), codec=st.sampled_from(packing.histogram_codecs()), data=st.data())
def test_corrupt_histograms_are_refused_or_valid(drawn, codec, data):
    _, bin_offsets, histograms = drawn
    arrays = list(packing.encode_histograms(codec, histograms, bin_offsets))
    which = data.draw(st.integers(0, len(arrays) - 1))
    array = arrays[which].copy()
    how = data.draw(st.sampled_from(["bytes", "cut", "grow", "type", "fewer", "features"]))
    if how == "bytes" and array.nbytes:
        raw = array.reshape(-1).view(np.uint8)
        for place in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=4)):
            raw[place] = data.draw(st.integers(0, 255))
        arrays[which] = array
    elif how == "cut":
        arrays[which] = array[: data.draw(st.integers(0, len(array)))]
    elif how == "grow":
        arrays[which] = np.concatenate((array, array[:1]))
    elif how == "type":
        arrays[which] = np.zeros(array.shape, np.uint16)
    elif how == "fewer":
        del arrays[which]
    else:
        bin_offsets = bin_offsets[: data.draw(st.integers(1, len(bin_offsets)))]
    try:
        back = packing.decode_histograms(codec, tuple(arrays), bin_offsets)
    except ProtocolError:
        return
    assert_valid(back, bin_offsets)


@settings(quick, max_examples=200)
@given(packed=st.binary(max_size=40), n=st.integers(0, 300))
def test_random_bytes_are_refused_or_valid(packed, n):
    packed = np.frombuffer(packed, np.uint8)
    bin_offsets = np.array([0, 5, 300], np.int32)
    for unpack in (
        lambda: assert_valid(packing.decode_histograms("packed", (packed,), bin_offsets), bin_offsets),
        lambda: packing.unpack_integers(packed, n),
        lambda: packing.unpack_ascending(packed, n),
        lambda: packing.unpack_living(packed, n),
        *(lambda form=form: packing.unpack_bitvector(form, packed, n) for form in ("raw", "rows", "runs")),
    ):
        try:
            unpack()
        except ProtocolError as error:
            assert "bytes" in str(error)


def test_counts_too_large_for_their_bytes_allocate_nothing():
    for n_values in (2**40, 2**62):
        with pytest.raises(ProtocolError, match="values in"):
            packing.unpack_ascending(np.zeros(10, np.uint8), n_values)
    huge = packing._pack(np.array([2**40, 0, 0], np.uint64))
    with pytest.raises(ProtocolError, match="values in"):
        packing.decode_histograms("packed", (huge,), np.array([0, 5], np.int32))


# --- bitvectors and living features

BITS = st.one_of(
    st.lists(st.integers(0, 1), max_size=200),
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 300)), max_size=6).map(
        lambda runs: [bit for bit, length in runs for _ in range(length)]
    ),
    st.tuples(st.integers(0, 700), st.integers(0, 1), st.sets(st.integers(0, 699), max_size=6)).map(
        lambda drawn: [drawn[1] ^ (k in drawn[2]) for k in range(drawn[0])]
    ),
)


def words_of(bits, padding):
    n_words = (len(bits) + 63) // 64
    bits = bits + [padding] * (64 * n_words - len(bits))
    return np.packbits(np.array(bits, np.uint8), bitorder="little").view(np.uint64)


@settings(quick, max_examples=150)
@given(bits=BITS, padding=st.integers(0, 1))
def test_bitvectors(bits, padding):
    words = words_of(bits, padding)
    before = words.copy()
    form, packed = packing.pack_bitvector(words, len(bits))
    assert words.tolist() == before.tolist()
    naive_form, naive_packed = naive.pack_bitvector(bits)
    assert (form, packed.tobytes()) == (naive_form, naive_packed)
    packed.flags.writeable = False
    back = packing.unpack_bitvector(form, packed, len(bits))
    assert back.dtype == np.uint64 and back.flags.writeable
    assert back.tolist() == words_of(bits, 1).tolist()


@quick
@given(words=st.lists(UNSIGNED, max_size=5))
def test_ones(words):
    array = np.array(words, np.uint64)
    positions = np.empty(packing.kernels.count_ones(array), np.int64)
    assert len(positions) == naive.count_ones(words)
    packing.kernels.find_ones(array, positions)
    assert positions.tolist() == naive.find_ones(words)
    back = np.zeros_like(array)
    packing.kernels.set_ones(positions, back)
    assert back.tolist() == words


@pytest.mark.parametrize(
    ("bits", "form"),
    [
        ([1, 0] * 500, "raw"),
        ([1] * 1000, "rows"),
        ([1] * 700 + [0] * 200 + [1] * 100, "runs"),
        ([0] * 1000, "runs"),
    ],
)
def test_forms_of_bitvectors(bits, form):
    assert packing.pack_bitvector(words_of(bits, 1), len(bits))[0] == form


def test_unknown_form_and_wrong_length():
    for form, packed, n_bits in (("zip", b"", 0), ("raw", b"ab", 17), ("rows", b"\x01\x01\x08\xff", 17)):
        with pytest.raises(ProtocolError, match="bitvector"):
            packing.unpack_bitvector(form, np.frombuffer(packed, np.uint8), n_bits)


@settings(quick, max_examples=150)
@given(flags=BITS, mixed=BITS)
def test_living(flags, mixed):
    for case in (flags, [1] * 300 + mixed + [0] * 400):
        packed = packing.pack_living(np.array(case, np.uint8))
        assert packing.unpack_living(packed, len(case)).tolist() == case
        assert len(packed) <= 1 + (len(case) + 7) // 8


def test_living_features_cost_their_mixture():
    rng = np.random.default_rng(1)
    flags = np.concatenate((np.ones(4000), rng.integers(0, 2, 800), np.zeros(20_000))).astype(np.uint8)
    assert len(packing.pack_living(flags)) < 800 // 8 + 10
    assert len(packing.pack_living(np.ones(10**5, np.uint8))) <= 5
    assert len(packing.pack_living(np.zeros(10**5, np.uint8))) <= 5
