"""Knows the cells of CSR rows, and what is wrong with them; does not know text or files.

Which cells count: `keep_zeros` and `keep_nan` say whether zeros and NaN do, all others do.
"""

import numpy as np

from psboost.kernels.compile import IN, OUT, boolean, float32, inline, int32, int64, kernel, kernel_for, types, uint64
from psboost.kernels.floats import FLOAT32_MAX

INDICES = {"": int32, "seldom": int64}  # of columns
_ALL = np.uint64(2**64 - 1)


@inline
def does_count(value, keep_zeros, keep_nan):
    return (keep_zeros or value != 0) and (keep_nan or not np.isnan(value))


@kernel_for(
    INDICES,
    signature=lambda index: int64(IN[int64], IN[index], IN[float32], boolean, boolean, OUT[int64], OUT[index], OUT[float32]),
)
def compact(indptr, columns, values, keep_zeros, keep_nan, out_indptr, out_columns, out_values):
    """Number of cells that are left: those that count and whose column is not negative. -0.0 becomes 0.0."""
    n = 0
    out_indptr[0] = 0
    for row in range(len(indptr) - 1):
        for k in range(indptr[row], indptr[row + 1]):
            value = values[k]
            if columns[k] >= 0 and does_count(value, keep_zeros, keep_nan):
                out_columns[n] = columns[k]
                out_values[n] = value if value != 0 else np.float32(0)
                n += 1
        out_indptr[row + 1] = n
    return n


@kernel(int64(IN[float32]))
def first_infinite(values):
    """Position of the first value that float32 cannot hold, -1 if there is none."""
    some = False
    for k in range(len(values)):  # many at once: as a rule there is none
        some |= abs(values[k]) >= FLOAT32_MAX
    if some:
        for k in range(len(values)):
            if abs(values[k]) >= FLOAT32_MAX:
                return k
    return -1


@kernel_for(INDICES, signature=lambda index: types.UniTuple(int64, 2)(IN[int64], IN[index], int64))
def check_rows(indptr, columns, n_features):
    """(position of the first column outside 0 .. n_features or -1, 1 if each row's columns ascend else 0)."""
    most = int64(_ALL >> uint64(65 - 8 * columns.itemsize))  # np.iinfo would load 10 MB of what compiles kernels
    highest = columns.dtype.type(min(n_features - 1, most))
    outside = False
    for k in range(uint64(len(columns))):  # many at once, as below
        outside |= (columns[k] < 0) | (columns[k] > highest)
    if outside:
        for k in range(len(columns)):
            if columns[k] < 0 or columns[k] > highest:
                return k, 0
    descends = False
    for row in range(len(indptr) - 1):
        for k in range(uint64(indptr[row]) + uint64(1), uint64(indptr[row + 1])):
            descends |= columns[k] <= columns[k - uint64(1)]
    return -1, 0 if descends else 1
