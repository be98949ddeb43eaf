"""Knows how pairs of sums that repeat are found, ranked and put back; does not know streams or bytes.

Rows that reached the same leaves have the same gradients, and bins of few rows the same sums: in the early trees half of
the pairs (grad, hess) of a message stand in it more than once, and far fewer than that are distinct. So each entry gets a
mark: the rank of its pair, 1 for the most frequent one, or 0 if the pair stands there once.

Pairs are numbered from 1. keys[i] is pair i as a packed slot (kernels.slots), and keys[0] is (0, 0), which no entry is.
An entry too wide for a slot is a pair of its own, which stands there once.
"""

import numpy as np

from psboost.kernels.classes import put_code
from psboost.kernels.compile import IN, OUT, boolean, inline, int64, kernel, types, uint32, uint64
from psboost.kernels.slots import HALF, read
from psboost.kernels.words import bit_length

N_KINDS = 896  # of counts of 32 bits
_BLOCKS_ADD = np.uint64(2)  # bits
_SOME = 128  # entries at once

_0, _1, _5, _6, _32, _40, _64 = (np.uint64(k) for k in (0, 1, 5, 6, 32, 40, 64))
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, as random as any


@kernel(int64(IN[int64], IN[int64], OUT[uint32], OUT[uint32], OUT[int64], OUT[uint32]))
def number_pairs(grads, hesses, slots, numbers, keys, counts):
    """The number of the last pair; they are numbered as they appear. All hesses must be above 0.

    Entry k is pair numbers[k] (OUT); `keys` and `counts` (OUT) of entries have room for one more than there are entries.
    `slots` (OUT): zeros, a power of two of them; a hash table where a pair takes the place of the one before it, which may
    so get another number later. (1 in 100 does if there are as many slots as entries. To look on for a free slot takes twice
    the time.) Nothing is skipped if a pair is known: half of them are, and no processor foresees which.
    """
    mask = np.uint64(len(slots) - 1)
    last = _0
    keys[0] = 0
    for k in range(np.uint64(len(grads))):
        grad, hess = grads[k], hesses[k]
        key = (grad << int64(32)) + hess
        word = np.uint64(key) * _MIX
        slot = (word >> _32 ^ word >> _40) & mask
        number, following = np.uint64(slots[slot]), last + _1
        wide = (grad + HALF) >> int64(32) | hess >> int64(32)
        keys[following] = key if wide == 0 else int64(0)  # which nobody looks for
        counts[following] = 0
        is_known = np.uint64((keys[number] == key) & (wide == 0))
        number = number if is_known != _0 else following
        last = following - is_known
        slots[slot] = number
        numbers[k] = number
        counts[number] += np.uint32(1)
    return np.int64(last)


@inline
def _kind(count):
    """The count itself below 64, above that it rises with the highest 6 bits."""
    shift = _0
    while count >> shift >= _64:
        shift += _1
    return (shift << _5) + (count >> shift)


@kernel(int64(IN[uint32], IN[int64], OUT[int64], OUT[uint32], OUT[int64], OUT[int64], OUT[int64]))
def rank_pairs(counts, keys, kinds, ranks, grads, hesses, classes):
    """How many pairs have a rank; `ranks` (OUT) of all pairs, `grads` and `hesses` (OUT) by rank.

    `kinds` (OUT): zeros, N_KINDS of them; kinds[1] will be the number of pairs that stand there once. `classes` (OUT):
    zeros, N_CLASSES of them, which will be how many entries' marks have so many bits.
    """
    n_once = np.int64(0)
    for i in range(_1, np.uint64(len(counts))):
        count = np.uint64(counts[i])
        if count == _1:  # by far the most: each would wait until the one before it is counted
            n_once += 1
        else:
            kinds[_kind(count)] += 1
    kinds[1], n_ranked = n_once, np.int64(0)
    for kind in range(N_KINDS - 1, 1, -1):
        n_ranked, kinds[kind] = n_ranked + kinds[kind], n_ranked
    ranks[0] = 0
    for i in range(_1, np.uint64(len(counts))):
        count = np.uint64(counts[i])
        if count == _1:
            ranks[i] = 0
        else:
            kind = _kind(count)
            place = np.uint64(kinds[kind])
            grads[place], hesses[place] = read(keys, False, i)
            kinds[kind] += 1
            ranks[i] = place + _1
            classes[bit_length(place + _1)] += counts[i]
    classes[0] = n_once
    return n_ranked


