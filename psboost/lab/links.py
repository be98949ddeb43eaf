"""Knows how long messages take from host to host in virtual time; does not know what they say or who sends them."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from psboost.lab.events import Events

PACKET = 1 << 14  # bytes
MOST_PACKETS = 32  # of a message: those of longer ones are larger, so that time is not lost on them


@dataclass
class _Message:
    bytes_left: int
    packet: int  # bytes
    receiver: int
    left: Callable[[], None]
    arrived: Callable[[], None]


@dataclass
class _Way:
    """One direction of a host's link."""

    free: float = -math.inf  # when all that came so far would be through, if nothing went at once
    busy: bool = False  # out: a packet is under way
    queues: dict[object, deque[_Message]] = field(default_factory=dict)  # out: by connection, whose turn it is first


class Links:
    """Every host's full-duplex link, and the switch between them, which takes `latency` seconds and loses nothing.

    A message goes as packets. On the way out, those of different connections take turns, as TCP shares a link; those of one
    keep their order. On the way in, packets queue up in the order in which they come. A packet goes in while it still goes
    out: alone, a message takes latency + bytes / bandwidth in all.
    """

    def __init__(self, events: Events, bytes_per_second: float | None, latency: float, burst: float = 0.0) -> None:
        """bytes_per_second: of each way; None: no limit. burst: bytes that a way which was idle takes at once."""
        self._events, self._latency = events, latency
        self._seconds_per_byte = 1 / bytes_per_second if bytes_per_second else 0.0
        self._burst = burst * self._seconds_per_byte
        self._out: dict[int, _Way] = {}
        self._in: dict[int, _Way] = {}

    def send(
        self,
        sender: int,
        receiver: int,
        connection: object,
        n_bytes: int,
        left: Callable[[], None],
        arrived: Callable[[], None],
    ) -> None:
        """Sends from host to host now; calls `left` when all of it is out, and `arrived` when it is there.

        connection  messages of the same come in their order
        """
        packet = max(PACKET, -(-n_bytes // MOST_PACKETS)) if self._seconds_per_byte else n_bytes
        way = self._out.setdefault(sender, _Way())
        way.queues.setdefault(connection, deque()).append(_Message(n_bytes, packet, receiver, left, arrived))
        if not way.busy:
            self._next(way)

    def _next(self, way: _Way) -> None:
        """Sends a packet of the connection whose turn it is."""
        way.busy = bool(way.queues)
        if not way.busy:
            return
        message = next(iter(way.queues.values()))[0]
        n_bytes = min(message.packet, message.bytes_left)
        message.bytes_left -= n_bytes
        self._events.at(self._events.now + self._latency, partial(self._come, message, n_bytes, message.bytes_left <= 0))
        self._events.at(self._through(way, n_bytes), partial(self._out_of, way))

    def _out_of(self, way: _Way) -> None:
        """The packet is out: it is the next connection's turn."""
        connection = next(iter(way.queues))
        queue = way.queues.pop(connection)
        message = queue[0]
        if message.bytes_left <= 0:
            queue.popleft()
        if queue:
            way.queues[connection] = queue  # now the last in turn
        if message.bytes_left <= 0:
            message.left()
        self._next(way)

    def _through(self, way: _Way, n_bytes: int) -> float:
        """When bytes that come to a way of a link now are through it."""
        now = self._events.now
        way.free = max(way.free, now - self._burst) + n_bytes * self._seconds_per_byte
        return max(now, way.free)

    def _come(self, message: _Message, n_bytes: int, last: bool) -> None:
        """The first byte of a packet is at the receiver's link."""
        through = self._through(self._in.setdefault(message.receiver, _Way()), n_bytes)
        if last:
            self._events.at(through, message.arrived)
