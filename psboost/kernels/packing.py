"""Knows how integers, bits and matrix rows are laid out to save bytes; does not know messages or frames.

Bits are written into uint64 words, the lowest bit first; a position counts bits. On a little-endian machine
the words are the bytes to send. A packed stream is a row of blocks of 128 values (the last one may be
shorter), and each block begins at a whole byte:

    width | 128 if patched : 8     the low `width` bits of every value are in `low bits`
    n_patches : 8, patch_width : 8            only if patched
    low bits : n_values x width
    patches : n_patches x (7 + patch_width)   place in the block, and the bits above the low ones
    zeros up to the next whole byte

So a few large values do not widen a block (patched frame of reference; Zukowski et al., "Super-Scalar RAM-CPU
Cache Compression", 2006), and a block of zeros costs one byte.

Kernels that read what came over the wire check every length, so that no input makes them leave their arrays.
"""

import numpy as np

from psboost.kernels.compile import IN, OUT, boolean, inline, int32, int64, kernel, uint8, uint64, void
from psboost.kernels.prefetch import load_word
from psboost.kernels.words import are_above, bit_length, count_ones, lowest_one

BLOCK = 128
PLACE_BITS = 7  # a place in a block
PATCH_HEADER_BITS = 16
CORRUPT = np.uint64(2**64 - 1)  # returned in place of a position

_0, _1, _3, _6, _7, _8, _16, _24, _57, _63, _64, _127, _128 = (
    np.uint64(k) for k in (0, 1, 3, 6, 7, 8, 16, 24, 57, 63, 64, 127, 128)
)
_ALL = np.uint64(2**64 - 1)


@inline
def put_bits(words, position, held, value, n_bits):
    """Writes `value`, which has n_bits bits; returns the next position and what its word holds until there.

    Whoever puts the first bits loads that word, and whoever puts the last ones stores it: a word is not read again.
    """
    word = position >> _6
    shift = position & _63
    held |= value << shift
    words[word] = held
    position += n_bits
    return position, held if position >> _6 == word else value >> _1 >> (_63 - shift)


@inline
def get_bits(words, position, mask):
    word = position >> _6
    shift = position & _63
    return (words[word] >> shift | words[word + _1] << _1 << (_63 - shift)) & mask


@inline
def mask_of(n_bits):
    return _0 if n_bits == _0 else _ALL >> (_64 - n_bits)


@inline
def _put_low_bits(values, n_values, mask, width, n_at_once, words, position, held):
    """Puts the low `width` bits of n_values values, as many at once as 64 bits hold (n_at_once: a constant)."""
    k = _0
    while k + np.uint64(n_at_once) <= n_values:
        several = values[k] & mask
        for i in range(1, n_at_once):
            several |= (values[k + np.uint64(i)] & mask) << width * np.uint64(i)
        position, held = put_bits(words, position, held, several, width * np.uint64(n_at_once))
        k += np.uint64(n_at_once)
    while k < n_values:
        position, held = put_bits(words, position, held, values[k] & mask, width)
        k += _1
    return position, held


@kernel(uint64(IN[uint64], uint64, OUT[uint8], uint64, OUT[uint64]))
def pack_block(values, n_values, lengths, position, words):
    """pack_blocks of one block, of the first n_values values. `lengths` (OUT) has BLOCK elements."""
    bits = _0
    for k in range(n_values):
        lengths[k] = bit_length(values[k])
        bits |= values[k]
    for k in range(n_values, np.uint64(BLOCK)):
        lengths[k] = 0
    n, widest, n_patches = np.int64(n_values), np.int64(bit_length(bits)), np.int64(0)
    width, best, patched, patched_above = widest, widest * n, _0, _0  # the patched ones by place: two words
    for candidate in range(widest - 1, -1, -1):
        below, above = are_above(lengths, np.uint64(candidate))
        n_above = np.int64(count_ones(below) + count_ones(above))
        cost = candidate * n + n_above * (PLACE_BITS + widest - candidate) + PATCH_HEADER_BITS
        if cost < best:
            best, width, n_patches, patched, patched_above = cost, candidate, n_above, below, above
    low_width, patch_width = np.uint64(width), np.uint64(widest - width)
    mask, held = mask_of(low_width), words[position >> _6]
    if n_patches == 0:
        position, held = put_bits(words, position, held, low_width, _8)
    else:
        header = low_width | _128 | np.uint64(n_patches) << _8 | patch_width << _16
        position, held = put_bits(words, position, held, header, _24)
    if width > 32:
        position, held = _put_low_bits(values, n_values, mask, low_width, 1, words, position, held)
    elif width > 16:
        position, held = _put_low_bits(values, n_values, mask, low_width, 2, words, position, held)
    elif width > 8:
        position, held = _put_low_bits(values, n_values, mask, low_width, 4, words, position, held)
    elif width > 0:
        position, held = _put_low_bits(values, n_values, mask, low_width, 8, words, position, held)
    first = _0
    for _ in range(n_patches):
        if patched == _0:
            patched, first = patched_above, _64
        k = first + lowest_one(patched)
        patched &= patched - _1
        position, held = put_bits(words, position, held, k, _7)
        position, held = put_bits(words, position, held, values[k] >> low_width, patch_width)
    position, held = put_bits(words, position, held, _0, (~position + _1) & _7)
    words[position >> _6] = held
    return position


