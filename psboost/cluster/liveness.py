"""Knows who is alive, by what is heard of them; does not know what they do, or what happens to those who are not."""

import threading
import time
from collections.abc import Callable

from psboost.cluster.costs import Stopwatch, slowest
from psboost.errors import ClusterError
from psboost.wire.endpoint import Endpoint
from psboost.wire.ledger import Ledger
from psboost.wire.messages import Beat

BEAT_SECONDS = 1.0
SILENCE_SECONDS = 15.0  # a peer not heard for so long counts as dead


class Pulse:
    """Sends a Beat to some peers once a second from a thread of its own, also while a kernel runs for minutes."""

    def __init__(
        self, name: str, run: int, peers: dict[str, str], ledger: Ledger, stopwatch: Stopwatch
    ):
        """`peers`: {name: address}, to which more may be added. `ledger`, `stopwatch`: what the role has spent so far.

        Its Beats are not counted in `ledger`: how many there are depends on the clock.
        """
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._args = (name, run, peers, ledger, stopwatch)
        self._thread = threading.Thread(target=self._beat_until_stopped, name=f"pulse of {name}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises what ended it: its peers would take who has none for dead."""
        if self._error is not None:
            raise self._error

    def _beat_until_stopped(self) -> None:
        try:
            self._beat()
        except Exception as error:
            self._error = error

    def _beat(self) -> None:
        name, run, peers, ledger, stopwatch = self._args
        with Endpoint(name, None, run=run, ledger=Ledger()) as endpoint:
            while not self._stop.wait(BEAT_SECONDS):
                beat = Beat(bytes_sent=ledger.bytes_sent, seconds=stopwatch.seconds)
                for peer, address in list(peers.items()):
                    endpoint.connect(peer, address)
                    endpoint.send(peer, beat)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class Listener:
    """When each peer was last heard of, and what its last beat said."""

    def __init__(self, peers: list[str], describe: Callable[[str], str] = str, patience: float = SILENCE_SECONDS):
        """`describe` makes of a peer's name what an error calls it; `patience`: seconds until it is first heard."""
        self._heard = dict.fromkeys(peers, time.monotonic())
        self._patience = dict.fromkeys(peers, patience)
        self._known: set[str] = set()
        self._describe = describe
        self._bytes_sent: dict[str, int] = {}
        self._seconds: dict[str, dict[str, float]] = {}

    def heard(self, peer: str) -> None:
        if peer in self._heard:
            self._known.add(peer)
            self._heard[peer] = time.monotonic()
            self._patience[peer] = SILENCE_SECONDS

    def has_heard(self, peer: str) -> bool:
        """Whether the peer was ever heard."""
        return peer in self._known

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
        now = time.monotonic()
        for peer, then in self._heard.items():
            if now - then > self._patience[peer]:
                raise ClusterError(
                    f"{self._describe(peer)} has not been heard of for {self._patience[peer]:.0f} s: "
                    "it died, was stopped, or the network to it is down"
                )
