"""Knows a prefix code for how long integers are, followed by their bits; does not know messages or frames.

The class of an integer is its number of bits: 0 for 0, else it lies in 2^(class-1) .. 2^class - 1. Integers of one class
are about equally frequent if they are ranks, or gaps. So each is sent as a code word for its class (Huffman's code for the
classes of this stream) and its bits below the highest one. A stream, from a whole byte on, lowest bit first:

    n_classes : 8                     one more than the largest class
    word lengths : n_classes x 4      0: there is no such class
    zeros up to the next whole byte
    sizes : (N_PARTS - 1) x 32        of all parts but the last, in bytes; only of LEAST_IN_PARTS values or more
    one part or N_PARTS: (code word, low bits) of each value; zeros up to the next whole byte

Where a value begins is known when the one before it was read, and to wait for that is most of reading: so the values of
parts, which are as many in each but the last, are read side by side.

Code words are canonical: by length, then by class, counting up from zeros (as in DEFLATE, RFC 1951, section 3.2.2); a
word's first bit is sent first.
"""

import numpy as np

from psboost.kernels.compile import IN, OUT, boolean, inline, int64, kernel, uint8, uint32, uint64, void
from psboost.kernels.packing import CORRUPT, get_bits, mask_of, put_bits
from psboost.kernels.prefetch import load_word
from psboost.kernels.words import bit_length

N_CLASSES = 33  # of values below 2^32
LONGEST_WORD = 10  # bits; a table of all words has to stay small
N_WORDS = 1 << LONGEST_WORD
N_PARTS, LEAST_IN_PARTS = 4, 2048

_0, _1, _2, _3, _4, _6, _7, _8, _15, _16, _24, _32, _63, _255 = (
    np.uint64(k) for k in (0, 1, 2, 3, 4, 6, 7, 8, 15, 16, 24, 32, 63, 255)
)
_SIZES_BITS = np.uint64(32 * (N_PARTS - 1))


@kernel(void(IN[int64], OUT[int64]))
def find_lengths(counts, lengths):
    """`lengths` (OUT) of Huffman's code for `counts` (int64, N_CLASSES each); 1 if there is one class only, 0 for none.

    While a word is too long, all counts are halved, rounded up. Of nodes with the same weight the first are joined first.
    """
    weights, parents = np.empty(2 * N_CLASSES, np.int64), np.empty(2 * N_CLASSES, np.int64)
    halvings, longest = np.int64(0), LONGEST_WORD + 1
    while longest > LONGEST_WORD:
        n_alone = 0
        for i in range(N_CLASSES):
            weights[i] = (counts[i] + (np.int64(1) << halvings) - 1) >> halvings
            parents[i] = 0
            n_alone += weights[i] > 0
        n_nodes = N_CLASSES
        while n_alone > 1:
            first, second = -1, -1
            for i in range(n_nodes):
                if weights[i] > 0:
                    if first < 0 or weights[i] < weights[first]:
                        first, second = i, first
                    elif second < 0 or weights[i] < weights[second]:
                        second = i
            weights[n_nodes], parents[n_nodes] = weights[first] + weights[second], 0
            for i in (first, second):
                weights[i], parents[i] = 0, n_nodes
            n_nodes += 1
            n_alone -= 1
        weights[n_nodes - 1] = 0  # from here on a node's depth
        longest = 0
        for i in range(n_nodes - 2, -1, -1):
            weights[i] = weights[parents[i]] + 1 if parents[i] > 0 else 0
            longest = max(longest, weights[i])
        halvings += 1
    for i in range(N_CLASSES):
        lengths[i] = max(weights[i], np.int64(counts[i] > 0))


@kernel(boolean(IN[int64], OUT[uint64]))
def find_words(lengths, words):
    """True if there are words of these lengths, none of which another begins with; `words` (OUT): first bit lowest."""
    following = 0
    for length in range(1, LONGEST_WORD + 1):
        following <<= 1
        for i in range(N_CLASSES):
            if lengths[i] == length:
                word, rest = 0, following
                for _ in range(length):
                    word, rest = word << 1 | rest & 1, rest >> 1
                words[i] = word
                following += 1
        if following > 1 << length:
            return False
    return True


