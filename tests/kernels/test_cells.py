"""Knows the kernels of cells, compiled and as plain Python; does not know sources, which compare them with a slow twin."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from psboost.kernels import cells as kernels

MATRICES = arrays(
    np.float32, st.tuples(st.integers(0, 12), st.integers(0, 9)), elements=st.sampled_from([0, 0, 0, 1.5, -2, np.nan])
)


@settings(max_examples=30, deadline=None)
@given(MATRICES, st.booleans(), st.booleans())
def test_kernels_as_plain_python(matrix, keep_zeros, keep_nan):
    kept = keep_zeros, keep_nan
    csr = sparse.csr_array(matrix)
    csr.data[::5] = np.float32(-0.0)
    indptr, columns = csr.indptr.astype(np.int64), csr.indices.astype(np.int32)
    values = csr.data.astype(np.float32)
    results = []
    for plain in (False, True):
        out = [np.empty(len(indptr), np.int64), np.zeros(csr.nnz, np.int32), np.zeros(csr.nnz, np.float32)]
        located = (columns + 1) % 4 - 1  # some columns negative

        def run(kernel, *args, plain=plain):
            return (kernel.py_func if plain else kernel)(*args)

        n = run(kernels.compact, indptr, located, values, *kept, *out)
        checked = run(kernels.check_rows, indptr, columns, matrix.shape[1])
        narrow = run(kernels.check_rows, indptr, columns, matrix.shape[1] - 1)
        results.append([n, *out, checked, narrow, run(kernels.first_infinite, values)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    n, out_values = results[0][0], results[0][3]
    assert not np.signbit(out_values[:n][out_values[:n] == 0]).any()
