"""Knows what happens next in virtual time; does not know what it is."""

import heapq
from collections.abc import Callable
from itertools import count


class Events:
    """A clock that jumps from one event to the next. Events of the same moment come in the order in which they were set."""

    def __init__(self) -> None:
        self.now = 0.0  # seconds
        self._coming: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Has `action` called at that time."""
        heapq.heappush(self._coming, (when, next(self._order), action))

    def run(self) -> None:
        """Returns when nothing is to come any more."""
        while self._coming:
            self.now, _, action = heapq.heappop(self._coming)
            action()
