"""Knows svmlight text that is right or wrong in every way; does not know what its rows are for."""

import bz2
import gzip
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from psboost.cluster.threads import side_by_side
from psboost.data import column_tables
from psboost.data import svmlight as svmlight_module
from psboost.data.rows import Counts
from psboost.data.source import open_source
from psboost.errors import DataError, ParameterError
from psboost.kernels import svmlight as kernels
from tests.naive import cells as naive_cells
from tests.naive import svmlight as naive


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("svmlight")


def opened(folder, text, name="train.svm", **kwargs):
    path = folder / name
    path.write_bytes(text)
    return open_source(path, **kwargs)


def read_all(source, n_parts=1, keep=None):
    """(labels, rows of (columns, values)) of all spans, one after another."""
    labels, rows = [], []
    for span in source.spans(n_parts):
        part = source.read(span, keep)
        labels += part.labels.tolist()
        for begin, end in zip(part.indptr[:-1], part.indptr[1:], strict=True):
            rows.append((part.features[begin:end].tolist(), part.values[begin:end].tolist()))
    return labels, rows


def same(rows, expected):
    """Equal, with NaN equal to NaN."""
    assert [columns for columns, _ in rows] == [columns for columns, _ in expected]
    for (_, values), (_, wanted) in zip(rows, expected, strict=True):
        np.testing.assert_array_equal(np.array(values, np.float32), np.array(wanted, np.float32))


# --- what is right


def test_one_file_with_everything(folder):
    text = (
        b"# a comment\r\n\n1 1:1 3:-1.5\t4:.5 9:5.  # the end\r\n"
        b"-1 qid:7 2:1e-3 3:9.8E-02 5:+2\n  \t\n+1\n0.5 7:nan 8:NaN 10:0 11:-0.0#c\n2e0 12:007"
    )
    source = opened(folder, text, zero_as_missing=False)
    labels, rows = read_all(source)
    assert labels == [1, -1, 1, 0.5, 2]
    same(
        rows,
        [
            ([0, 2, 3, 8], [1, -1.5, 0.5, 5]),
            ([1, 2, 4], [1e-3, 9.8e-2, 2]),
            ([], []),
            ([6, 7], [np.nan, np.nan]),
            ([11], [7]),
        ],
    )
    rows = source.read(source.spans(1)[0])
    assert (rows.n_features, rows.n_rows, rows.weights) == (12, 5, None)
    assert rows.bytes_read == len(text)
    assert [array.dtype for array in (rows.indptr, rows.features, rows.values, rows.labels)] == [
        np.int64, np.int64, np.float32, np.float64,
    ]  # fmt: skip
    same(read_all(opened(folder, text, zero_as_missing=True))[1][3:4], [([], [])])  # NaN is the same as not stored
    for rule in ("unstored", None):  # and so it is here, but zeros are not
        source = opened(folder, text, zero_as_missing=rule)
        same(read_all(source)[1][3:4], [([9, 10], [0, 0])])
        assert source.count(source.spans(1)[0]).stores_zeros
    source = opened(folder, text.replace(b" 10:0 11:-0.0", b""))
    assert not source.count(source.spans(1)[0]).stores_zeros


@pytest.mark.parametrize("pack, suffix", [(bytes, ""), (gzip.compress, ".gz")])
def test_a_byte_order_mark_is_as_good_as_blanks(folder, pack, suffix):
    text = b"1 1:1 3:-1.5\n-1 2:1e-3\n"
    expected = read_all(opened(folder, text))
    marked = opened(folder, pack(b"\xef\xbb\xbf" + text), "marked.svm" + suffix)
    for n_parts in range(1, len(text)):
        assert read_all(marked, n_parts) == expected
    with pytest.raises(DataError, match=r":2:1: the label '.*feff-1' is not a number"):
        read_all(opened(folder, pack(text.replace(b"\n-", b"\n\xef\xbb\xbf-")), "marked.svm" + suffix))


matrices = st.integers(0, 2**32 - 1).map(
    lambda seed: sparse.random(
        seed % 23 + 1, 40, density=0.2, format="csr", random_state=np.random.default_rng(seed)
    )
)


