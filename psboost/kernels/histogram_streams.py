"""Knows the packed form of histograms as a whole, from entries to bytes and back; does not know messages.

The streams of wire/histogram_codecs.py's form "packed", one behind the other, each from a whole byte on. In one kernel
each way: of a few entries, a dozen calls with their arrays would cost more than the work.
"""

import numpy as np

from psboost.kernels import pairs
from psboost.kernels.classes import (
    N_CLASSES,
    code_small,
    end_part,
    measure_classes,
    n_parts_of,
    pack_lengths,
    part_of,
    unpack_classes,
)
from psboost.kernels.compile import IN, OUT, boolean, inline, int32, int64, kernel, types, uint64
from psboost.kernels.packing import (
    BLOCK,
    CORRUPT,
    add_gaps,
    pack_blocks,
    pack_gaps,
    pack_sums,
    raise_counts,
    unfold_signs,
    unpack_blocks,
)

PLAIN, IN_PAIRS = np.uint64(0), np.uint64(64)  # forms of sums; above every shift
_FORM_BYTES = 2  # IN_PAIRS lengthens the first stream by so many at most
_FEW = 1 << 11  # entries: both forms are quick to make
SPARE = 4  # words an entry
_MOST_SLOTS = 1 << 18  # of 4 bytes; more do not stay in a core's cache
_0, _1, _3, _62, _63 = (np.uint64(k) for k in (0, 1, 3, 62, 63))


@inline
def _common_zeros(values):
    """How many low bits are zero in all values (0 if all values are zero)."""
    bits, n_zeros = _0, _0
    for k in range(len(values)):
        bits |= np.uint64(values[k])
    if bits == _0:
        return _0
    while bits & _1 == _0:
        bits >>= _1
        n_zeros += _1
    return n_zeros


@inline
def _are_histograms(offsets, bins, hesses, n_bins):
    """Whether every bin is below n_bins, if each node's ascend, and every hess above 0."""
    least, highest = int64(1), int64(-1)
    for k in range(len(hesses)):
        least = min(least, hesses[k])
    for i in range(len(offsets) - 1):
        if offsets[i] < offsets[i + 1]:
            highest = max(highest, int64(bins[offsets[i + 1] - 1]))
    return least > 0 and highest < n_bins


