"""Knows how long messages take from host to host in virtual time; does not know what they say or who sends them."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from psboost.lab.events import Events

PACKET = 1 << 14  # bytes
MOST_PACKETS = 32  # of a message: those of longer ones are larger, so that time is not lost on them


@dataclass
class _Message:
    bytes_left: float
    packet: float  # bytes
    receiver: int
    left: Callable[[], None]
    arrived: Callable[[], None]


@dataclass
class _Way:
    """One direction of a host's link."""

    free: float = 0.0  # when all that came so far is through
    busy: bool = False  # out: a packet is under way
    queues: dict[object, deque[_Message]] = field(default_factory=dict)  # out: by connection, whose turn it is first


class Links:
    """Every host's full-duplex link, and the switch between them, which takes `latency` seconds and loses nothing.

    A message goes as packets. On the way out, those of different connections take turns, as TCP shares a link; those of one
    keep their order. On the way in, packets queue up in the order in which they come. A packet goes in while it still goes
    out: alone, a message takes latency + bytes / bandwidth in all.
    """

    def __init__(self, events: Events, bytes_per_second: float | None, latency: float) -> None:
        """bytes_per_second: of each way; None: no limit."""
        self._events, self._latency = events, latency
        self._seconds_per_byte = 1 / bytes_per_second if bytes_per_second else 0.0
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
        packet = max(PACKET, n_bytes / MOST_PACKETS) if self._seconds_per_byte else n_bytes
        way = self._out.setdefault(sender, _Way())
        way.queues.setdefault(connection, deque()).append(_Message(n_bytes, packet, receiver, left, arrived))
        if not way.busy:
            self._next(way)

    def _next(self, way: _Way) -> None:
        """Sends the next packet of the connection whose turn it is."""
        way.busy = bool(way.queues)
        if not way.busy:
            return
        connection = next(iter(way.queues))
        queue = way.queues.pop(connection)
        message = queue[0]
        n_bytes = min(message.packet, message.bytes_left)
        message.bytes_left -= n_bytes
        last = message.bytes_left <= 0
        if last:
            queue.popleft()
        if queue:
            way.queues[connection] = queue  # now the last in turn
        seconds, now = n_bytes * self._seconds_per_byte, self._events.now
        self._events.at(now + self._latency, partial(self._come, message, seconds, last))
        self._events.at(now + seconds, partial(self._out_of, way, message if last else None))

    def _out_of(self, way: _Way, message: _Message | None) -> None:
        if message is not None:
            message.left()
        self._next(way)

    def _come(self, message: _Message, seconds: float, last: bool) -> None:
        """The first byte of a packet is at the receiver's link."""
        way = self._in.setdefault(message.receiver, _Way())
        way.free = max(way.free, self._events.now) + seconds
        if last:
            self._events.at(way.free, message.arrived)