@inline
def _bits_in_block(code):
    """About: a code that is not 0 has neighbours in its block that are longer."""
    return np.uint64(bit_length(code)) + _BLOCKS_ADD * np.uint64(code != _0)


@kernel(int64(IN[uint32], IN[uint32], IN[int64], uint64, uint64))
def count_saved_bits(counts, ranks, keys, grad_shift, hess_shift):
    """About how many bits it saves to send each pair that has a rank once, and not as often as it stands there."""
    n_bits = _0
    for i in range(_1, np.uint64(len(counts))):
        if ranks[i] > 0:
            grad, hess = read(keys, False, i)
            grad, hess = grad >> np.int64(grad_shift), (hess >> np.int64(hess_shift)) - np.int64(1)
            n_each = _bits_in_block(np.uint64(grad << np.int64(1) ^ grad >> np.int64(63))) + _bits_in_block(np.uint64(hess))
            n_bits += np.uint64(counts[i] - np.uint32(1)) * n_each
    return np.int64(n_bits)


_POSITIONS = types.UniTuple(uint64, 2)


@kernel(
    _POSITIONS(
        IN[int64], IN[int64], IN[uint32], IN[uint32], IN[uint64], uint64, uint64, uint64, uint64, OUT[uint64], OUT[int64],
        OUT[int64],
    )
)  # fmt: skip
def mark_pairs(grads, hesses, numbers, ranks, codes, begin, end, n_others, position, words, other_grads, other_hesses):
    """Puts the marks of entries begin .. end into `words` (OUT) from `position` on, as `codes` says; returns the position
    after them, and n_others, raised by how many of them are marked 0.

    codes  of marks (classes.code_small)
    other_grads, other_hesses  OUT, from n_others on: the sums of those; with room for one more
    """
    held, some = words[position >> _6], np.empty(_SOME, np.uint64)
    while begin < end:  # in two loops of one thing each, that do not want more than a processor's registers
        n = min(np.uint64(_SOME), end - begin)
        for j in range(n):
            rank = np.uint64(ranks[numbers[begin + j]])
            some[j] = codes[rank]
            other_grads[n_others], other_hesses[n_others] = grads[begin + j], hesses[begin + j]
            n_others += np.uint64(rank == _0)
        for j in range(n):
            position, held = put_code(words, position, held, some[j])
        begin += n
    words[position >> _6] = held
    return position, n_others


@kernel(boolean(IN[uint64], uint64, IN[int64], IN[int64], OUT[int64], OUT[int64]))
def join_pairs(marks, n_others, sent_grads, sent_hesses, grads, hesses):
    """True if the marks fit the sums that were sent; `grads` and `hesses` (OUT) are those of all entries.

    sent_grads, sent_hesses  of the n_others entries marked 0, then by rank
    """
    n_sent, used, fits = np.uint64(len(sent_grads)), _0, True
    if n_sent == _0:
        return len(marks) == 0
    for k in range(np.uint64(len(marks))):
        is_other = marks[k] == _0
        place = used if is_other else n_others + (marks[k] - _1)
        used += np.uint64(is_other)
        fits &= (place < n_sent) & (marks[k] <= n_sent)
        place = min(place, n_sent - _1)
        grads[k], hesses[k] = sent_grads[place], sent_hesses[place]
    return fits and used == n_others
