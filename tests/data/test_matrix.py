"""Knows matrices and .npz files as sources, right and wrong; does not know text."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from psboost.cluster.inputs import DataInput, as_file
from psboost.data import matrix as matrix_module
from psboost.data.columns import to_columns
from psboost.data.source import EVALUATION, PREDICTION, open_source
from psboost.errors import DataError, ParameterError
from tests.naive import cells as naive

NAN = np.nan
X = np.array([[0, 1.5, 0, NAN], [0, 0, 0, 0], [-2, 0, 3, 0], [0, NAN, 0, 1], [0, 0, 0, 0]])
Y = np.array([1.0, 0, 0.5, -1, 2])


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("npz")


def whole(source, keep=None):
    return source.read(source.spans(1)[0], keep)


def as_rows(rows):
    borders = list(zip(rows.indptr[:-1], rows.indptr[1:], strict=True))
    return [(rows.features[b:e].tolist(), rows.values[b:e].tolist()) for b, e in borders]


def dense_rows(matrix):
    """Every cell of a dense matrix, as (columns, values) per row."""
    return [(list(range(matrix.shape[1])), row.astype(np.float32).tolist()) for row in np.asarray(matrix)]


def same(rows, expected):
    """Equal, with NaN equal to NaN."""
    assert [columns for columns, _ in rows] == [columns for columns, _ in expected]
    for (_, values), (_, wanted) in zip(rows, expected, strict=True):
        np.testing.assert_array_equal(values, wanted)


def save(folder, matrix, name="x.npz", savez=np.savez, **extra):
    """Write CSR arrays without a format, as np.savez does."""
    csr = sparse.csr_array(matrix)
    arrays = {"indptr": csr.indptr, "indices": csr.indices, "data": csr.data, "shape": csr.shape}
    savez(folder / name, **(arrays | extra))
    return folder / name


random_matrices = st.tuples(
    st.integers(0, 2**32 - 1), st.integers(0, 12), st.integers(0, 9), st.sampled_from([0.0, 0.1, 0.6, 1.0])
).map(lambda a: random_matrix(*a))


def random_matrix(seed, n_rows, n_columns, density):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(n_rows, n_columns)) * (rng.random((n_rows, n_columns)) < density)
    matrix[rng.random(matrix.shape) < 0.1] = NAN
    matrix[rng.random(matrix.shape) < 0.1] = -0.0
    return matrix


def with_zeros(matrix):
    """CSR of the matrix that stores about a third of its zeros."""
    rng = np.random.default_rng(1)
    rows, columns = np.nonzero((matrix != 0) | (rng.random(matrix.shape) < 0.3))
    return sparse.csr_array((matrix[rows, columns], (rows, columns)), shape=matrix.shape)


def stored_rows(csr):
    values = csr.data.astype(np.float32)
    return [(csr.indices[b:e].tolist(), values[b:e].tolist()) for b, e in zip(csr.indptr, csr.indptr[1:], strict=False)]


@settings(max_examples=60, deadline=None)
@given(
    random_matrices,
    st.sampled_from([True, False, "unstored", None]),
    st.integers(1, 20),
    st.sampled_from([1, 7, 1 << 20]),
)
def test_dense_sparse_and_file_beside_naive(folder, matrix, rule, n_parts, piece):
    y = np.arange(len(matrix))
    csr = with_zeros(matrix)
    path = save(folder, csr, y=y, weights=y + 1.0)
    packed = save(folder, csr, "packed.npz", np.savez_compressed, y=y, weights=y + 1.0)
    keep = np.random.default_rng(0).permutation(matrix.shape[1])[: matrix.shape[1] // 2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix_module, "PIECE_CELLS", piece)
        for source in (
            open_source(matrix, y, weights=y + 1.0, zero_as_missing=rule),
            open_source(np.asfortranarray(matrix), y, weights=y + 1.0, zero_as_missing=rule),
            open_source(csr, y, weights=y + 1.0, zero_as_missing=rule),
            open_source(path, zero_as_missing=rule),
            open_source(packed, zero_as_missing=rule),
        ):
            dense = isinstance(source, matrix_module.DenseSource)
            assert source.zero_as_missing is (False if dense and rule is None else rule)
            spans = source.spans(n_parts)
            assert len(spans) == n_parts
            assert [spans[0][0], spans[-1][1]] == [0, len(matrix)]
            assert all(a[1] == b[0] for a, b in zip(spans[:-1], spans[1:], strict=True))
            everything = dense_rows(matrix) if dense else stored_rows(csr)
            expected = naive.compact(everything, source.zero_as_missing)
            parts = [source.read(span) for span in spans]
            same(sum((as_rows(part) for part in parts), []), expected)
            assert not any(np.signbit(part.values[part.values == 0]).any() for part in parts)
            assert np.concatenate([part.labels for part in parts]).tolist() == y.tolist()
            assert np.concatenate([part.weights for part in parts]).tolist() == (y + 1.0).tolist()
            assert {part.n_features for part in parts} == {matrix.shape[1]}
            counts = source.count((0, len(matrix)))
            wanted = naive.count(everything, source.zero_as_missing)
            assert counts.features.tolist() == list(wanted)
            assert counts.counts.tolist() == list(wanted.values())
            assert (counts.n_rows, counts.n_values) == (len(matrix), sum(wanted.values()))
            assert counts.labels.tolist() == y.tolist()
            if not dense or rule == "unstored":
                assert counts.stores_zeros == any(0 in values for _, values in everything)
            located = [(naive.locate(columns, keep.tolist()), values) for columns, values in everything]
            kept = whole(source, keep)
            same(as_rows(kept), naive.compact(located, source.zero_as_missing))
            assert kept.features.dtype == np.int32
            for decided in (source.zero_as_missing, True):  # by which fewer cells may be left than were counted
                read = source.with_rule(decided)
                counted = source.count_in_parts((0, len(matrix)), n_parts)
                at_once, by_row = read.read_counted(counted, keep), whole(read, keep)
                wanted = to_columns([(by_row.indptr, by_row.features, by_row.values)], len(keep))
                got = at_once.columns.part(0, len(keep))
                for name in ("n_rows", "offsets", "rows", "values"):
                    np.testing.assert_array_equal(getattr(got, name), getattr(wanted, name))
                assert at_once.labels.tolist() == y.tolist()
                assert at_once.weights.tolist() == (y + 1.0).tolist()


def test_a_rule_that_is_decided_later(folder):
    csr = with_zeros(X)
    csr.data[csr.data != 0] *= 2
    for data in (csr, save(folder, csr, "later.npz"), X * 2):
        source = open_source(data, Y)
        whole(source)
        for rule in (True, False, "unstored"):
            decided, told = source.with_rule(rule), open_source(data, Y, zero_as_missing=rule)
            same(as_rows(whole(decided)), as_rows(whole(told)))
            assert decided.count((0, 5)).n_values == told.count((0, 5)).n_values
        assert source.zero_as_missing is (False if isinstance(data, np.ndarray) else None)


def test_rules():
    for rule in (True, False, "unstored"):
        assert open_source(X, zero_as_missing=rule).zero_as_missing is rule
    assert open_source(X, zero_as_missing=np.True_).zero_as_missing is True
    for wrong in ("true", "auto", 2, 0.5):
        with pytest.raises(ParameterError, match='zero_as_missing must be True, False or "unstored", not '):
            open_source(X, zero_as_missing=wrong)


def test_types_and_what_is_left_alone():
    rows = whole(open_source(X, Y))
    types = [array.dtype for array in (rows.indptr, rows.features, rows.values, rows.labels)]
    assert types == [np.int64, np.int64, np.float32, np.float64]
    assert rows.bytes_read == 0
    source = open_source(sparse.csr_array(X))
    assert whole(source).labels is None
    assert source.count((0, 5)).labels is None


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", ">i4", "u8", "f2", ">f4", "f8", "g"])
def test_every_type_of_number(dtype):
    matrix = np.array([[0, 1, 0], [1, 0, 1]]).astype(dtype)
    expected = [([1], [1.0]), ([0, 2], [1.0, 1.0])]
    assert as_rows(whole(open_source(matrix))) == expected
    assert as_rows(whole(open_source(matrix[::-1][::-1, :]))) == expected
    if dtype != "f2" and not dtype.startswith(">"):
        assert as_rows(whole(open_source(sparse.csr_array(matrix)))) == expected


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_every_sparse_layout(layout, kind, folder):
    matrix = kind(np.nan_to_num(X)).asformat(layout)
    expected = naive.compact(dense_rows(np.nan_to_num(X)), True)
    same(as_rows(whole(open_source(matrix))), expected)
    if layout in ("csr", "csc", "coo", "bsr"):
        for compressed in (True, False):
            sparse.save_npz(folder / "layout.npz", matrix, compressed=compressed)
            same(as_rows(whole(open_source(folder / "layout.npz", Y))), expected)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "lil", "dok"])
def test_every_sparse_layout_keeps_its_zeros(layout, folder):
    csr = with_zeros(X)
    matrix = csr.asformat(layout)
    assert (csr.data == 0).sum() > 2
    same(as_rows(whole(open_source(matrix, zero_as_missing="unstored"))), naive.compact(stored_rows(csr), "unstored"))
    assert open_source(matrix).count((0, 5)).stores_zeros


def test_lists_and_objects_with_an_array():
    class Frame:
        def __array__(self, dtype=None, copy=None):
            return X

    for data in (X.tolist(), Frame()):
        same(as_rows(whole(open_source(data))), naive.compact(dense_rows(X), False))


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_unsorted_and_repeated_columns_are_added_up(index, folder):
    data = np.array([1.0, 2, 3, 4, 5, -5])
    indices = np.array([3, 1, 3, 0, 2, 2], index)
    indptr = np.array([0, 3, 4, 6], index)
    matrix = sparse.csr_matrix((data, indices, indptr), shape=(3, 4))
    path = folder / "repeated.npz"
    np.savez(path, indptr=indptr, indices=indices, data=data, shape=(3, 4))
    for source in (open_source(matrix), open_source(path), open_source(matrix.tocoo())):
        same(as_rows(whole(source)), [([1, 3], [2, 4]), ([0], [4]), ([2], [0])])  # a sum of 0 is stored
        assert source.count((0, 3)).n_values == 4
        source = source.with_rule(True)
        same(as_rows(whole(source)), [([1, 3], [2, 4]), ([0], [4]), ([], [])])
        assert source.count((0, 3)).n_values == 3
    assert matrix.indices.tolist() == [3, 1, 3, 0, 2, 2]  # the caller's matrix is left alone


@pytest.mark.parametrize(("dtype", "value"), [(np.uint8, 200), (np.int8, 100), (bool, True)])
def test_repeated_cells_of_small_numbers_are_added_up_as_numbers(dtype, value, folder):
    matrix = sparse.coo_matrix((np.full(3, value, dtype), ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    sparse.save_npz(folder / "small.npz", matrix)
    written = as_file(str(folder), "x", matrix, None, None).open()
    for source in (open_source(matrix), open_source(folder / "small.npz"), written):
        same(as_rows(whole(source)), [([1], [2 * int(value)]), ([0], [int(value)])])


def test_large_column_numbers():
    columns = np.array([5, 2**40, 2**62, 2**62])
    matrix = sparse.csr_array((np.ones(4), columns, [0, 3, 4]), shape=(2, 2**63 - 1))
    source = open_source(matrix)
    assert as_rows(whole(source)) == [([5, 2**40, 2**62], [1] * 3), ([2**62], [1])]
    counts = source.count((0, 2))
    assert (counts.features.tolist(), counts.counts.tolist()) == ([5, 2**40, 2**62], [1, 1, 2])
    assert as_rows(whole(source, np.array([2**62, 7]))) == [([0], [1]), ([0], [1])]
    assert whole(source).n_features == 2**63 - 1


def test_spans_are_balanced_by_values():
    matrix = sparse.csr_array(np.vstack([np.ones((10, 90)), np.zeros((900, 90))]))
    source = open_source(matrix)
    loads = [source.read(span).n_rows + len(source.read(span).values) for span in source.spans(4)]
    assert max(loads) < 1.5 * min(loads)
    parts = [part for span in source.spans(3) for part in source.split(span, 5)]
    assert [begin for begin, _ in parts[1:]] == [end for _, end in parts[:-1]]
    assert source.spans(2000)[-1][1] == 910
    with pytest.raises(ParameterError, match="n_parts"):
        source.spans(0)


def test_a_mapped_file_reads_its_span(folder):
    matrix = sparse.random(1000, 50, density=0.5, format="csr", random_state=np.random.default_rng(1))
    sparse.save_npz(folder / "mapped.npz", matrix, compressed=False)
    source = open_source(folder / "mapped.npz")
    reads = [source.read(span).bytes_read for span in source.spans(5)]
    n_bytes = matrix.data.nbytes + matrix.indices.nbytes
    assert sum(reads) == pytest.approx(n_bytes + matrix.indptr.nbytes, rel=0.01)
    assert max(reads[1:]) < 0.25 * n_bytes
    sparse.save_npz(folder / "packed.npz", matrix, compressed=True)
    source = open_source(folder / "packed.npz")
    size = (folder / "packed.npz").stat().st_size
    first, second = whole(source), whole(source)
    assert 0.9 * size < first.bytes_read <= size
    assert second.bytes_read == 0


def test_declared_width(folder):
    assert whole(open_source(X, n_features=10)).n_features == 10
    assert whole(open_source(save(folder, X), n_features=10)).n_features == 10
    with pytest.raises(DataError, match="X has 4 columns, n_features declares 3"):
        open_source(X, n_features=3)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_nothing(shape, kind):
    source = open_source(kind(np.zeros(shape)), np.zeros(shape[0]))
    rows = whole(source)
    assert (rows.n_rows, len(rows.values), rows.n_features, len(rows.labels)) == (
        shape[0],
        0,
        shape[1],
        shape[0],
    )
    assert source.count((0, shape[0])).n_values == 0
    assert source.read((0, 0)).n_rows == 0


# --- what is wrong


@pytest.mark.parametrize("value", [np.inf, -np.inf, 3.4028235e38, 1e300])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csc_matrix])
def test_infinite_values(value, kind, monkeypatch):
    monkeypatch.setattr(matrix_module, "PIECE_CELLS", 5)
    matrix = np.nan_to_num(X)
    matrix[3, 2] = value
    with pytest.raises(DataError, match="X: the value in row 3, column 2 is infinite"):
        whole(open_source(kind(matrix)))
    matrix[3, 2] = 3.402823e38
    assert whole(open_source(kind(matrix))).n_rows == 5


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (np.zeros(3), "X has 1 dimensions, 2 are needed"),
        (np.zeros((1, 2, 3)), "X has 3 dimensions"),
        (sparse.coo_array(np.ones(3)), "X has 1 dimensions"),
        (5, "X is a int: give a matrix"),
        (X.astype(complex), "X holds values of type complex128"),
        (sparse.csr_array(np.nan_to_num(X)).astype(complex), "X holds values of type complex128"),
        (np.array([["a", "b"]]), "X holds values of type <U1"),
        (np.array([["a", 1.0]], object), "X holds objects that are not all numbers"),
        ([[1, 2], [3]], "X is not a matrix"),
        (np.ma.masked_invalid(X), "X is a masked array"),
    ],
)
def test_wrong_matrices(data, what):
    with pytest.raises(DataError, match=what):
        open_source(data)


@pytest.mark.parametrize(
    ("kwargs", "what"),
    [
        ({"labels": Y[:3]}, "labels has 3 entries, X has 5 rows"),
        ({"labels": np.c_[Y, Y]}, "labels have 2 dimensions"),
        ({"labels": [1, 2, NAN, 4, 5]}, r"labels\[2\] is nan"),
        ({"labels": [1, 2, 3, np.inf, 5]}, r"labels\[3\] is inf"),
        ({"labels": list("abcde")}, "labels are not numbers"),
        ({"labels": Y + 1j}, "labels are not numbers"),
        ({"weights": [1, 2]}, "weights has 2 entries, X has 5 rows"),
        ({"weights": [1, 2, 3, 4, -1]}, r"weights\[4\] is -1.0: weights must be 0 or more"),
        ({"weights": [1, NAN, 3, 4, 1]}, r"weights\[1\] is nan: weights must be finite"),
    ],
)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_wrong_labels_and_weights(kwargs, what, kind):
    with pytest.raises(DataError, match=what):
        open_source(kind(X), **kwargs)


def test_wrong_npz_files(folder):
    path = folder / "wrong.npz"

    def refused(what, extra=None, **kwargs):
        if extra is not None:
            save(folder, np.nan_to_num(X), "wrong.npz", **extra)
        with pytest.raises(DataError, match=rf"wrong\.npz.*{what}"):
            whole(open_source(path, **kwargs))

    refused("labels were given, but it has its own", {"y": Y}, labels=Y)
    refused("weights were given, but it has its own", {"weights": Y**2}, weights=Y)
    for wrong in ("w", "weight", "sample_weight"):
        refused(f"'{wrong}' in it would not be read: name weights 'weights'", {"y": Y, wrong: Y})
    refused("'labels' in it would not be read: name labels 'y'", {"labels": Y})
    for unread in ("weights", "sample_weight"):
        refused(f"'{unread}' in it would not be read: metrics have no weights", {unread: Y}, purpose=EVALUATION)
    save(folder, np.nan_to_num(X), "beside.npz", y=np.array(["no", "yes"]), labels=Y, weights=Y)
    rows = whole(open_source(folder / "beside.npz", purpose=PREDICTION))
    assert rows.labels is None and rows.weights is None
    refused("5 rows", {"y": Y[:4]})
    for shape in ((5, 4, 1), 5, (5.0, 4.0), ("5", "4"), np.array([5, 2**63 + 5], np.uint64)):
        refused("shape is", {"shape": shape})
    refused("cannot be read as .npz", {"format": np.array(3)})
    refused("indptr must hold 7", {"shape": (6, 4)})
    refused("indptr must rise", {"indptr": np.array([0, 3, 2, 3, 4, 4])})
    refused("indptr must rise", {"indptr": np.array([0, 1, 1, 3, 4, 99])})
    refused("of one length", {"data": np.ones(3)})
    refused("real numbers are needed", {"data": np.ones(4, complex)})
    refused("row 2 has column 4, the matrix has 4 columns", {"indices": np.array([1, 0, 4, 3])})
    refused("row 0 has column -1", {"indices": np.array([-1, 0, 2, 3])})
    refused("the value in row 3, column 3 is infinite", {"data": np.array([1.0, 2, 3, np.inf])})
    refused("cannot be read as .npz", {"data": np.array([1, 2, 3, None])})
    np.savez(path, indptr=[0], indices=[], data=[])
    refused("no 'shape' in it")
    path.write_bytes(b"1 1:1\n")
    refused("cannot be read as .npz")
    path.write_bytes(save(folder, X).read_bytes()[:200])
    refused("cannot be read as .npz")
    damaged = bytearray(save(folder, X).read_bytes())
    for entry in re.finditer(b"PK\x01\x02", bytes(damaged)):  # of the zip's directory: where the member begins
        damaged[entry.start() + 42 : entry.start() + 46] = (len(damaged) - 10).to_bytes(4, "little")
    path.write_bytes(damaged)
    refused("cannot be read as .npz")


def test_an_empty_file_of_labels(folder):
    (folder / "labels.npy").touch()
    with pytest.raises(DataError, match=r"labels\.npy: cannot be read as labels"):
        DataInput(str(save(folder, X)), labels=str(folder / "labels.npy")).open()
