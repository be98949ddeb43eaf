"""Knows how long messages take from host to host in virtual time; does not know what they say or who sends them."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from psboost.lab.events import Events

PACKET = 1 << 14  # bytes
MOST_PACKETS = 32  # of a message: those of longer ones are larger, so that time is not lost on them

Then = Callable[[], None]
Handle = Callable[[int, int, Then], None]


def handle_at_once(host: int, n_bytes: int, then: Then) -> None:
    then()


@dataclass
class _Message:
    sender: int
    receiver: int
    connection: object
    packet: int  # bytes
    handle: Handle
    left: Then
    arrived: Then
    to_send: int  # bytes that the sender has not handled yet
    to_leave: int  # bytes that are not out of the sender's link yet
    to_come: int  # bytes that are not through the receiver's link yet
    come: int = 0  # bytes that are, and that the receiver does not handle yet
    receiving: bool = False  # the receiver handles some

    def next_packet(self) -> int:
        """How many bytes of it are sent next."""
        n_bytes = min(self.packet, self.to_send)
        self.to_send -= n_bytes
        return n_bytes


@dataclass
class _Way:
    """One direction of a host's link."""

    free: float = -math.inf  # when all that came so far would be through, if nothing went at once
    busy: bool = False  # out: a packet is under way
    queues: dict[object, deque[tuple[_Message, int]]] = field(default_factory=dict)  # out: packets by connection, in turn


class Links:
    """Every host's full-duplex link, and the switch between them, which takes `latency` seconds and loses nothing.

    A message goes as packets. On the way out, those of different connections take turns, as TCP shares a link; those of one
    keep their order. On the way in, packets queue up in the order in which they come. A packet goes in while it still goes
    out: alone, a message takes latency + bytes / bandwidth in all.

    Hosts may have work with a packet, before it goes out and when it is in: meanwhile others are under way.
    """

    def __init__(self, events: Events, bytes_per_second: float | None, latency: float, burst: float = 0.0) -> None:
        """bytes_per_second: of each way; None: no limit. burst: bytes that a way which was idle takes at once."""
        self._events, self._latency = events, latency
        self._seconds_per_byte = 1 / bytes_per_second if bytes_per_second else 0.0
        self._burst = burst * self._seconds_per_byte
        self._out: dict[int, _Way] = {}
        self._in: dict[int, _Way] = {}
        self._to_send: dict[object, deque[_Message]] = {}  # by connection: messages not yet handled by their sender

    def send(
        self,
        sender: int,
        receiver: int,
        connection: object,
        n_bytes: int,
        left: Then,
        arrived: Then,
        handle: Handle = handle_at_once,
    ) -> None:
        """Sends from host to host now; calls `left` when all of it is out, and `arrived` when it is there and handled.

        connection  messages of the same come in their order
        handle      has a host do its work with so many bytes of the message; calls `then` when it has
        """
        packet = max(PACKET, -(-n_bytes // MOST_PACKETS)) if self._seconds_per_byte else n_bytes
        message = _Message(sender, receiver, connection, packet, handle, left, arrived, n_bytes, n_bytes, n_bytes)
        to_send = self._to_send.setdefault(connection, deque())
        to_send.append(message)
        if len(to_send) == 1:
            self._handle_next(to_send)

    def _handle_next(self, to_send: deque[_Message]) -> None:
        """Has the sender handle what it sends next on a connection."""
        message = to_send[0]
        n_bytes = message.next_packet()
        message.handle(message.sender, n_bytes, partial(self._put_out, to_send, message, n_bytes))

    def _put_out(self, to_send: deque[_Message], message: _Message, n_bytes: int) -> None:
        """The packet may go out."""
        way = self._out.setdefault(message.sender, _Way())
        way.queues.setdefault(message.connection, deque()).append((message, n_bytes))
        if not message.to_send:
            to_send.popleft()
        if not way.busy:
            self._next(way)
        if to_send:
            self._handle_next(to_send)

    def _next(self, way: _Way) -> None:
        """Sends a packet of the connection whose turn it is."""
        way.busy = bool(way.queues)
        if not way.busy:
            return
        message, n_bytes = next(iter(way.queues.values()))[0]
        self._events.at(self._events.now + self._latency, partial(self._come, message, n_bytes))
        self._events.at(self._through(way, n_bytes), partial(self._out_of, way))

    def _out_of(self, way: _Way) -> None:
        """The packet is out: it is the next connection's turn."""
        connection = next(iter(way.queues))
        queue = way.queues.pop(connection)
        message, n_bytes = queue.popleft()
        if queue:
            way.queues[connection] = queue  # now the last in turn
        message.to_leave -= n_bytes
        if not message.to_leave:
            message.left()
        self._next(way)

    def _through(self, way: _Way, n_bytes: int) -> float:
        """When bytes that come to a way of a link now are through it."""
        now = self._events.now
        way.free = max(way.free, now - self._burst) + n_bytes * self._seconds_per_byte
        return max(now, way.free)

    def _come(self, message: _Message, n_bytes: int) -> None:
        """The first byte of a packet is at the receiver's link."""
        through = self._through(self._in.setdefault(message.receiver, _Way()), n_bytes)
        self._events.at(through, partial(self._take_in, message, n_bytes))

    def _take_in(self, message: _Message, n_bytes: int) -> None:
        """The packet is through: the receiver handles it, with what else came meanwhile, one after another."""
        message.to_come -= n_bytes
        message.come += n_bytes
        if not message.receiving:
            self._receive(message)

    def _receive(self, message: _Message) -> None:
        n_bytes, message.come = message.come, 0
        message.receiving = n_bytes > 0
        if message.receiving:
            message.handle(message.receiver, n_bytes, partial(self._receive, message))
        elif not message.to_come:
            message.arrived()
