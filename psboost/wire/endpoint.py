"""Knows sockets and addresses; does not know trees, roles or what a message says.

One-way sockets: an endpoint binds one PULL socket, which hears everybody, and keeps one PUSH socket for each
address that it sends to. So no identities are routed, and nothing is dropped because an old connection is still known.

An endpoint belongs to one thread at a time: whoever made it may hand it to a thread that starts, and close it when that one
has ended.
"""

import errno
import math
import os
import socket
import stat
import struct
import time
from contextlib import suppress
from types import TracebackType
from typing import Any

import zmq

from psboost.cores import may_have_urgent_threads
from psboost.errors import ClusterError, ProtocolError
from psboost.interrupts import interrupts_wait
from psboost.wire.codec import Encoded, Envelope, decode, encode_fields, with_envelope
from psboost.wire.kinds import Message
from psboost.wire.ledger import Ledger, measure

_SPELLING = "write it as tcp://HOST:PORT, ipc://PATH or inproc://NAME"
_ADVICE = {
    zmq.EADDRINUSE: "stop the other process, take another address, or tcp port 0 for any that is free",
    zmq.EADDRNOTAVAIL: "listen at an address of this machine, or at tcp://*:PORT for all of them",
    errno.ENODEV: "listen at an address of this machine, or at tcp://*:PORT for all of them",
    errno.EACCES: "take a port above 1023, or another folder",
    errno.ENAMETOOLONG: f"take a shorter folder: {zmq.IPC_PATH_MAX_LEN} bytes are the most for a path",
    errno.ENOENT: "make the folder first",
}
_AT_ONCE, _AND_MORE = int(zmq.DONTWAIT), int(zmq.DONTWAIT | zmq.SNDMORE)  # Python's own `|` of flags takes long
_ALONE = 3 * 1024  # sockets of one endpoint: three for each peer, as its connection is watched
_RELEASE_SECONDS = 0.3  # so much later than a socket is closed, which it is in the background, its address may be free


