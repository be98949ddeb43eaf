"""Knows how threads look at the rare features of a level together (kernels.rare), and number rows for it; not trees.

looks (int64): of a level, how many rows a rare feature needs in some node; of a tree, whether rows are numbered by node, and
how often rare features were looked at closer; and from FIRST_NEEDED on, of a level, what each open node needs (rare.plan).
"""

import numpy as np

from psboost.kernels.arrivals import meet
from psboost.kernels.compile import inline, int64
from psboost.kernels.fills import copy, copy_rows
from psboost.kernels.members import mark_rows, number_leaves, number_rows
from psboost.kernels.parts import look, read_chunk, read_part
from psboost.kernels.rare import NEVER, plan
from psboost.kernels.splits import keep_better

FEWEST, IS_NUMBERED, N_CLOSER, FIRST_NEEDED = range(4)


@inline
def _number(chunk, n_nodes, first_node, needed, is_numbered, node_of_row):
    """Numbers the rows of a chunk by node: at first all, then those of nodes that are looked at. All others keep a number
    that no open node has."""
    if not is_numbered:
        number_leaves(n_nodes, chunk.first_word, chunk.end_word, chunk.words, chunk.rows, chunk.held, node_of_row)
        return
    for i in range(len(needed)):
        if needed[i] < NEVER:
            number_rows(
                first_node + i, chunk.first_word, chunk.end_word, chunk.words, chunk.rows, chunk.held, node_of_row
            )


@inline
def _look(
    thread, n_threads, parts, n_built, n_parts, like, chunks, n_chunks, of_chunks, fewest, best, gains, first_node, needed,
    n_train, n_words, node_of_row, packed, least, rule,
):  # fmt: skip
    """Has a thread's parts of rare features propose splits that are better than the best ones so far, if there are any."""
    marks, n_marked = np.zeros(n_words, np.uint64), int64(0)
    for u in range(n_built + thread, n_parts, n_threads):
        part = read_part(parts, u, like)
        part.done[0] = 0
        copy(gains, 0, len(gains), part.gains, 0)
        copy_rows(best, part.proposals[: len(gains)])
    for n_rows in range(fewest, NEVER):
        for i in range(len(needed)):
            for c in range(n_chunks if needed[i] == n_rows else 0):
                chunk = read_chunk(chunks, c, of_chunks)
                n_marked += mark_rows(
                    first_node + i, chunk.first_word, chunk.end_word, chunk.words, chunk.rows, chunk.held, marks
                )
        are_few = n_rows * n_marked < (fewest - 1) * len(node_of_row)
        for u in range(n_built + thread, n_parts, n_threads):
            part = read_part(parts, u, like)
            part.done[0] += look(
                part.block, part, n_rows, fewest, marks, are_few, node_of_row, first_node, needed, n_train, packed, least,
                rule,
            )  # fmt: skip


@inline
def search_rare(
    thread, n_threads, parts, n_built, n_parts, like, chunks, n_chunks, of_chunks, state, looks, most_grad, most_hess,
    n_nodes, best, gains, first_node, n_train, n_words, node_of_row, packed, least, rule,
):  # fmt: skip
    """Puts splits by rare features in the place of the best ones so far that they are better than  # OUT: best, gains; False
    if other threads gave up."""
    needed = looks[FIRST_NEEDED : FIRST_NEEDED + len(gains)]
    if thread == 0:
        looks[FEWEST] = plan(gains, best, most_grad, most_hess, least, rule, needed)
    if not meet(state, n_threads):
        return False
    if looks[FEWEST] == NEVER:
        return True
    for c in range(thread, n_chunks, n_threads):
        chunk = read_chunk(chunks, c, of_chunks)
        _number(chunk, n_nodes, first_node, needed, looks[IS_NUMBERED] != 0, node_of_row)
    if not meet(state, n_threads):
        return False
    _look(
        thread, n_threads, parts, n_built, n_parts, like, chunks, n_chunks, of_chunks, looks[FEWEST], best, gains,
        first_node, needed, n_train, n_words, node_of_row, packed, least, rule,
    )  # fmt: skip
    if not meet(state, n_threads):
        return False
    if thread == 0:
        looks[IS_NUMBERED] = 1
        for u in range(n_built, n_parts):
            part = read_part(parts, u, like)
            keep_better(part.proposals[: len(gains)], part.gains[: len(gains)], best, gains)
            looks[N_CLOSER] += part.done[0]
    return True
