"""Threads that are kept at hand: called awake or asleep, failing, interrupted, closed."""

import threading
import time

import numpy as np
import pytest

from psboost.boosting.crew import Crew
from psboost.kernels import arrivals
from psboost.kernels import posts as module
from psboost.kernels.compile import OUT, int64, kernel, void


@kernel(void(int64, OUT[int64], OUT[int64], int64, OUT[int64]))
def meet_and_count(k, posts, meeting, n, counts):
    """As kernels.levels.grow does: thread 0 returns, others stay at their posts."""
    while True:
        if k > 0:
            module.come(posts, k)
        counts[k] += 1
        if not arrivals.meet(meeting, n) or k == 0 or not module.stay(posts, k):
            return


def crew_of(n, work=None):
    """And its meeting, and how often each thread has worked."""
    meeting, counts = np.zeros(arrivals.N_MEETING, np.int64), np.zeros(n, np.int64)

    def count(k, posts):
        (work or (lambda k: None))(k)
        meet_and_count(k, posts, meeting, n, counts)

    return Crew(n, count, lambda: meeting.__setitem__(arrivals.GIVEN_UP, 1)), meeting, counts


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("pause", [0, 0.0005, 0.01])
def test_all_work_at_each_call_however_long_it_is_until_the_next(n, pause):
    entered = [0] * n

    def enter(k):
        entered[k] += 1

    crew, _, counts = crew_of(n, enter)
    for call in range(1, 31):
        crew.call()
        assert counts.tolist() == [call] * n
        time.sleep(pause)
    crew.close()
    assert entered[0] == 30
    if pause in (0, 0.01):  # they were awake when they were called, nearly always; or slept, and were woken up
        assert all((n_times > 1) if pause else (n_times < 30) for n_times in entered[1:])
    assert not any(thread.name.startswith("psboost crew") for thread in threading.enumerate())


@pytest.mark.parametrize("who", [0, 1, 2])
def test_one_that_fails_is_waited_for_by_nobody(who):
    def fail(k):
        if k == who:
            raise MemoryError(f"no more for {who}")

    crew, meeting, _ = crew_of(3, fail)
    with pytest.raises(MemoryError, match=f"no more for {who}"):
        crew.call()
    assert meeting[arrivals.GIVEN_UP] == 1
    crew.close()


def test_ctrl_c_before_the_caller_works(monkeypatch):
    right = module.call

    def interrupted(posts, k):
        called = right(posts, k)
        if k == 2:
            raise KeyboardInterrupt
        return called

    monkeypatch.setattr(module, "call", interrupted)
    crew, meeting, _ = crew_of(3)
    with pytest.raises(KeyboardInterrupt):
        crew.call()
    crew.close()
    assert meeting[arrivals.GIVEN_UP] == 1
