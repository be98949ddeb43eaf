"""A map over several threads: order, failures, and that nobody works on after it."""

import threading
import time

import pytest

from psboost.cluster.threads import side_by_side


@pytest.mark.parametrize(("n_threads", "n_used"), [(1, 1), (2, 2), (5, 5), (5, 3), (5, 1), (1, 5)])
@pytest.mark.parametrize("n_items", [0, 1, 2, 40])
def test_results_in_order_of_their_items(n_threads, n_used, n_items):
    with side_by_side(n_threads, "test") as threads:
        map_in_threads = threads(n_used)
        for _ in range(3):
            pairs = map_in_threads(lambda a, b: (a, b), range(n_items), "x" * n_items)
            assert list(pairs) == [(i, "x") for i in range(n_items)]


def test_work_is_shared_by_the_caller_and_the_others():
    meeting = threading.Barrier(3)
    with side_by_side(3, "test") as threads:
        names = threads(3)(lambda _: meeting.wait(10) is None or threading.current_thread().name, range(3))
    assert sorted(names) == sorted([threading.current_thread().name, "test 1", "test 2"])
    meeting = threading.Barrier(2)
    with side_by_side(4, "test") as threads:
        for _ in range(3):
            names = threads(2)(lambda _: meeting.wait(10) is None or threading.current_thread().name, range(2))
            assert sorted(names) == sorted([threading.current_thread().name, "test 1"])
    assert not any(thread.name.startswith("test ") for thread in threading.enumerate())


@pytest.mark.parametrize("by_caller", [True, False])
def test_a_failure_comes_out_when_the_others_are_done(by_caller):
    caller, meeting, done = threading.current_thread(), threading.Barrier(2), []

    def work(item):
        meeting.wait(10)
        if (threading.current_thread() is caller) == by_caller:
            raise ValueError("bad item")
        time.sleep(0.05)
        done.append(item)

    with side_by_side(2, "test") as threads:
        map_in_threads = threads(2)
        with pytest.raises(ValueError, match="bad item"):
            map_in_threads(work, range(2))
        assert len(done) == 1
        assert map_in_threads(abs, [-1, -2, -3]) == [1, 2, 3]
