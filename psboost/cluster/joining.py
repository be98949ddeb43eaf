"""Knows who has joined a run, and who gets which name; does not know what they will do, or who starts them."""

from psboost.cluster.runner import error_of, log
from psboost.errors import ClusterError
from psboost.wire.codec import Envelope
from psboost.wire.endpoint import Endpoint
from psboost.wire.kinds import Message
from psboost.wire.messages import Abort, Beat, Join

_REFUSAL_SECONDS = 2.0  # for a refusal to leave


class Roll:
    """Who has joined, role by role, until nobody is missing."""

    def __init__(self, names: dict[str, list[str]], endpoint: Endpoint):
        """`names`: {"server": names, "worker": names} in order of rank.

        `addresses` are of those that have joined, each as its own name: what a Pulse takes.
        """
        self.addresses: dict[str, str] = {}
        self._names, self._endpoint = names, endpoint
        self._joined: dict[str, list[Join]] = {role: [] for role in names}
        self._senders: dict[str, str] = {}  # by address: what its messages say that they are from

    @property
    def n_missing(self) -> int:
        return sum(len(names) - len(self._joined[role]) for role, names in self._names.items())

    def missing(self) -> str:
        """Who is missing, for messages."""
        counts = {role: len(names) - len(self._joined[role]) for role, names in self._names.items()}
        return " and ".join(f"{n} {role}{'s' if n > 1 else ''}" for role, n in counts.items() if n)

    def meet(self, envelope: Envelope, message: Message) -> None:
        """Hears a stranger: one that wants to join is answered, one that has joined may end the run."""
        if isinstance(message, Join):
            self._join(envelope, message)
        elif isinstance(message, Abort) and envelope.sender in self._senders.values():
            raise error_of(message)

    def _join(self, envelope: Envelope, join: Join) -> None:
        """Takes a member in, or tells it why not. One whose address cannot be used is logged and forgotten."""
        if join.address in self.addresses:
            return
        refusal = self._refusal(join)
        self._endpoint.connect(join.address, join.address, watched=not refusal)
        try:
            # from the first Beat on, silence means that the coordinator is gone
            self._endpoint.send(join.address, Abort(cause=refusal) if refusal else Beat())
        except ClusterError as error:
            log.warning("psboost: ignored a %s that wants to join: %s", join.role, error)
            return
        if refusal:
            self._endpoint.disconnect(join.address, linger=_REFUSAL_SECONDS)
        else:
            self._joined[join.role].append(join)
            self._senders[join.address] = envelope.sender
            self.addresses[join.address] = join.address

    def check(self) -> None:
        """Those that have joined and are gone make room for others."""
        for address in self._endpoint.broken().keys() & self.addresses.keys():
            log.warning("psboost: the %s has left: another one may join", self._senders[address])
            for joined in self._joined.values():
                joined[:] = [join for join in joined if join.address != address]
            del self._senders[address], self.addresses[address]
            self._endpoint.disconnect(address)

    def _refusal(self, join: Join) -> str:
        """Why a member cannot join; empty if it can."""
        names = self._names.get(join.role)
        if names is None:
            return f"there is no role {join.role!r}: join as {' or '.join(self._names)}"
        joined = self._joined[join.role]
        if not -1 <= join.rank < len(names):
            return f"there is no {join.role} of rank {join.rank}: this run has ranks 0 to {len(names) - 1}"
        if len(joined) == len(names):
            return f"this run has all of its {join.role}s already ({len(names)})"
        if join.rank >= 0 and any(join.rank == other.rank for other in joined):
            return f"the {join.role} of rank {join.rank} has joined already: choose another rank, or none"
        return ""

    def assign(self) -> dict[str, Join]:
        """Who bears which name: those that asked for a rank have theirs, the others come in order of joining."""
        assigned = {}
        for role, names in self._names.items():
            asked = {names[join.rank]: join for join in self._joined[role] if join.rank >= 0}
            others = iter([join for join in self._joined[role] if join.rank < 0])
            assigned |= {name: asked.get(name) or next(others) for name in names}
        return assigned
