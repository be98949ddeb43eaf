"""Runs roles one after another in one thread, on a cluster that is not there: knows when each would do what; no sockets.

A role's turn is the handling of one message. Its CPU time is measured here, with that of decoding the message and of
encoding what the role sends; what sockets would take is added (hosts.Cluster). The turn begins, in virtual time, as soon
as the message is there and the role has done what came before; it shares its host's cores with the turns of other roles
(cores.py). Each message leaves when the turn has come so far, goes through both hosts' links (links.py), and is handled
when it is there. What sockets take for its bytes, the hosts' cores do beside the turns, packet by packet, as the kernel and
ZeroMQ's own thread do. Between roles of one host it is there at once, its bytes a part of both turns.

Workers have one thread. What a role reads from files takes its CPU time, and no time of a disk.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from psboost.cluster.costs import Costs, Stopwatch, peak_memory, slowest
from psboost.cluster.memory import check_all_done
from psboost.data.bin_mapper import BinMapper
from psboost.data.source import Source
from psboost.lab import phases
from psboost.lab.cores import Cores
from psboost.lab.events import Events
from psboost.lab.hosts import Cluster
from psboost.lab.links import Links
from psboost.lab.phases import COMMUNICATION, COMPUTATION, WAITING, HostTime
from psboost.roles.cast import make_role
from psboost.roles.coordinator import Coordinator, Round, Training
from psboost.roles.job import Job
from psboost.roles.role import COORDINATOR, Role
from psboost.wire.arrays import Frames
from psboost.wire.codec import Envelope, decode, encode, new_run
from psboost.wire.kinds import Message
from psboost.wire.ledger import Ledger, measure


def train_virtually(
    job: Job,
    source: Source,
    eval_sources: tuple[Source, ...],
    *,
    cluster: Cluster,
    on_round: Callable[[Round], bool | None] | None = None,
    bin_mapper: BinMapper | None = None,
) -> tuple[Training, dict[str, Costs], dict]:
    """Trains with roles that share `source`. Returns the training, its costs in virtual seconds, and VirtualRun.report."""
    run = VirtualRun(cluster, cluster.place(job))
    costs = {name: Costs(Stopwatch(run.time)) for name in (COORDINATOR, *job.servers, *job.workers)}

    def with_costs(round_: Round) -> bool | None:
        if on_round is None:
            return None
        with run.not_counted():
            sent = sum(cost.ledger.bytes_sent for cost in costs.values())
            return on_round(replace(round_, bytes_sent=sent, seconds=slowest(cost.seconds for cost in costs.values())))

    coordinator = Coordinator(job, run.stage_of(COORDINATOR, costs[COORDINATOR].stopwatch), with_costs, bin_mapper)
    others = [
        make_role(name, job, source, eval_sources, stage=run.stage_of(name, costs[name].stopwatch))
        for name in (*job.servers, *job.workers)
    ]
    run.run([coordinator, *others], {name: cost.ledger for name, cost in costs.items()})
    for role in others:
        costs[role.name].bytes_read = role.bytes_read
        costs[role.name].peak_memory = peak_memory()
    return coordinator.result, costs, run.report()


@dataclass
class _Host:
    """A host and what it is told to note."""

    number: int
    cores: Cores
    time: HostTime = field(default_factory=HostTime)
    cpu_seconds: float = 0.0
    sent: dict[str, int] = field(default_factory=dict)  # bytes over its link, by phase
    received: dict[str, int] = field(default_factory=dict)


@dataclass
class _Actor:
    """A role where it is."""

    name: str
    host: _Host
    role: Role | None = None
    inbox: deque[tuple[str, Frames, int]] = field(default_factory=deque)  # kind, frames, bytes yet to be copied
    started: bool = False
    running: bool = False
    waits_in: str = ""  # the phase that it is said to wait in
    stages: list[str] = field(default_factory=list)  # the phases of the stages that it is in
    last_stage: str = phases.START
    n_sent: int = 0


@dataclass
class _Piece:
    """A part of a turn: some CPU time in one phase, and the message that leaves then."""

    phase: str
    seconds: float
    post: tuple[str, str, Frames, int] | None = None  # receiver, kind, frames, bytes on the wire


class VirtualRun:
    """One run of some roles on a virtual cluster."""

    def __init__(self, cluster: Cluster, placed: dict[str, int], cpu: Callable[[], float] = time.thread_time) -> None:
        """placed: the host of each role; cpu: a clock of the seconds that roles spend, this thread's CPU time."""
        self._cluster, self._placed, self._cpu = cluster, placed, cpu
        self._events = Events()
        bytes_per_second = None if cluster.gbit is None else cluster.gbit * cluster.goodput * 1e9 / 8
        self._links = Links(self._events, bytes_per_second, cluster.latency_ms / 1e3, cluster.burst_kb * 1e3)
        n_hosts = cluster.hosts or 1 + max(placed.values())
        cores = [Cores(self._events, cluster.host_cores) for _ in range(1 + cluster.core_of(n_hosts - 1))]
        self._hosts = [_Host(number, cores[cluster.core_of(number)]) for number in range(n_hosts)]
        self._actors = {name: _Actor(name, self._hosts[number]) for name, number in placed.items()}
        self._message_seconds = cluster.message_us * 1e-6 * cluster.slowdown  # that sockets take, at each end
        self._byte_seconds = cluster.byte_ns * 1e-9 * cluster.slowdown
        self._run = new_run()
        self._uncounted = 0.0  # seconds of `cpu`
        self._turn: _Turn | None = None  # that is executed right now
        self._tree, self._began = -1, 0.0
        self._seconds_by_tree: dict[int, float] = {}

    # --- what roles get

    def time(self) -> float:
        """Virtual seconds since the run began; within a turn, as if it had a core to itself."""
        in_turn = 0.0 if self._turn is None else self._counted() - self._turn.began
        return self._events.now + in_turn * self._cluster.slowdown

    def stage_of(self, name: str, stopwatch: Stopwatch) -> Callable:
        """What the role of that name takes as its `stage`."""
        actor = self._actors[name]

        @contextmanager
        def stage(label: str, tree: int = -1, share: float = 1.0):
            with stopwatch.stage(label, tree, share):
                if label in phases.NO_STAGES:
                    yield
                    return
                self._turn.lap()
                if label != phases.AS_BEFORE:
                    actor.last_stage = phases.OF_STAGE.get(label, label)
                actor.stages.append(actor.last_stage)
                try:
                    yield
                finally:
                    self._turn.lap()
                    actor.stages.pop()

        return stage

    @contextmanager
    def not_counted(self):
        """What is done inside belongs to no role."""
        begin = self._cpu()
        try:
            yield
        finally:
            self._uncounted += self._cpu() - begin

    def _counted(self) -> float:
        return self._cpu() - self._uncounted

    # --- turns

    def run(self, roles: list[Role], ledgers: dict[str, Ledger]) -> None:
        """Runs `roles` to their ends. Raises ClusterError if all wait and nothing is under way."""
        self._ledgers = ledgers
        try:
            for role in roles:
                self._actors[role.name].role = role
                self._start_turn(self._actors[role.name])
            self._events.run()
            self._part_trees()
            check_all_done(roles)
        finally:
            for role in roles:
                role.let_go()

    def _take_turn(self, actor: _Actor) -> None:
        """Has the role handle its next message, or start; then lets the time pass that it took."""
        sockets = 0.0
        if not actor.started:
            actor.started, phase = True, phases.START
            outbox, pieces = self._execute(actor, phase, actor.role.start)
        else:
            kind, frames, copied = actor.inbox.popleft()
            phase = phases.of_kind(kind)
            sockets = self._message_seconds + self._byte_seconds * copied
            outbox, pieces = self._execute(actor, phase, lambda: self._handle(actor, frames))
        pieces = [_Piece(phase, sockets), *pieces, *(self._encode(actor, *one) for one in outbox)]
        self._play(actor, deque(piece for piece in pieces if piece.seconds > 0 or piece.post is not None))

    def _handle(self, actor: _Actor, frames: Frames) -> list[tuple[str, Message]]:
        envelope, message = decode(frames)
        return actor.role.handle(envelope.sender, message)

    def _execute(self, actor: _Actor, phase: str, action: Callable[[], list]) -> tuple[list, list[_Piece]]:
        """What the role sends, and what it spent."""
        self._turn = _Turn(self._counted, actor, phase)
        outbox = action()
        self._turn.lap()
        pieces = [_Piece(phase, s * self._cluster.slowdown) for phase, s in self._turn.spent]
        self._turn = None
        return outbox, pieces

    def _encode(self, actor: _Actor, receiver: str, message: Message) -> _Piece:
        kind, begin = type(message).__name__, self._counted()
        frames = encode(Envelope(run=self._run, sender=actor.name, sequence=actor.n_sent), message)
        payload, wire = measure(frames)
        self._ledgers[actor.name].count(kind, message.tree, payload, wire, receiver)
        actor.n_sent += 1
        seconds = (self._counted() - begin) * self._cluster.slowdown + self._message_seconds
        if self._actors[receiver].host is actor.host:
            seconds += self._byte_seconds * wire
        return _Piece(phases.of_kind(kind), seconds, (receiver, kind, frames, wire))

    def _play(self, actor: _Actor, pieces: deque[_Piece]) -> None:
        """Lets the pieces' time pass, one after another; then the turn is over."""
        if not pieces:
            self._end_turn(actor)
            return
        piece = pieces.popleft()

        def done() -> None:
            if piece.post is not None:
                self._post(actor, piece.phase, *piece.post)
            self._play(actor, pieces)

        self._compute(actor.host, piece.phase, piece.seconds, done)

    def _compute(self, host: _Host, phase: str, seconds: float, then: Callable[[], None]) -> None:
        """Calls `then` when the host's cores have done work of so many seconds, from now on."""
        host.time.begin(self._events.now, COMPUTATION, phase)
        host.cpu_seconds += seconds

        def done() -> None:
            host.time.end(self._events.now, COMPUTATION, phase)
            then()

        host.cores.run(seconds, done)

    def _end_turn(self, actor: _Actor) -> None:
        actor.running = False
        if actor.name == COORDINATOR and (actor.role.tree != self._tree or actor.role.done):
            self._part_trees(-1 if actor.role.done else actor.role.tree)
        if actor.role.done:
            actor.inbox.clear()
        if actor.inbox:
            self._start_turn(actor)
        else:
            actor.waits_in = phases.END if actor.role.done else phases.of_kind(actor.role.awaited)
            actor.host.time.begin(self._events.now, WAITING, actor.waits_in)

    def _start_turn(self, actor: _Actor) -> None:
        """Now, but after what else happens at this moment was set before."""
        actor.running = True
        self._events.at(self._events.now, partial(self._take_turn, actor))

    def _part_trees(self, tree: int = -1) -> None:
        """A tree ends and another begins, now."""
        now = self._events.now
        if self._tree >= 0:
            self._seconds_by_tree[self._tree] = now - self._began
        self._tree, self._began = tree, now
        for host in self._hosts:
            host.time.start_tree(now, tree)

    # --- messages

    def _post(self, actor: _Actor, phase: str, receiver: str, kind: str, frames: Frames, wire: int) -> None:
        """Sends a message now."""
        sender, to = actor.host, self._actors[receiver]

        if to.host is sender:
            self._events.at(self._events.now, partial(self._deliver, to, (kind, frames, wire)))
            return

        def arrive() -> None:
            to.host.time.end(self._events.now, COMMUNICATION, phase)
            self._deliver(to, (kind, frames, 0))

        def handle(host: int, n_bytes: int, then: Callable[[], None]) -> None:
            if self._byte_seconds:
                self._compute(self._hosts[host], phase, self._byte_seconds * n_bytes, then)
            else:
                then()

        for host, sums in ((sender, sender.sent), (to.host, to.host.received)):
            sums[phase] = sums.get(phase, 0) + wire
            host.time.begin(self._events.now, COMMUNICATION, phase)
        self._links.send(
            sender.number, to.host.number, (actor.name, receiver), wire,
            left=lambda: sender.time.end(self._events.now, COMMUNICATION, phase), arrived=arrive, handle=handle,
        )  # fmt: skip

    def _deliver(self, actor: _Actor, letter: tuple[str, Frames, int]) -> None:
        if actor.role.done:
            return
        actor.inbox.append(letter)
        if not actor.running:
            actor.host.time.end(self._events.now, WAITING, actor.waits_in)
            self._start_turn(actor)

    # --- what it came to

    def report(self) -> dict:
        """What the run took, in plain types: report["virtual"] of a training.

        seconds          of the whole run; seconds_by_tree: {tree: from the end of the one before, at the coordinator}
        cluster, placed  Cluster's fields; {role: host}
        phases           {phase: {"computation", "communication", "waiting"}}: seconds, the mean over all hosts
        phases_by_tree   {tree: the same}; tree -1: before the first and after the last
        hosts            a list, by number: {"roles": names, "phases": as above, of this host (in all its `seconds`),
                         "cpu_seconds": of all its roles, "bytes": {phase: {"sent", "received"}} over its link}

        A phase's three figures over all phases add up to `seconds`, for each host and in the mean: phases.py says how a
        moment is counted. Bytes are those on the wire, as ledgers count; between roles of one host they are in no link.
        """
        for host in self._hosts:
            host.time.pass_until(self._events.now)
        n_hosts = len(self._hosts)
        by_tree: dict[int, dict] = {}
        for host in self._hosts:
            for tree, of_tree in host.time.seconds.items():
                _add(by_tree.setdefault(tree, {}), of_tree, 1 / n_hosts)
        return {
            "seconds": self._events.now,
            "seconds_by_tree": self._seconds_by_tree,
            "cluster": asdict(self._cluster) | {"hosts": n_hosts},
            "placed": dict(self._placed),
            "phases": _ordered(_sum(by_tree.values())),
            "phases_by_tree": {tree: _ordered(of_tree) for tree, of_tree in sorted(by_tree.items())},
            "hosts": [self._of_host(host) for host in self._hosts],
        }

    def _of_host(self, host: _Host) -> dict:
        return {
            "roles": [name for name, number in self._placed.items() if number == host.number],
            "phases": _ordered(_sum(host.time.seconds.values())),
            "cpu_seconds": host.cpu_seconds,
            "bytes": _ordered(
                {
                    phase: {"sent": host.sent.get(phase, 0), "received": host.received.get(phase, 0)}
                    for phase in {**host.sent, **host.received}
                }
            ),
        }


