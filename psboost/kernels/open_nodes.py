"""Knows the open nodes of a level: their histograms, in one memory, and the features that live in them; does not know rows,
gains or messages.

    memory    a NodeHistogram whose arrays hold those of all nodes
    used      int64 (3): how many of its features, bins and slots are taken; a node takes one feature more than it has
    nodes     int64 (n, N_FIELDS), a row for each; below the root two for each split of the level before, left and right
    features, offsets   int32 and int64: which features lived in the parents, list after list: list k is of the two
              children of split k, or of the root
"""

import numpy as np

from psboost.kernels.ascending import first_from
from psboost.kernels.compile import IN, OUT, OUT2, boolean, inline, int32, int64, kernel, uint8, uint64, void
from psboost.kernels.node_histograms import NODE_HISTOGRAM, NodeHistogram, NodeLists, share_out, share_out_lists
from psboost.kernels.packing import get_bits, mask_of, put_bits
from psboost.kernels.slots import GRADS_FIT, HESSES_FIT
from psboost.kernels.words import count_ones, lowest_one

# Where a node's features and starts, its bins and its slots begin; how many features and bins it has; whether its sums are
# in pairs; what its rows come to: grads, hesses and absolute grads, UNKNOWN if nobody knows.
AT_FEATURE, AT_BIN, AT_SLOT, N_FEATURES, N_BINS, PAIRS, GRAD, HESS, SIZE, N_FIELDS = range(10)
UNKNOWN, MISFIT = -1, -1
_0, _1, _6, _63, _64 = (uint64(k) for k in (0, 1, 6, 63, 64))
_ALL = uint64(2**64 - 1)


@inline
def histogram_of(memory, node):
    """A node's own part of the memory."""
    feature, at, slot = node[AT_FEATURE], node[AT_BIN], node[AT_SLOT]
    n_features, n_bins = node[N_FEATURES], node[N_BINS]
    return NodeHistogram(
        memory.features[feature : feature + n_features],
        memory.starts[feature : feature + n_features + 1],
        memory.bins[at : at + n_bins],
        memory.sums[slot : slot + (n_bins << node[PAIRS])],
    )


@inline
def needs_pairs(size, hess):
    """Whether the sum of some of the rows may be too wide to be packed."""
    return size < 0 or size >= GRADS_FIT or hess >= HESSES_FIT


@kernel(void(NODE_HISTOGRAM, OUT[int64], int64, IN[int64], OUT[int64]))
def make_root(memory, used, n_features, total, root):
    """Notes (used, root: OUT) that the memory begins with the root's histogram, of so many features (node_histograms.take).

    total  what its rows come to
    """
    n_bins, pairs = int64(memory.starts[n_features]), needs_pairs(total[2], total[1])
    root[AT_FEATURE], root[AT_BIN], root[AT_SLOT] = 0, 0, 0
    root[N_FEATURES], root[N_BINS], root[PAIRS] = n_features, n_bins, pairs
    root[GRAD], root[HESS], root[SIZE] = total[0], total[1], total[2]
    used[0], used[1], used[2] = n_features + 1, n_bins, n_bins << int64(pairs)


@inline
def _make_child(memory, used, parent, grad, hess, size, child):
    """Gives a child the memory behind all others, as much as its parent has; returns whether there is so much."""
    child[AT_FEATURE], child[AT_BIN], child[AT_SLOT] = used[0], used[1], used[2]
    child[N_FEATURES], child[N_BINS], child[PAIRS] = parent[N_FEATURES], parent[N_BINS], needs_pairs(size, hess)
    child[GRAD], child[HESS], child[SIZE] = grad, hess, size
    return (
        used[0] + parent[N_FEATURES] < len(memory.features)
        and used[1] + parent[N_BINS] <= len(memory.bins)
        and used[2] + (parent[N_BINS] << child[PAIRS]) <= len(memory.sums)
    )


