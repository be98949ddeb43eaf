"""Knows how one role runs at an endpoint, and how the end of one becomes the end of all; does not know trees.

A run ends in one of two ways: every role is done and the coordinator dismisses them, or somebody fails, tells the
coordinator the cause, and the coordinator tells everybody that same first cause.
"""

import logging
import time
from collections.abc import Callable, Iterable

from psboost import errors
from psboost.cluster import liveness
from psboost.cluster.costs import Costs, Stopwatch, peak_memory
from psboost.cluster.liveness import Listener
from psboost.errors import ClusterError, ProtocolError, PSBoostError
from psboost.roles.role import COORDINATOR, Role
from psboost.wire.codec import Envelope
from psboost.wire.endpoint import Endpoint
from psboost.wire.kinds import Message
from psboost.wire.ledger import Ledger
from psboost.wire.messages import Abort, Beat, Dismiss, ReportCosts

POLL_SECONDS = 0.2
_MORE_SECONDS = 5.0  # than until somebody counts as dead
_BROKEN = (
    "the connection of {name} to {address} broke, and no message has come for {seconds:.0f} s since: what was under way is "
    "lost; check the network between the two"
)
_UNCONNECTED = (
    "{name} cannot reach {address}: no connection has come about for {seconds:.0f} s; check the network between the two, "
    "and whether that is an address of the other one's which all can reach (--bind, --announce)"
)

_TALK = (Abort, Beat, ReportCosts)  # of drivers among themselves

log = logging.getLogger("psboost")


def abort_message(error: BaseException) -> Abort:
    """What tells the others of `error`."""
    kind = type(error).__name__ if isinstance(error, PSBoostError) else "ClusterError"
    cause = str(error) if isinstance(error, PSBoostError) else f"{type(error).__name__}: {error}"
    return Abort(cause=cause, kind=kind)


def error_of(abort: Abort) -> PSBoostError:
    """The error that an Abort tells of, as the class it had where it happened."""
    kind = getattr(errors, abort.kind, None)
    known = isinstance(kind, type) and issubclass(kind, PSBoostError)
    return (kind if known else ClusterError)(abort.cause)


def is_told(error: BaseException) -> bool:
    """Whether the coordinator knows of it."""
    return getattr(error, "is_told", False)


class Mailbox:
    """What arrives at a role's endpoint. An Abort is raised; what cannot be read, and is of no known run, is logged."""

    def __init__(
        self,
        endpoint: Endpoint,
        check: Callable[[], None],
        listener: Listener | None = None,
        on_stranger: Callable[[Envelope, Message], None] | None = None,
        early: Iterable[tuple[Envelope, Message]] = (),
    ):
        """`check` is called about five times a second, when nothing waits, and raises to end the run.

        listener     is told of everybody heard
        on_stranger  gets messages of run 0, whose senders have no part in a run yet; without, they are as others
        early        what was received before the mailbox was there
        """
        self.reports: dict[str, Costs] = {}
        self._endpoint, self._check, self._listener, self._on_stranger = endpoint, check, listener, on_stranger
        self._early = list(early)
        self._next_check = 0.0
        self._last_heard = time.monotonic()  # of a role

    def next(self) -> tuple[Envelope, Message]:
        """Waits for the next message that is not drivers' talk: neither Beat nor ReportCosts, nor of a stranger."""
        while True:
            envelope, message = self._early.pop(0) if self._early else self._receive()
            if not self._handled(envelope, message):
                self._last_heard = time.monotonic()
                return envelope, message

    def pump(self) -> None:
        """Waits for one message, of whatever kind, and drops it if it is not drivers' talk."""
        self._handled(*self._receive())

    def _handled(self, envelope: Envelope, message: Message) -> bool:
        """Takes note of what drivers say among themselves; whether it was that."""
        if envelope.run == 0 and self._on_stranger is not None:
            self._on_stranger(envelope, message)
            return True
        if self._listener is not None:
            self._listener.heard(envelope.sender)
        if not isinstance(message, _TALK):
            return False
        if isinstance(message, Abort) and (envelope.run == self._endpoint.run or envelope.sender == COORDINATOR):
            error = error_of(message)
            error.is_told = envelope.sender == COORDINATOR
            raise error
        if isinstance(message, Beat) and self._listener is not None:
            self._listener.note(envelope.sender, message)
        if isinstance(message, ReportCosts):
            self.reports[envelope.sender] = _costs_of(envelope.sender, message)
        return True

    def _receive(self) -> tuple[Envelope, Message]:
        while True:
            try:
                received = self._endpoint.receive(POLL_SECONDS if time.monotonic() < self._next_check else 0)
            except ProtocolError as error:
                if self._endpoint.run != 0 and error.run == self._endpoint.run:
                    raise
                log.warning("psboost: ignored %s", error)
                continue
            if received is not None:
                return received
            self._check()
            self._check_connections()
            self._next_check = time.monotonic() + POLL_SECONDS

    def _check_connections(self) -> None:
        """ClusterError if one broke, or never came about, and no role has been heard for long since: all wait for what was
        lost with it, or is still to be sent.

        Somebody who died, which breaks connections too, is missed before that, and told of by name (Listener).
        """
        if self._endpoint.run == 0:
            return
        for what, of_addresses in ((_BROKEN, self._endpoint.broken()), (_UNCONNECTED, self._endpoint.unconnected())):
            for address, when in of_addresses.items():
                silence = time.monotonic() - max(when, self._last_heard)
                if silence > liveness.SILENCE_SECONDS + _MORE_SECONDS:
                    raise ClusterError(what.format(name=self._endpoint.name, address=address, seconds=silence))


def run_role(role: Role, endpoint: Endpoint, mailbox: Mailbox) -> None:
    """Runs `role` until it is done."""
    role.post_by(endpoint.send)
    try:
        role.start()
        while not role.done:
            envelope, message = mailbox.next()
            role.handle(envelope.sender, message)
    finally:
        role.let_go()


def gather_reports(names: Iterable[str], mailbox: Mailbox) -> dict[str, Costs]:
    """What each of `names` cost, once all of them have reported it."""
    names = list(names)
    while not mailbox.reports.keys() >= set(names):
        mailbox.pump()
    return {name: mailbox.reports[name] for name in names}


def report_and_wait(role: Role, endpoint: Endpoint, mailbox: Mailbox, stopwatch: Stopwatch, ledger: Ledger) -> None:
    """Tells the coordinator what the role cost, and waits to be dismissed."""
    costs = ReportCosts(
        times=stopwatch.state(), ledger=ledger.state(), peak_memory=peak_memory(), bytes_read=role.bytes_read
    )
    endpoint.send(COORDINATOR, costs)
    while not isinstance(mailbox.next()[1], Dismiss):
        pass  # repeated or late messages of the run


def _costs_of(sender: str, message: ReportCosts) -> Costs:
    try:
        stopwatch, ledger = Stopwatch.from_state(message.times), Ledger.from_state(message.ledger)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"costs of {sender}, which are not as they should be: {error!r:.200}") from error
    return Costs(stopwatch, ledger, message.peak_memory, message.bytes_read)