class _Turn:
    """What a turn spends, phase by phase, while it is executed."""

    def __init__(self, clock: Callable[[], float], actor: _Actor, phase: str) -> None:
        self.spent: list[tuple[str, float]] = []
        self._clock, self._actor, self._phase = clock, actor, phase
        self.began = self._last = clock()

    def lap(self) -> None:
        """A stage begins or ends: what was spent since the last time was spent as things were until now."""
        now = self._clock()
        phase = self._actor.stages[-1] if self._actor.stages else self._phase
        if self.spent and self.spent[-1][0] == phase:
            self.spent[-1] = (phase, self.spent[-1][1] + now - self._last)
        else:
            self.spent.append((phase, now - self._last))
        self._last = now


def _add(sums: dict, of_phases: dict, share: float = 1.0) -> None:
    for phase, of_what in of_phases.items():
        of_phase = sums.setdefault(phase, dict.fromkeys(of_what, 0.0))
        for what, seconds in of_what.items():
            of_phase[what] += share * seconds


def _sum(parts) -> dict:
    sums: dict = {}
    for part in parts:
        _add(sums, part)
    return sums


def _ordered(of_phases: dict) -> dict:
    """The phases that there are, in the order of a run."""
    known = [phase for phase in phases.PHASES if phase in of_phases]
    return {phase: of_phases[phase] for phase in (*known, *sorted(of_phases.keys() - set(known)))}
