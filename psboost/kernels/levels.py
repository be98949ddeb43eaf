"""Knows how the threads of a worker that has all rows and all features grow a tree, level by level; does not know messages.

    threads            0                     1
    build, search      parts 0, 2 ...        parts 1, 3 ...       each a range of features
                       --------------- meet ---------------
    choose             the splits
                       --------------- meet ---------------
    route              chunks 0, 2 ...       chunks 1, 3 ...      each a range of rows
                       --------------- meet ---------------
    build, search      the children ...

All of a tree is one call for each thread, without Python in between: to share work out by Python takes a tenth of a
millisecond, two dozen times a tree, and as long again for what it does between the kernels. Where workers or servers have to
be asked, or trees are deeper, it is the roles that go from level to level.
"""

from typing import NamedTuple

import numpy as np

from psboost.kernels.arrivals import N_MEETING, clock, meet
from psboost.kernels.compile import IN, OUT, OUT2, float64, inline, int32, int64, kernel_for, types, uint8, uint64, void
from psboost.kernels.fills import copy, copy_rows, fill
from psboost.kernels.gains import find_splits
from psboost.kernels.histograms import span_size
from psboost.kernels.members import MOST_DEPTH, number_children, number_leaves, split_rows
from psboost.kernels.node_builds import N_SUMS, SUM_HESS, SUM_SIZE, add_nodes, list_gradients
from psboost.kernels.node_histograms import take
from psboost.kernels.open_nodes import N_FIELDS, make_root, needs_pairs
from psboost.kernels.packed_rows import WIDTHS
from psboost.kernels.parts import KINDS, add_up_root, clear_bits, read_chunk, read_part, share_out
from psboost.kernels.row_bins import N_NONE
from psboost.kernels.splits import BUILD_LEFT, NODE, choose, keep_better

MOST_OPEN = 1 << MOST_DEPTH - 1  # nodes that are searched at one level

# state (int64): the meeting; which level comes next, its first node and how many it has; how many nodes there are, were
# searched and were split, and how many of these one level above; whether a part is short of memory; how many rows the nodes
# have that were built
LEVEL, FIRST_NODE, N_OPEN, N_NODES, N_SEARCHED, N_CHOSEN, N_LAST_SPLIT, IS_SHORT, N_ROWS_BUILT, N_STATE = range(
    N_MEETING, N_MEETING + 10
)
STAGES = "build", "search", "choose", "route"  # of a level, in this order
_ALL = uint64(2**64 - 1)


class Grown(NamedTuple):
    """What comes of a tree: the best split of each node that was searched, in order, and the splits that were made."""

    gains: np.ndarray
    proposals: np.ndarray
    splits: np.ndarray


_GROWN = types.NamedTuple((OUT[float64], OUT2[int64], OUT2[int32]), Grown)


@inline
def _build_root(part, all_rows, sums, packed, least):
    """Takes the root's histogram, of all training rows, into the part's memory, which has room for it."""
    bin_offsets, span = part.block.bin_offsets, np.array([0, len(all_rows)])
    n_bins, pairs = int64(bin_offsets[-1]), needs_pairs(sums[SUM_SIZE], sums[SUM_HESS])
    slots = part.acc[: (n_bins + N_NONE) << int64(pairs)]
    add_up_root(part.block, all_rows, span, sums, packed, slots)
    n_features = take(bin_offsets, slots[: n_bins << int64(pairs)], pairs, least, part.memory)
    fill(slots, 0)
    make_root(part.memory, part.used, n_features, sums, part.nodes[0])


@inline
def _note_parents(part, splits, first_node):
    """The part's open nodes, from first_node on, of which these are split, are about to be their children's parents."""
    for s in range(len(splits)):
        part.built_left[s] = splits[s, BUILD_LEFT]
        for field in range(N_FIELDS):
            part.parents[s, field] = part.nodes[splits[s, NODE] - first_node, field]
    part.done[0] = 0


@inline
def _join_chunks(chunks, n_chunks, like, spans, sums):
    """What the chunks say of the nodes that are built: `spans` and `sums` as node_builds takes them  # OUT"""
    for c in range(n_chunks):
        chunk = read_chunk(chunks, c, like)
        for i in range(len(spans)):
            spans[i, 2 * c], spans[i, 2 * c + 1] = chunk.spans[i, 0], chunk.spans[i, 1]
        if c == 0:
            copy_rows(chunk.sums, sums)
        else:
            add_nodes(chunk.sums, sums)


@inline
def _n_rows_of(spans):
    n_rows = int64(0)
    for i in range(len(spans)):
        n_rows += span_size(spans[i])
    return n_rows


@inline
def _choose(parts, n_parts, like, first_node, n_open, grown, n_searched, n_chosen):
    """Writes down the best split of each open node and, of these, the ones to make; returns how many these are."""
    best, gains = grown.proposals[n_searched : n_searched + n_open], grown.gains[n_searched : n_searched + n_open]
    for u in range(n_parts):
        part = read_part(parts, u, like)
        if u > 0:
            keep_better(part.proposals[:n_open], part.gains[:n_open], best, gains)
            continue
        copy(part.gains, 0, n_open, gains, 0)
        copy_rows(part.proposals, best)
    features, split_gains, child_sums = np.empty(n_open, np.int64), np.empty(n_open), np.empty((n_open, 4), np.int64)
    return choose(gains, best, first_node, grown.splits[n_chosen:], features, split_gains, child_sums)


