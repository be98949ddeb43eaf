"""Knows how a worker's work is shared out to threads; does not know the work."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any

import numpy as np

from psboost.cores import n_cores
from psboost.kernels import arrivals


def default_threads(n_workers: int) -> int:
    """Threads of each of n_workers: the cores that this process may use, shared among them."""
    return max(1, n_cores() // n_workers)


@contextmanager
def side_by_side(n_threads: int, name: str) -> Iterator[Callable[[int], Callable[..., Iterable]]]:
    """Threads: of n of them, n_threads at most and the caller's among them, a `map` that calls its function in these.

    Each takes the next item when it is done with one, so that items need not be alike. A call takes half the time of one
    that goes through concurrent.futures: a tree makes dozens, each of a millisecond or two.
    """
    tasks: list[SimpleQueue[Callable[[], None] | None]] = [SimpleQueue() for _ in range(1, n_threads)]  # of each helper
    ended: SimpleQueue[BaseException | None] = SimpleQueue()
    arrived, n_due = np.zeros(1, np.int64), 0  # how often a helper was done, and is to be

    def help_out(own: SimpleQueue) -> None:
        while (work := own.get()) is not None:
            try:
                work()
            except BaseException as error:
                ended.put(error)
            else:
                ended.put(None)
            arrivals.arrive(arrived)

    def map_in_threads(n_used: int, function: Callable, *iterables: Iterable) -> list:
        nonlocal n_due
        items = list(zip(*iterables, strict=False))
        results: list[Any] = [None] * len(items)
        turns = count()

        def work() -> None:
            while (turn := next(turns)) < len(items):
                results[turn] = function(*items[turn])

        n_others = max(0, min(n_used, len(items)) - 1)
        n_due += n_others
        for of_helper in tasks[:n_others]:  # the same ones each time, whose cores have what they worked on
            of_helper.put(work)
        try:
            work()
        finally:
            if n_others:  # who sleeps when the last one is done takes some 40 microseconds to wake up
                arrivals.wait_awake(arrived, n_due)
            errors = [ended.get() for _ in range(n_others)]  # they use what the caller would free
        for error in errors:
            if error is not None:
                raise error
        return results

    def of_threads(n: int) -> Callable[..., Iterable]:
        n_used = min(n, n_threads)
        return map if n_used == 1 else partial(map_in_threads, n_used)

    helpers = [
        threading.Thread(target=help_out, args=(own,), name=f"{name} {i}", daemon=True) for i, own in enumerate(tasks, 1)
    ]
    for helper in helpers:
        helper.start()
    try:
        yield of_threads
    finally:
        for of_helper in tasks:
            of_helper.put(None)
        for helper in helpers:
            helper.join()
