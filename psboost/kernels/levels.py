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
from numba.extending import overload

from psboost.kernels.arrivals import N_MEETING, clock, meet
from psboost.kernels.compile import (
    IN,
    IN2,
    OUT,
    OUT2,
    boolean,
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
from psboost.kernels.dense import CODES, clear_by_splits_dense
from psboost.kernels.dense_builds import build_dense_node, share_dense_nodes
from psboost.kernels.fills import fill
from psboost.kernels.gains import find_splits
from psboost.kernels.histograms import span_size
from psboost.kernels.kept import keep, reader, words_of
from psboost.kernels.members import number_children, number_leaves, split_rows
from psboost.kernels.node_builds import (
    MOST_GRAD,
    N_SUMS,
    SUM_GRAD,
    SUM_HESS,
    SUM_SIZE,
    build_node,
    list_gradients,
    share_nodes,
)
from psboost.kernels.node_histograms import NODE_HISTOGRAM, NodeHistogram, take
from psboost.kernels.open_nodes import (
    AT_BIN,
    AT_FEATURE,
    AT_SLOT,
    GRAD,
    HESS,
    N_BINS,
    N_FEATURES,
    N_FIELDS,
    PAIRS,
    SIZE,
    needs_pairs,
)
from psboost.kernels.packed_rows import WIDTHS
from psboost.kernels.routing import clear_by_splits
from psboost.kernels.row_bins import N_NONE, ROWS
from psboost.kernels.splits import BUILD_LEFT, N_PROPOSED, NODE, choose, keep_better
from psboost.kernels.tiles import TILINGS

_INLINE = {"forceinline": True}
MOST_DEPTH = 7  # of a tree: a row's node is a uint8 then
MOST_OPEN = 1 << MOST_DEPTH - 1  # nodes that are searched at one level
MOST_NODES = 2 << MOST_DEPTH  # and of a tree

# state (int64): the meeting; which level comes next, its first node and how many it has, and the first node of the level
# above; how many nodes there are, were searched and were split, and how many of these one level above; whether a part is
# short of memory; how many rows the nodes have that were built
LEVEL, FIRST_NODE, N_OPEN, FIRST_ABOVE, N_NODES, N_SEARCHED, N_CHOSEN, N_LAST_SPLIT, IS_SHORT, N_ROWS_BUILT, N_STATE = range(
    N_MEETING, N_MEETING + 11
)
STAGES = "build", "search", "choose", "route"  # of a level, in this order
_ALL = uint64(2**64 - 1)


class SparseArrays(NamedTuple):
    """What a part's histograms are built of, and its rows routed by, in a sparse block (data.block.SparseBlock); `values` as
    node_builds takes them."""

    indptr: np.ndarray
    bins: np.ndarray
    stride: int
    posting_offsets: np.ndarray
    posting_rows: np.ndarray
    tilings: tuple
    bin_offsets: np.ndarray
    values: np.ndarray
    rows_ascend: bool
    bitmap_of_bin: np.ndarray
    bitmaps: np.ndarray
    n_cuts: np.ndarray


class DenseArrays(NamedTuple):
    """The same of a dense block (data.block.DenseBlock); `wide` as dense_builds takes it."""

    cells: np.ndarray
    stride: int
    bin_offsets: np.ndarray
    wide: np.ndarray
    columns: np.ndarray
    n_cuts: np.ndarray


class Part(NamedTuple):
    """Features side by side, of which one thread builds the histograms and finds the best splits."""

    block: SparseArrays | DenseArrays
    first: int  # feature, among those of the worker
    acc: np.ndarray  # as node_builds and dense_builds take it
    # boosting.split.SplitFinder
    default_bins: np.ndarray
    ids: np.ndarray
    shards: np.ndarray
    locals: np.ndarray
    lefts: np.ndarray
    scores: np.ndarray
    memory: NodeHistogram
    used: np.ndarray
    # the open nodes of two levels; the best splits of one; which of its splits comes next, whose child is to be built
    nodes: np.ndarray
    gains: np.ndarray
    proposals: np.ndarray
    done: np.ndarray


class Chunk(NamedTuple):
    """Rows that follow each other, which one thread routes (boosting.partition); what they come to in the nodes that are
    built (sums, int64, a row for each), and where these are (spans)."""

    first_word: int
    end_word: int
    first_row: int
    end_row: int
    words: np.ndarray
    rows: np.ndarray
    held: np.ndarray
    spare: np.ndarray
    room: np.ndarray
    packed: np.ndarray
    sums: np.ndarray
    spans: np.ndarray


class Grown(NamedTuple):
    """What comes of a tree: the best split of each node that was searched, in order, and the splits that were made."""

    gains: np.ndarray
    proposals: np.ndarray
    splits: np.ndarray


KINDS = ROWS | {name: (code, code) for name, code in CODES.items()}  # of blocks: two types by which they are known
_OF_PART = (
    int64, OUT[int64], IN[int32], IN[int64], IN[int32], IN[int32], OUT2[float64], OUT[float64], NODE_HISTOGRAM, OUT[int64],
    OUT2[int64], OUT[float64], OUT2[int64], OUT[int64],
)  # fmt: skip
_OF_CHUNK = int64, int64, int64, int64, OUT2[uint64], OUT[int32], OUT2[int64], OUT[int32], OUT[int64]  # before packed
_GROWN = types.NamedTuple((OUT[float64], OUT2[int64], OUT2[int32]), Grown)


def _sparse(indptr, bins, width) -> tuple:
    of_rows = IN[indptr], IN[bins], int64, IN[int64], IN[int32], TILINGS, IN[int32], OUT[width]
    return *of_rows, boolean, IN[int32], IN2[uint64], IN[int32]


def _dense(code) -> tuple:
    return IN[code], int64, IN[int32], OUT[int64], IN2[code], IN[int32]


def _part(one, other, width):
    is_dense = one == other
    arrays = (_dense(one), DenseArrays) if is_dense else (_sparse(one, other, width), SparseArrays)
    return types.NamedTuple((types.NamedTuple(*arrays), *_OF_PART), Part)


def _chunk(width):
    return types.NamedTuple((*_OF_CHUNK, OUT[width], OUT2[int64], OUT2[int64]), Chunk)


PART_WORDS, CHUNK_WORDS = words_of(_part(*ROWS["wide rows"], int64)), words_of(_chunk(int64))
_read_part, _read_chunk = reader(_part, PART_WORDS), reader(_chunk, CHUNK_WORDS)


@kernel_for(
    ROWS, WIDTHS,
    signature=lambda indptr, bins, width: void(*_sparse(indptr, bins, width), *_OF_PART, int64, OUT[int64]),
)  # fmt: skip
def keep_sparse_part(
    indptr, bins, stride, posting_offsets, posting_rows, tilings, bin_offsets, values, rows_ascend, bitmap_of_bin, bitmaps,
    n_cuts, first, acc, default_bins, ids, shards, locals_, lefts, scores, memory, used, nodes, gains, proposals, done, k,
    parts,
):  # fmt: skip
    """Keeps what a Part is of as number k of `parts` (PART_WORDS for each)  # OUT"""
    block = SparseArrays(
        indptr, bins, stride, posting_offsets, posting_rows, tilings, bin_offsets, values, rows_ascend, bitmap_of_bin,
        bitmaps, n_cuts,
    )  # fmt: skip
    part = Part(
        block, first, acc, default_bins, ids, shards, locals_, lefts, scores, memory, used, nodes, gains, proposals, done
    )
    keep(part, k, parts, PART_WORDS)


@kernel_for(CODES, signature=lambda code: void(*_dense(code), *_OF_PART, int64, OUT[int64]))
def keep_dense_part(
    cells, stride, bin_offsets, wide, columns, n_cuts, first, acc, default_bins, ids, shards, locals_, lefts, scores, memory,
    used, nodes, gains, proposals, done, k, parts,
):  # fmt: skip
    """The same of a dense block."""
    block = DenseArrays(cells, stride, bin_offsets, wide, columns, n_cuts)
    part = Part(
        block, first, acc, default_bins, ids, shards, locals_, lefts, scores, memory, used, nodes, gains, proposals, done
    )
    keep(part, k, parts, PART_WORDS)


@kernel_for(WIDTHS, signature=lambda width: void(*_OF_CHUNK, OUT[width], OUT2[int64], OUT2[int64], int64, OUT[int64]))
def keep_chunk(
    first_word, end_word, first_row, end_row, words, rows, held, spare, room, packed, sums, spans, k, chunks
):
    """Keeps what a Chunk is of as number k of `chunks` (CHUNK_WORDS for each)  # OUT"""
    chunk = Chunk(first_word, end_word, first_row, end_row, words, rows, held, spare, room, packed, sums, spans)
    keep(chunk, k, chunks, CHUNK_WORDS)


def _add_up_root(block, all_rows, span, sums, packed, slots):
    """The sums of all training rows over all bins of a block."""


@overload(_add_up_root, jit_options=_INLINE)
def _compiled_add_up_root(block, all_rows, span, sums, packed, slots):
    def add_up_sparse(block, all_rows, span, sums, packed, slots):
        build_node(
            block.indptr, block.bins, block.stride, block.posting_offsets, block.posting_rows, block.tilings, all_rows, span,
            sums, packed, block.values, slots,
        )  # fmt: skip

    def add_up_dense(block, all_rows, span, sums, packed, slots):
        build_dense_node(block.cells, block.stride, block.bin_offsets, all_rows, span, sums, packed, block.wide, slots)

    return add_up_sparse if block.instance_class is SparseArrays else add_up_dense


def _share_out(block, rows, spans, sums, packed, part, splits, first, least, nodes):
    """Builds those children that are to be built of `splits`, parents and built_left, from number `first` on, and shares
    their parents' histograms out (node_builds.share_nodes)."""


@overload(_share_out, jit_options=_INLINE)
def _compiled_share_out(block, rows, spans, sums, packed, part, splits, first, least, nodes):
    def share_sparse(block, rows, spans, sums, packed, part, splits, first, least, nodes):
        return share_nodes(
            block.indptr, block.bins, block.stride, block.posting_offsets, block.posting_rows, block.tilings,
            block.bin_offsets, rows, spans, sums, packed, block.values, part.acc, part.memory, part.used, splits[0],
            splits[1], first, least, nodes,
        )  # fmt: skip

    def share_dense(block, rows, spans, sums, packed, part, splits, first, least, nodes):
        return share_dense_nodes(
            block.cells, block.stride, block.bin_offsets, rows, spans, sums, packed, block.wide, part.acc, part.memory,
            part.used, splits[0], splits[1], first, least, nodes,
        )  # fmt: skip

    return share_sparse if block.instance_class is SparseArrays else share_dense


def _clear_bits(block, splits, shard, first, chunk, bits):
    """Clears the bits of the chunk's rows that leave by a split by the block's features."""


@overload(_clear_bits, jit_options=_INLINE)
def _compiled_clear_bits(block, splits, shard, first, chunk, bits):
    def clear_sparse(block, splits, shard, first, chunk, bits):
        clear_by_splits(
            block.indptr, block.bins, block.stride, block.posting_offsets, block.posting_rows, block.rows_ascend,
            block.bitmap_of_bin, block.bitmaps, block.bin_offsets, block.n_cuts, splits, shard, first, chunk.first_row,
            chunk.end_row, chunk.words, chunk.rows, chunk.held, bits,
        )  # fmt: skip

    def clear_dense(block, splits, shard, first, chunk, bits):
        clear_by_splits_dense(
            block.columns, block.bin_offsets, block.n_cuts, splits, shard, first, chunk.first_row, chunk.end_row,
            chunk.words, chunk.rows, chunk.held, bits,
        )  # fmt: skip

    return clear_sparse if block.instance_class is SparseArrays else clear_dense


@inline
def _build_root(part, all_rows, sums, packed, least):
    """Takes the root's histogram, of all training rows, into the part's memory, which has room for it."""
    bin_offsets, span = part.block.bin_offsets, np.array([0, len(all_rows)])
    n_bins, pairs = int64(bin_offsets[-1]), needs_pairs(sums[SUM_SIZE], sums[SUM_HESS])
    slots = part.acc[: (n_bins + N_NONE) << int64(pairs)]
    _add_up_root(part.block, all_rows, span, sums, packed, slots)
    n_features = take(bin_offsets, slots[: n_bins << int64(pairs)], pairs, least, part.memory)
    fill(slots, 0)
    root, n_present = part.nodes[0], int64(part.memory.starts[n_features])
    root[AT_FEATURE], root[AT_BIN], root[AT_SLOT] = 0, 0, 0
    root[N_FEATURES], root[N_BINS], root[PAIRS] = n_features, n_present, pairs
    root[GRAD], root[HESS], root[SIZE] = sums[SUM_GRAD], sums[SUM_HESS], sums[SUM_SIZE]
    part.used[0], part.used[1], part.used[2] = n_features + 1, n_present, n_present << int64(pairs)


@inline
def _join_chunks(chunks, n_chunks, like, spans, sums):
    """What the chunks say of the nodes that are built: `spans` and `sums` as node_builds takes them  # OUT"""
    for c in range(n_chunks):
        chunk = _read_chunk(chunks, c, like)
        for i in range(len(spans)):
            spans[i, 2 * c], spans[i, 2 * c + 1] = chunk.spans[i, 0], chunk.spans[i, 1]
            for column in range(N_SUMS):
                own = chunk.sums[i, column]
                if c == 0:
                    sums[i, column] = own
                elif column < MOST_GRAD:
                    sums[i, column] += own
                else:
                    sums[i, column] = max(sums[i, column], own)


@inline
def _n_rows_of(spans):
    n_rows = int64(0)
    for i in range(len(spans)):
        n_rows += span_size(spans[i])
    return n_rows


@inline
def _open_of(level, part, n):
    """Where a level's n open nodes are noted: of two levels that follow each other, not at the same place."""
    begin = (level & 1) * MOST_OPEN
    return part.nodes[begin : begin + n]


@inline
def _build_children(part, level, splits, first_split, rows, spans, sums, listed, least):
    """Builds those children of these splits that are to be built, from number part.done[0] on, which rises, or is MISFIT;
    returns whether all are."""
    n, done = len(splits), part.done[0]
    above = _open_of(level - 1, part, MOST_OPEN)
    parents, built_left = np.empty((n, N_FIELDS), np.int64), np.empty(n, np.uint8)
    for s in range(n):
        built_left[s] = splits[s, BUILD_LEFT]
        for field in range(N_FIELDS):
            parents[s, field] = above[splits[s, NODE] - first_split, field]
    part.done[0] = _share_out(
        part.block, rows, spans, sums, listed, part, (parents, built_left), done, least, _open_of(level, part, 2 * n)
    )
    return part.done[0] == n


@inline
def _choose(parts, n_parts, like, first_node, n_open, grown, n_searched, n_split):
    """Writes down the best split of each open node and, of these, the ones to make; returns how many these are."""
    best, gains = grown.proposals[n_searched : n_searched + n_open], grown.gains[n_searched : n_searched + n_open]
    for u in range(n_parts):
        part = _read_part(parts, u, like)
        if u > 0:
            keep_better(part.proposals[:n_open], part.gains[:n_open], best, gains)
            continue
        for i in range(n_open):
            gains[i] = part.gains[i]
            for column in range(N_PROPOSED):
                best[i, column] = part.proposals[i, column]
    features, split_gains, child_sums = np.empty(n_open, np.int64), np.empty(n_open), np.empty((n_open, 4), np.int64)
    return choose(gains, best, first_node, grown.splits[n_split:], features, split_gains, child_sums)


@inline
def _route(chunk, parts, n_parts, like, splits, first_child, is_last, n_train, shard, packed, bits, node_of_row):
    """Moves the rows of a chunk to the children of split nodes; lists those of children that are built, if any are."""
    for w in range(chunk.first_word, chunk.end_word):
        bits[w] = _ALL
    for u in range(n_parts):
        part = _read_part(parts, u, like)
        _clear_bits(part.block, splits, shard, part.first, chunk, bits)
    own = chunk.first_word, chunk.end_word
    if is_last:
        number_children(splits, first_child, own[0], own[1], bits, chunk.words, chunk.rows, chunk.held, node_of_row)
        return
    spans = chunk.spans[: len(splits)]
    split_rows(
        splits, first_child, own[0], own[1], n_train, bits, chunk.words, chunk.rows, chunk.spare, chunk.held, chunk.room,
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
    like, of_chunks, n_met, is_first = (one, other, packed), (packed,), int64(0), thread == 0
    level, first_node, n_open, n_nodes = state[LEVEL], state[FIRST_NODE], state[N_OPEN], state[N_NODES]
    n_searched, n_split, n, first_above = state[N_SEARCHED], state[N_CHOSEN], state[N_LAST_SPLIT], state[FIRST_ABOVE]
    if is_first and level == 0:
        times[0] = clock()
    while True:
        splits = grown.splits[n_split - n : n_split]
        spans, sums = np.empty((n, 2 * n_chunks), np.int64), np.empty((n, N_SUMS), np.int64)
        _join_chunks(chunks, n_chunks, of_chunks, spans, sums)
        for u in range(thread, n_parts, n_threads):
            part = _read_part(parts, u, like)
            if level == 0:
                _build_root(part, all_rows, root_sums, packed, least)
            elif not _build_children(part, level, splits, first_above, rows, spans, sums, listed, least):
                state[IS_SHORT] = 1
        n_met += n_threads
        if not meet(state, n_met):
            return
        if state[IS_SHORT] != 0:
            break
        if is_first:
            times[1 + len(STAGES) * level] = clock()
            state[N_ROWS_BUILT] += len(all_rows) if level == 0 else _n_rows_of(spans)
        for u in range(thread, n_parts, n_threads):
            part = _read_part(parts, u, like)
            find_splits(
                part.memory, _open_of(level, part, n_open), part.block.bin_offsets, part.default_bins, part.ids, part.shards,
                part.locals, least, rule, part.lefts, part.scores, part.proposals[:n_open], part.gains[:n_open],
            )  # fmt: skip
        n_met += n_threads
        if not meet(state, n_met):
            return
        if is_first:
            times[2 + len(STAGES) * level] = clock()
            state[N_LAST_SPLIT] = _choose(parts, n_parts, like, first_node, n_open, grown, n_searched, n_split)
            times[3 + len(STAGES) * level] = clock()
        n_met += n_threads
        if not meet(state, n_met):
            return
        n, is_last = state[N_LAST_SPLIT], level + 1 == max_depth
        splits = grown.splits[n_split : n_split + n]
        for c in range(thread, n_chunks, n_threads):
            chunk = _read_chunk(chunks, c, of_chunks)
            if n > 0:
                _route(
                    chunk, parts, n_parts, like, splits, n_nodes, is_last, n_train, shard, packed, bits, node_of_row
                )
            if n == 0 or is_last:
                number_leaves(
                    n_nodes + 2 * n, chunk.first_word, chunk.end_word, chunk.words, chunk.rows, chunk.held, node_of_row
                )
        n_met += n_threads
        if not meet(state, n_met):
            return
        if is_first:
            times[4 + len(STAGES) * level] = clock()
        n_searched, n_split, first_above, first_node = n_searched + n_open, n_split + n, first_node, n_nodes
        level, n_open, n_nodes = level + 1, 2 * n, n_nodes + 2 * n
        if n == 0 or is_last:
            break
        for u in range(thread, n_parts, n_threads):
            _read_part(parts, u, like).done[0] = 0
    if is_first:
        state[LEVEL], state[FIRST_NODE], state[N_OPEN], state[N_NODES] = level, first_node, n_open, n_nodes
        state[N_SEARCHED], state[N_CHOSEN], state[FIRST_ABOVE] = n_searched, n_split, first_above
