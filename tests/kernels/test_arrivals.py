"""Threads that count themselves and wait for each other, compiled and as plain Python."""

import threading
import time

import numpy as np
import pytest

from psboost.kernels import arrivals
from psboost.kernels.compile import OUT, boolean, int64, kernel
from tests.plain import both_ways

WAYS = pytest.mark.parametrize("kernels", both_ways(arrivals), ids=["compiled", "plain"])


def test_none_of_many_that_arrive_at_once_is_lost():
    arrived, begin = np.zeros(1, np.int64), threading.Barrier(4)
    arrivals.arrive(np.zeros(1, np.int64))

    def arrive_often():
        begin.wait(10)
        for _ in range(5000):
            arrivals.arrive(arrived)

    threads = [threading.Thread(target=arrive_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert arrived.tolist() == [20_000]


@WAYS
def test_waiting_ends_with_the_last_one_or_after_a_moment(kernels):
    arrived = np.zeros(1, np.int64)
    kernels.wait_awake(arrived, 1)  # nobody comes
    kernels.arrive(arrived)
    kernels.wait_awake(arrived, 1)
    assert arrived.tolist() == [1]


@kernel(int64(OUT[int64], OUT[int64], int64, int64))
def count_up(meeting, counts, thread, n_threads):
    """How often all counts were not the same at a meeting."""
    n_wrong = 0
    for i in range(1000):
        counts[8 * thread] += 1
        arrivals.meet(meeting, n_threads)
        for other in range(n_threads):
            n_wrong += counts[8 * other] != i + 1
        arrivals.meet(meeting, n_threads)
    return n_wrong


@kernel(boolean(OUT[int64], int64))
def meet(meeting, n):
    return arrivals.meet(meeting, n)


@kernel(int64())
def clock():
    return arrivals.clock()


def in_threads(function, n):
    results, threads = [None] * n, []
    for thread in range(n):
        threads.append(threading.Thread(target=lambda thread=thread: results.__setitem__(thread, function(thread))))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_nobody_goes_on_before_all_have_met(n_threads):
    meeting, counts = np.zeros(arrivals.N_MEETING, np.int64), np.zeros(8 * n_threads, np.int64)
    assert in_threads(lambda thread: count_up(meeting, counts, thread, n_threads), n_threads) == [0] * n_threads
    assert meeting[arrivals.ARRIVED] == 2000 * n_threads


def test_a_meeting_that_is_given_up_is_waited_for_by_nobody():
    meeting = np.zeros(arrivals.N_MEETING, np.int64)

    def come(thread):
        if thread < 2:
            return meet(meeting, 3)
        while meeting[arrivals.ARRIVED] < 2:
            time.sleep(0.001)
        meeting[arrivals.GIVEN_UP] = 1
        return None

    assert in_threads(come, 3) == [False, False, None]


def test_the_clock_goes_as_pythons_does():
    before, begin = time.monotonic_ns(), clock()
    time.sleep(0.01)
    end, after = clock(), time.monotonic_ns()
    assert 10_000_000 <= end - begin <= after - before
