"""Ranges of columns of which no row stores two."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.data.bundles import Bundles, bundles_of
from psboost.data.source import open_source
from psboost.kernels import bundles as kernels
from tests.plain import both_ways

WAYS = pytest.mark.parametrize("ways", both_ways(kernels), ids=["compiled", "plain"])
ROWS = st.lists(st.frozensets(st.integers(0, 40), max_size=6).map(sorted), max_size=30)


def borders_of(rows, dtype=np.int64):
    bundles = Bundles()
    for piece in (rows[: len(rows) // 3], rows[len(rows) // 3 :]):
        columns = np.array([column for row in piece for column in row], dtype)
        bundles.add(np.cumsum([0, *map(len, piece)]), columns)
    return bundles.borders


def one_hot(rng, widths, n_rows):
    begins = np.cumsum([0, *widths[:-1]])
    return [[int(begin + rng.integers(width)) for begin, width in zip(begins, widths, strict=True)] for _ in range(n_rows)]


@WAYS
@settings(max_examples=100, deadline=None)
@given(rows=ROWS, others=ROWS, dtype=st.sampled_from([np.int32, np.int64]))
def test_no_row_has_two_columns_of_a_bundle(ways, rows, others, dtype):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "part_rows", ways.part_rows)
        borders = Bundles.join([borders_of(rows, dtype), borders_of(others, dtype)])
    assert (borders[:, 0] < borders[:, 1]).all() and (borders[1:, 0] >= borders[:-1, 1]).all()
    for row in rows + others:
        assert len(set(bundles_of(borders, np.array(row, np.int64)).tolist())) == len(row)


@pytest.mark.parametrize("missing", [0, 0.1])
def test_one_hot_columns_have_a_bundle_for_each_category(missing):
    """Also where some rows lack some of them, most of the rows."""
    rng, widths = np.random.default_rng(1), [3, 1, 40, 7, 500]
    rows = [[column for column in row if rng.random() >= missing] for row in one_hot(rng, widths, 2000)]
    borders = borders_of(rows)
    assert bundles_of(borders, np.unique(np.concatenate(rows))).max() == len(widths) - 1
    columns = np.unique(np.concatenate(rows)).astype(np.int64)
    expected = np.searchsorted(np.cumsum(widths), columns, side="right")
    assert bundles_of(borders, columns).tolist() == expected.tolist()


def test_of_more_bundles_than_are_worth_knowing_there_are_none():
    most = list(range(kernels.MOST_BORDERS + 1))
    assert len(borders_of([most])) == kernels.MOST_BORDERS
    too_many = borders_of([most, [len(most) - 1, len(most)]])
    assert too_many is None and borders_of([[*most, len(most)], [0, 1]]) is None
    assert Bundles.join([None, borders_of([[0, 1]])]) is None and Bundles.join([]).tolist() == []


def test_a_source_tells_them(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text("1 1:1 4:1\n0 2:1 5:2\n1 2:1\n")
    source = open_source(path)
    [span] = source.spans(1)
    assert source.count(span).borders.tolist() == [[1, 3]]
    assert open_source(np.eye(3), np.zeros(3)).count((0, 3)).borders is None
