"""Knows a prefix code for how long integers are, followed by their bits; does not know messages or frames.

The class of an integer is its number of bits: 0 for 0, else it lies in 2^(class-1) .. 2^class - 1. Integers of one class
are about equally frequent if they are ranks, or gaps. So each is sent as a code word for its class (Huffman's code for the
classes of this stream) and its bits below the highest one. A stream, from a whole byte on, lowest bit first:

    n_classes : 8                     one more than the largest class
    word lengths : n_classes x 4      0: there is no such class
    (code word, low bits) of each value
    zeros up to the next whole byte

Code words are canonical: by length, then by class, counting up from zeros (as in DEFLATE, RFC 1951, section 3.2.2); a
word's first bit is sent first.
"""

import numpy as np

from psboost.kernels.compile import IN, OUT, boolean, inline, int64, kernel, uint64, void
from psboost.kernels.packing import CORRUPT, get_bits, mask_of, put_bits
from psboost.kernels.words import bit_length

N_CLASSES = 65
LONGEST_WORD = 10  # bits; a table of all words has to stay small
N_WORDS = 1 << LONGEST_WORD

_0, _1, _4, _5, _6, _7, _8, _15, _64 = (np.uint64(k) for k in (0, 1, 4, 5, 6, 7, 8, 15, 64))
_ALL = np.uint64(2**64 - 1)


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


@inline
def _meaning(length, width):
    """How many bits a value of the class takes : 7, whether its highest bit is 1 : 1, its word's length : 4."""
    highest = np.uint64(length != _0)
    return (length - highest + width) << _5 | highest << _4 | width


@kernel(void(IN[uint64], OUT[int64]))
def count_classes(values, counts):
    """`counts` (OUT, zeros, N_CLASSES): how many of `values` are of each class."""
    for k in range(np.uint64(len(values))):
        counts[np.uint64(bit_length(values[k]))] += 1


@kernel(int64(IN[int64], OUT[int64]))
def measure_classes(counts, lengths):
    """The bits of the stream that pack_classes makes of values of so many of each class; `lengths` (OUT, N_CLASSES) of the
    code words."""
    find_lengths(counts, lengths)
    n_bits, n_classes = np.int64(0), np.int64(0)
    for i in range(N_CLASSES):
        if counts[i] > 0:
            n_bits += counts[i] * (lengths[i] + max(i - 1, 0))
            n_classes = i + 1
    return (8 + 4 * n_classes + n_bits + 7) & ~7


@kernel(uint64(IN[uint64], IN[int64], uint64, OUT[uint64]))
def pack_classes(values, lengths, position, words):
    """The position after `values`, packed into `words` (OUT) from `position` on, which is a whole byte.

    `lengths` and the bits that are written are measure_classes'. The word at `position` must hold zeros from there on,
    and the word after the last one is cleared.
    """
    n_classes = N_CLASSES
    while n_classes > 0 and lengths[n_classes - 1] == 0:
        n_classes -= 1
    codes, widths = np.zeros(N_CLASSES, np.uint64), np.empty(N_CLASSES, np.uint64)
    find_words(lengths, codes)
    held = words[position >> _6]
    position, held = put_bits(words, position, held, np.uint64(n_classes), _8)
    for i in range(n_classes):
        widths[i] = np.uint64(lengths[i])
        position, held = put_bits(words, position, held, widths[i], _4)
    for k in range(np.uint64(len(values))):
        value = values[k]
        length = np.uint64(bit_length(value))
        n_low = length - np.uint64(length != _0)
        low = value & mask_of(n_low)
        width = widths[length]
        if n_low + width <= _64:
            position, held = put_bits(words, position, held, low << width | codes[length], n_low + width)
        else:
            position, held = put_bits(words, position, held, codes[length], width)
            position, held = put_bits(words, position, held, low, n_low)
    position, held = put_bits(words, position, held, _0, (~position + _1) & _7)
    words[position >> _6] = held
    return position


@kernel(uint64(IN[uint64], uint64, uint64, OUT[uint64]))
def unpack_classes(words, position, end_position, values):
    """The position after the stream from `position` on that fills `values` (OUT); CORRUPT if it does not fit.

    `words` holds end_position bits and at least one word more.
    """
    if position + _8 > end_position:
        return CORRUPT
    n_classes = get_bits(words, position, np.uint64(255))
    position += _8
    if n_classes > np.uint64(N_CLASSES) or n_classes * _4 > end_position - position:
        return CORRUPT
    lengths, codes = np.zeros(N_CLASSES, np.int64), np.zeros(N_CLASSES, np.uint64)
    for i in range(n_classes):
        lengths[i] = get_bits(words, position, _15)
        if lengths[i] > LONGEST_WORD:
            return CORRUPT
        position += _4
    if not find_words(lengths, codes):
        return CORRUPT
    meanings = np.zeros(N_WORDS, np.uint16)  # of the next bits, see _meaning; 0 where no word begins so
    for i in range(n_classes):
        width = np.uint64(lengths[i])
        if width > _0:
            meaning = _meaning(np.uint64(i), width)
            for following in range(codes[i], np.uint64(N_WORDS), _1 << width):
                meanings[following] = meaning
    for k in range(np.uint64(len(values))):
        bits = get_bits(words, position, _ALL)
        meaning = np.uint64(meanings[bits & np.uint64(N_WORDS - 1)])
        next_position = position + (meaning >> _5)
        if next_position > end_position or meaning == _0:
            return CORRUPT
        n_bits, width = meaning >> _5, meaning & _15
        n_low = n_bits - width
        low = bits >> width if n_bits <= _64 else get_bits(words, position + width, _ALL)
        values[k] = low & mask_of(n_low) | (meaning >> _4 & _1) << n_low
        position = next_position
    position = (position + _7) & ~_7
    return position if position <= end_position else CORRUPT
