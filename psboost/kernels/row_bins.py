"""Knows which integers a sparse block's rows of bins are held in, and where each row's are; not what is made of them.

    indptr   row r's bins are bins[indptr[r] : indptr[r + 1]]
    bins     ascending within a row
    stride   0; or, of padded rows, how many bins lie between two rows' first ones, one of STRIDES: each row is in one cache
             line, and at place k behind its bins is n_bins + k, which is no bin: accumulators have slots for these N_NONE
             numbers as well, and not one for all, where each row would wait for what the row before adds

A node's rows are far apart in a block, and to go through them is to wait for memory: in half the room, it takes two thirds
of the time on avazu-shaped data.
"""

from psboost.kernels.compile import inline, int32, int64, uint16, uint64

STRIDES = 4, 8, 16
N_NONE = STRIDES[-1]
ROWS = {"narrow rows": (int32, uint16), "wide rows": (int64, int32)}  # indptr and bins


@inline
def bins_of(indptr, stride, row):
    """Where a row's bins, or what they are padded to, begin and end: of padded ones without waiting for `indptr`."""
    if stride > 0:
        return uint64(stride) * row, uint64(stride) * (row + uint64(1))
    return uint64(indptr[row]), uint64(indptr[row + uint64(1)])
