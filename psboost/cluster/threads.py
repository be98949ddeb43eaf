"""Knows how a worker's work is shared out to threads; does not know the work."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


def default_threads(n_workers: int) -> int:
    """Threads of each of n_workers: the cores that this process may use, shared among them."""
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, n_cores // n_workers)


@contextmanager
def side_by_side(n_threads: int, name: str) -> Iterator[Callable[..., Iterable]]:
    """A `map` that calls its function in n_threads threads; with one, in the caller's."""
    if n_threads == 1:
        yield map
        return
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
    try:
        yield pool.map
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
