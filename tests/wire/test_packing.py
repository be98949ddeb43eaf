"""Knows that packed forms are small, exact and safe to unpack; compares each kernel with its slow twin.

Every test runs with the kernels compiled and as plain Python.
"""

import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from psboost.errors import ProtocolError
from psboost.kernels import bitvectors, classes, pairs
from psboost.kernels import packing as kernels
from psboost.wire import packing, streams
from tests.naive import packing as naive
from tests.plain import as_python, both_ways

unpack_classes = classes.unpack_classes
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
BIG = 2**63
WIDTHS = st.sampled_from([0, 1, 2, 5, 13, 31, 32, 33, 62, 63])
SIGNED = WIDTHS.flatmap(lambda width: st.integers(-(2**width), 2**width - 1))
UNSIGNED = st.sampled_from([0, 1, 3, 8, 31, 63, 64]).flatmap(lambda width: st.integers(0, 2**width - 1))


@pytest.fixture(autouse=True, params=["compiled", "plain"])
def way(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(streams, "kernels", as_python(kernels))
        monkeypatch.setattr(packing, "bitvectors", as_python(bitvectors))
        monkeypatch.setattr(sys.modules[__name__], "unpack_classes", as_python(classes).unpack_classes)
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


# --- streams


@quick
@given(each=st.lists(long_lists(UNSIGNED), min_size=1, max_size=3))
def test_blocks(each):
    packed = streams.pack_streams(*(np.array(values, np.uint64) for values in each))
    assert packed.tobytes() == b"".join(naive.pack_blocks(values) for values in each)
    reader = streams.StreamReader(packed, "test")
    for values in each:
        assert reader.take(len(values)).tolist() == values
    reader.finish()
    assert naive.unpack_blocks(packed.tobytes(), len(each[0])) == each[0]


def test_every_width_leaves_the_next_block_clean():
    """If the last value of a block ends just before a word does, the next block begins with a new word."""
    for width in range(65):
        for n_values in range(1, 18):
            each = [[2**width - 1] * n_values, [33], [1]]
            dirt = np.full(n_values + 8, 2**64 - 1, np.uint64)
            dirt[0] = position = np.uint64(0)
            for values in each:
                position = np.uint64(streams.kernels.pack_blocks(np.array(values, np.uint64), position, dirt))
            packed = dirt.tobytes()[: int(position) // 8]
            assert packed == b"".join(naive.pack_blocks(values) for values in each)


def test_a_block_of_zeros_is_a_byte_and_one_large_value_does_not_widen_a_block():
    assert len(streams.pack_streams(np.zeros(1280, np.uint64))) == 10
    values = np.full(128, 5, np.uint64)
    values[77] = 2**60
    assert len(streams.pack_streams(values)) == 3 + 128 * 3 // 8 + 9


# --- streams by class


def by_class(values):
    return np.frombuffer(naive.pack_by_class(values), np.uint8)


def take_by_class(reader, n_values):
    """The next stream of a reader, which is by class."""
    values = np.empty(n_values, np.uint64)
    position = unpack_classes(reader.words, reader.position, reader.n_bits, values)
    if position == classes.CORRUPT:
        raise reader.corrupt("values that do not fit their bytes")
    reader.position = np.uint64(position)
    return values


@quick
@given(values=long_lists(st.integers(0, 2**32 - 1)), others=long_lists(UNSIGNED))
def test_streams_by_class(values, others):
    packed = streams.pack_streams(np.array(others, np.uint64)).tobytes() + naive.pack_by_class(values)
    reader = streams.StreamReader(np.frombuffer(packed, np.uint8), "test")
    assert reader.take(len(others)).tolist() == others
    assert take_by_class(reader, len(values)).tolist() == values
    reader.finish()


def test_frequent_classes_have_short_words_and_no_word_is_too_long():
    """Counts like Fibonacci's numbers make Huffman's code as long as it can be."""
    values, few = [], (1, 1)
    for n_bits in range(14):
        values += [2**n_bits - 1] * few[0]
        few = few[1], sum(few)
    packed = by_class(values)
    assert take_by_class(streams.StreamReader(packed, "test"), len(values)).tolist() == values
    for some in ([0] * 800, [1] * 800):
        assert len(by_class(some)) <= 800 // 8 + 2


def test_all_classes():
    values = [2**n_bits - 1 for n_bits in range(33)] + [2**31] * 70
    packed = by_class(values)
    assert take_by_class(streams.StreamReader(packed, "test"), len(values)).tolist() == values


@pytest.mark.parametrize("n_values", [2047, 2048, 2049, 2050, 2051, 2100])
def test_many_are_sent_in_parts(n_values):
    values = [k * k % 1000 << 2 * (k % 11) for k in range(n_values)]
    packed = by_class(values)
    reader = streams.StreamReader(packed, "test")
    assert take_by_class(reader, n_values).tolist() == values
    reader.finish()


def test_parts_end_where_they_are_said_to_end():
    values = [k % 5 for k in range(2048)]
    packed = by_class(values)
    sizes_at = 1 + 2  # behind the number of classes and four lengths
    for part in range(3):
        for size in (0, 1, 2**31, 2**32 - 1):
            wrong = packed.copy()
            wrong[sizes_at + 4 * part : sizes_at + 4 * part + 4] = np.array([size], np.uint32).view(np.uint8)
            with pytest.raises(ProtocolError, match="bytes"):
                take_by_class(streams.StreamReader(wrong, "test"), len(values))
    for size in (sizes_at, sizes_at + 11, sizes_at + 12, len(packed) - 1):
        with pytest.raises(ProtocolError, match="bytes"):
            take_by_class(streams.StreamReader(packed[:size], "test"), len(values))


@pytest.mark.parametrize("module", both_ways(classes))
def test_codes_of_small_values(module):
    lengths, codes = np.zeros(classes.N_CLASSES, np.int64), np.empty(16, np.uint64)
    lengths[:5] = [1, 3, 3, 4, 4]
    module.code_small(lengths, codes)
    words = naive.code_words(dict(enumerate(lengths[:5].tolist())))
    for value, code in enumerate(codes.tolist()):
        k = value.bit_length()
        bits = [(int(bit), 1) for bit in words[k]] + [(value - 2 ** (k - 1), k - 1)] * (k > 0)
        assert (code >> 7).to_bytes(8, "little").rstrip(b"\0") == naive.bits_to_bytes(bits).rstrip(b"\0")
        assert code & 127 == len(words[k]) + max(k - 1, 0)


@pytest.mark.parametrize(
    "packed",
    [
        b"",  # no number of classes
        b"\x22" + b"\x01" * 40,  # 34 classes
        b"\x03\x11",  # lengths that are cut off
        b"\x03\x11\x01\x00\x00",  # three words of one bit
        b"\x01\x0b\x00\x00",  # a word of 11 bits
        b"\x02\x10\xff",  # no word begins with a one
        b"\x02\x00\x00",  # no word at all
        b"\x02\x11\x55",  # fewer bits than values
    ],
)
def test_codes_that_are_none(packed):
    reader = streams.StreamReader(np.frombuffer(packed, np.uint8), "test")
    with pytest.raises(ProtocolError, match="bytes"):
        take_by_class(reader, 9)


@settings(quick, max_examples=200)
@given(packed=st.binary(max_size=40), lengths=st.lists(st.integers(0, 10), max_size=12), n=st.integers(0, 400))
def test_random_streams_by_class_are_refused_or_read(packed, lengths, n):
    head = naive.bits_to_bytes([(len(lengths), 8)] + [(length, 4) for length in lengths])
    for some in (packed, head + packed):
        reader = streams.StreamReader(np.frombuffer(some, np.uint8), "test")
        try:
            assert len(take_by_class(reader, n)) == n
        except ProtocolError as error:
            assert "bytes" in str(error)
        assert reader.position <= reader.n_bits


# --- pairs


@pytest.mark.parametrize("module", both_ways(pairs))
@quick
@given(
    few=st.lists(st.tuples(SIGNED, st.integers(1, BIG - 1)), min_size=1, max_size=9),
    picks=st.lists(st.integers(0, 8), max_size=150),
    n_slots=st.sampled_from([1, 2, 8, 512]),
)
def test_pairs(module, few, picks, n_slots):
    sums = [few[pick % len(few)] for pick in picks]
    n = len(sums)
    grads, hesses = (np.array([both[k] for both in sums], np.int64) for k in (0, 1))
    numbers, counts, keys = np.empty(n, np.uint32), np.empty(n + 1, np.uint32), np.empty(n + 1, np.int64)
    n_pairs = module.number_pairs(grads, hesses, np.zeros(n_slots, np.uint32), numbers, keys, counts)
    assert len(set(sums)) <= n_pairs <= n
    fits = [-(2**31) <= grad < 2**31 and hess < 2**32 for grad, hess in sums]
    slots = [(grad << 32) + hess for grad, hess in sums]
    assert keys[numbers].tolist() == [slot if fit else 0 for slot, fit in zip(slots, fits, strict=True)]
    assert all(fit or numbers.tolist().count(number) == 1 for number, fit in zip(numbers.tolist(), fits, strict=True))
    assert counts[1 : n_pairs + 1].tolist() == [numbers.tolist().count(k + 1) for k in range(n_pairs)]
    marks = naive.rank_pairs(numbers.tolist())
    counts, kinds, ranks = counts[: n_pairs + 1], np.zeros(module.N_KINDS, np.int64), np.empty(n_pairs + 1, np.uint32)
    ranked, of_class = np.empty((2, max(marks, default=0)), np.int64), np.zeros(classes.N_CLASSES, np.int64)
    assert module.rank_pairs(counts, keys, kinds, ranks, *ranked, of_class) == len(ranked[0])
    n_others = marks.count(0)
    assert kinds[1] == n_others
    lengths = [mark.bit_length() for mark in marks]
    assert of_class.tolist() == [lengths.count(length) for length in range(classes.N_CLASSES)]
    others, got = (np.empty(n_others + 1, np.int64), np.empty(n_others + 1, np.int64)), np.array(marks, np.uint64)
    code_bits = [3 + mark for mark in range(len(ranked[0]) + 1)]
    codes = np.array([mark << 7 | n_bits for mark, n_bits in enumerate(code_bits)], np.uint64)
    position, n_marked, words = np.uint64(5), np.uint64(0), np.zeros(n * 20 // 64 + 2, np.uint64)
    for some in (slice(0, n // 2), slice(n // 2, n)):
        bounds = np.uint64(some.start), np.uint64(some.stop)
        position, n_marked = module.mark_pairs(
            grads, hesses, numbers, ranks, codes, *bounds, n_marked, position, words, *others
        )
        assert n_marked == marks[: some.stop].count(0)
    expected = naive.bits_to_bytes([(0, 5), *((mark, code_bits[mark]) for mark in marks)])
    assert words.tobytes()[: len(expected)] == expected
    assert position == 5 + sum(code_bits[mark] for mark in marks)
    sent = [np.concatenate([other[:n_others], own]) for other, own in zip(others, ranked, strict=True)]
    back = np.empty(n, np.int64), np.empty(n, np.int64)
    assert module.join_pairs(got, np.uint64(n_others), *sent, *back)
    assert list(zip(back[0].tolist(), back[1].tolist(), strict=True)) == sums
    repeated = [k for k, mark in enumerate(marks) if mark > 0 and mark in marks[:k]]
    for shift in (0, 3):
        keys |= 8
        codes = naive.fold_signs([sums[k][0] for k in repeated], shift)
        codes += naive.lower_counts([sums[k][1] | 8 for k in repeated], shift)
        n_bits = module.count_saved_bits(counts, ranks, keys, np.uint64(shift), np.uint64(shift))
        assert n_bits == sum(code.bit_length() + 2 * (code > 0) for code in codes)
    if n:
        for wrong in (len(ranked[0]) + 1, 2**64 - 1, 0 if marks[-1] else 1):
            got[-1] = wrong
            assert not module.join_pairs(got, np.uint64(n_others), *sent, *back)


@pytest.mark.parametrize("module", both_ways(pairs))
def test_frequent_pairs_have_low_ranks(module):
    counts = np.array([0, 1, 70, 2, 2**32 - 1, 1, 10**6, 63, 2], np.uint32)
    kinds, ranks = np.zeros(module.N_KINDS, np.int64), np.empty(9, np.uint32)
    keys = (np.arange(0, 18, 2) << 32) + np.arange(1, 18, 2)
    grads, hesses, of_class = np.empty(6, np.int64), np.empty(6, np.int64), np.zeros(classes.N_CLASSES, np.int64)
    assert module.rank_pairs(counts, keys, kinds, ranks, grads, hesses, of_class) == 6
    assert of_class[:5].tolist() == [2, 2**32 - 1, 70 + 10**6, 2 + 63 + 2, 0]
    assert ranks.tolist() == [0, 0, 3, 5, 1, 0, 2, 4, 6]
    assert (grads.tolist(), hesses.tolist()) == ([8, 12, 4, 14, 6, 16], [9, 13, 5, 15, 7, 17])


# --- integers and ids


@quick
@given(values=long_lists(SIGNED))
def test_integers(values):
    packed = packing.pack_integers(np.array(values, np.int64))
    assert packing.unpack_integers(packed, len(values)).tolist() == values


@quick
@given(values=long_lists(SIGNED), shift=st.integers(0, 63))
def test_signs_fold(values, shift):
    values = [value >> shift << shift for value in values]
    codes = streams.fold_signs(np.array(values, np.int64), shift)
    assert codes.tolist() == naive.fold_signs(values, shift)
    assert streams.unfold_signs(codes, shift, None).tolist() == values


@quick
@given(values=long_lists(st.integers(1, BIG - 1)), shift=st.integers(0, 62))
def test_counts_lower(values, shift):
    values = [max(value >> shift, 1) << shift for value in values]
    array, codes = np.array(values, np.int64), np.empty(len(values), np.uint64)
    assert streams.kernels.lower_counts(array, np.uint64(shift), codes)
    assert codes.tolist() == naive.lower_counts(values, shift)
    back = np.empty(len(values), np.int64)
    assert streams.kernels.raise_counts(codes, np.uint64(shift), back)
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


@settings(quick, max_examples=200)
@given(packed=st.binary(max_size=40), n=st.integers(0, 300))
def test_random_bytes_are_refused_or_valid(packed, n):
    packed = np.frombuffer(packed, np.uint8)
    for unpack in (
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
@example(bits=[0, 1, 0, *[1] * 22], padding=0)  # many more runs than zeros are not tried, though they were smaller here
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


def packed_living(flags):
    words = np.zeros(-(-len(flags) // 64), np.uint64)
    bits = np.packbits(np.array(flags, np.uint8), bitorder="little")
    words.view(np.uint8)[: len(bits)] = bits
    return packing.pack_living(words, len(flags))


@settings(quick, max_examples=150)
@given(flags=BITS, mixed=BITS)
def test_living(flags, mixed):
    for case in (flags, [1] * 300 + mixed + [0] * 400):
        packed = packed_living(case)
        bits = np.unpackbits(packing.unpack_living(packed, len(case)).view(np.uint8), bitorder="little")
        assert bits[: len(case)].tolist() == case
        assert len(packed) <= 1 + (len(case) + 7) // 8


def test_living_features_cost_their_mixture():
    rng = np.random.default_rng(1)
    flags = np.concatenate((np.ones(4000), rng.integers(0, 2, 800), np.zeros(20_000))).astype(np.uint8)
    assert len(packed_living(flags)) < 800 // 8 + 10
    assert len(packed_living([1] * 10**5)) <= 5
    assert len(packed_living([0] * 10**5)) <= 5