@inline
def _make_rest(parent, child, rest, forms):
    """What is the parent's and not the child's takes the parent's place. `forms` (OUT): whether the parent's sums are in
    pairs, the child's, the rest's; returns whether that can be: the parent's are the widest."""
    for field in range(PAIRS):
        rest[field] = parent[field]
    rest[GRAD], rest[HESS] = parent[GRAD] - child[GRAD], parent[HESS] - child[HESS]
    unknown = parent[SIZE] < 0 or child[SIZE] < 0
    rest[SIZE] = UNKNOWN if unknown else parent[SIZE] - child[SIZE]
    rest[PAIRS] = needs_pairs(rest[SIZE], rest[HESS])
    forms[0], forms[1], forms[2] = parent[PAIRS] != 0, child[PAIRS] != 0, rest[PAIRS] != 0
    return forms[0] or not (forms[1] or forms[2])


@inline
def _end(used, of_child, of_rest, counts, child, rest):
    """Notes what share_out wrote: features of both children, and whether sums were no part of their parent's, in which case
    False is returned. Behind the child's the memory is free."""
    child[N_FEATURES], child[N_BINS] = counts[0], of_child.starts[counts[0]]
    rest[N_FEATURES], rest[N_BINS] = counts[1], of_rest.starts[counts[1]]
    used[0] += child[N_FEATURES] + 1
    used[1] += child[N_BINS]
    used[2] += child[N_BINS] << child[PAIRS]
    return counts[2] == 0


@kernel(int64(NODE_HISTOGRAM, OUT[int64], OUT2[int64], IN[uint8], int64, OUT[int64], IN[int64], int64, boolean, OUT2[int64]))
def add_sums(memory, used, parents, built_left, k, acc, total, least, clears, nodes):
    """Shares the histogram of split k's parent out to both children: writes rows 2 k and 2 k + 1 of `nodes`.

    built_left  of each split, whether it is the left child whose sums are given
    acc, total  that child's sums of all bins (in pairs if these of its total may be wide), and what its rows come to
    least       features whose hesses do not come to it are left out
    clears      whether `acc` is to be all 0 once this is done  # OUT
    returns     k + 1; k if the memory is too small, and nothing was done; MISFIT for sums that are not the parent's
    """
    parent, left = parents[k], int64(built_left[k] != 0)
    child, rest = nodes[2 * k + 1 - left], nodes[2 * k + left]
    forms, counts = np.zeros(3, np.bool_), np.zeros(3, np.int64)
    if not _make_child(memory, used, parent, total[0], total[1], total[2], child):
        return k
    if not _make_rest(parent, child, rest, forms):
        return int64(MISFIT)
    of_parent, of_child = histogram_of(memory, parent), histogram_of(memory, child)
    share_out(of_parent, acc, forms, least, clears, of_child, counts)
    return k + 1 if _end(used, of_child, of_parent, counts, child, rest) else int64(MISFIT)