@inline
def _route(chunk, parts, n_parts, like, splits, first_child, is_last, n_train, shard, packed, bits, node_of_row):
    """Moves the rows of a chunk to the children of split nodes; lists those of children that are built, if any are."""
    first, end = chunk.first_word, chunk.end_word
    fill(bits[first:end], _ALL)
    for u in range(n_parts):
        part = read_part(parts, u, like)
        clear_bits(part.block, splits, shard, part.first, chunk, bits)
    if is_last:
        number_children(splits, first_child, first, end, bits, chunk.words, chunk.rows, chunk.held, node_of_row)
        return
    spans = chunk.spans[: len(splits)]
    split_rows(
        splits, first_child, first, end, n_train, bits, chunk.words, chunk.rows, chunk.spare, chunk.held, chunk.room,
        spans,
    )  # fmt: skip
    list_gradients(chunk.rows, spans, packed, chunk.packed, chunk.sums[: len(splits)])
    for s in range(len(splits)):  # from where all chunks' rows begin
        spans[s, 0] += 2 * chunk.first_row
        spans[s, 1] += 2 * chunk.first_row


@kernel_for(
    KINDS, WIDTHS,
    signature=lambda one, other, width: void(
        int64, int64, IN[one], IN[other], OUT[int64], int64, OUT[int64], int64, OUT[int64], OUT[int64], IN[int32],
        IN[int64], IN[width], IN[int32], IN[width], OUT[uint64], OUT[uint8], _GROWN, int64, int64, int64, int64,
        IN[float64],
    ),
)  # fmt: skip
def grow(
    thread, n_threads, one, other, parts, n_parts, chunks, n_chunks, state, times, all_rows, root_sums, packed, rows,
    listed, bits, node_of_row, grown, n_train, shard, max_depth, least, rule,
):  # fmt: skip
    """Grows a tree from where `state` says, as one of n_threads that this is called in at the same time, until it is grown
    or a part is short of memory.

    one, other     indptr and bins of any part, or twice its cells: of types that all parts' have
    parts, chunks  what was kept of each
    state          of a tree that begins: the root is open, and nothing else  # OUT
    times          int64: of thread 0, when it began and when each stage of each level was over (clock)  # OUT
    all_rows       the training rows; root_sums: what they come to (node_builds)
    packed         of all rows; rows and listed: where chunks list rows, and what is packed of these
    bits           a bitvector of all rows, to work in  # OUT
    node_of_row    which leaf each row is in, once the tree is grown  # OUT
    grown          # OUT
    least, rule    as open_nodes.add_sums and gains.find_split take them
    """
    like, of_chunks, is_first = (one, other, packed), (packed,), thread == 0
    level, first_node, n_open, n_nodes = state[LEVEL], state[FIRST_NODE], state[N_OPEN], state[N_NODES]
    n_searched, n_chosen, n = state[N_SEARCHED], state[N_CHOSEN], state[N_LAST_SPLIT]
    if is_first and level == 0:
        times[0] = clock()
    while True:
        spans, sums = np.empty((n, 2 * n_chunks), np.int64), np.empty((n, N_SUMS), np.int64)
        _join_chunks(chunks, n_chunks, of_chunks, spans, sums)
        for u in range(thread, n_parts, n_threads):
            part = read_part(parts, u, like)
            if level == 0:
                _build_root(part, all_rows, root_sums, packed, least)
                continue
            part.done[0] = share_out(part.block, rows, spans, sums, listed, part, least)
            if part.done[0] != n:
                state[IS_SHORT] = 1
        if not meet(state, n_threads):
            return
        if state[IS_SHORT] != 0:
            break
        if is_first:
            times[1 + len(STAGES) * level] = clock()
            state[N_ROWS_BUILT] += len(all_rows) if level == 0 else _n_rows_of(spans)
        for u in range(thread, n_parts, n_threads):
            part = read_part(parts, u, like)
            find_splits(
                part.memory, part.nodes[:n_open], part.block.bin_offsets, part.default_bins, part.ids, part.shards,
                part.locals, least, rule, part.lefts, part.scores, part.proposals[:n_open], part.gains[:n_open],
            )  # fmt: skip
        if not meet(state, n_threads):
            return
        if is_first:
            times[2 + len(STAGES) * level] = clock()
            state[N_LAST_SPLIT] = _choose(parts, n_parts, like, first_node, n_open, grown, n_searched, n_chosen)
            times[3 + len(STAGES) * level] = clock()
        if not meet(state, n_threads):
            return
        n, is_last = state[N_LAST_SPLIT], level + 1 == max_depth
        splits = grown.splits[n_chosen : n_chosen + n]
        for c in range(thread, n_chunks, n_threads):
            chunk = read_chunk(chunks, c, of_chunks)
            if n > 0:
                _route(
                    chunk, parts, n_parts, like, splits, n_nodes, is_last, n_train, shard, packed, bits, node_of_row
                )
            if n == 0 or is_last:
                number_leaves(
                    n_nodes + 2 * n, chunk.first_word, chunk.end_word, chunk.words, chunk.rows, chunk.held, node_of_row
                )
        for u in range(thread, n_parts, n_threads):
            _note_parents(read_part(parts, u, like), splits, first_node)
        if not meet(state, n_threads):
            return
        if is_first:
            times[4 + len(STAGES) * level] = clock()
        n_searched, n_chosen, first_node = n_searched + n_open, n_chosen + n, n_nodes
        level, n_open, n_nodes = level + 1, 2 * n, n_nodes + 2 * n
        if n == 0 or is_last:
            break
    if is_first:
        state[LEVEL], state[FIRST_NODE], state[N_OPEN], state[N_NODES] = level, first_node, n_open, n_nodes
        state[N_SEARCHED], state[N_CHOSEN] = n_searched, n_chosen
