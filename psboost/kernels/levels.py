"""Knows how the threads of a worker that has all rows and all features grow a tree, level by level; does not know messages.

    threads            0                     1
    gradients          pieces of the rows    in turns
                       --------------- meet ---------------
    build, search      parts 0, 2 ...        parts 1, 3 ...       each a range of features, one after the other
                       --------------- meet ---------------
    number             chunks 0, 2 ...       chunks 1, 3 ...      rows by node; only where splits by rare features may be
                       --------------- meet ---------------       better (kernels.rare)
    look               at parts of these     in turns
                       --------------- meet ---------------
    choose             the splits
                       --------------- meet ---------------
    route              chunks 0, 2 ...       chunks 1, 3 ...      each a range of rows
                       --------------- meet ---------------
    build, search      the children ...
    update             pieces of the rows    in turns             what their leaves come to

All of a tree is one call for each thread, without Python in between: to share work out by Python takes a tenth of a
millisecond, two dozen times a tree, and as long again for what it does between the kernels. Where workers or servers have to
be asked, or trees are deeper, it is the roles that go from level to level.
"""

from typing import NamedTuple

import numpy as np

from psboost.kernels.arrivals import N_MEETING, clock, meet
from psboost.kernels.compile import (
    IN,
    OUT,
    OUT2,
    float32,
    float64,
    inline,
    int32,
    int64,
    kernel_for,
    types,
    uint8,
    uint64,
    void,
)
from psboost.kernels.fills import copy, copy_rows, fill
from psboost.kernels.gains import find_splits
from psboost.kernels.gradients import LOSSES, SUMS_OF_NODE
from psboost.kernels.histograms import span_size
from psboost.kernels.members import (
    MOST_DEPTH,
    hold_all,
    number_children,
    number_leaves,
    split_rows,
)
from psboost.kernels.node_builds import (
    MOST_GRAD,
    MOST_HESS,
    N_SUMS,
    SUM_HESS,
    SUM_SIZE,
    add_nodes,
    list_gradients,
)
from psboost.kernels.node_histograms import take
from psboost.kernels.open_nodes import N_FIELDS, make_root, needs_pairs
from psboost.kernels.packed_rows import WIDTHS
from psboost.kernels.parts import KINDS, add_up_root, clear_bits, read_chunk, read_part, share_out
from psboost.kernels.posts import come, stay
from psboost.kernels.rare_search import search_rare
from psboost.kernels.row_bins import N_NONE
from psboost.kernels.row_gradients import round_by_pieces, sum_by_pieces
from psboost.kernels.splits import BUILD_LEFT, NODE, choose, keep_better

MOST_OPEN = 1 << MOST_DEPTH - 1  # nodes that are searched at one level

# state (int64): the meeting; whether steps are exact, the least hess of a child, of how many parts histograms are built,
# the last ones being of rare features; and of each tree anew: how many values are due (row_gradients); how many pieces of
# the rows were taken for gradients and for leaves; which level comes next, its first node and how many it has; how many
# nodes there are, were searched and were split, and how many of these one level above; whether there are gradients; whether
# a part is short of memory; how many rows the nodes have that were built
(
    IS_EXACT, LEAST_HESS, N_BUILT, N_DUE, FOR_GRADIENTS, FOR_LEAVES, LEVEL, FIRST_NODE, N_OPEN, N_NODES, N_SEARCHED,
    N_CHOSEN, N_LAST_SPLIT, IS_ROUNDED, IS_SHORT, N_ROWS_BUILT, N_STATE,
) = range(N_MEETING, N_MEETING + 17)  # fmt: skip
GRAD_STEP, HESS_STEP, LEAF_GRAD_STEP, LEAF_HESS_STEP, N_STEPS = range(5)  # steps (float64)
FIRST_STAGE, LAST_STAGE = "gradients", "update"  # of a tree
STAGES = "build", "search", "choose", "route"  # of a level, in this order
_ALL = uint64(2**64 - 1)


class Grown(NamedTuple):
    """What comes of a tree: the best split of each node that was searched, in order, and the splits that were made; which
    nodes are leaves, in order, and the sums of grad and hess of each, in leaf steps."""

    gains: np.ndarray
    proposals: np.ndarray
    splits: np.ndarray
    leaves: np.ndarray
    leaf_sums: np.ndarray


