"""Members of ascending arrays, and what is chosen of them, beside numpy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psboost.kernels import ascending
from tests.plain import both_ways


@pytest.mark.parametrize("kernels", both_ways(ascending), ids=["compiled", "plain"])
@given(st.sets(st.integers(0, 2**31 - 1), max_size=12), st.randoms())
def test_members_are_found_and_chosen_again(kernels, values, random):
    values = np.array(sorted(values), np.int32)
    members = np.array(sorted(random.sample(values.tolist(), random.randint(0, len(values)))), np.int32)
    flags = np.full(len(values), 7, np.uint8)
    kernels.find_members(members, values, flags)
    np.testing.assert_array_equal(flags, np.isin(values, members))
    chosen = np.empty(len(values) + 1, np.int32)
    assert kernels.choose(values, flags, chosen) == len(members)
    np.testing.assert_array_equal(chosen[: len(members)], members)
