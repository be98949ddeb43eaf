"""Knows how work shares cores in virtual time; does not know what the work is."""

import heapq
from collections.abc import Callable
from functools import partial
from itertools import count

from psboost.lab.events import Events


class Cores:
    """Cores that all work on them shares alike, as an operating system's scheduler has it: n works on c cores each get
    min(1, c / n) of one. (Were works to queue up instead, a short one would wait for a long one, as it does nowhere.)

    All works have got the same since they were there together: so each one's end is a mark on one scale, `_served`.
    """

    def __init__(self, events: Events, n_cores: int) -> None:
        self._events, self._n_cores = events, n_cores
        self._served = 0.0  # seconds of work that each work would have got that was there all the time
        self._since = 0.0  # when that was so
        self._works: list[tuple[float, int, Callable[[], None]]] = []  # by the mark at which they end
        self._order = count()
        self._version = 0  # of what is known about the next end

    def run(self, seconds: float, then: Callable[[], None]) -> None:
        """Has `then` called when so much work is done, from now on."""
        self._advance()
        heapq.heappush(self._works, (self._served + seconds, next(self._order), then))
        self._plan()

    @property
    def _rate(self) -> float:
        return min(1.0, self._n_cores / len(self._works)) if self._works else 1.0

    def _advance(self) -> None:
        self._served += (self._events.now - self._since) * self._rate
        self._since = self._events.now

    def _plan(self) -> None:
        """Sets the event of the next end; what was planned before is void."""
        self._version += 1
        if self._works:
            left = max(0.0, self._works[0][0] - self._served)
            self._events.at(self._events.now + left / self._rate, partial(self._end, self._version))

    def _end(self, version: int) -> None:
        if version != self._version:
            return
        self._advance()
        self._served, _, then = heapq.heappop(self._works)
        self._plan()
        then()