_GROWN = types.NamedTuple((OUT[float64], OUT2[int64], OUT2[int32], OUT[int64], OUT2[int64]), Grown)


@inline
def _begin(thread, n_threads, parts, n_parts, like, chunks, n_chunks, of_chunks):
    """A tree begins: nothing is in the parts' memories, and all rows are in the root."""
    for u in range(thread, n_parts, n_threads):
        part = read_part(parts, u, like)
        fill(part.used, 0)
    for c in range(thread, n_chunks, n_threads):
        chunk = read_chunk(chunks, c, of_chunks)
        hold_all(chunk.first_word, chunk.end_word, chunk.end_row, chunk.words, chunk.held, chunk.room)


@inline
def _have_room(parts, n_parts, like, pairs):
    """Whether each part has room for the root's histogram: in all its memory, as another thread that knows may have built
    its own there by now."""
    for u in range(n_parts):
        part = read_part(parts, u, like)
        n_features, n_bins = len(part.ids), int64(part.block.bin_offsets[-1])
        memory = part.memory
        if n_features >= len(memory.features) or n_bins > len(memory.bins) or n_bins << int64(pairs) > len(memory.sums):
            return False
    return True


@inline
def _build_root(part, all_rows, sums, pairs, packed, least):
    """Takes the root's histogram, of all training rows, into the part's memory, which has room for it."""
    bin_offsets, span = part.block.bin_offsets, np.array([0, len(all_rows)])
    n_bins = int64(bin_offsets[-1])
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
def _keep_best(parts, n_parts, like, best, gains):
    """Writes down the best split of each open node that any of these parts proposes  # OUT: best, gains"""
    for u in range(n_parts):
        part = read_part(parts, u, like)
        if u > 0:
            keep_better(part.proposals[: len(gains)], part.gains[: len(gains)], best, gains)
            continue
        copy(part.gains, 0, len(gains), gains, 0)
        copy_rows(part.proposals, best)


@inline
def _route(chunk, parts, n_parts, like, splits, first_child, is_last, shard, packed, bits, node_of_row):
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
        splits, first_child, first, end, len(packed), bits, chunk.words, chunk.rows, chunk.spare, chunk.held, chunk.room,
        spans,
    )  # fmt: skip
    list_gradients(chunk.rows, spans, packed, chunk.packed, chunk.sums[: len(splits)])
    for s in range(len(splits)):  # from where all chunks' rows begin
        spans[s, 0] += 2 * chunk.first_row
        spans[s, 1] += 2 * chunk.first_row


@inline
def _list_leaves(n_nodes, splits, of_threads, grown):
    """Which nodes were not split, and what their rows come to."""
    is_split, k = np.zeros(n_nodes, np.uint8), 0
    for s in range(len(splits)):
        is_split[splits[s, NODE]] = 1
    for node in range(n_nodes):
        if is_split[node] == 0:
            grad, hess = int64(0), int64(0)
            for thread in range(len(of_threads)):
                for at in range(SUMS_OF_NODE * node, SUMS_OF_NODE * (node + 1), 2):
                    grad, hess = grad + of_threads[thread, at], hess + of_threads[thread, at + 1]
            grown.leaves[k], grown.leaf_sums[k, 0], grown.leaf_sums[k, 1] = node, grad, hess
            k += 1


