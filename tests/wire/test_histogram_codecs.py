"""Knows that encoded histograms are small, exact and safe to decode; does not know who sends them.

Every test runs with the kernels compiled and as plain Python.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from psboost.boosting.histogram import Histograms
from psboost.errors import ParameterError, ProtocolError
from psboost.kernels import histogram_streams
from psboost.kernels import packing as kernels
from psboost.wire import histogram_codecs, streams
from tests.naive import packing as naive
from tests.plain import as_python

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
BIG = 2**63


@pytest.fixture(autouse=True, params=["compiled", "plain"])
def way(request, monkeypatch):
    if request.param == "plain":
        for module in (histogram_codecs, streams):
            monkeypatch.setattr(module, "kernels", as_python(kernels))
        monkeypatch.setattr(histogram_codecs, "histogram_streams", as_python(histogram_streams))
    return request.param


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
    arrays = histogram_codecs.encode_histograms(codec, histograms, bin_offsets)
    for array in arrays:
        array.flags.writeable = False
    back = histogram_codecs.decode_histograms(codec, arrays, bin_offsets)
    for name in ("offsets", "bins", "grads", "hesses"):
        sent, got = getattr(histograms, name), getattr(back, name)
        assert got.dtype == sent.dtype and got.tolist() == sent.tolist()
    return arrays


def plain_bytes(nodes, histograms):
    """The packed form without pairs."""
    sums = histograms.grads.tolist(), histograms.hesses.tolist()
    shifts = [min(((value & -value).bit_length() - 1 for value in values if value), default=0) for values in sums]
    streams = [len(nodes), *shifts], [len(bins) for bins in nodes], naive.take_gaps(nodes)
    codes = naive.fold_signs(sums[0], shifts[0]), naive.lower_counts(sums[1], shifts[1])
    return b"".join(naive.pack_blocks(values) for values in (*streams, *codes))


def is_in_pairs(packed):
    return streams.StreamReader(packed, "test").take(3)[2] >= 64


@quick
@given(drawn=histograms_of())
def test_packed_histograms(drawn):
    nodes, bin_offsets, histograms = drawn
    (packed,) = assert_round_trip("packed", histograms, bin_offsets)
    plain = plain_bytes(nodes, histograms)
    assert len(packed) < len(plain) if is_in_pairs(packed) else packed.tobytes() == plain


@quick
@given(drawn=histograms_of(largest=2**53))
def test_csr_histograms(drawn):
    nodes, bin_offsets, histograms = drawn
    *matrix, values = assert_round_trip("csr", histograms, bin_offsets)
    assert [array.tolist() for array in matrix] == list(naive.split_features(nodes, bin_offsets.tolist()))
    assert values[:, 0].tolist() == histograms.grads.tolist()


@pytest.mark.parametrize("codec", histogram_codecs.histogram_codecs())
@pytest.mark.parametrize("nodes", [[], [[]], [[], [], []], [[0]], [[11]], [[], [3], []]])
def test_few_entries(codec, nodes):
    n_entries = sum(len(bins) for bins in nodes)
    histograms = make_histograms(nodes, [-7] * n_entries, [9] * n_entries)
    assert_round_trip(codec, histograms, np.array([0, 4, 4, 12], np.int32))


@pytest.mark.parametrize("codec", histogram_codecs.histogram_codecs())
def test_no_features(codec):
    assert_round_trip(codec, make_histograms([[], []], [], []), np.array([0], np.int32))


def test_extreme_sums():
    grads, hesses = [-BIG, BIG - 1, 0, -1, -BIG], [2**62, 1, BIG - 1, 2**62 - 1, 2**62]
    bin_offsets = np.array([0, 9], np.int32)
    histograms = make_histograms([[0, 1], [2, 3, 8]], grads, hesses)
    assert_round_trip("packed", histograms, bin_offsets)
    assert_round_trip("packed", make_histograms([[4]], [-BIG], [2**62]), bin_offsets)
    with pytest.raises(ParameterError, match="packed"):
        histogram_codecs.encode_histograms("csr", histograms, bin_offsets)


def of_repeated_pairs(n_nodes=3, n_bins=400, n_pairs=40, largest=2**31):
    """A few hundred entries, half of them of pairs that repeat."""
    rng = np.random.default_rng(3)
    nodes = [np.flatnonzero(rng.random(n_bins) < 0.6).tolist() for _ in range(n_nodes)]
    n_entries = sum(len(bins) for bins in nodes)
    which = np.where(rng.random(n_entries) < 0.5, rng.zipf(1.3, n_entries) % n_pairs, np.arange(n_entries))
    grads, hesses = rng.integers(-largest, largest, len(which) + n_pairs), rng.integers(1, largest, len(which) + n_pairs)
    return nodes, np.array([0, n_bins], np.int32), make_histograms(nodes, grads[which], hesses[which])


@pytest.mark.parametrize("largest", [2**15, 2**31])
@pytest.mark.parametrize("n_nodes", [3, 12])
def test_repeated_pairs_are_sent_once(largest, n_nodes):
    nodes, bin_offsets, histograms = of_repeated_pairs(n_nodes, largest=largest)
    (packed,) = assert_round_trip("packed", histograms, bin_offsets)
    assert is_in_pairs(packed) and len(packed) < 0.75 * len(plain_bytes(nodes, histograms))


def test_sums_wider_than_a_slot_are_sent_each():
    nodes, bin_offsets, histograms = of_repeated_pairs(largest=2**62)
    (packed,) = assert_round_trip("packed", histograms, bin_offsets)
    assert packed.tobytes() == plain_bytes(nodes, histograms)
    some = make_histograms(nodes, np.where(histograms.grads % 4, 5, histograms.grads), histograms.hesses % 2 + 1)
    (packed,) = assert_round_trip("packed", some, bin_offsets)
    assert is_in_pairs(packed)


def test_pairs_cost_about_the_entropy_of_their_sums(way):
    """Rows of few leaves, features of few rows: as in the first trees."""
    rng = np.random.default_rng(7)
    n_entries, at_most = (20_000, 1.2) if way == "compiled" else (2_000, 1.4)
    n_rows = rng.geometric(0.5, n_entries)
    leaves = rng.uniform(0.05, 0.6, 12)
    p = [leaves[rng.integers(0, 12, k)] for k in n_rows]
    grads = [np.floor(rows * 2**15 + rng.random(len(rows))).sum() for rows in p]
    hesses = [np.floor(rows * (1 - rows) * 2**17 + rng.random(len(rows))).sum() for rows in p]
    bin_offsets = np.array([0, n_entries], np.int32)
    histograms = make_histograms([list(range(n_entries))], grads, hesses)
    (packed,) = assert_round_trip("packed", histograms, bin_offsets)
    entropy = 0.0
    for sums in (grads, hesses):
        counts = np.unique(sums, return_counts=True)[1]
        entropy -= counts @ np.log2(counts / n_entries) / 8
    assert len(packed) < at_most * entropy


@pytest.mark.parametrize("n_entries", [2, 3, 50, 1000])
def test_equal_entries(n_entries):
    nodes = [list(range(n_entries)), [], [1]]
    sums = [-(2**31)] * (n_entries + 1), [2**32 - 1] * (n_entries + 1)
    (packed,) = assert_round_trip("packed", make_histograms(nodes, *sums), np.array([0, n_entries], np.int32))
    assert len(packed) < n_entries // 4 + 60


def test_distinct_pairs_are_plain():
    n_bins = 500
    nodes = [list(range(n_bins)), list(range(0, n_bins, 2))]
    histograms = make_histograms(nodes, np.arange(750) - 300, np.arange(750) + 1)
    (packed,) = assert_round_trip("packed", histograms, np.array([0, n_bins], np.int32))
    assert packed.tobytes() == plain_bytes(nodes, histograms)


def test_pairs_rest_for_a_while_where_they_were_not_worth_it():
    n_bins, packer = 4000, histogram_codecs.Packer()
    nodes, bin_offsets = [list(range(n_bins))], np.array([0, n_bins], np.int32)
    distinct = make_histograms(nodes, np.arange(n_bins) - 300, np.arange(n_bins) + 1)
    alike = make_histograms(nodes, np.arange(n_bins) % 7 * 1000, np.arange(n_bins) % 7 + 900)

    def in_pairs(histograms, level):
        (packed,) = histogram_codecs.encode_histograms("packed", histograms, bin_offsets, packer, level)
        back = histogram_codecs.decode_histograms("packed", (packed,), bin_offsets)
        assert back.grads.tolist() == histograms.grads.tolist()
        return is_in_pairs(packed)

    assert in_pairs(alike, 0) and in_pairs(alike, 1)
    assert not in_pairs(distinct, 1)
    assert [in_pairs(alike, 1) for _ in range(10)] == [False] * 8 + [True] * 2
    assert in_pairs(alike, 0)


def test_a_constant_hessian_costs_few_bits():
    n_bins = 1280
    grads, counts = np.zeros(n_bins, np.int64), np.arange(n_bins) % 4 + 1
    histograms = make_histograms([list(range(n_bins))], grads, counts << 15)
    (packed,) = histogram_codecs.encode_histograms("packed", histograms, np.array([0, n_bins], np.int32))
    assert len(packed) < n_bins * 2 // 8 + 3 * n_bins // 128 + 20


def test_full_and_sparse_histograms_of_realistic_size(way):
    n_bins = 200_000 if way == "compiled" else 2_000
    rng = np.random.default_rng(5)
    bin_offsets = np.unique(np.append(rng.integers(0, n_bins, n_bins // 30), [0, n_bins])).astype(np.int32)
    for density in (1.0, 0.3, 0.001):
        nodes = [np.flatnonzero(rng.random(n_bins) < density).tolist() for _ in range(3)]
        n_entries = sum(len(bins) for bins in nodes)
        grads, hesses = rng.normal(0, 3000, n_entries), rng.geometric(1 / 5000, n_entries)
        for codec in histogram_codecs.histogram_codecs():
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
    for codec in ("packed",) if said == "ascend" else ("packed", "csr"):
        with pytest.raises(ValueError, match=said):
            histogram_codecs.encode_histograms(codec, Histograms(**good | change), np.array([0, 12], np.int32))


def test_unknown_codec():
    with pytest.raises(ParameterError, match="csr, packed"):
        histogram_codecs.encode_histograms("zip", None, np.array([0], np.int32))
    with pytest.raises(ProtocolError, match="unknown histogram codec 'zip'"):
        histogram_codecs.decode_histograms("zip", (), np.array([0], np.int32))


def assert_valid(histograms, bin_offsets):
    assert len(histograms.bins) == histograms.offsets[-1] and np.all(np.diff(histograms.offsets) >= 0)
    for begin, end in zip(histograms.offsets, histograms.offsets[1:], strict=False):
        assert np.all(np.diff(histograms.bins[begin:end]) > 0)
    assert np.all((histograms.bins >= 0) & (histograms.bins < bin_offsets[-1]))
    assert np.all(histograms.hesses > 0)


@settings(quick, max_examples=200)
@given(drawn=histograms_of(largest=2**53), codec=st.sampled_from(histogram_codecs.histogram_codecs()), data=st.data())
def test_corrupt_histograms_are_refused_or_valid(drawn, codec, data):
    _, bin_offsets, histograms = drawn
    arrays = list(histogram_codecs.encode_histograms(codec, histograms, bin_offsets))
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
        back = histogram_codecs.decode_histograms(codec, tuple(arrays), bin_offsets)
    except ProtocolError:
        return
    assert_valid(back, bin_offsets)


@settings(quick, max_examples=200)
@given(data=st.data())
def test_corrupt_pairs_are_refused_or_valid(data):
    _, bin_offsets, histograms = of_repeated_pairs(n_nodes=2, n_bins=60, n_pairs=5)
    (packed,) = histogram_codecs.encode_histograms("packed", histograms, bin_offsets)
    assert is_in_pairs(packed)
    for place in data.draw(st.lists(st.integers(0, len(packed) - 1), min_size=1, max_size=3)):
        packed[place] = data.draw(st.integers(0, 255))
    packed = packed[: data.draw(st.just(len(packed)) | st.integers(0, len(packed)))]
    try:
        back = histogram_codecs.decode_histograms("packed", (packed,), bin_offsets)
    except ProtocolError:
        return
    assert_valid(back, bin_offsets)


@settings(quick, max_examples=200)
@given(packed=st.binary(max_size=40))
def test_random_bytes_are_refused_or_valid(packed):
    bin_offsets = np.array([0, 5, 300], np.int32)
    try:
        back = histogram_codecs.decode_histograms("packed", (np.frombuffer(packed, np.uint8),), bin_offsets)
    except ProtocolError as error:
        assert "bytes" in str(error)
        return
    assert_valid(back, bin_offsets)


def test_counts_too_large_for_their_bytes_allocate_nothing():
    huge = streams.pack_streams(np.array([2**40, 0, 0], np.uint64))
    with pytest.raises(ProtocolError, match="values in"):
        histogram_codecs.decode_histograms("packed", (huge,), np.array([0, 5], np.int32))
    for sizes in ([2**40, 0], [0, 2**40], [2**63, 2**63]):
        head = np.array([1, 0, 64], np.uint64), np.array([2], np.uint64), np.array([0, 0], np.uint64)
        packed = streams.pack_streams(*head, np.array(sizes, np.uint64))
        with pytest.raises(ProtocolError, match="values in"):
            histogram_codecs.decode_histograms("packed", (packed,), np.array([0, 5], np.int32))
