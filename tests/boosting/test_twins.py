"""A root's histogram without its twins, and whole again."""

import numpy as np
import pytest

from psboost.boosting.histogram import DTYPES, Entries, Histograms
from psboost.boosting.twins import Twins
from psboost.errors import ProtocolError

NUMBERS = np.array([0, 1, 0, 2])


def histogram(bins, grads, n_nodes=1):
    columns = zip((bins, grads, np.array(grads) + 100), DTYPES, strict=True)
    return Histograms(np.array([0] * n_nodes + [len(bins)]), *(np.array(column, dtype) for column, dtype in columns))


WHOLE = histogram([1, 4, 5, 9], [3, 4, 3, 5])


def test_twins_get_their_elders_sums_behind_other_entries():
    entries = Entries()
    twins = Twins.of(WHOLE, NUMBERS)
    for begin in (0, 4):
        held = twins.spread(histogram([1, 4, 9], [7, -8, begin]), entries)
        assert held.offsets.tolist() == [begin, begin + 4] and entries.end == begin + 4
        bins, grads, hesses = held.node(0)
        assert (bins.tolist(), grads.tolist()) == (WHOLE.bins.tolist(), [7, -8, 7, begin])
        assert hesses.tolist() == [107, 92, 107, begin + 100]
    assert held.grads.tolist() == [7, -8, 7, 0, 7, -8, 7, 4]


@pytest.mark.parametrize("bins", [[1, 4], [1, 4, 5], [1, 4, 8, 9], []])
def test_a_root_of_other_bins(bins):
    with pytest.raises(ProtocolError, match="of other bins than before"):
        Twins.of(WHOLE, NUMBERS).spread(histogram(bins, [1] * len(bins)), Entries())


def test_more_nodes_than_the_root():
    with pytest.raises(ProtocolError, match="of other bins than before"):
        Twins.of(WHOLE, NUMBERS).spread(histogram([1, 4, 9], [1, 2, 3], n_nodes=2), Entries())


def test_numbers_that_nobody_gives():
    with pytest.raises(ProtocolError, match="do not go up one by one"):
        Twins.of(WHOLE, np.array([0, 2, 0, 1]))


@pytest.mark.parametrize(("root", "numbers"), [(histogram([1, 4], [3, 4], n_nodes=2), [0, 1]), (WHOLE, [0, 1, 0])])
def test_numbers_of_no_root(root, numbers):
    with pytest.raises(ProtocolError, match="for another histogram than a root's"):
        Twins.of(root, np.array(numbers))
