"""Threads that count themselves and wait for each other, compiled and as plain Python."""

import threading

import numpy as np
import pytest

from psboost.kernels import arrivals
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