@settings(max_examples=40, deadline=None)
@given(matrices, st.integers(1, 60), st.sampled_from([0, 1]), st.sampled_from(["", ".gz", ".bz2"]))
def test_round_trip_beside_scikit_learn(folder, matrix, n_parts, base, suffix):
    matrix.data = matrix.data * 10.0 ** np.random.default_rng(matrix.nnz).integers(-30, 30, matrix.nnz)
    y = np.random.default_rng(0).normal(size=matrix.shape[0])
    buffer = io.BytesIO()
    dump_svmlight_file(matrix, y, buffer, zero_based=base == 0, comment="written here")
    pack = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}[suffix]
    source = opened(folder, pack(buffer.getvalue()), "x.svm" + suffix, index_base=base)
    theirs, labels = load_svmlight_file(str(folder / ("x.svm" + suffix)), zero_based=base == 0, n_features=40)
    labels_read, rows = read_all(source, n_parts)
    assert labels_read == labels.tolist()
    same(rows, [(row.indices.tolist(), row.data.astype(np.float32).tolist()) for row in theirs])


tokens = st.sampled_from(
    b"""1 -1 +1 nan inf 1e400 .5 1, 1,2 1|f | a #c qid:1 qid: qid:x 1:1 2:1 2:.5 3:nan 4:NaN 5:inf 5:1e39
    6:1e-50 6:3.4028235e38 7:3.4028234e38 7: :7 7:1: 8:1e 8:1e+ 9:- 9:. 9:1.5.2 +9:1 -9:1 10:1_0 11:0x1
    12:-infinity
    13:infinit
    20:1e99999999999999999999 20:0e99999999 21:1e-99999999999999 9223372036854775807:1
    9223372036854775808:1 99999999999999999999:1 9x:1 0:1 22:12345678901234567890123e-20
    23:000000000000000000001 24:0.00000000000000000000000000000000000000000000012""".split()
)
good = st.lists(st.tuples(st.integers(1, 60), st.floats(width=32, allow_infinity=False)), max_size=6).map(
    lambda pairs: b" ".join(f"{i}:{v!r}".encode() for i, v in sorted(dict(pairs).items()))
)
blanks = st.sampled_from([b" ", b"  ", b"\t", b" \t ", b"\x0b", b"\x0c", b"\r"])
ends = st.sampled_from([b"\n", b"\r\n", b" \n", b"\n\n", b" # x\n"])


@st.composite
def texts(draw):
    text = b""
    for _ in range(draw(st.integers(0, 5))):
        text += draw(st.sampled_from([b"1", b"-1", b"0.1", b"1e23", b"123456789.123456789123", b" 7"]))
        if draw(st.booleans()):
            text += b" " + draw(good)
        elif draw(st.booleans()):
            for token in draw(st.lists(tokens, max_size=4)):
                text += draw(blanks) + token
        text += draw(ends)
    return text


@settings(max_examples=300, deadline=None)
@given(texts(), st.sampled_from([0, 1]), st.sampled_from([2**63 - 1, 30]), st.sampled_from([True, False, "unstored"]))
def test_parse_beside_naive_twin(folder, text, base, width, zero_as_missing):
    expected, code, at = naive.parse(text, base, width)
    source = opened(folder, text, index_base=base, n_features=width, zero_as_missing=zero_as_missing)
    if code == kernels.FINE:
        labels, rows = read_all(source)
        assert labels == [label for label, _, _ in expected]
        same(rows, naive_cells.compact([row[1:] for row in expected], zero_as_missing))
        stores_zeros = any(value == 0 for _, _, values in expected for value in values)
        assert any(source.count(span).stores_zeros for span in source.spans(3)) == stores_zeros
        return
    line = text.count(b"\n", 0, at) + 1
    column = at - text.rfind(b"\n", 0, at)
    with pytest.raises(DataError) as caught:
        read_all(source)
    assert str(caught.value).startswith(f"{folder / 'train.svm'}:{line}:{column}: ")


@settings(max_examples=60, deadline=None)
@given(texts())
def test_parse_as_plain_python(text):
    text += b"\n"
    compiled = svmlight_module._buffers(len(text))
    plain = svmlight_module._buffers(len(text))
    result = kernels.parse(np.frombuffer(text, np.uint8), 1, 100, *compiled)
    with pytest.MonkeyPatch.context() as patch, np.errstate(over="ignore", under="ignore"):
        for name in ("_ends", "_word", "_number", "_qid"):
            patch.setattr(kernels, name, getattr(kernels, name).py_func)
        assert kernels.parse.py_func(text, 1, 100, *plain) == result
    n_rows, n_values, _, n_long = result[:4]
    for a, b, n in zip(compiled, plain, (n_rows + 1, n_values, n_values, n_rows, 2 * n_long), strict=True):
        np.testing.assert_array_equal(a[:n], b[:n])