@kernel(
    int64(
        NODE_HISTOGRAM, OUT[int64], OUT2[int64], IN[uint8], int64, OUT[int32], OUT[int64], OUT[int64], OUT2[int64],
        OUT2[int64], OUT[int64], int64, OUT2[int64],
    )
)  # fmt: skip
def add_lists(memory, used, parents, built_left, first, bins, grads, hesses, lists, totals, acc, least, nodes):
    """`add_sums` for split `first` and all that follow, whose children's sums are in lists; the first that was not done, or
    MISFIT.

    bins, grads, hesses, lists (a row for each split): kernels.node_histograms.NodeLists
    totals  int64 (n, 3): what the rows of the children that are given come to
    acc     all 0, as it will be again: twice as many slots as a window is to have bins  # OUT
    """
    forms, counts = np.zeros(3, np.bool_), np.zeros(3, np.int64)
    for k in range(first, len(parents)):
        parent, left = parents[k], int64(built_left[k] != 0)
        child, rest = nodes[2 * k + 1 - left], nodes[2 * k + left]
        if not _make_child(memory, used, parent, totals[k, 0], totals[k, 1], totals[k, 2], child):
            return k
        if not _make_rest(parent, child, rest, forms):
            return int64(MISFIT)
        of_parent, of_child = histogram_of(memory, parent), histogram_of(memory, child)
        slots = acc if forms[1] else acc[: len(acc) // 2]
        share_out_lists(of_parent, NodeLists(bins, grads, hesses, lists[k]), forms, slots, least, of_child, counts)
        if not _end(used, of_child, of_parent, counts, child, rest):
            return int64(MISFIT)
    return int64(len(parents))


@inline
def _flag(held, at, end, features, k, n):
    """A bit for each of n features from features[k] on, 64 at most: 1 if held[at:end], of which no other lies between them,
    has it. Where all or none is there, no single one is looked at."""
    last = features[k + n - _1]
    if at == end or held[at] > last:
        return _0
    if at + n <= end and held[at] == features[k] and held[at + n - _1] == last:
        return mask_of(n)
    bits = _0
    for j in range(n):
        is_living = uint64(at < end and held[at] == features[k + j])
        bits |= is_living << j
        at += is_living
    return bits


@kernel(int64(IN[int32], OUT2[int64], IN[int32], IN[int64], int64, int64, OUT[uint64]))
def flag_living(held, nodes, features, offsets, first, last, flags):
    """Bits, one behind the other: of each node, for each feature first .. last of its parent's list, 1 if the node has it.

    held   the memory's features
    flags  room for a bit for each feature of the nodes' lists  # OUT
    returns how many bits were written
    """
    position, word = _0, _0
    for i in range(len(nodes)):
        at = nodes[i, AT_FEATURE]
        end = uint64(at + nodes[i, N_FEATURES])
        at = uint64(first_from(first, held, at, int64(end)))
        begin = first_from(first, features, offsets[i // 2], offsets[i // 2 + 1])
        behind = uint64(first_from(last, features, begin, offsets[i // 2 + 1]))
        for k in range(uint64(begin), behind, _64):
            n = min(_64, behind - k)
            bits = _flag(held, at, end, features, k, n)
            at += count_ones(bits)
            position, word = put_bits(flags, position, word, bits, n)
    if position & _63 != _0:
        flags[position >> _6] = word
    return int64(position)


@kernel(void(IN[int32], IN[int64], IN[int64], int64, OUT[int64]))
def count_flags(features, offsets, edges, n_nodes, counts):
    """counts (OUT): how many bits flag_living writes of n_nodes nodes, as many for each list, in each range of features
    edges[s] .. edges[s + 1]."""
    counts[:] = 0
    for i in range(len(offsets) - 1):
        low = first_from(edges[0], features, offsets[i], offsets[i + 1])
        for s in range(len(counts)):
            high = first_from(edges[s + 1], features, low, offsets[i + 1])
            counts[s] += (high - low) * (n_nodes // (len(offsets) - 1))
            low = high


@kernel(void(IN[int32], IN[int64], IN[int64], IN[uint64], IN[int64], IN[int64], OUT[int32], OUT[int64]))
def choose_living(features, offsets, edges, flags, first_words, positions, chosen, chosen_offsets):
    """The lists of the next level, whose parents are the nodes at `positions`: what `flags` say that these have.

    edges   ranges of features, edges[s] .. edges[s + 1]
    flags   of each range from first_words[s] on, what flag_living says of all nodes; and one word more
    chosen  room for the features of as many lists and one more  # OUT
    """
    n_lists, n_ranges, at = len(offsets) - 1, len(edges) - 1, _0
    bits = np.empty((n_lists + 1, n_ranges), np.int64)  # where the flags of each list's left child begin
    for s in range(n_ranges):
        bits[0, s] = 64 * first_words[s]
        for i in range(n_lists):
            low = first_from(edges[s], features, offsets[i], offsets[i + 1])
            bits[i + 1, s] = bits[i, s] + 2 * (first_from(edges[s + 1], features, low, offsets[i + 1]) - low)
    chosen_offsets[0] = 0
    for k in range(len(positions)):
        i, is_right = positions[k] // 2, positions[k] & 1
        low = first_from(edges[0], features, offsets[i], offsets[i + 1])
        for s in range(n_ranges):
            n = (bits[i + 1, s] - bits[i, s]) // 2
            bit = uint64(bits[i, s] + is_right * n)
            for j in range(uint64(low), uint64(low + n), _64):
                word = get_bits(flags, bit, mask_of(min(_64, uint64(low + n) - j)))
                if word == _ALL:
                    for place in range(_64):
                        chosen[at + place] = features[j + place]
                    at += _64
                    word = _0
                while word != _0:
                    chosen[at] = features[j + lowest_one(word)]
                    at += _1
                    word &= word - _1
                bit += _64
            low += n
        chosen_offsets[k + 1] = at