@inline
def _grow(
    thread, n_threads, one, other, parts, n_parts, chunks, n_chunks, state, times, margins, labels, weights, due_values,
    steps, keys, row_offset, rule, all_rows, sums_of_threads, leaf_sums_of_threads, packed, rows, listed, bits,
    node_of_row, looks, grown, shard, max_depth,
):  # fmt: skip
    """Grows a tree from where `state` says until it is grown or a part is short of memory; False if others gave up. Who is
    behind the last meeting reads nothing more that the next call changes."""
    like, of_chunks, is_first = (one, other, packed), (packed,), thread == 0
    level, first_node, n_open, n_nodes = state[LEVEL], state[FIRST_NODE], state[N_OPEN], state[N_NODES]
    n_searched, n_chosen, n, least = state[N_SEARCHED], state[N_CHOSEN], state[N_LAST_SPLIT], state[LEAST_HESS]
    n_built = state[N_BUILT]
    due_nodes, is_short = node_of_row, False
    if state[IS_ROUNDED] == 0:
        if is_first:
            times[0] = clock()
        _begin(thread, n_threads, parts, n_parts, like, chunks, n_chunks, of_chunks)
        fill(sums_of_threads[thread], 0)
        round_by_pieces(
            margins, labels, weights, due_nodes, due_values[: state[N_DUE]], state[FOR_GRADIENTS:], steps[GRAD_STEP],
            steps[HESS_STEP], state[IS_EXACT] != 0, keys[0], row_offset, packed, sums_of_threads[thread],
        )  # fmt: skip
        if not meet(state, n_threads):
            return False
        if is_first:
            times[1], state[IS_ROUNDED] = clock(), 1
    root_sums = np.zeros((1, N_SUMS), np.int64)
    for k in range(n_threads):
        add_nodes(sums_of_threads[k : k + 1], root_sums)
    if level == 0:
        pairs = needs_pairs(root_sums[0, SUM_SIZE], root_sums[0, SUM_HESS])
        is_short = not _have_room(parts, n_built, like, pairs)
    while not is_short:
        spans, sums = np.empty((n, 2 * n_chunks), np.int64), np.empty((n, N_SUMS), np.int64)
        _join_chunks(chunks, n_chunks, of_chunks, spans, sums)
        searching = int64(0)  # nanoseconds
        for u in range(thread, n_built, n_threads):
            part = read_part(parts, u, like)
            if level == 0:
                _build_root(part, all_rows, root_sums[0], pairs, packed, least)
            else:
                part.done[0] = share_out(part.block, rows, spans, sums, listed, part, least)
                if part.done[0] != n:
                    state[IS_SHORT] = 1
                    continue  # once there is room, all parts are searched anew
            searching -= clock()
            if u == thread:
                fill(part.gains[:n_open], -np.inf)
            else:  # by the thread's first part, of its most popular features
                copy(read_part(parts, thread, like).gains, 0, n_open, part.gains, 0)
            find_splits(
                part.memory, part.nodes[:n_open], part.block.bin_offsets, part.default_bins, part.ids, part.shards,
                part.locals, least, rule, part.lefts, part.scores, part.proposals[:n_open], part.gains[:n_open],
            )  # fmt: skip
            searching += clock()
        if not meet(state, n_threads):
            return False
        is_short = state[IS_SHORT] != 0
        if is_short:
            break
        best, gains = grown.proposals[n_searched : n_searched + n_open], grown.gains[n_searched : n_searched + n_open]
        if is_first:
            _keep_best(parts, n_built, like, best, gains)
        if n_built < n_parts:
            searching -= clock()
            if not search_rare(
                thread, n_threads, parts, n_built, n_parts, like, chunks, n_chunks, of_chunks, state, looks,
                root_sums[0, MOST_GRAD], root_sums[0, MOST_HESS], n_nodes, best, gains, first_node, len(all_rows),
                len(bits), node_of_row, packed, least, rule,
            ):  # fmt: skip
                return False
            searching += clock()
        if is_first:
            times[3 + len(STAGES) * level] = clock()
            times[2 + len(STAGES) * level] = times[3 + len(STAGES) * level] - searching
            state[N_ROWS_BUILT] += len(all_rows) if level == 0 else _n_rows_of(spans)
            features, split_gains, child_sums = np.empty(n_open, np.int64), np.empty(n_open), np.empty((n_open, 4), np.int64)
            state[N_LAST_SPLIT] = choose(
                gains, best, first_node, grown.splits[n_chosen:], features, split_gains, child_sums
            )
            times[4 + len(STAGES) * level] = clock()
        if not meet(state, n_threads):
            return False
        n, is_last = state[N_LAST_SPLIT], level + 1 == max_depth
        splits = grown.splits[n_chosen : n_chosen + n]
        for c in range(thread, n_chunks, n_threads):
            chunk = read_chunk(chunks, c, of_chunks)
            if n > 0:
                _route(chunk, parts, n_parts, like, splits, n_nodes, is_last, shard, packed, bits, node_of_row)
            if n == 0 or is_last:
                number_leaves(
                    n_nodes + 2 * n, chunk.first_word, chunk.end_word, chunk.words, chunk.rows, chunk.held, node_of_row
                )
        for u in range(thread, n_built, n_threads):
            _note_parents(read_part(parts, u, like), splits, first_node)
        if not meet(state, n_threads):
            return False
        if is_first:
            times[5 + len(STAGES) * level] = clock()
        n_searched, n_chosen, first_node = n_searched + n_open, n_chosen + n, n_nodes
        level, n_open, n_nodes = level + 1, 2 * n, n_nodes + 2 * n
        if n == 0 or is_last:
            break
    if not is_short:
        fill(leaf_sums_of_threads[thread][: SUMS_OF_NODE * n_nodes], 0)
        sum_by_pieces(
            margins, labels, weights, due_nodes, due_values[:0], state[FOR_LEAVES:], node_of_row, steps[LEAF_GRAD_STEP],
            steps[LEAF_HESS_STEP], leaf_sums_of_threads[thread],
        )  # fmt: skip
    if not meet(state, n_threads):
        return False
    if is_first:
        state[IS_SHORT] = is_short
        if not is_short:
            _list_leaves(n_nodes, grown.splits[:n_chosen], leaf_sums_of_threads[:n_threads], grown)
            times[2 + len(STAGES) * level] = clock()
        state[LEVEL], state[FIRST_NODE], state[N_OPEN], state[N_NODES] = level, first_node, n_open, n_nodes
        state[N_SEARCHED], state[N_CHOSEN] = n_searched, n_chosen
    return True


