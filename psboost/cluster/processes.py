"""The coordinator's side of a run in several processes: who joins, who is alive, how it ends; does not know trees.

    coordinator                                server, worker (cluster/member.py)
    binds the rendezvous
                                 <-- Join --   binds an address of its own
    -- AssignRoles (names, addresses, job) -->
    <======================= the roles' messages =======================>
    <-- Beat, once a second, both ways -->
                           <-- ReportCosts --
    -- Dismiss -->                             exits with 0
    -- Abort (the first cause) -->             exits with 1
"""

import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager

from psboost.cluster.costs import Costs, Stopwatch, peak_memory
from psboost.cluster.runner import (
    POLL_SECONDS,
    Listener,
    Pulse,
    abort_message,
    error_of,
    gather_reports,
    run_role,
)
from psboost.errors import ClusterError
from psboost.roles.role import COORDINATOR, Role
from psboost.wire.endpoint import Endpoint
from psboost.wire.ledger import Ledger
from psboost.wire.messages import Abort, AssignRoles, Dismiss, Join

JOIN_SECONDS = 600.0  # how long a coordinator waits for roles that others start
_FAREWELL_SECONDS = 2.0


class Processes:
    """Processes that this one started; on leaving, none of them is left."""

    def __init__(self):
        self._started: dict[str, subprocess.Popen] = {}

    def start(self, name: str, command: list[str]) -> None:
        # a session of its own: Ctrl-C at the terminal comes here first, and only here
        self._started[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def check(self) -> None:
        """ClusterError if one of them has ended."""
        for name, process in self._started.items():
            if process.poll() is not None:
                raise ClusterError(f"{name} (pid {process.pid}) {_how_it_ended(process.returncode)}")

    def names_by_pid(self) -> dict[int, str]:
        return {process.pid: name for name, process in self._started.items()}

    def wait(self, seconds: float) -> None:
        """Waits until all have ended, for so long at most."""
        deadline = time.monotonic() + seconds
        for process in self._started.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *exc_info) -> None:
        alive = [process for process in self._started.values() if process.poll() is None]
        for process in alive:
            process.terminate()
        deadline = time.monotonic() + _FAREWELL_SECONDS
        for process in alive:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


@contextmanager
def signals_as_interrupt():
    """SIGTERM and SIGHUP end this process as Ctrl-C does, so that what it started is ended too."""

    def interrupt(number, frame):
        raise KeyboardInterrupt

    try:
        old = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    except ValueError:  # not the main thread: whoever runs it there handles signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


@contextmanager
def rendezvous_for(transport: str):
    """An address on this machine for a coordinator that starts its roles itself."""
    if transport == "tcp":
        yield "tcp://127.0.0.1:0"
        return
    with tempfile.TemporaryDirectory(prefix="psboost-") as folder:
        yield f"ipc://{folder}/coordinator"


def member_command(role: str, address: str) -> list[str]:
    return [sys.executable, "-m", "psboost", role, "--rendezvous", address]


