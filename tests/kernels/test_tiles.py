"""Sums by tiles where a tile's rows come to as much as they can."""

import numpy as np
import pytest

from psboost.data.block import LEAST_TILES, tilings_of
from psboost.kernels import tiles
from psboost.kernels.packed_rows import most_grad


@pytest.mark.parametrize("width", [np.int32, np.int64])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_tile_of_the_greatest_gradients(width, sign):
    """Of int32 rows, all of the largest tile come to one slot."""
    size = (1 << 16) - 1
    n_rows = LEAST_TILES * size
    grad, hess = sign * most_grad(width().itemsize) - (sign < 0), 1 << 4 * width().itemsize - 1
    packed = np.full(n_rows, (grad << 4 * width().itemsize) + hess, width)
    offsets, rows = np.array([0, n_rows, n_rows]), np.arange(n_rows, dtype=np.int32)
    tilings = tilings_of(offsets, rows, n_rows, True, [(size, 1), (size, 0)])
    assert tilings[0].bins.tolist() == [0]
    acc = np.full(4, 77)
    tiles.build_by_tiles(offsets, rows, tilings, packed, True, acc)
    assert acc.tolist() == [n_rows * grad, n_rows * hess, 0, 0]