@settings(max_examples=200, deadline=None)
@given(st.floats(allow_nan=False, width=32), st.integers(-1, 1), st.integers(1, 25))
def test_values_between_two_float32(folder, value, side, n_digits):
    """Decimals on, just above and just below the border between two float32 are rounded as float() does."""
    with np.errstate(over="ignore", under="ignore"):
        border = (float(value) + float(np.nextafter(np.float32(value), np.float32(0)))) / 2
        border = float(np.nextafter(border, side * np.inf)) if side else border
        token = f"{border:.{n_digits}e}"
        expected = np.float32(float(token))
    source = opened(folder, f"{token} 1:{token}".encode(), "border.svm", zero_as_missing=False)
    if abs(expected) >= kernels.FLOAT32_MAX:
        with pytest.raises(DataError, match="infinite"):
            source.read(source.spans(1)[0])
        return
    rows = source.read(source.spans(1)[0])
    assert rows.values.tolist() == [expected] * int(expected != 0)
    assert rows.labels.tolist() == [float(token)]


# --- spans, pieces, keep, counts


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"# only a comment", b"1", b"1 1:1\n2\n\n3 2:2\n" * 3 + b"4 1:1"]
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_spans_hold_every_row_once(folder, text, suffix, monkeypatch):
    monkeypatch.setattr(svmlight_module, "CHUNK_BYTES", 3)
    monkeypatch.setattr(svmlight_module, "TAIL_BYTES", 2)
    source = opened(folder, gzip.compress(text) if suffix else text, "s.svm" + suffix)
    whole = read_all(source)
    assert whole[0] == [row[0] for row in naive.parse(text)[0]]
    for n_parts in range(1, len(text) + 4):
        spans = source.spans(n_parts)
        assert len(spans) == n_parts
        assert read_all(source, n_parts) == whole
    for n_parts in (1, 2, 7):
        labels = [
            source.count(part).labels.tolist()
            for span in source.spans(3)
            for part in source.split(span, n_parts)
        ]
        assert sum(labels, []) == whole[0]


def test_lines_longer_than_a_piece(folder, monkeypatch):
    monkeypatch.setattr(svmlight_module, "CHUNK_BYTES", 64)
    monkeypatch.setattr(svmlight_module, "TAIL_BYTES", 16)
    line = b"1 " + b" ".join(b"%d:%d" % (k, k) for k in range(1, 200)) + b"\n"
    source = opened(folder, line * 5 + b"2 1:1")
    labels, rows = read_all(source, 3)
    assert labels == [1] * 5 + [2]
    assert rows[4] == (list(range(199)), list(range(1, 200)))


def test_a_span_reads_its_own_bytes(folder):
    source = opened(folder, b"1 1:1 2:2 3:3\n" * 100_000)
    parts = [source.read(span) for span in source.spans(4)]
    assert sum(part.n_rows for part in parts) == 100_000
    slack = svmlight_module.TAIL_BYTES + 100
    assert all(350_000 <= part.bytes_read <= 350_000 + slack for part in parts)


@pytest.mark.parametrize("table_columns", [0, 40, 1 << 24])
@settings(max_examples=20, deadline=None)
@given(matrices, st.sampled_from([1, 10**6, 2**56]))
def test_keep_and_count_beside_naive(folder, table_columns, matrix, stride):
    rng = np.random.default_rng(matrix.nnz)
    rows = [((row.indices.astype(object) * stride).tolist(), row.data.tolist()) for row in matrix]
    lines = [" ".join(["1"] + [f"{c}:{v!r}" for c, v in zip(*row, strict=True)]) for row in rows]
    source = opened(folder, "\n".join(lines).encode(), "keep.svm", index_base=0)
    span = source.spans(1)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_tables, "TABLE_COLUMNS", table_columns)
        patch.setattr(svmlight_module, "CHUNK_BYTES", 1000)
        counts = source.count(span)
        expected = naive_cells.count(rows, True)
        assert dict(zip(counts.features.tolist(), counts.counts.tolist(), strict=True)) == expected
        assert counts.features.tolist() == list(expected)
        assert (counts.n_rows, counts.n_values) == (len(rows), sum(expected.values()))
        assert counts.n_features == max(expected, default=-1) + 1
        keep = rng.permutation(40)[: rng.integers(0, 40)].astype(np.int64) * stride
        patch.setattr(column_tables, "LOOKUP_COLUMNS", table_columns)
        kept = source.read(span, keep)
        assert kept.features.dtype == np.int32
        assert kept.n_rows == len(rows)
        assert kept.n_features == counts.n_features
        wanted = naive_cells.compact([(naive_cells.locate(c, keep.tolist()), np.float32(v)) for c, v in rows], True)
        same(read_all(source, 1, keep)[1], wanted)
        by_row = source.read_columns(span, keep)
        with side_by_side(3, "test") as threads:
            of_three = threads(3)
            for counted in ([counts], source.count_in_parts(span, 3, of_three)):
                same_counts(Counts.join(counted), counts)
                for held in (source.read_counted(counted, keep, of_three), source.read_columns(span, keep, 3, of_three)):
                    for name in ("offsets", "rows", "values"):
                        np.testing.assert_array_equal(getattr(held.columns, name), getattr(by_row.columns, name))
                    assert held.labels.tolist() == by_row.labels.tolist() == [1.0] * len(rows)