def run_cluster(
    coordinator: Role,
    members: dict[str, list[str]],
    job: dict,
    *,
    rendezvous: str,
    start_members: bool,
    stopwatch: Stopwatch,
    on_join: Callable[[str, int], None] | None = None,
    on_start: Callable[[Listener], None] | None = None,
    on_wait: Callable[[], None] | None = None,
) -> dict[str, Costs]:
    """Runs `coordinator` here and the other roles in processes; returns what each role cost.

    members        {"server": names, "worker": names}: who has to join, in the order in which ranks are given
    job            what AssignRoles carries
    rendezvous     the address to listen at
    start_members  whether to start them here, as processes; otherwise somebody else does
    on_join        called while roles are missing, with the address to join at and how many are missing
    on_start       called when all have joined, with what will be heard of them
    on_wait        called about five times a second while nothing arrives

    Raises the first error of any role, after telling all the others of it.
    """
    run = secrets.randbits(31) | 1
    ledger = Ledger()
    with ExitStack() as stack:
        stack.enter_context(signals_as_interrupt())
        endpoint = stack.enter_context(
            Endpoint(COORDINATOR, rendezvous, run=0, incarnation=0, ledger=ledger)
        )
        processes = stack.enter_context(Processes())
        if start_members:
            for role, names in members.items():
                for name in names:
                    processes.start(name, member_command(role, endpoint.address))
        addresses: dict[str, str] = {}
        try:
            addresses, pids = _await_members(endpoint, processes, members, on_join)
            incarnations = {name: 0 for name in addresses} | {COORDINATOR: 0}
            endpoint.rename(COORDINATOR, run, 0)
            for name, address in addresses.items():
                endpoint.connect(name, address)
                endpoint.send(
                    name,
                    AssignRoles(name=name, addresses=addresses, incarnations=incarnations, job=job),
                )
            listener = Listener(list(addresses), lambda name: f"{name} (pid {pids[name]}, {addresses[name]})")

            def check() -> None:
                processes.check()
                listener.check()
                if on_wait is not None:
                    on_wait()

            pulse = Pulse(COORDINATOR, run, 0, addresses, ledger, {})
            stack.callback(pulse.stop)
            if on_start is not None:
                on_start(listener)
            reports: dict[str, Costs] = {}
            run_role(coordinator, endpoint, check, listener, reports)
            gather_reports(list(addresses), endpoint, check, listener, reports)
        except BaseException as error:
            _tell_all(endpoint, addresses, error)
            processes.wait(_FAREWELL_SECONDS)
            raise
        for name in addresses:
            endpoint.send(name, Dismiss())
        endpoint.close(linger=_FAREWELL_SECONDS)
        processes.wait(_FAREWELL_SECONDS)
    own = Costs(stopwatch.seconds, ledger, peak_memory(), 0)
    return {COORDINATOR: own, **{name: reports[name] for name in addresses}}


def _await_members(endpoint, processes: Processes, members: dict[str, list[str]], on_join):
    """Addresses and process numbers of all members, once they have joined."""
    wanted = {role: list(names) for role, names in members.items()}
    own_names = processes.names_by_pid()
    addresses: dict[str, str] = {}
    pids: dict[str, int] = {}
    deadline = time.monotonic() + JOIN_SECONDS
    while missing := sum(len(names) for names in wanted.values()):
        if on_join is not None:
            on_join(endpoint.address, missing)
        received = endpoint.receive(POLL_SECONDS)
        if received is None:
            processes.check()
            if time.monotonic() > deadline:
                rest = ", ".join(name for names in wanted.values() for name in names)
                raise ClusterError(f"{rest} did not join at {endpoint.address} within {JOIN_SECONDS:.0f} s")
            continue
        message = received[1]
        if isinstance(message, Abort):
            raise error_of(message)
        if not isinstance(message, Join) or message.address in addresses.values():
            continue
        names = wanted.get(message.role, [])
        name = own_names.get(message.process)
        if name not in names:
            if not names:
                endpoint.connect(message.address, message.address)
                endpoint.send(message.address, Abort(cause=f"this run has all the {message.role}s that it needs"))
                continue
            name = _ranked(message, names)
        names.remove(name)
        addresses[name], pids[name] = message.address, message.process
    return addresses, pids


def _ranked(message: Join, names: list[str]) -> str:
    """The name that a member gets: the one of the rank that it asked for, or the first that is free."""
    if message.rank < 0:
        return names[0]
    asked = [name for name in names if name == f"{message.role} {message.rank}"]
    return asked[0] if asked else names[0]


def _tell_all(endpoint: Endpoint, addresses: dict[str, str], error: BaseException) -> None:
    """Sends all members the cause, and gives it time to leave."""
    if isinstance(error, KeyboardInterrupt):
        error = ClusterError("interrupted at the coordinator (Ctrl-C)")
    for name, address in addresses.items():
        endpoint.connect(name, address)
        endpoint.send(name, abort_message(error))
    endpoint.close(linger=_FAREWELL_SECONDS if addresses else 0)
