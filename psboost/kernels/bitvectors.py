"""Knows which bits of a bitvector are worth telling, and how their places are packed; does not know messages.

A mark is a bit that is 0, or (runs) one that differs from the bit before it, 1 before the first. Marks are packed as two
streams (kernels.packing): how many there are, and how many bits lie before each one.
"""

import numpy as np

from psboost.kernels.compile import IN, OUT, boolean, inline, int64, kernel, uint64, void
from psboost.kernels.packing import BLOCK, CORRUPT, pack_block, unpack_blocks
from psboost.kernels.words import bit_length, count_ones, list_ones, lowest_one

_0, _1, _3, _6, _63, _64 = (np.uint64(k) for k in (0, 1, 3, 6, 63, 64))
_ALL = np.uint64(2**64 - 1)


@inline
def _marks_of(words, i, n_bits, runs, before):
    """The marks of word i, and its last bit."""
    n_left = np.uint64(n_bits) - _64 * np.uint64(i)
    inside = _ALL if n_left >= _64 else ~(_ALL << n_left)
    word = words[i]
    return (word ^ (word << _1 | before) if runs else ~word) & inside, word >> _63


@kernel(void(IN[uint64], int64, OUT[int64]))
def count_marks(words, n_bits, counts):
    """counts[0], counts[1] (OUT): marks of the first n_bits bits, the bits that are 0 and those that begin a run."""
    for runs in range(2):
        n_marks, before = _0, _1
        for i in range((n_bits + 63) >> 6):
            marks, before = _marks_of(words, i, n_bits, runs == 1, before)
            n_marks += count_ones(marks)
        counts[runs] = n_marks


@kernel(int64(IN[uint64], int64, boolean, int64, OUT[uint64]))
def pack_marks(words, n_bits, runs, n_marks, packed):
    """The number of bytes of the n_marks marks' two streams in `packed` (OUT; as large as pack_blocks says, from 0 on)."""
    lengths, block, places = np.empty(BLOCK, np.uint8), np.empty(BLOCK, np.uint64), np.empty(n_marks + 4, np.uint64)
    at, before = _0, _1
    for i in range((n_bits + 63) >> 6):
        marks, before = _marks_of(words, i, n_bits, runs, before)
        at = list_ones(marks, _64 * np.uint64(i), at, len(places), places)
    packed[0], block[0] = _0, np.uint64(n_marks)
    position, following = pack_block(block, _1, lengths, _0, packed), _0
    for first in range(_0, np.uint64(n_marks), np.uint64(BLOCK)):
        n_held = min(np.uint64(BLOCK), np.uint64(n_marks) - first)
        for k in range(n_held):
            place = places[first + k]
            block[k] = place - following
            following = place + _1
        position = pack_block(block, n_held, lengths, position, packed)
    return np.int64(position >> _3)


@kernel(boolean(IN[uint64], uint64, int64, boolean, OUT[uint64]))
def unpack_marks(packed, end_position, n_bits, runs, words):
    """Whether `packed`, end_position bits and a word more, is what pack_marks writes; `words` (OUT, as many as n_bits take)
    are the bits then, those after the last one 1."""
    first = np.empty(1, np.uint64)
    position = unpack_blocks(packed, _0, end_position, first)
    if position == CORRUPT or first[0] > np.uint64(BLOCK) * (end_position >> _3):  # a block is a byte at least
        return False
    gaps = np.empty(np.int64(first[0]), np.uint64)
    if unpack_blocks(packed, position, end_position, gaps) != end_position:
        return False
    words[:] = _0
    lowest, limit = _0, np.uint64(n_bits)
    for k in range(len(gaps)):
        if gaps[k] >= limit - lowest:
            return False
        place = lowest + gaps[k]
        words[place >> _6] |= _1 << (place & _63)
        lowest = place + _1
    odd = _0  # all ones if the bit before is 0
    for i in range(len(words)):
        word = words[i]
        if runs:  # a bit is 0 after an odd number of marks up to and with its own
            for shift in (1, 2, 4, 8, 16, 32):
                word ^= word << np.uint64(shift)
            word ^= odd
            odd = _0 - (word >> _63)
        words[i] = ~word
    if n_bits & 63:
        words[len(words) - 1] |= _ALL << np.uint64(n_bits & 63)
    return True


@kernel(void(IN[uint64], int64, OUT[int64]))
def find_mixture(words, n_bits, bounds):
    """bounds[0], bounds[1] (OUT): the first of n_bits bits that is 0, or n_bits; and, from there on, behind the last that is
    1. Bits after n_bits are 0."""
    first, last = np.uint64(n_bits), _0
    for i in range(len(words)):
        if words[i] != _ALL:
            first = min(first, _64 * np.uint64(i) + lowest_one(~words[i]))
            break
    for i in range(len(words) - 1, -1, -1):
        if words[i] != _0:
            last = _64 * np.uint64(i) + bit_length(words[i])
            break
    bounds[0], bounds[1] = first, max(first, last)


@kernel(void(IN[uint64], int64, int64, OUT[uint64]))
def take_bits(words, begin, n_bits, taken):
    """taken (OUT, as many words as n_bits take): the bits from `begin` on, then 0."""
    first, shift = begin >> 6, np.uint64(begin) & _63
    for i in range(len(taken)):
        word = words[first + i] >> shift
        if shift != _0 and first + i + 1 < len(words):
            word |= words[first + i + 1] << (_64 - shift)
        n_left = np.uint64(n_bits) - _64 * np.uint64(i)
        taken[i] = word & ~(_ALL << n_left) if n_left < _64 else word


@kernel(void(IN[uint64], int64, OUT[uint64]))
def place_bits(bits, begin, words):
    """words (OUT): 1 below `begin`, then the bits, then 0."""
    first, shift = begin >> 6, np.uint64(begin) & _63
    words[:] = _0
    words[:first] = _ALL
    if shift != _0:
        words[first] = ~(_ALL << shift)
    for i in range(len(bits)):
        if bits[i] != _0:
            words[first + i] |= bits[i] << shift
            if shift != _0 and bits[i] >> (_64 - shift) != _0:
                words[first + i + 1] |= bits[i] >> (_64 - shift)
