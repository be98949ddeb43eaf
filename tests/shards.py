"""Draws the rows of a row shard: which node each is in, and where its bit sends it."""

import numpy as np
from hypothesis import strategies as st

from tests.naive import routing as naive

_SIZES = st.sampled_from([0, 1, 2, 63, 64, 65, 130, 400])


@st.composite
def shards(draw):
    """(node of each row, bits, some rows ascending)"""
    n_rows = draw(_SIZES)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    node_of_row = rng.integers(3, 6, n_rows).tolist()
    bits = (rng.random(n_rows) < draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))).tolist()
    return node_of_row, bits, np.flatnonzero(rng.random(n_rows) < 0.5).tolist()


def words_of(bits):
    return np.array(naive.to_words(bits), np.uint64)


def members_of(node_of_row, nodes):
    """uint64 (nodes + 1, n_words): the rows of each; the last place is free."""
    places = [words_of([own == node for own in node_of_row]) for node in nodes]
    return np.stack([*places, np.full_like(places[0], 7)])


def edges_of(n_rows, in_parts):
    """first_row, last_row of each part."""
    edges = [0, n_rows // 192 * 64, n_rows] if in_parts else [0, n_rows]
    return list(zip(edges, edges[1:], strict=False))
