"""The coordinator's side of a run in several processes: who joins, who is alive, how it ends; does not know trees.

    coordinator                                server, worker (cluster/member.py)
    binds the rendezvous
                                 <-- Join --   binds an address of its own
    -- Beat, once a second, from now on -->
    -- AssignRoles (names, addresses, job) -->
    <======================= the roles' messages =======================>
    <-- Beat, once a second, both ways -->
                           <-- ReportCosts --
    -- Dismiss -->                             exits with 0
    -- Abort (the first cause) -->             exits with 1
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress

from psboost.cluster.addresses import bindable
from psboost.cluster.costs import Costs, Stopwatch, peak_memory
from psboost.cluster.joining import Roll
from psboost.cluster.liveness import Listener, Pulse
from psboost.cluster.runner import Mailbox, abort_message, gather_reports, run_role
from psboost.cluster.signals import signals_as_interrupt
from psboost.errors import ClusterError
from psboost.roles.role import COORDINATOR, Role
from psboost.wire.codec import new_run
from psboost.wire.endpoint import Endpoint
from psboost.wire.ledger import Ledger
from psboost.wire.messages import AssignRoles, Dismiss

JOIN_SECONDS = 600.0  # how long a coordinator waits for roles that others start
_FAREWELL_SECONDS = 2.0
_GRACE_SECONDS = 1.0  # for the Abort of a member that has ended by itself
_NURSERY_SECONDS = 6.0  # more than cluster/nursery.py takes to end its members


def _psboost() -> list[str]:
    """The command `psboost`, as the one that runs here: modules are searched for in the same places."""
    code = f"import sys; sys.path[:] = {list(map(str, sys.path))}; from psboost.cli import main; main()"
    return [sys.executable, "-P", "-c", code]


class Processes:
    """The processes of a run's members, started here; on leaving, none of them is left."""

    def __init__(self):
        self._nursery: subprocess.Popen | None = None
        self._names: dict[str, list[str]] = {}
        self._unread = b""
        self._ended: list[tuple[float, str]] = []  # when it counts, and what has ended how

    def start(self, names: dict[str, list[str]], rendezvous: str) -> None:
        """Starts processes for `names`, {"server": names, "worker": names}, in order of rank."""
        self._names = names
        counts = [f"--{role}s={len(of_role)}" for role, of_role in names.items()]
        command = [*_psboost(), "members", "--watched", "--rendezvous", rendezvous, *counts]
        # a session of its own: Ctrl-C at the terminal comes here first, and only here
        self._nursery = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        os.set_blocking(self._nursery.stdout.fileno(), False)

    def check(self) -> None:
        """ClusterError if one of them has ended.

        One that ended by itself, with an exit code, has told why: that may still be under way.
        """
        if self._nursery is None:
            return
        now = time.monotonic()
        for line in self._new_lines():
            pid, code, *members = line.split()
            names = [self._names[role][int(rank)] for role, rank in zip(members[::2], members[1::2], strict=True)]
            text = f"{' and '.join(names)} (pid {pid}) {how_it_ended(int(code))}"
            self._ended.append((now + _GRACE_SECONDS if int(code) >= 0 else now, text))
        if not self._ended and self._nursery.poll() is not None:
            text = f"the process that starts the roles (pid {self._nursery.pid})"
            self._ended.append((now, f"{text} {how_it_ended(self._nursery.returncode)}"))
        due = [text for when, text in self._ended if when <= now]
        if due:
            raise ClusterError(due[0])

    def _new_lines(self) -> list[str]:
        with suppress(BlockingIOError):
            self._unread += os.read(self._nursery.stdout.fileno(), 1 << 16)
        *lines, self._unread = self._unread.split(b"\n")
        return [line.decode() for line in lines]

    def wait(self, seconds: float) -> None:
        """Waits until all have ended, for so long at most."""
        if self._nursery is not None:
            with suppress(subprocess.TimeoutExpired):
                self._nursery.wait(seconds)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *exc_info) -> None:
        if self._nursery is None:
            return
        self._nursery.stdin.close()  # which ends them all, even if this process is interrupted again
        try:
            self._nursery.wait(_NURSERY_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._nursery.pid, signal.SIGKILL)
            self._nursery.wait()
        finally:
            self._nursery.stdout.close()


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