class Endpoint:
    """Where one role's messages leave and arrive, as messages and with every sent byte counted in `ledger`.

    name, run: what the envelope of its messages says.
    bind: where it listens: "tcp://HOST:PORT" (port 0 or *: any that is free; IPv6: "tcp://[::1]:0"),
        "ipc://PATH", "inproc://NAME" (peers are neighbours), or None: it only sends.
    address: where peers reach it, with the port that was taken; a wildcard host is the caller's to replace.

    ClusterError if it cannot listen there, with what to do about it.
    """

    def __init__(
        self,
        name: str,
        bind: str | None,
        *,
        run: int,
        ledger: Ledger,
        neighbours: "Neighbours | None" = None,
    ):
        self.address = ""
        self._ledger = ledger
        self._addresses: dict[str, str] = {}  # of each peer
        self._senders: dict[str, zmq.Socket] = {}  # for each address
        self._watched: set[str] = set()  # addresses
        self._monitors: dict[str, zmq.Socket] = {}  # of the senders to other processes
        self._broken: dict[str, float] = {}  # when the connection to an address did
        self._unconnected: dict[str, float] = {}  # since when an address is waited for
        self._listener: zmq.Socket | None = None
        self._file: tuple[int, ...] = ()  # which one the listener has made, at an ipc:// address
        self._patience: float | None = None  # the listener's timeout
        self._small: tuple[Message, Encoded] | None = None  # what was sent last, if its arrays are small
        self._alone = neighbours is None
        self._neighbours = neighbours or Neighbours(alone=True)
        self.rename(name, run)
        if bind is not None:
            try:
                self._listen(bind)
            except BaseException:
                self.close()
                raise

    def rename(self, name: str, run: int) -> None:
        """Send under another name from now on, and hear only this run and what belongs to none yet (0: all).

        Messages are numbered from 0 again: a role's have the same numbers, and so the same bytes, over every transport.
        """
        self.name, self.run = name, run
        self._sequence = 0

    def connect(self, name: str, address: str, *, watched: bool = True) -> None:
        """Send to `address` what is sent to `name`. `watched`: `broken` tells of it.

        Returns at once: a socket is made when something is first sent, so peers that one never talks to cost none.
        Several names may share an address: their messages keep their order.
        """
        self._addresses[name] = address
        if watched:
            self._watched.add(address)

    def disconnect(self, name: str, linger: float = 0) -> None:
        """Send no more to `name`, whose address is no other's; what is not sent after `linger` seconds is given up."""
        address = self._addresses.pop(name)
        if address in self._senders:
            self._close_sender(address, self._senders.pop(address), linger)
        self._watched.discard(address)
        self._broken.pop(address, None)
        self._unconnected.pop(address, None)

    def _sender_to(self, name: str, address: str) -> zmq.Socket:
        """The socket for `address`, made if there is none yet."""
        if address not in self._senders:
            sender, place = self._socket(zmq.PUSH, address), self._neighbours.nearest(address)
            try:
                if not place.startswith("inproc:"):
                    with interrupts_wait():
                        self._monitors[address] = sender.get_monitor_socket(zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED)
                    self._unconnected[address] = time.monotonic()
                sender.connect(place)
            except zmq.ZMQError as error:
                self._close_sender(address, sender, 0)
                raise ClusterError(f"{self.name} cannot connect to {name} at {address!r}: {error}") from error
            self._senders[address] = sender
        return self._senders[address]

    def send(self, receiver: str, message: Message) -> None:
        """Queue a message and count it; never blocks. Arrays that own their data become read-only."""
        address = self._addresses.get(receiver)
        if address is None:
            known = ", ".join(sorted(self._addresses)) or "nobody"
            kind = type(message).__name__
            raise ClusterError(f"{self.name} cannot send {kind} to {receiver!r}: connected only to {known}")
        frames = with_envelope(Envelope(self.run, self.name, self._sequence), self._encoded(message))
        self._sequence += 1
        # counted first: whoever gets the message may look at the ledger at once
        self._ledger.count(type(message).__name__, message.tree, *measure(frames), receiver)
        try:
            sender = self._sender_to(receiver, address)
            *others, last = frames  # arrays above zmq.COPY_THRESHOLD without a copy: encode made them constant
            for frame in others:
                sender.send(frame, _AND_MORE, copy=type(frame) is bytes)
            sender.send(last, _AT_ONCE, copy=type(last) is bytes)
        except zmq.Again as error:  # only within a process; what is sent to another that has ended is lost
            if address.startswith("inproc:"):
                raise ClusterError(
                    f"{self.name} cannot send to {receiver}: nobody is at {address} any more"
                ) from error

    def _encoded(self, message: Message) -> Encoded:
        """A message that goes to several receivers, one after another, is encoded once."""
        if self._small is not None and self._small[0] is message:
            return self._small[1]
        encoded = encode_fields(message)
        self._small = (message, encoded) if len(encoded.frames) == 1 else None
        return encoded

    def receive(self, timeout: float | None) -> tuple[Envelope, Message] | None:
        """The next message of this run, or None after `timeout` seconds (None: no limit; 0: only what is there), or up to
        twice as many while others arrive.

        Messages of other runs are dropped, but not those of run 0: their senders have no run yet. ProtocolError,
        naming the sender, for one that cannot be decoded.
        """
        if self._listener is None:
            raise ClusterError(f"{self.name} does not listen: it was made without an address or is closed")
        began = time.monotonic()
        if timeout != self._patience:
            self._patience = timeout
            self._listener.setsockopt(zmq.RCVTIMEO, -1 if timeout is None else math.ceil(1000 * timeout))
        while True:
            try:  # waiting inside the call, and copying what is small, takes half the time of a poll and shared frames
                frame = self._listener.recv(copy=False)
            except zmq.Again:
                return None
            frames: list[Any] = [frame.bytes]
            while frame.more:
                frame = self._listener.recv(zmq.DONTWAIT, copy=False)
                frames.append(frame.buffer)
            try:
                envelope, message = decode(frames)
            except ProtocolError as error:
                error.args = (f"{self.name} received {error}",)
                raise
            if self.run == 0 or envelope.run in (0, self.run):
                return envelope, message
            if timeout and time.monotonic() - began >= timeout:  # without patience: as long as something waits
                return None

    def broken(self) -> dict[str, float]:
        """When the connection to an address last broke (time.monotonic), if it did. It is made anew, but what was under way
        is lost."""
        self._hear_monitors()
        return {address: when for address, when in self._broken.items() if address in self._watched}

    def unconnected(self) -> dict[str, float]:
        """Since when something is to be sent to an address to which no connection has come about yet (time.monotonic)."""
        self._hear_monitors()
        return {address: since for address, since in self._unconnected.items() if address in self._watched}

    def _hear_monitors(self) -> None:
        for address, monitor in self._monitors.items():
            while monitor.poll(0):
                [event] = struct.unpack_from("<H", monitor.recv_multipart()[0])  # zmq.utils.monitor would load asyncio
                if event == zmq.EVENT_CONNECTED:
                    self._unconnected.pop(address, None)
                else:
                    self._broken[address] = time.monotonic()

    def close(self, linger: float = 0) -> None:
        """Close all sockets, again if need be; what is not sent after `linger` seconds is given up."""
        for address, sender in self._senders.items():
            self._close_sender(address, sender, linger)
        self._senders.clear()
        self._addresses.clear()
        if self._listener is not None:
            self._neighbours.moved_out(self.address)
            self._listener.close(0)
            self._listener = None
            self._remove_file()
        if self._alone:
            self._neighbours.close()

    def _remove_file(self) -> None:
        """ZeroMQ leaves it behind. One that somebody else has made there since stays, and one that cannot be removed."""
        if self._file and _which_file(self.address) == self._file:
            with suppress(OSError):
                os.unlink(self.address.removeprefix("ipc://"))

    def _close_sender(self, address: str, sender: zmq.Socket, linger: float) -> None:
        if address in self._monitors:
            sender.disable_monitor()
            self._monitors.pop(address).close(0)
        sender.close(round(1000 * linger))

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _listen(self, bind: str) -> None:
        scheme, _, place = bind.partition("://")
        if scheme not in ("tcp", "ipc", "inproc") or not place:
            raise ClusterError(f"{self.name} cannot listen at {bind!r}: {_SPELLING}")
        if scheme == "tcp" and place.endswith(":0"):
            bind = bind[:-1] + "*"
        self._listener = self._socket(zmq.PULL, bind)
        try:
            _bind(self._listener, bind)
        except zmq.ZMQError as error:
            advice = _ADVICE.get(error.errno, _SPELLING)
            raise ClusterError(f"{self.name} cannot listen at {bind}: {error}; {advice}") from error
        self.address = self._listener.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        if scheme == "ipc":
            self._file = _which_file(self.address)
        if scheme != "inproc" and not self._alone:
            self._neighbours.moved_in(self.address, self._listener)

    def _socket(self, kind: int, address: str) -> zmq.Socket:
        with interrupts_wait():  # the context would not know of one that was made when Ctrl-C came, and would wait for it
            try:
                made = self._neighbours.context.socket(kind)
            except zmq.ZMQError as error:
                raise ClusterError(f"{self.name} cannot have another socket: {error}; raise `ulimit -n`") from error
        made.setsockopt(zmq.LINGER, 0)
        # marks count messages, not bytes, and a full queue would block a sender: none
        made.setsockopt(zmq.SNDHWM, 0)
        made.setsockopt(zmq.RCVHWM, 0)
        host = address.removeprefix("tcp://")
        if address.startswith("tcp://") and (
            host.startswith("[") or any(letter.isalpha() for letter in host)
        ):
            made.setsockopt(zmq.IPV6, 1)
        return made