@kernel(int64(IN[int64], OUT[int64]))
def measure_classes(counts, lengths):
    """How many bits the stream of values of so many of each class takes at most; `lengths` (OUT, N_CLASSES) of the code
    words."""
    find_lengths(counts, lengths)
    n_bits, n_classes = np.int64(0), np.int64(0)
    for i in range(N_CLASSES):
        if counts[i] > 0:
            n_bits += counts[i] * (lengths[i] + max(i - 1, 0))
            n_classes = i + 1
    return 16 + 4 * n_classes + n_bits + N_PARTS * (32 + 8)


@inline
def n_parts_of(n_values):
    return N_PARTS if n_values >= LEAST_IN_PARTS else 1


@inline
def part_of(part, n_values):
    """The values begin .. end of a part."""
    n_parts = n_parts_of(n_values)
    n_each = (n_values + n_parts - 1) // n_parts
    return np.uint64(part * n_each), np.uint64(min((part + 1) * n_each, n_values))


@kernel(uint64(IN[int64], int64, uint64, OUT[uint64]))
def pack_lengths(lengths, n_values, position, words):
    """Begins a stream of n_values at `position`, a whole byte, of `words` (OUT); returns where its parts begin.

    The word at `position` must hold zeros from there on, and so does the one where the parts begin.
    """
    n_classes = N_CLASSES
    while n_classes > 0 and lengths[n_classes - 1] == 0:
        n_classes -= 1
    held = words[position >> _6]
    position, held = put_bits(words, position, held, np.uint64(n_classes), _8)
    for i in range(n_classes):
        position, held = put_bits(words, position, held, np.uint64(lengths[i]), _4)
    position, held = put_bits(words, position, held, _0, (~position + _1) & _7)
    for _ in range(n_parts_of(n_values) - 1):
        position, held = put_bits(words, position, held, _0, _32)
    words[position >> _6] = held
    return position


@kernel(uint64(int64, int64, uint64, uint64, uint64, OUT[uint64]))
def end_part(part, n_values, first, begin, position, words):
    """Fills up a part's last byte and notes its size; returns where the next one begins.

    first  where the stream's parts begin; this one takes begin .. position
    """
    position, held = put_bits(words, position, words[position >> _6], _0, (~position + _1) & _7)
    words[position >> _6] = held
    if part < n_parts_of(n_values) - 1:
        at, size = (first - _SIZES_BITS >> _3) + _4 * np.uint64(part), position - begin >> _3
        for i in range(_4):
            words.view(np.uint8)[at + i] = size >> _8 * i & _255
    return position


@kernel(void(IN[int64], OUT[uint64]))
def code_small(lengths, codes):
    """codes[value] (OUT) of values below 2^31: how many bits its code word and low bits are : 7, and these."""
    words = np.zeros(N_CLASSES, np.uint64)
    find_words(lengths, words)
    for k in range(np.uint64(len(codes))):
        length = bit_length(k)
        width, n_low = np.uint64(lengths[length]), length - np.uint64(length != _0)
        codes[k] = (words[length] | (k & mask_of(n_low)) << width) << _7 | (n_low + width)


@inline
def put_code(words, position, held, code):
    """put_bits of one of code_small's."""
    return put_bits(words, position, held, code >> _7, code & np.uint64(127))


@inline
def _meaning(length, width):
    """Of a value of this class: its low bits : 8, these and its word's : 8, its word's : 8, whether its highest bit is 1."""
    highest = np.uint64(length != _0)
    n_low = length - highest
    return n_low | (n_low + width) << _8 | width << _16 | highest << _24


@inline
def _value(meaning, low):
    n_low = meaning & _63
    return low & ((_1 << n_low) - _1) | meaning >> _24 << n_low


@inline
def _next_value(held, meanings, position):
    """A value, which with its word has 41 bits at most, as are surely there in eight bytes of `held` from a whole one on;
    where the one after it begins; and its meaning, 0 if no word begins so."""
    bits = load_word(held, position >> _3) >> (position & _7)
    meaning = np.uint64(meanings[bits & np.uint64(N_WORDS - 1)])
    return _value(meaning, bits >> (meaning >> _16 & _63)), position + (meaning >> _8 & _255), meaning