@contextmanager
def rendezvous_for(transport: str):
    """An address on this machine for a coordinator that starts its roles itself."""
    if transport == "tcp":
        yield "tcp://127.0.0.1:0"
        return
    with tempfile.TemporaryDirectory(prefix="psboost-") as folder:
        yield f"ipc://{folder}/run"  # short, as a path may have 107 bytes


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
    ledger = Ledger()
    with ExitStack() as stack:
        stack.enter_context(signals_as_interrupt())
        endpoint = stack.enter_context(
            Endpoint(COORDINATOR, bindable(rendezvous), run=0, ledger=ledger)
        )
        processes = stack.enter_context(Processes())
        roll = Roll(members, endpoint)
        try:
            if start_members:
                processes.start(members, endpoint.address)
            _await_members(roll, endpoint, processes, on_join)
            listener = _assign_roles(roll, endpoint, job)
            addresses = {name: join.address for name, join in roll.assign().items()}
            for name, address in addresses.items():
                ledger.rename_receiver(address, name)
            pulse = Pulse(COORDINATOR, endpoint.run, addresses, ledger, Stopwatch())
            stack.callback(pulse.stop)
            if on_start is not None:
                on_start(listener)

            def check() -> None:
                processes.check()
                listener.check()
                pulse.check()
                if on_wait is not None:
                    on_wait()

            mailbox = Mailbox(endpoint, check, listener, roll.meet)
            run_role(coordinator, endpoint, mailbox)
            reports = gather_reports(addresses, mailbox)
        except BaseException as error:
            _tell_all(endpoint, roll, error)
            processes.wait(_FAREWELL_SECONDS)
            raise
        for name in addresses:
            endpoint.send(name, Dismiss())
        endpoint.close(linger=_FAREWELL_SECONDS)
        processes.wait(_FAREWELL_SECONDS)
    return {COORDINATOR: Costs(stopwatch, ledger, peak_memory(), 0), **reports}


def _await_members(roll: Roll, endpoint: Endpoint, processes: Processes, on_join) -> None:
    """Returns once all members have joined; those that have hear the coordinator's pulse."""
    deadline = time.monotonic() + JOIN_SECONDS

    def check() -> None:
        processes.check()
        pulse.check()
        roll.check()
        if on_join is not None:
            on_join(endpoint.address, roll.n_missing)
        if time.monotonic() > deadline:
            raise ClusterError(f"{roll.missing()} did not join at {endpoint.address} within {JOIN_SECONDS:.0f} s")

    pulse = Pulse(COORDINATOR, 0, roll.addresses, Ledger(), Stopwatch())
    try:
        mailbox = Mailbox(endpoint, check, on_stranger=roll.meet)
        while roll.n_missing:
            mailbox.pump()
    finally:
        pulse.stop()


def _assign_roles(roll: Roll, endpoint: Endpoint, job: dict) -> Listener:
    """Gives the run its number and all members their names and job; returns what will be heard of them."""
    assigned = roll.assign()
    addresses = {name: join.address for name, join in assigned.items()}
    endpoint.rename(COORDINATOR, new_run())
    for name, address in addresses.items():
        endpoint.connect(name, address)
        endpoint.send(name, AssignRoles(name=name, addresses=addresses, job=job))
    endpoint.rename(COORDINATOR, endpoint.run)  # the role's own messages are numbered from 0
    return Listener(
        list(addresses), lambda name: f"{name} (pid {assigned[name].process}, {assigned[name].address})"
    )


def _tell_all(endpoint: Endpoint, roll: Roll, error: BaseException) -> None:
    """Sends all that have joined the cause, and gives it time to leave."""
    if isinstance(error, KeyboardInterrupt):
        error = ClusterError("interrupted at the coordinator")
    for address in roll.addresses:
        endpoint.send(address, abort_message(error))
    endpoint.close(linger=_FAREWELL_SECONDS if roll.addresses else 0)
