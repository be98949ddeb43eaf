"""Knows how one role runs at an endpoint, and how the end of one becomes the end of all; does not know trees.

A run ends in one of two ways: every role is done and the coordinator dismisses them, or somebody fails, tells the
coordinator the cause, and the coordinator tells everybody that same first cause.
"""

import threading
import time
from collections.abc import Callable

from psboost import errors
from psboost.cluster.costs import Costs, peak_memory, slowest
from psboost.errors import ClusterError, PSBoostError
from psboost.roles.role import COORDINATOR, Role
from psboost.wire.endpoint import Endpoint
from psboost.wire.ledger import Ledger
from psboost.wire.messages import Abort, Beat, Dismiss, ReportCosts

POLL_SECONDS = 0.2
BEAT_SECONDS = 1.0
SILENCE_SECONDS = 15.0  # a peer not heard for so long counts as dead


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


class Pulse:
    """Sends a Beat to some peers once a second from a thread of its own, also while a kernel runs for minutes."""

    def __init__(
        self, name: str, run: int, incarnation: int, peers: dict[str, str], ledger: Ledger, seconds: dict[str, float]
    ):
        """`peers`: {name: address}. `ledger` and `seconds` are read for what the role has spent so far.

        Beats themselves are not counted in `ledger`: how many there are depends on the clock.
        """
        self._stop = threading.Event()
        self._args = (name, run, incarnation, peers, ledger, seconds)
        self._thread = threading.Thread(target=self._beat, name=f"pulse of {name}", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        name, run, incarnation, peers, ledger, seconds = self._args
        with Endpoint(name, None, run=run, incarnation=incarnation, ledger=Ledger()) as endpoint:
            for peer, address in peers.items():
                endpoint.connect(peer, address)
            while not self._stop.wait(BEAT_SECONDS):
                beat = Beat(bytes_sent=ledger.bytes_sent, seconds=dict(seconds))
                for peer in peers:
                    endpoint.send(peer, beat)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class Listener:
    """When each peer was last heard of."""

    def __init__(self, peers: list[str], describe: Callable[[str], str] = str):
        now = time.monotonic()
        self._heard = dict.fromkeys(peers, now)
        self._describe = describe
        self._bytes_sent: dict[str, int] = {}
        self._seconds: dict[str, dict[str, float]] = {}

    def heard(self, peer: str) -> None:
        if peer in self._heard:
            self._heard[peer] = time.monotonic()

    def note(self, peer: str, beat: Beat) -> None:
        self._bytes_sent[peer] = beat.bytes_sent
        self._seconds[peer] = beat.seconds

    @property
    def bytes_sent(self) -> int:
        """By all peers, as of their last beats."""
        return sum(self._bytes_sent.values())

    @property
    def seconds(self) -> dict[str, float]:
        """By stage, of the slowest peer, as of their last beats."""
        return slowest(self._seconds.values())

    def check(self) -> None:
        """ClusterError if somebody has been silent for too long. Call it only when nothing waits to be received."""
        for peer, then in self._heard.items():
            if time.monotonic() - then > SILENCE_SECONDS:
                raise ClusterError(
                    f"{self._describe(peer)} has not been heard of for {SILENCE_SECONDS:.0f} s: "
                    "it died, was stopped, or the network to it is down"
                )


def run_role(
    role: Role,
    endpoint: Endpoint,
    check: Callable[[], None],
    listener: Listener | None = None,
    reports: dict[str, Costs] | None = None,
    begin: bool = True,
) -> None:
    """Runs `role` until it is done. `check` is called whenever nothing comes, and raises to end the run.

    `reports`: where costs of roles that are done already go (the coordinator's).
    """
    if begin:
        for receiver, message in role.start():
            endpoint.send(receiver, message)
    while not role.done:
        received = endpoint.receive(POLL_SECONDS)
        if received is None:
            check()
            continue
        envelope, message = received
        if listener is not None:
            listener.heard(envelope.sender)
        if not _is_cluster_message(message, envelope.sender, listener, reports):
            for receiver, answer in role.handle(envelope.sender, message):
                endpoint.send(receiver, answer)


def _is_cluster_message(message, sender: str, listener: Listener | None, reports: dict[str, Costs] | None) -> bool:
    """Handles what drivers say among themselves; whether it was that."""
    if isinstance(message, Abort):
        raise error_of(message)
    if isinstance(message, Beat):
        if listener is not None:
            listener.note(sender, message)
        return True
    if isinstance(message, ReportCosts):
        if reports is not None:
            reports[sender] = costs_of(message)
        return True
    return False


def gather_reports(
    names: list[str], endpoint: Endpoint, check: Callable[[], None], listener: Listener | None, reports: dict[str, Costs]
) -> None:
    """Waits until all of `names` have reported their costs."""
    while set(names) - reports.keys():
        received = endpoint.receive(POLL_SECONDS)
        if received is None:
            check()
            continue
        envelope, message = received
        if listener is not None:
            listener.heard(envelope.sender)
        _is_cluster_message(message, envelope.sender, listener, reports)


def report_and_wait(role: Role, endpoint: Endpoint, seconds: dict, ledger: Ledger, listener: Listener) -> None:
    """Tells the coordinator what the role cost, and waits to be dismissed."""
    costs = ReportCosts(
        seconds=seconds, ledger=ledger.state(), peak_memory=peak_memory(), bytes_read=getattr(role, "bytes_read", 0)
    )
    endpoint.send(COORDINATOR, costs)
    while True:
        received = endpoint.receive(POLL_SECONDS)
        if received is None:
            listener.check()
            continue
        envelope, message = received
        listener.heard(envelope.sender)
        if isinstance(message, Dismiss):
            return
        if isinstance(message, Abort):
            raise error_of(message)


def costs_of(message: ReportCosts) -> Costs:
    return Costs(
        dict(message.seconds), Ledger.from_state(message.ledger), message.peak_memory, message.bytes_read
    )
