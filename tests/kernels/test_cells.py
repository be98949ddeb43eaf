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
    table = np.arange(matrix.shape[1] // 2, dtype=np.int32)
    results = []
    for plain in (False, True):
        out = [np.empty(len(indptr), np.int64), np.zeros(csr.nnz, np.int32), np.zeros(csr.nnz, np.float32)]
        located, counts = np.empty(csr.nnz, np.int32), np.zeros(matrix.shape[1] // 2, np.uint32)

        def run(kernel, *args, plain=plain):
            return (kernel.py_func if plain else kernel)(*args)

        run(kernels.locate_by_table, columns, table, located)
        n = run(kernels.compact, indptr, located, values, *kept, *out)
        run(kernels.count_by_table, columns, values, *kept, counts)
        checked = run(kernels.check_rows, indptr, columns, matrix.shape[1])
        narrow = run(kernels.check_rows, indptr, columns, matrix.shape[1] - 1)
        results.append([n, *out, located, counts, checked, narrow, run(kernels.first_infinite, values)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    n, out_values = results[0][0], results[0][3]
    assert not np.signbit(out_values[:n][out_values[:n] == 0]).any()


def test_hash_kernels_as_plain_python():
    rng = np.random.default_rng(0)
    columns = rng.integers(0, 2**62, 50)
    columns = np.concatenate([columns, columns[:20]])
    values = rng.integers(0, 2, 70).astype(np.float32)
    with np.errstate(over="ignore"):
        results = []
        for plain in (False, True):
            pick = (lambda k: k.py_func) if plain else (lambda k: k)
            keys, counts = np.full(64, -1, np.int64), np.zeros(64, np.int64)
            ended = pick(kernels.count_by_hash)(columns, values, False, False, 0, 0, 0, keys, counts)
            located = np.empty(70, np.int32)
            pick(kernels.locate_by_hash)(columns, keys, np.arange(64, dtype=np.int32), located)
            moved, payloads = np.full(128, -1, np.int64), np.zeros(128, np.int64)
            pick(kernels.fill_hash)(keys, counts, moved, payloads)
            results.append(
                [ended, keys.tolist(), counts.tolist(), located.tolist(), sorted(moved), sum(payloads)]
            )
    assert results[0] == results[1]
