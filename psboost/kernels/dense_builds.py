"""Knows how the histograms of a level's nodes are built from a dense block, one after the other; does not know sparse rows.

Nodes are taken, and entries written, as kernels.node_builds says; the block as kernels.dense has it.
"""

from psboost.kernels.compile import IN, OUT, OUT2, boolean, int32, int64, kernel_for, uint8, uint64
from psboost.kernels.dense import CODES, build_dense
from psboost.kernels.fills import fill
from psboost.kernels.histograms import span_size
from psboost.kernels.node_builds import MOST_GRAD, MOST_HESS, SUM_HESS, SUM_SIZE, extract_node, has_room
from psboost.kernels.node_histograms import NODE_HISTOGRAM
from psboost.kernels.open_nodes import add_sums, needs_pairs
from psboost.kernels.packed_rows import WIDTHS
from psboost.kernels.slots import rows_that_fit


def _block(code) -> tuple:
    """cells, stride, bin_offsets"""
    return IN[code], int64, IN[int32]


@kernel_for(
    CODES, WIDTHS,
    signature=lambda code, width: boolean(*_block(code), IN[int32], IN[int64], IN[int64], IN[width], OUT[int64], OUT[int64]),
)  # fmt: skip
def build_dense_node(cells, stride, bin_offsets, rows, span, sums, packed, wide, acc):
    """The sums of a node over all bins; returns whether they are in pairs.

    span          where the node's `rows` begin and end, for each chunk of all rows
    sums, packed  what they come to, and each of them (kernels.node_builds.list_gradients)
    wide          as build_dense takes it  # OUT
    acc           as long as pairs need it; what it held before is lost  # OUT
    """
    pairs = needs_pairs(sums[SUM_SIZE], sums[SUM_HESS])
    n_fit = rows_that_fit(sums[MOST_GRAD], sums[MOST_HESS]) if pairs else max(1, span_size(span))
    slots = acc[: int64(bin_offsets[-1]) << int64(pairs)]
    fill(slots, 0)
    for c in range(0, len(span), 2):
        begin, end = span[c], span[c + 1]
        build_dense(cells, stride, bin_offsets, rows[begin:end], packed[begin:end], pairs, n_fit, wide, slots)
    return pairs


@kernel_for(
    CODES, WIDTHS,
    signature=lambda code, width: int64(
        *_block(code), IN[int32], OUT2[int64], OUT2[int64], IN[width], OUT[int64], OUT[int64], IN[int32], IN[int64],
        IN[int64], IN[int64], int64, int64, OUT[int32], OUT[int64], OUT[int64], IN[int64], OUT2[int64],
    ),
)  # fmt: skip
def build_dense_nodes(
    cells, stride, bin_offsets, rows, spans, sums, packed, wide, acc, features, offsets, positions, edges, first, i, bins,
    grads, hesses, begins, ends,
):  # fmt: skip
    """Builds node i and all that follow, and writes them down; returns the first for which there might be no room."""
    while i < len(spans):
        most = span_size(spans[i]) * (len(bin_offsets) - 1)
        if not has_room(edges, first, bin_offsets, most, i, begins, ends):
            return i
        pairs = build_dense_node(cells, stride, bin_offsets, rows, spans[i], sums[i], packed, wide, acc)
        low, end = offsets[positions[i] // 2], offsets[positions[i] // 2 + 1]
        extract_node(
            features, low, end, edges, first, bin_offsets, False, acc, pairs, begins.view(uint64), False, i, bins, grads,
            hesses, begins, ends,
        )  # fmt: skip
        i += 1
    return int64(i)


@kernel_for(
    CODES, WIDTHS,
    signature=lambda code, width: int64(
        *_block(code), IN[int32], OUT2[int64], OUT2[int64], IN[width], OUT[int64], OUT[int64], NODE_HISTOGRAM,
        OUT[int64], OUT2[int64], IN[uint8], int64, int64, OUT2[int64],
    ),
)  # fmt: skip
def share_dense_nodes(
    cells, stride, bin_offsets, rows, spans, sums, packed, wide, acc, memory, used, parents, built_left, k, least, nodes
):
    """Builds the child of split k that is to be built, and those of all that follow, and shares their parents' histograms
    out, as kernels.node_builds.share_nodes does; returns the split to go on with, or MISFIT."""
    for i in range(k, len(spans)):
        build_dense_node(cells, stride, bin_offsets, rows, spans[i], sums[i], packed, wide, acc)
        done = add_sums(memory, used, parents, built_left, i, acc, sums[i], least, False, nodes)
        if done != i + 1:
            return done
    return int64(len(spans))