@kernel(uint64(IN[uint64], uint64, OUT[uint64]))
def pack_blocks(values, position, words):
    """The position after `values`, packed into `words` (OUT) from `position` on, which is a whole byte.

    The word at `position` must hold zeros from there on. At most 32 bits a block and 71 bits a value are
    written, and the word after the last one is cleared.
    """
    lengths = np.empty(BLOCK, np.uint8)
    for begin in range(0, len(values), BLOCK):
        some = values[begin : begin + BLOCK]
        position = pack_block(some, np.uint64(len(some)), lengths, position, words)
    return position


@kernel(uint64(IN[uint64], uint64, uint64, OUT[uint64]))
def unpack_blocks(words, position, end_position, values):
    """The position after the blocks from `position` on that fill `values` (OUT); CORRUPT if they do not fit.

    `words` holds end_position bits and at least one word more.
    """
    held = words.view(np.uint8)
    for begin in range(0, len(values), BLOCK):
        end = min(begin + BLOCK, len(values))
        n_values = np.uint64(end - begin)
        if position + _8 > end_position:
            return CORRUPT
        header = get_bits(words, position, np.uint64(255))
        position += _8
        width = header & _127
        n_patches = _0
        patch_width = _0
        if header >= _128:
            if position + _8 + _8 > end_position:
                return CORRUPT
            n_patches = get_bits(words, position, np.uint64(255))
            patch_width = get_bits(words, position + _8, np.uint64(255))
            position += _8 + _8
            if n_patches == _0 or n_patches > n_values or patch_width == _0 or patch_width > _64:
                return CORRUPT
        n_bits = n_values * width + n_patches * (_7 + patch_width)
        if width + patch_width > _64 or n_bits > end_position - position:
            return CORRUPT
        if width == _0:
            values[begin:end] = _0
        else:
            mask = mask_of(width)
            if width <= _57:  # in eight bytes from a whole one on
                for k in range(np.uint64(begin), np.uint64(end)):
                    values[k] = load_word(held, position >> _3) >> (position & _7) & mask
                    position += width
            else:
                for k in range(np.uint64(begin), np.uint64(end)):
                    values[k] = get_bits(words, position, mask)
                    position += width
        for _ in range(n_patches):
            place = get_bits(words, position, _127)
            if place >= n_values:
                return CORRUPT
            position += _7
            values[begin + np.int64(place)] |= get_bits(words, position, mask_of(patch_width)) << width
            position += patch_width
        position = (position + _7) & ~_7
        if position > end_position:
            return CORRUPT
    return position


# --- ascending ids


_IDS = (int32, int64)


@kernel([uint64(IN[int64], IN[ids], uint64, OUT[uint64]) for ids in _IDS])
def pack_gaps(offsets, ids, position, words):
    """pack_blocks of how many ids are left out before each; CORRUPT if the ids of a group offsets[i] .. offsets[i+1] do not
    ascend, from 0 or above."""
    lengths, block, n = np.empty(BLOCK, np.uint8), np.empty(BLOCK, np.uint64), _0
    ascends = True
    for i in range(len(offsets) - 1):
        k, end = np.uint64(offsets[i]), np.uint64(offsets[i + 1])
        previous = np.int64(-1)
        while k < end:
            n_more = min(np.uint64(BLOCK) - n, end - k)
            block[n] = np.uint64(np.int64(ids[k]) - 1 - previous)  # in this order it cannot overflow
            ascends &= np.int64(ids[k]) > previous
            for j in range(_1, n_more):
                here, before = np.int64(ids[k + j]), np.int64(ids[k + j - _1])
                block[n + j] = np.uint64(here - 1 - before)
                ascends &= here > before
            n, k = n + n_more, k + n_more
            previous = np.int64(ids[k - _1])
            if n == np.uint64(BLOCK):
                position, n = pack_block(block, n, lengths, position, words), _0
        if not ascends:
            return CORRUPT
    return pack_block(block, n, lengths, position, words) if n > _0 else position


@kernel([boolean(IN[int64], IN[uint64], uint64, OUT[ids]) for ids in _IDS])
def add_gaps(offsets, gaps, limit, ids):
    """True if the ids that skip `gaps` (pack_gaps) are all below `limit`; they are written to `ids` (OUT)."""
    for i in range(len(offsets) - 1):
        lowest = _0
        for k in range(np.uint64(offsets[i]), np.uint64(offsets[i + 1])):
            if gaps[k] >= limit - lowest:
                return False
            here = lowest + gaps[k]
            ids[k] = here
            lowest = here + _1
    return True


# --- sums


@kernel(void(IN[int64], uint64, OUT[uint64]))
def fold_signs(values, shift, codes):
    """`codes` (OUT): 0, -1, 1, -2, ... become 0, 1, 2, 3, ...

    First the `shift` low bits are cut, which are zero in all values.
    """
    for k in range(np.uint64(len(values))):
        value = values[k] >> np.int64(shift)
        codes[k] = np.uint64((value << np.int64(1)) ^ (value >> np.int64(63)))