def same_counts(got, expected):
    assert got.features.tolist() == expected.features.tolist()
    assert got.counts.tolist() == expected.counts.tolist()
    names = ("span", "n_rows", "n_values", "n_features", "stores_zeros")
    assert [getattr(got, name) for name in names] == [getattr(expected, name) for name in names]
    assert got.labels.tolist() == expected.labels.tolist()


def test_lines_added_between_counting_and_reading_are_an_error(folder):
    source = opened(folder, b"1 1:1 2:2\n0 2:1\n")
    span = source.spans(1)[0]
    counts = source.count(span)
    opened(folder, b"1 2:1\n0 2:1\n1 2:1\n")
    with pytest.raises(DataError, match="train.svm changed between counting and reading it"):
        source.read_counted([counts], np.array([1, 0]))


def last_first(function, *items):
    """A `map` in the other order."""
    return [function(*args) for args in reversed(list(zip(*items, strict=True)))][::-1]


@pytest.mark.parametrize("in_order", [map, last_first])
def test_the_first_line_that_is_wrong_is_named(folder, in_order):
    source = opened(folder, b"1 1:1\n" * 20 + b"1 1:x\n" + b"1 1:1\n" * 40 + b"1 1:x\n" * 2)
    with pytest.raises(DataError, match="train.svm:21:5"):
        source.count_in_parts(source.spans(1)[0], 4, in_order)


def test_a_part_that_is_wrong_ends_those_behind_it(folder, monkeypatch):
    monkeypatch.setattr(svmlight_module, "CHUNK_BYTES", 64)
    monkeypatch.setattr(svmlight_module, "TAIL_BYTES", 64)
    source = opened(folder, b"1 1:x\n" + b"1 1:1 2:2\n" * 999)
    n_read = [0, 0]

    def pieces(span, read=source._cells):
        for cells in read(span):
            n_read[span[0] > 0] += 1
            yield cells

    monkeypatch.setattr(source, "_cells", pieces)
    whole = list(svmlight_module.SvmlightSource._cells(source, source.split(source.spans(1)[0], 2)[1]))
    with pytest.raises(DataError, match="train.svm:1:5"):
        source.count_in_parts(source.spans(1)[0], 2)
    assert n_read[1] <= 1 < len(whole)


@pytest.mark.parametrize("name", ["train.svm", "train.svm.gz"])
def test_packed_text_is_read_in_one_part(folder, name):
    text = b"1 1:1 2:2\n" * 9
    source = opened(folder, gzip.compress(text) if name.endswith("gz") else text, name)
    counted = source.count_in_parts(source.spans(1)[0], 3)
    assert [part.n_rows for part in counted] == ([9] if name.endswith("gz") else [3, 3, 3])


def test_the_largest_index(folder):
    source = opened(folder, b"1 1:1 9223372036854775806:2\n", index_base=0)
    rows = source.read(source.spans(1)[0], np.array([2**63 - 2]))
    assert (rows.features.tolist(), rows.values.tolist(), rows.n_features) == ([0], [2], 2**63 - 1)
    assert source.count(source.spans(1)[0]).features.tolist() == [1, 2**63 - 2]
    source = opened(folder, b"1 9223372036854775807:2\n", index_base=0)
    with pytest.raises(DataError, match="1:3: with index_base=0, index 9223372036854775807 is beyond"):
        source.count(source.spans(1)[0])


# --- what is wrong

