"""Knows how threads are kept at hand to do the same work at once, call after call; does not know the work."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

import numpy as np

from psboost.interrupts import interrupts_wait
from psboost.kernels import posts


class Crew:
    """Threads 1, 2 ... that work whenever thread 0, the caller's, does: each call lasts as long as theirs.

    What they run is a kernel that stays at its post when it is done (kernels.posts), without the interpreter's lock, and
    comes back when nobody has called for a while: the thread sleeps then. To wake one up takes up to a tenth of a
    millisecond; to call one that is awake, none.
    """

    def __init__(self, n_threads: int, work: Callable[[int, np.ndarray], None], give_up: Callable[[], None]):
        """`work(k, posts)` is called in thread k; `give_up()` when one fails, or does not come: it ends what the others wait
        for. posts: int64, where each thread is."""
        self._work, self._give_up = work, give_up
        self._posts = np.zeros(n_threads * posts.POST_WORDS, np.int64)
        self._failed: BaseException | None = None
        self._wakes: list[SimpleQueue[bool]] = [SimpleQueue() for _ in range(1, n_threads)]
        self._threads: list[Thread] = []

    def call(self) -> None:
        """All work. Raises what any of them fails by; they are not called again then."""
        try:
            if len(self._threads) < len(self._wakes):
                self._start()
            for k, wake in enumerate(self._wakes, 1):
                if not posts.call(self._posts, k):
                    wake.put(True)
            self._work(0, self._posts)
        except BaseException:  # Ctrl-C may come when others work already
            self._give_up()
            raise
        if self._failed is not None:
            raise self._failed

    def close(self) -> None:
        """Ends the threads."""
        with interrupts_wait():  # the second of two would leave some behind
            self._give_up()
            for k, wake in enumerate(self._wakes, 1):
                posts.dismiss(self._posts, k)
                wake.put(False)
            for thread in self._threads:
                thread.join()

    def _start(self) -> None:
        for k in range(1 + len(self._threads), 1 + len(self._wakes)):
            thread = Thread(target=self._attend, args=(k,), name=f"psboost crew {k}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _attend(self, k: int) -> None:
        """In thread k: works when woken up, until the crew is closed."""
        while self._wakes[k - 1].get():
            try:
                self._work(k, self._posts)
            except BaseException as error:
                self._failed = error
                self._give_up()
