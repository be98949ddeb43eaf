"""Knows what threads that grow a tree together share: parts of the features and chunks of the rows, kept where each thread
finds them, and what is done with a block of either form; does not know levels, or which thread does it.
"""

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from psboost.kernels import rare
from psboost.kernels.compile import (
    IN,
    IN2,
    OUT,
    OUT2,
    boolean,
    float64,
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
from psboost.kernels.kept import keep, reader, words_of
from psboost.kernels.node_builds import build_node, share_nodes
from psboost.kernels.node_histograms import NODE_HISTOGRAM, NodeHistogram
from psboost.kernels.packed_rows import WIDTHS
from psboost.kernels.routing import clear_by_splits
from psboost.kernels.row_bins import ROWS
from psboost.kernels.tiles import TILINGS

_INLINE = {"forceinline": True}


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
    # the open nodes, and their parents as open_nodes.add_sums takes them; best splits; how many children were built
    nodes: np.ndarray
    parents: np.ndarray
    built_left: np.ndarray
    gains: np.ndarray
    proposals: np.ndarray
    done: np.ndarray
    ends: np.ndarray  # as rare.look takes it; empty unless all features are rare


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


KINDS = ROWS | {name: (code, code) for name, code in CODES.items()}  # of blocks: two types by which they are known
_OF_PART = (
    int64, OUT[int64], IN[int32], IN[int64], IN[int32], IN[int32], OUT2[float64], OUT[float64], NODE_HISTOGRAM, OUT[int64],
    OUT2[int64], OUT2[int64], OUT[uint8], OUT[float64], OUT2[int64], OUT[int64], OUT[int64],
)  # fmt: skip
_OF_CHUNK = int64, int64, int64, int64, OUT2[uint64], OUT[int32], OUT2[int64], OUT[int32], OUT[int64]  # before packed


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
read_part, read_chunk = reader(_part, PART_WORDS), reader(_chunk, CHUNK_WORDS)


@kernel_for(
    ROWS, WIDTHS,
    signature=lambda indptr, bins, width: void(*_sparse(indptr, bins, width), *_OF_PART, int64, OUT[int64]),
)  # fmt: skip
def keep_sparse_part(
    indptr, bins, stride, posting_offsets, posting_rows, tilings, bin_offsets, values, rows_ascend, bitmap_of_bin, bitmaps,
    n_cuts, first, acc, default_bins, ids, shards, locals_, lefts, scores, memory, used, nodes, parents, built_left,
    gains, proposals, done, ends, k, parts,
):  # fmt: skip
    """Keeps what a Part is of as number k of `parts` (PART_WORDS for each)  # OUT"""
    block = SparseArrays(
        indptr, bins, stride, posting_offsets, posting_rows, tilings, bin_offsets, values, rows_ascend, bitmap_of_bin,
        bitmaps, n_cuts,
    )  # fmt: skip
    part = Part(
        block, first, acc, default_bins, ids, shards, locals_, lefts, scores, memory, used, nodes, parents, built_left,
        gains, proposals, done, ends,
    )  # fmt: skip
    keep(part, k, parts, PART_WORDS)


@kernel_for(CODES, signature=lambda code: void(*_dense(code), *_OF_PART, int64, OUT[int64]))
def keep_dense_part(
    cells, stride, bin_offsets, wide, columns, n_cuts, first, acc, default_bins, ids, shards, locals_, lefts, scores, memory,
    used, nodes, parents, built_left, gains, proposals, done, ends, k, parts,
):  # fmt: skip
    """The same of a dense block."""
    block = DenseArrays(cells, stride, bin_offsets, wide, columns, n_cuts)
    part = Part(
        block, first, acc, default_bins, ids, shards, locals_, lefts, scores, memory, used, nodes, parents, built_left,
        gains, proposals, done, ends,
    )  # fmt: skip
    keep(part, k, parts, PART_WORDS)


@kernel_for(WIDTHS, signature=lambda width: void(*_OF_CHUNK, OUT[width], OUT2[int64], OUT2[int64], int64, OUT[int64]))
def keep_chunk(
    first_word, end_word, first_row, end_row, words, rows, held, spare, room, packed, sums, spans, k, chunks
):
    """Keeps what a Chunk is of as number k of `chunks` (CHUNK_WORDS for each)  # OUT"""
    chunk = Chunk(first_word, end_word, first_row, end_row, words, rows, held, spare, room, packed, sums, spans)
    keep(chunk, k, chunks, CHUNK_WORDS)


def add_up_root(block, all_rows, span, sums, packed, slots):
    """The sums of all training rows over all bins of a block."""


@overload(add_up_root, jit_options=_INLINE)
def _compiled_add_up_root(block, all_rows, span, sums, packed, slots):
    def add_up_sparse(block, all_rows, span, sums, packed, slots):
        build_node(
            block.indptr, block.bins, block.stride, block.posting_offsets, block.posting_rows, block.tilings, all_rows, span,
            sums, packed, block.values, slots,
        )  # fmt: skip

    def add_up_dense(block, all_rows, span, sums, packed, slots):
        build_dense_node(block.cells, block.stride, block.bin_offsets, all_rows, span, sums, packed, block.wide, slots)

    return add_up_sparse if block.instance_class is SparseArrays else add_up_dense


def share_out(block, rows, spans, sums, packed, part, least):
    """Builds those children of the part's parents that are to be built, from number part.done[0] on, and shares their
    parents' histograms out to part.nodes; returns the number to go on with, or MISFIT (node_builds.share_nodes)."""


@overload(share_out, jit_options=_INLINE)
def _compiled_share_out(block, rows, spans, sums, packed, part, least):
    def share_sparse(block, rows, spans, sums, packed, part, least):
        return share_nodes(
            block.indptr, block.bins, block.stride, block.posting_offsets, block.posting_rows, block.tilings,
            block.bin_offsets, rows, spans, sums, packed, block.values, part.acc, part.memory, part.used, part.parents,
            part.built_left, part.done[0], least, part.nodes,
        )  # fmt: skip

    def share_dense(block, rows, spans, sums, packed, part, least):
        return share_dense_nodes(
            block.cells, block.stride, block.bin_offsets, rows, spans, sums, packed, block.wide, part.acc, part.memory,
            part.used, part.parents, part.built_left, part.done[0], least, part.nodes,
        )  # fmt: skip

    return share_sparse if block.instance_class is SparseArrays else share_dense


def look(block, part, n_rows, fewest, marks, are_few, node_of_row, first_node, needed, n_train, packed, least, rule):
    """rare.look at those of the part's features, all of which are rare, that n_rows rows store."""


@overload(look, jit_options=_INLINE)
def _compiled_look(
    block, part, n_rows, fewest, marks, are_few, node_of_row, first_node, needed, n_train, packed, least, rule
):
    def look_at_sparse(
        block, part, n_rows, fewest, marks, are_few, node_of_row, first_node, needed, n_train, packed, least, rule
    ):
        return rare.look(
            part.ends, n_rows, fewest, marks, are_few, block.posting_offsets, block.posting_rows, block.bin_offsets,
            part.default_bins, part.ids, part.shards, part.locals, node_of_row, first_node, needed, n_train, packed, least,
            rule, part.proposals[: len(needed)], part.gains[: len(needed)],
        )  # fmt: skip

    def none_are_dense(
        block, part, n_rows, fewest, marks, are_few, node_of_row, first_node, needed, n_train, packed, least, rule
    ):
        return int64(0)

    return look_at_sparse if block.instance_class is SparseArrays else none_are_dense


def clear_bits(block, splits, shard, first, chunk, bits):
    """Clears the bits of the chunk's rows that leave by a split by the block's features."""


@overload(clear_bits, jit_options=_INLINE)
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