WRONG = [
    (b"1 1:1\n\n1 9:1 4:1\n", "3:7", "index 4 comes after 9: indices must ascend within a line"),
    (b"1 4:1 4:2", "1:7", "index 4 is repeated"),
    (b"1 0:1", "1:3", "index 0 is below index_base=1"),
    (b"1 11:1", "1:3", "index 11 is beyond the declared n_features=10"),
    (b"1 9223372036854775808:1", "1:3", "beyond 2^63 - 1"),
    (b"# x\n 1,2 1:1", "2:2", "'1,2' looks like CSV or several labels"),
    (b"one 1:1", "1:1", "the label 'one' is not a number"),
    (b"1:1 2:1", "1:1", "not with a label"),
    (b"nan 1:1", "1:1", "the label 'nan' is not a number"),
    (b"-inf 1:1", "1:1", "the label '-inf' is infinite"),
    (b"1e999 1:1", "1:1", "is infinite"),
    (b"1 1", "1:3", "'1' is not index:value"),
    (b"1 -1:2", "1:3", "'-1:2' is not index:value"),
    (b"1 1:1 \xff\xfe", "1:7", "is not index:value"),
    (b"1 1:1 " + b"x" * 1000, "1:7", "'" + "x" * 40 + "...' is not index:value"),
    (b"1 1:abc", "1:5", "is not a number"),
    (b"1 1:", "1:5", "is not a number"),
    (b"1 1:1:1", "1:5", "'1:1' is not a number"),
    (b"1 1:inf", "1:5", "value 'inf' is infinite"),
    (b"1 1:3.4028235e38", "1:5", "infinite or too large"),
    (b"1 1:-1e500", "1:5", "infinite or too large"),
    (b"1 |f 1:1", "1:3", "looks like Vowpal Wabbit's format"),
    (b"|f 1:1", "1:1", "looks like Vowpal Wabbit's format"),
    (b"1 2.0 'tag|f 1:1", "1:3", "looks like Vowpal Wabbit's format"),
    (b"1 1:1\r2 1:1", "1:7", "'2' is not index:value"),
]


@pytest.mark.parametrize(("text", "where", "what"), WRONG)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_wrong_text(folder, text, where, what, suffix):
    packed = gzip.compress(text) if suffix else text
    source = opened(folder, packed, "wrong.svm" + suffix, n_features=10)
    for action in (source.read, source.count):
        with pytest.raises(DataError) as caught:
            action(source.spans(1)[0])
        assert str(caught.value).startswith(f"{folder / 'wrong.svm'}{suffix}:{where}: ")
        assert what in str(caught.value)


def test_the_line_is_counted_in_the_whole_file(folder, monkeypatch):
    monkeypatch.setattr(svmlight_module, "CHUNK_BYTES", 100)
    text = b"1 1:1\n# x\n\n" * 50 + b"1 2:x\n" + b"1 1:1\n" * 50
    source = opened(folder, text)
    with pytest.raises(DataError, match=r"train\.svm:151:5: 'x' is not a number"):
        for span in source.spans(4):
            source.read(span)


def test_files_that_cannot_be_read(folder):
    with pytest.raises(DataError, match="no such file"):
        open_source(folder / "absent.svm")
    with pytest.raises(DataError, match="is a directory"):
        open_source(str(folder))
    for name, content in (
        ("a.gz", b"1 1:1\n"),
        ("b.gz", gzip.compress(b"1 1:1\n" * 1000)[:40]),
        ("c.bz2", b"1 1:1\n"),
        ("d.bz2", bz2.compress(b"1 1:1\n" * 1000)[:40]),
    ):
        source = opened(folder, content, name)
        with pytest.raises(DataError, match=f"{name}: cannot be unpacked"):
            source.spans(1)


def test_parameters(folder):
    source = opened(folder, b"1 1:1\n")
    path = folder / "train.svm"
    with pytest.raises(ParameterError, match="index_base"):
        open_source(path, index_base=2)
    with pytest.raises(ParameterError, match="n_features"):
        open_source(path, n_features=-1)
    with pytest.raises(ParameterError, match="n_parts"):
        source.spans(0)
    for given_too in ({"labels": [1]}, {"weights": [1]}):
        with pytest.raises(DataError, match="given beside an svmlight file"):
            open_source(path, **given_too)
    empty = opened(folder, b"", n_features=9).read((0, 0))
    assert (empty.n_rows, empty.n_features, len(empty.labels)) == (0, 9, 0)


def test_the_place_of_a_row(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("# a comment\n1 1:1\n\n0 2:1 # row 1\n1 1:2\n#\n0 3:1\n1 1:1")
    source = open_source(path)
    assert [source.place(source.spans(1)[0], row) for row in range(5)] == [f"{path}:{n}" for n in (2, 4, 5, 7, 8)]
    places = [
        source.place(span, row) for span in source.spans(3) for row in range(source.count(span).n_rows)
    ]
    assert places == [f"{path}:{n}" for n in (2, 4, 5, 7, 8)]
