"""Knows how a worker's work is shared out to threads; does not know the work."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any


def default_threads(n_workers: int) -> int:
    """Threads of each of n_workers: the cores that this process may use, shared among them."""
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, n_cores // n_workers)


@contextmanager
def side_by_side(n_threads: int, name: str) -> Iterator[Callable[..., Iterable]]:
    """A `map` that calls its function in n_threads threads, the caller's among them.

    Each takes the next item when it is done with one, so that items need not be alike.
    """
    if n_threads == 1:
        yield map
        return
    pool = ThreadPoolExecutor(n_threads - 1, thread_name_prefix=name)

    def map_in_threads(function: Callable, *iterables: Iterable) -> list:
        items = list(zip(*iterables, strict=False))
        results: list[Any] = [None] * len(items)
        turns = count()

        def work() -> None:
            while (turn := next(turns)) < len(items):
                results[turn] = function(*items[turn])

        others = [pool.submit(work) for _ in range(min(n_threads, len(items)) - 1)]
        try:
            work()
        finally:
            for other in others:  # they use what the caller would free
                other.exception()
        for other in others:
            other.result()
        return results

    try:
        yield map_in_threads
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