@inline
def _room(n_values, n_streams):
    """How many words streams of so many values take at most."""
    return (71 * n_values + 32 * (n_values // BLOCK + n_streams)) // 64 + 2


@kernel(uint64(IN[int64], IN[int64], uint64, uint64, uint64, OUT[uint64]))
def _pack_codes(grads, hesses, grad_shift, hess_shift, position, words):
    """The position after two streams."""
    return pack_sums(hesses, hess_shift, False, pack_sums(grads, grad_shift, True, position, words), words)


@inline
def _n_slots(n_entries):
    """Of the hash table of so many entries' pairs."""
    n_slots = 2
    while n_slots <= n_entries and n_slots < _MOST_SLOTS:
        n_slots *= 2
    return n_slots


@kernel(int64(int64, int64))
def spare_words(n_nodes, n_entries):
    """How many words pack_histograms wants to work in. It touches a third of them, seldom more."""
    n_paired = _n_slots(n_entries) // 2 + 6 * n_entries + 12 + _room(4 * n_entries, 5)
    return n_paired + _room(2 * n_entries, 2) + _front(n_nodes, n_entries)


@inline
def _front(n_nodes, n_entries):
    return _room(n_entries + n_nodes + 3, 3)


@inline
def _numbers(spare, at, n):
    """n uint32 in `spare` from word `at` on, and the word after them."""
    end = at + (n + 1) // 2
    return spare[at:end].view(np.uint32)[:n], end


@inline
def _sums(spare, at, n):
    """n int64 and n more, the same way."""
    end = at + 2 * n
    return spare[at : at + n].view(np.int64), spare[at + n : end].view(np.int64), end


@kernel(types.UniTuple(int64, 3)(IN[int64], IN[int64], uint64, uint64, OUT[uint64]))
def _pack_in_pairs(grads, hesses, grad_shift, hess_shift, spare):
    """From which word of `spare` (OUT) on the form IN_PAIRS is; its number of bytes, -1 if it is not worth trying; and how
    many it surely saves, about, by what it leaves out and what it adds, 0 if that is not sure."""
    n_entries = len(grads)
    slots, at = _numbers(spare, 0, _n_slots(n_entries))
    slots[:] = 0
    numbers, at = _numbers(spare, at, n_entries)
    counts, at = _numbers(spare, at, n_entries + 1)
    keys, at = spare[at : at + n_entries + 1].view(np.int64), at + n_entries + 1
    n_pairs = pairs.number_pairs(grads, hesses, slots, numbers, keys, counts)
    counts = counts[: n_pairs + 1]
    ranks, at = _numbers(spare, at, n_pairs + 1)
    kinds, classes = np.zeros(pairs.N_KINDS, np.int64), np.zeros(N_CLASSES, np.int64)
    most = min(n_pairs, n_entries - n_pairs)  # a pair with a rank takes two entries
    ranked_grads, ranked_hesses, at = _sums(spare, at, most)
    n_ranked = pairs.rank_pairs(counts, keys, kinds, ranks, ranked_grads, ranked_hesses, classes)
    lengths = np.empty(N_CLASSES, np.int64)
    n_bits = measure_classes(classes, lengths)
    n_saved = pairs.count_saved_bits(counts, ranks, keys, grad_shift, hess_shift)
    if n_ranked == 0 or (n_entries > _FEW and 5 * n_saved < 4 * n_bits):
        return 0, -1, 0
    n_others = kinds[1]
    codes, at = spare[at : at + n_ranked + 1], at + n_ranked + 1
    code_small(lengths, codes)
    other_grads, other_hesses, at = _sums(spare, at, n_others + 1)
    words = spare[at:]
    words[0] = _0
    sizes = np.empty(2, np.uint64)
    sizes[0], sizes[1] = np.uint64(n_ranked), np.uint64(n_others)
    first = position = pack_lengths(lengths, n_entries, pack_blocks(sizes, _0, words), words)
    n_marked = _0
    for part in range(n_parts_of(n_entries)):
        begin, end = part_of(part, n_entries)
        before = position
        position, n_marked = pairs.mark_pairs(
            grads, hesses, numbers, ranks, codes, begin, end, n_marked, position, words, other_grads, other_hesses
        )
        position = end_part(part, n_entries, first, before, position, words)
    position = _pack_codes(ranked_grads[:n_ranked], ranked_hesses[:n_ranked], grad_shift, hess_shift, position, words)
    position = _pack_codes(other_grads[:n_others], other_hesses[:n_others], grad_shift, hess_shift, position, words)
    is_sure = n_entries > _FEW and 4 * n_saved > 5 * n_bits
    return at, np.int64(position >> _3), (n_saved - n_bits) // 8 if is_sure else 0


@kernel(types.UniTuple(int64, 4)(IN[int64], IN[int32], IN[int64], IN[int64], int64, boolean, OUT[uint64]))
def pack_histograms(offsets, bins, grads, hesses, n_bins, try_pairs, spare):
    """The histograms of nodes, in two pieces of the bytes of `spare`: how many the first one has, from the start on; where
    the second begins, and how many it has, and would have in the form PLAIN, about. -1 if a node's bins do not ascend, or
    are not below n_bins, or a hess is not above 0.

    try_pairs  whether to make the form IN_PAIRS too; the smaller one is taken
    spare      spare_words of them, to work in: new memory for them would be a third of the time  # OUT
    """
    if not _are_histograms(offsets, bins, hesses, n_bins):
        return -1, 0, 0, 0
    n_nodes, n_entries = len(offsets) - 1, len(bins)
    n_front, n_plain = _front(n_nodes, n_entries), _room(2 * n_entries, 2)
    front, plain, rest = spare[:n_front], spare[n_front : n_front + n_plain], spare[n_front + n_plain :]
    grad_shift, hess_shift = _common_zeros(grads), _common_zeros(hesses)
    form, begin, n_bytes, n_saved = IN_PAIRS, np.int64(0), np.int64(-1), np.int64(0)
    if try_pairs:
        begin, n_bytes, n_saved = _pack_in_pairs(grads, hesses, grad_shift, hess_shift, rest)
    begin += n_front + n_plain
    n_bytes_plain = n_bytes + n_saved
    if n_saved == 0:
        plain[0] = _0
        n_bytes_plain = np.int64(_pack_codes(grads, hesses, grad_shift, hess_shift, _0, plain) >> _3)
        if n_bytes < 0 or n_bytes + _FORM_BYTES >= n_bytes_plain:
            form, begin, n_bytes = PLAIN, n_front, n_bytes_plain
    front[0] = _0
    head, sizes = np.empty(3, np.uint64), np.empty(n_nodes, np.uint64)
    head[0], head[1], head[2] = np.uint64(n_nodes), grad_shift, hess_shift + form
    for i in range(n_nodes):
        sizes[i] = np.uint64(offsets[i + 1] - offsets[i])
    position = pack_blocks(sizes, pack_blocks(head, _0, front), front)
    position = pack_gaps(offsets, bins, position, front)
    if position == CORRUPT:
        return -1, 0, 0, 0
    return np.int64(position >> _3), 8 * begin, n_bytes, n_bytes_plain


@inline
def _fits(n_values, end_position):
    """A block is a byte at least: this bounds what a corrupt count can make us allocate."""
    return n_values <= np.uint64(BLOCK) * (end_position >> _3)


@kernel(uint64(IN[uint64], uint64, uint64, uint64, uint64, OUT[uint64], OUT[int64], OUT[int64]))
def _unpack_codes(words, position, end_position, grad_shift, hess_shift, spare, grads, hesses):
    """The position after two streams, CORRUPT if they do not fit. `spare` (OUT): as many words, to work in."""
    codes = spare[: len(grads)]
    position = unpack_blocks(words, position, end_position, codes)
    if position == CORRUPT or not unfold_signs(codes, grad_shift, grads):
        return CORRUPT
    position = unpack_blocks(words, position, end_position, codes)
    if position == CORRUPT or not raise_counts(codes, hess_shift, hesses):
        return CORRUPT
    return position


@kernel(uint64(IN[uint64], uint64, OUT[uint64]))
def unpack_head(words, end_position, head):
    """The position after the first stream; `head` (OUT): n_nodes, shift of grads, shift of hesses + form."""
    position = unpack_blocks(words, _0, end_position, head)
    if position == CORRUPT or head[1] > _63 or head[2] & ~IN_PAIRS > _62 or not _fits(head[0], end_position):
        return CORRUPT
    return position


@kernel(uint64(IN[uint64], uint64, uint64, uint64, OUT[int64]))
def unpack_sizes(words, position, end_position, n_bins, offsets):
    """The position after the stream of the nodes' sizes, of n_bins at most; `offsets` (OUT, n_nodes + 1)."""
    sizes = np.empty(len(offsets) - 1, np.uint64)
    position = unpack_blocks(words, position, end_position, sizes)
    if position == CORRUPT:
        return CORRUPT
    offsets[0] = 0
    for i in range(len(sizes)):
        if sizes[i] > n_bins:
            return CORRUPT
        offsets[i + 1] = offsets[i] + np.int64(sizes[i])
    return position if _fits(np.uint64(offsets[-1]), end_position) else CORRUPT


@kernel(boolean(IN[uint64], uint64, uint64, IN[uint64], uint64, IN[int64], OUT[uint64], OUT[int32], OUT[int64], OUT[int64]))
def unpack_entries(words, position, end_position, head, n_bins, offsets, spare, bins, grads, hesses):
    """Whether the streams after the sizes are what pack_histograms writes; `bins`, `grads`, `hesses` (OUT). `spare` (OUT):
    SPARE words for each entry, to work in."""
    n_entries = len(bins)
    grad_shift, hess_shift, gaps = head[1], head[2] & ~IN_PAIRS, spare[:n_entries]
    position = unpack_blocks(words, position, end_position, gaps)
    if position == CORRUPT or not add_gaps(offsets, gaps, n_bins, bins):
        return False
    if head[2] & IN_PAIRS == _0:
        return _unpack_codes(words, position, end_position, grad_shift, hess_shift, gaps, grads, hesses) == end_position
    sizes = np.empty(2, np.uint64)
    position = unpack_blocks(words, position, end_position, sizes)
    if position == CORRUPT or sizes[0] > np.uint64(n_entries) or sizes[1] > np.uint64(n_entries) - sizes[0]:
        return False
    if np.uint64(n_entries) > end_position - position:  # a mark is a bit at least
        return False
    marks = gaps
    position = unpack_classes(words, position, end_position, marks)
    if position == CORRUPT:
        return False
    n_others, n_sent = np.int64(sizes[1]), np.int64(sizes[0] + sizes[1])
    codes = spare[n_entries : 2 * n_entries]
    sent_grads, sent_hesses, _ = _sums(spare, 2 * n_entries, n_sent)
    position = _unpack_codes(
        words, position, end_position, grad_shift, hess_shift, codes, sent_grads[n_others:], sent_hesses[n_others:]
    )
    if position == CORRUPT:
        return False
    position = _unpack_codes(
        words, position, end_position, grad_shift, hess_shift, codes, sent_grads[:n_others], sent_hesses[:n_others]
    )
    return position == end_position and pairs.join_pairs(marks, sizes[1], sent_grads, sent_hesses, grads, hesses)
