"""Knows how all rows' gradients are made of their margins and used, in pieces that stay in a near cache; knows no trees.

Gradients are never held for all rows. What is due is a value for each node: by it the margins of the node's rows move first.
Threads that are called with the same `turns` share the rows out: each takes the next piece when it is done with one.

    margins        float32: as they are, then as they have moved  # OUT
    labels         of a type that says of which loss (kernels.gradients)
    weights        of the rows, or a single one
    due_nodes, due_values   the rows' nodes, and the nodes' values; without values nothing is due
    turns          int64 (1): how many pieces were taken  # OUT
"""

import numpy as np

from psboost.kernels.atomics import take_turn
from psboost.kernels.compile import IN, OUT, boolean, float32, float64, inline, int64, kernel_for, uint64, void
from psboost.kernels.gradients import LOSSES, add_values, compute_gradients, round_gradients, sum_by_node
from psboost.kernels.members import NODES
from psboost.kernels.node_builds import add_rows
from psboost.kernels.packed_rows import WIDTHS

PIECE = 1 << 14  # rows
_BY_BOUNDS = {"seldom": LOSSES["logistic loss"], "squared error": LOSSES["squared error"]}  # where they are not known


def _rows(label, kind, node) -> tuple:
    return OUT[float32], IN[label], IN[kind], IN[node], IN[float32], OUT[int64]


@inline
def _next_piece(turns, n_rows):
    """begin, end of the next piece's rows; there is none if begin is n_rows."""
    begin = min(take_turn(turns) * PIECE, n_rows)
    return begin, min(begin + PIECE, n_rows)


@inline
def _make(begin, end, margins, labels, weights, due_nodes, due_values, grads, hesses):
    """Grads and hesses (OUT, room for PIECE rows) of rows begin .. end."""
    own, n = margins[begin:end], end - begin
    if len(due_values) > 0:
        add_values(due_nodes[begin:end], due_values, own)
    of_rows = weights if len(weights) == 1 else weights[begin:end]
    compute_gradients(own, labels[begin:end], of_rows, grads[:n], hesses[:n])


@kernel_for(
    LOSSES, NODES, WIDTHS,
    signature=lambda label, kind, node, width: void(
        *_rows(label, kind, node), float64, float64, boolean, uint64, int64, OUT[width], OUT[int64]
    ),
)  # fmt: skip
def round_by_pieces(
    margins, labels, weights, due_nodes, due_values, turns, grad_step, hess_step, exact, key, row_offset, packed, sums
):
    """gradients.round_gradients; the rows' are also added to `sums` (node_builds.add_rows)  # OUT"""
    grads, hesses = np.empty(PIECE, weights.dtype), np.empty(PIECE, weights.dtype)
    begin, end = _next_piece(turns, len(packed))
    while begin < end:
        _make(begin, end, margins, labels, weights, due_nodes, due_values, grads, hesses)
        own, n = packed[begin:end], end - begin
        round_gradients(grads[:n], hesses[:n], grad_step, hess_step, exact, key, row_offset + begin, own)
        add_rows(own, sums)
        begin, end = _next_piece(turns, len(packed))


@kernel_for(
    LOSSES, NODES,
    signature=lambda label, kind, node: void(*_rows(label, kind, node), IN[node], float64, float64, OUT[int64]),
)  # fmt: skip
def sum_by_pieces(margins, labels, weights, due_nodes, due_values, turns, node_of_row, grad_step, hess_step, sums):
    """gradients.sum_by_node."""
    grads, hesses = np.empty(PIECE, weights.dtype), np.empty(PIECE, weights.dtype)
    begin, end = _next_piece(turns, len(margins))
    while begin < end:
        _make(begin, end, margins, labels, weights, due_nodes, due_values, grads, hesses)
        n = end - begin
        sum_by_node(grads[:n], hesses[:n], node_of_row[begin:end], grad_step, hess_step, sums)
        begin, end = _next_piece(turns, len(margins))


@kernel_for(_BY_BOUNDS, NODES, signature=lambda label, kind, node: void(*_rows(label, kind, node), OUT[kind]))
def maxima_by_pieces(margins, labels, weights, due_nodes, due_values, turns, maxima):
    """Raises the two of `maxima` (OUT) to the greatest |grad| and hess."""
    grad, hess = maxima[0], maxima[1]
    grads, hesses = np.empty(PIECE, weights.dtype), np.empty(PIECE, weights.dtype)
    begin, end = _next_piece(turns, len(margins))
    while begin < end:
        _make(begin, end, margins, labels, weights, due_nodes, due_values, grads, hesses)
        for i in range(end - begin):
            grad, hess = max(grad, abs(grads[i])), max(hess, hesses[i])
        begin, end = _next_piece(turns, len(margins))
    maxima[0], maxima[1] = grad, hess