@kernel(boolean(IN[uint64], uint64, OUT[int64]))
def unfold_signs(codes, shift, values):
    """True if every value fits 64 bits; `values` (OUT): the inverse of fold_signs."""
    excess = ~mask_of(_64 - shift)
    fits = True
    for k in range(np.uint64(len(codes))):
        code = codes[k]
        fits &= code & excess == _0
        magnitude = np.int64(code >> _1)
        values[k] = (magnitude ^ -np.int64(code & _1)) << np.int64(shift)
    return fits


@kernel(boolean(IN[int64], uint64, OUT[uint64]))
def lower_counts(values, shift, codes):
    """True if all values are above 0; `codes` (OUT): what they have above 1, less `shift` low zero bits."""
    least = np.int64(1)
    for k in range(np.uint64(len(values))):
        value = values[k]
        least = min(least, value)
        codes[k] = np.uint64((value >> np.int64(shift)) - np.int64(1))
    return least > 0


@kernel(uint64(IN[int64], uint64, boolean, uint64, OUT[uint64]))
def pack_sums(values, shift, signed, position, words):
    """fold_signs or, of values that are all above 0, lower_counts; then pack_blocks."""
    lengths, block = np.empty(BLOCK, np.uint8), np.empty(BLOCK, np.uint64)
    for begin in range(0, len(values), BLOCK):
        some = values[begin : begin + BLOCK]
        if signed:
            fold_signs(some, shift, block)
        else:
            lower_counts(some, shift, block)
        position = pack_block(block, np.uint64(len(some)), lengths, position, words)
    return position


@kernel(boolean(IN[uint64], uint64, OUT[int64]))
def raise_counts(codes, shift, values):
    """True if every value fits 63 bits; `values` (OUT): the inverse of lower_counts."""
    limit = (_ALL >> _1) >> shift
    fits = True
    for k in range(np.uint64(len(codes))):
        code = codes[k]
        fits &= code < limit
        values[k] = np.int64(((code & (_ALL >> _1)) + _1) << shift & (_ALL >> _1))
    return fits


# --- matrix rows: one for each (node, feature) with entries; a column is a bin's number in its feature


@kernel(seldom=[int64(IN[int64], IN[int32], IN[int32], OUT[int32], OUT[int32], OUT[int32], OUT[int32])])
def split_features(offsets, bins, bin_offsets, node_rows, features, row_pointers, columns):
    """The number of matrix rows; the bins of feature f are bin_offsets[f] .. bin_offsets[f+1].

    OUT: the rows of node i are node_rows[i] .. node_rows[i+1]; row j is of features[j] and has the entries
    row_pointers[j] .. row_pointers[j+1]; one column for each entry.
    """
    n_rows = 0
    node_rows[0] = 0
    row_pointers[0] = 0
    for i in range(len(offsets) - 1):
        begin, end = 0, 0  # the bins of the feature at hand
        feature = 0
        for k in range(offsets[i], offsets[i + 1]):
            if bins[k] >= end:
                # the last feature that begins at or before the bin
                above = len(bin_offsets)
                while above - feature > 1:
                    middle = (feature + above) >> 1
                    if bin_offsets[middle] <= bins[k]:
                        feature = middle
                    else:
                        above = middle
                begin, end = bin_offsets[feature], bin_offsets[feature + 1]
                features[n_rows] = feature
                n_rows += 1
            columns[k] = bins[k] - begin
            row_pointers[n_rows] = k + 1
        node_rows[i + 1] = n_rows
    return n_rows


@kernel(seldom=[boolean(IN[int32], IN[int32], IN[int32], IN[int32], IN[int32], OUT[int64], OUT[int32])])
def join_features(node_rows, features, row_pointers, columns, bin_offsets, offsets, bins):
    """True if split_features writes such a matrix; `offsets` and `bins` (OUT) are what it was made of."""
    n_features = len(bin_offsets) - 1
    n_rows, n_entries = len(features), len(columns)
    if node_rows[0] != 0 or node_rows[-1] != n_rows or row_pointers[0] != 0 or row_pointers[-1] != n_entries:
        return False
    for j in range(n_rows):
        if row_pointers[j] >= row_pointers[j + 1] or row_pointers[j + 1] > n_entries:
            return False
    offsets[0] = 0
    for i in range(len(node_rows) - 1):
        if node_rows[i] > node_rows[i + 1] or node_rows[i + 1] > n_rows:
            return False
        last_feature = -1
        for j in range(node_rows[i], node_rows[i + 1]):
            feature = features[j]
            if feature <= last_feature or feature >= n_features:
                return False
            last_feature = feature
            begin, end = bin_offsets[feature], bin_offsets[feature + 1]
            last_column = -1
            for k in range(row_pointers[j], row_pointers[j + 1]):
                if columns[k] <= last_column or columns[k] >= end - begin:
                    return False
                last_column = columns[k]
                bins[k] = begin + last_column
        offsets[i + 1] = row_pointers[node_rows[i + 1]]
    return True
