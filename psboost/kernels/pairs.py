"""Knows how pairs of sums that repeat are found, ranked and put back; does not know streams or bytes.

Rows that reached the same leaves have the same gradients, and bins of few rows the same sums: in the early trees half of
the pairs (grad, hess) of a message stand in it more than once, and far fewer than that are distinct. So each entry gets a
mark: the rank of its pair, 1 for the most frequent one, or 0 if the pair stands there once.

Pairs are numbered from 1: pair i is pairs[2i] and pairs[2i + 1], and pair 0 is (0, 0), which no entry is.
"""

import numpy as np

from psboost.kernels.compile import IN, OUT, boolean, inline, int64, kernel, uint32, uint64, void
from psboost.kernels.packing import bit_length

N_KINDS = 896  # of counts of 32 bits

_0, _1, _5, _32, _64 = (np.uint64(k) for k in (0, 1, 5, 32, 64))
_MIX_GRAD, _MIX_BOTH = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)  # odd, as random as any


@kernel(int64(IN[int64], IN[int64], OUT[uint32], OUT[uint32], OUT[int64], OUT[uint32]))
def number_pairs(grads, hesses, slots, numbers, pairs, counts):
    """The number of the last pair; they are numbered as they appear. All hesses must be above 0.

    Entry k is pair numbers[k] (OUT); `pairs` and `counts` (OUT) of entries have room for one pair more than there are
    entries. `slots` (OUT): zeros, a power of two of them; a hash table where a pair takes the place of the one before it,
    which may so get another number later. (1 in 100 does if there are as many slots as entries. To look on for a free
    slot takes twice the time.)
    """
    mask = np.uint64(len(slots) - 1)
    last = _0
    pairs[0] = pairs[1] = 0
    for k in range(np.uint64(len(grads))):
        grad, hess = grads[k], hesses[k]
        word = np.uint64(grad) * _MIX_GRAD + np.uint64(hess)
        word = (word ^ word >> _32) * _MIX_BOTH
        slot = (word ^ word >> _32) & mask
        number = np.uint64(slots[slot])
        if (pairs[number << _1] != grad) | (pairs[number << _1 | _1] != hess):
            last += _1
            number = last
            slots[slot] = number
            pairs[number << _1] = grad
            pairs[number << _1 | _1] = hess
            counts[number] = 0
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


@kernel(int64(IN[uint32], IN[int64], OUT[int64], OUT[uint32], OUT[int64], OUT[int64]))
def rank_pairs(counts, pairs, kinds, ranks, grads, hesses):
    """How many pairs have a rank; `ranks` (OUT) of all pairs, `grads` and `hesses` (OUT) by rank.

    `kinds` (OUT): zeros, N_KINDS of them; kinds[1] will be the number of pairs that stand there once.
    """
    for i in range(_1, np.uint64(len(counts))):
        kinds[_kind(np.uint64(counts[i]))] += 1
    n_ranked = np.int64(0)
    for kind in range(N_KINDS - 1, 1, -1):
        n_ranked, kinds[kind] = n_ranked + kinds[kind], n_ranked
    ranks[0] = 0
    for i in range(_1, np.uint64(len(counts))):
        kind = _kind(np.uint64(counts[i]))
        if kind == _1:
            ranks[i] = 0
        else:
            place = np.uint64(kinds[kind])
            grads[place], hesses[place] = pairs[i << _1], pairs[i << _1 | _1]
            kinds[kind] += 1
            ranks[i] = place + _1
    return n_ranked


@kernel(int64(IN[uint32], IN[int64], uint64, uint64))
def count_bits(counts, pairs, grad_shift, hess_shift):
    """The bits of the codes of all entries' sums, without leading zeros: packed in blocks they take more."""
    n_bits = _0
    for i in range(_1, np.uint64(len(counts))):
        grad = pairs[i << _1] >> np.int64(grad_shift)
        hess = (pairs[i << _1 | _1] >> np.int64(hess_shift)) - np.int64(1)
        fold = np.uint64(grad << np.int64(1) ^ grad >> np.int64(63))
        n_bits += np.uint64(counts[i]) * np.uint64(bit_length(fold) + bit_length(np.uint64(hess)))
    return np.int64(n_bits)


@kernel(void(IN[int64], IN[int64], IN[uint32], IN[uint32], OUT[uint64], OUT[int64], OUT[int64]))
def mark_pairs(grads, hesses, numbers, ranks, marks, other_grads, other_hesses):
    """OUT: each entry's mark, and the sums of the entries marked 0; those arrays have room for one more."""
    n_others = _0
    for k in range(np.uint64(len(grads))):
        rank = np.uint64(ranks[numbers[k]])
        marks[k] = rank
        other_grads[n_others], other_hesses[n_others] = grads[k], hesses[k]
        n_others += np.uint64(rank == _0)


@kernel(boolean(IN[uint64], IN[int64], IN[int64], IN[int64], IN[int64], OUT[int64], OUT[int64]))
def join_pairs(marks, ranked_grads, ranked_hesses, other_grads, other_hesses, grads, hesses):
    """True if the marks fit the sums; `grads` and `hesses` (OUT) are those of all entries."""
    n_ranked, n_others, used = np.uint64(len(ranked_grads)), np.uint64(len(other_grads)), _0
    for k in range(np.uint64(len(marks))):
        rank = marks[k]
        if rank == _0:
            if used == n_others:
                return False
            grads[k], hesses[k] = other_grads[used], other_hesses[used]
            used += _1
        else:
            if rank > n_ranked:
                return False
            grads[k], hesses[k] = ranked_grads[rank - _1], ranked_hesses[rank - _1]
    return used == n_others