class Neighbours:
    """Endpoints of one process, of any of its threads: at whatever address one listens, the others reach it by memory.

    Bytes are counted as if they did not. To be closed, as a context manager does, when all of them are.
    """

    def __init__(self, *, alone: bool = False):
        """`alone`: for one endpoint; more may need many sockets, room for which takes memory."""
        self.context = zmq.Context()
        if may_have_urgent_threads():  # what arrives has not to wait for a turn on a core that computes
            self.context.set(zmq.THREAD_SCHED_POLICY, os.SCHED_RR)
            self.context.set(zmq.THREAD_PRIORITY, 1)
        self.context.set(zmq.MAX_SOCKETS, _ALONE if alone else self.context.get(zmq.SOCKET_LIMIT))
        self._doors: dict[str, str] = {}  # inproc://, by address

    def moved_in(self, address: str, listener: zmq.Socket) -> None:
        """`listener` is at `address`: from now on at a second one too."""
        door = f"inproc://{address}"
        _bind(listener, door)
        self._doors[address] = door

    def moved_out(self, address: str) -> None:
        self._doors.pop(address, None)

    def nearest(self, address: str) -> str:
        """Where to connect to for `address`."""
        return self._doors.get(address, address)

    def close(self) -> None:
        """Waits while sockets linger; does nothing the second time.

        One that nobody holds, as Ctrl-C came before anybody did, is closed: it would be waited for without end.
        """
        self.context.destroy(0)

    def __enter__(self) -> "Neighbours":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def local_host_towards(host: str) -> str:
    """The address of this machine from which it reaches `host` (a name, IPv4 or IPv6); sends nothing.

    ClusterError if the name is unknown or there is no route.
    """
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host.strip("[]"), 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)  # for UDP this only looks up the route
            local: Any = probe.getsockname()[0]
    except OSError as error:
        raise ClusterError(
            f"no way to reach host {host!r}: {error}; check the name and the network"
        ) from error
    return local


def _bind(listener: zmq.Socket, address: str) -> None:
    """Waits a moment if the address is not free yet."""
    deadline = time.monotonic() + _RELEASE_SECONDS
    while True:
        try:
            if address.startswith("ipc://"):
                _check_ipc_path(address.removeprefix("ipc://"))
            listener.bind(address)
            return
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE or time.monotonic() >= deadline:
                raise
            time.sleep(0.02)


def _which_file(address: str) -> tuple[int, ...]:
    """What tells the file at an ipc:// address from all others that were ever there; nothing, if there is none."""
    try:
        found = os.stat(address.removeprefix("ipc://"))
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _check_ipc_path(path: str) -> None:
    """ZMQError if somebody listens at the path, or it is no socket: ZeroMQ itself would take it away from them."""
    if len(path.encode()) > zmq.IPC_PATH_MAX_LEN:
        raise zmq.ZMQError(errno.ENAMETOOLONG)
    if not os.path.exists(path):
        return
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        raise zmq.ZMQError(errno.EEXIST)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return  # left behind by a process that was killed, or gone by now
        except OSError:
            pass  # somebody else's, who may listen there
    raise zmq.ZMQError(zmq.EADDRINUSE)