@kernel_for(
    KINDS, WIDTHS, LOSSES,
    signature=lambda one, other, width, label, kind: void(
        int64, OUT[int64], int64, IN[one], IN[other], OUT[int64], int64, OUT[int64], int64, OUT[int64], OUT[int64],
        OUT[float32], IN[label], IN[kind], IN[float32], IN[float64], IN[uint64], int64, IN[float64], IN[int32], OUT2[int64],
        OUT2[int64], OUT[width], IN[int32], IN[width], OUT[uint64], OUT[uint8], OUT[int64], _GROWN, int64,
        int64,
    ),
)  # fmt: skip
def grow(
    thread, posts, n_threads, one, other, parts, n_parts, chunks, n_chunks, state, times, margins, labels, weights,
    due_values, steps, keys, row_offset, rule, all_rows, sums_of_threads, leaf_sums_of_threads, packed, rows, listed, bits,
    node_of_row, looks, grown, shard, max_depth,
):  # fmt: skip
    """Grows a tree from where `state` says, as one of n_threads that do so at the same time, until it is grown or a part is
    short of memory. Thread 0 returns then; others stay at their posts (posts) for the next call, and return later.

    one, other     indptr and bins of any part, or twice its cells: of types that all parts' have
    parts, chunks  what was kept of each
    state          of a tree that begins: the root is open, and nothing else  # OUT
    times          int64: of thread 0, when it began and when each stage was over, of all levels (clock)  # OUT
    margins        and labels, weights, due_values: as row_gradients takes them; due nodes are node_of_row as it was
    steps          (N_STEPS) and keys (1), row_offset: of the tree, as gradients.round_gradients takes them
    rule           as gains.find_split takes it
    all_rows       the training rows
    sums_of_threads, leaf_sums_of_threads   a row for each: what those rows come to that it took (node_builds, gradients), to
                   work in  # OUT
    packed         of all rows  # OUT; rows and listed: where chunks list rows, and what is packed of these
    bits           a bitvector of all rows, to work in  # OUT
    node_of_row    which leaf each row is in, once the tree is grown  # OUT
    looks          kernels.rare_search, of a tree that begins: 0  # OUT
    grown          # OUT
    """
    while True:
        if thread > 0:
            come(posts, thread)
        is_over = _grow(
            thread, n_threads, one, other, parts, n_parts, chunks, n_chunks, state, times, margins, labels, weights,
            due_values, steps, keys, row_offset, rule, all_rows, sums_of_threads, leaf_sums_of_threads, packed, rows,
            listed, bits, node_of_row, looks, grown, shard, max_depth,
        )  # fmt: skip
        if thread == 0 or not is_over or not stay(posts, thread):
            return
