"""Knows how a worker's work is shared out to threads; does not know the work."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from queue import SimpleQueue
from typing import Any

from psboost.cores import n_cores


def default_threads(n_workers: int) -> int:
    """Threads of each of n_workers: the cores that this process may use, shared among them."""
    return max(1, n_cores() // n_workers)


@contextmanager
def side_by_side(n_threads: int, name: str) -> Iterator[Callable[..., Iterable]]:
    """A `map` that calls its function in n_threads threads, the caller's among them.

    Each takes the next item when it is done with one, so that items need not be alike. A call takes half the time of one
    that goes through concurrent.futures: a tree makes dozens, each of a millisecond or two.
    """
    if n_threads == 1:
        yield map
        return
    tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
    ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def help_out() -> None:
        while (work := tasks.get()) is not None:
            try:
                work()
            except BaseException as error:
                ended.put(error)
            else:
                ended.put(None)

    def map_in_threads(function: Callable, *iterables: Iterable) -> list:
        items = list(zip(*iterables, strict=False))
        results: list[Any] = [None] * len(items)
        turns = count()

        def work() -> None:
            while (turn := next(turns)) < len(items):
                results[turn] = function(*items[turn])

        n_others = max(0, min(n_threads, len(items)) - 1)
        for _ in range(n_others):
            tasks.put(work)
        try:
            work()
        finally:
            errors = [ended.get() for _ in range(n_others)]  # they use what the caller would free
        for error in errors:
            if error is not None:
                raise error
        return results

    helpers = [threading.Thread(target=help_out, name=f"{name} {i}", daemon=True) for i in range(1, n_threads)]
    for helper in helpers:
        helper.start()
    try:
        yield map_in_threads
    finally:
        for _ in helpers:
            tasks.put(None)
        for helper in helpers:
            helper.join()