@inline
def _unpack_part(held, meanings, position, end_position, begin, end, values):
    """values[begin:end] (OUT) from `position` on; returns the position after them, CORRUPT if that is past end_position."""
    for k in range(begin, end):
        values[k], position, meaning = _next_value(held, meanings, position)
        if position > end_position or meaning == _0:
            return CORRUPT
    return position


@kernel(boolean(IN[uint8], IN[uint32], OUT[uint64], IN[uint64], uint64, OUT[uint64]))
def _unpack_together(held, meanings, positions, ends, n, values):
    """The first n values of each part, from `positions` on, which are moved on (OUT); whether they fit."""
    n_each, _ = part_of(1, len(values))
    p0, p1, p2, p3 = positions[0], positions[1], positions[2], positions[3]
    e0, e1, e2, e3 = ends[0], ends[1], ends[2], ends[3]
    for k in range(n):
        values[k], p0, m0 = _next_value(held, meanings, p0)
        values[n_each + k], p1, m1 = _next_value(held, meanings, p1)
        values[_2 * n_each + k], p2, m2 = _next_value(held, meanings, p2)
        values[_3 * n_each + k], p3, m3 = _next_value(held, meanings, p3)
        if (p0 > e0) | (p1 > e1) | (p2 > e2) | (p3 > e3) | (min(min(m0, m1), min(m2, m3)) == _0):
            return False
    positions[0], positions[1], positions[2], positions[3] = p0, p1, p2, p3
    return True


@kernel(uint64(IN[uint64], uint64, uint64, OUT[uint64]))
def unpack_classes(words, position, end_position, values):
    """The position after the stream from `position` on that fills `values` (OUT); CORRUPT if it does not fit.

    `words` holds end_position bits and at least one word more.
    """
    if position + _8 > end_position:
        return CORRUPT
    n_classes = get_bits(words, position, _255)
    position += _8
    if n_classes > np.uint64(N_CLASSES) or n_classes * _4 > end_position - position:
        return CORRUPT
    lengths, codes = np.zeros(N_CLASSES, np.int64), np.zeros(N_CLASSES, np.uint64)
    for i in range(n_classes):
        lengths[i] = get_bits(words, position, _15)
        if lengths[i] > LONGEST_WORD:
            return CORRUPT
        position += _4
    position = (position + _7) & ~_7
    if position > end_position or not find_words(lengths, codes):
        return CORRUPT
    meanings = np.zeros(N_WORDS, np.uint32)  # of the next bits, see _meaning; 0 where no word begins so
    for i in range(n_classes):
        width = np.uint64(lengths[i])
        if width > _0:
            meaning = _meaning(np.uint64(i), width)
            for following in range(codes[i], np.uint64(N_WORDS), _1 << width):
                meanings[following] = meaning
    held, n_values, n_together = words.view(np.uint8), len(values), _0
    positions, ends = np.empty(N_PARTS, np.uint64), np.empty(N_PARTS, np.uint64)
    positions[0], ends[0] = position, end_position
    n_parts = n_parts_of(n_values)
    if n_parts > 1:
        if end_position - position < _SIZES_BITS:
            return CORRUPT
        positions[0] += _SIZES_BITS
        for part in range(1, N_PARTS):
            size = get_bits(words, position, mask_of(_32))
            ends[part - 1] = positions[part] = positions[part - 1] + (size << _3)
            position += _32
        ends[-1] = end_position
        if positions[-1] > end_position:
            return CORRUPT
        begin, end = part_of(N_PARTS - 1, n_values)
        n_together = end - begin
        if not _unpack_together(held, meanings, positions, ends, n_together, values):
            return CORRUPT
    for part in range(n_parts):
        begin, end = part_of(part, n_values)
        position = _unpack_part(held, meanings, positions[part], ends[part], begin + n_together, end, values)
        position = (position + _7) & ~_7 if position != CORRUPT else CORRUPT
        if position > ends[part] or (position < ends[part] < end_position):
            return CORRUPT
    return position
