"""A server's or worker's side of a run in several processes: joining, serving, leaving; does not know trees."""

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from psboost.cluster.costs import Stopwatch
from psboost.cluster.runner import (
    POLL_SECONDS,
    Listener,
    Pulse,
    abort_message,
    error_of,
    report_and_wait,
    run_role,
)
from psboost.errors import ClusterError, ParameterError
from psboost.roles.role import COORDINATOR, Role
from psboost.wire.endpoint import Endpoint, local_host_towards
from psboost.wire.ledger import Ledger
from psboost.wire.messages import Abort, AssignRoles, Join

REPLY_SECONDS = 600.0  # how long a member waits for the others to join


def normal_address(text: str) -> str:
    """HOST:PORT, [IPV6]:PORT or a whole tcp:// or ipc:// address, as a whole address."""
    if "://" in text:
        return text
    host, _, port = text.rpartition(":")
    if not host or not (port.isdigit() or port == "*") or (":" in host and not host.startswith("[")):
        raise ParameterError(f"address {text!r}: write it as HOST:PORT, [IPV6]:PORT or ipc://PATH")
    return f"tcp://{text}"


def run_member(
    role: str,
    make_role: Callable[[str, dict, Stopwatch], Role],
    *,
    rendezvous: str,
    bind: str | None = None,
    announce: str | None = None,
    rank: int = -1,
) -> None:
    """Joins the coordinator at `rendezvous` as a `role` ("server" or "worker"), and serves until dismissed.

    make_role  makes the role, from the name and the job that the coordinator assigns
    bind       where to listen; by default the address that faces the coordinator, any free port
    announce   the host that the others are told, where it is not the one listened at

    Raises the first cause if the run fails anywhere.
    """
    ledger, stopwatch = Ledger(), Stopwatch()
    with ExitStack() as stack:
        rendezvous = normal_address(rendezvous)
        endpoint = stack.enter_context(
            Endpoint(f"{role} (pid {os.getpid()})", _bind_address(rendezvous, bind, stack), run=0, incarnation=0, ledger=ledger)
        )
        endpoint.connect(COORDINATOR, rendezvous)
        address = _announced(endpoint.address, announce)
        endpoint.send(COORDINATOR, Join(role=role, address=address, rank=rank, process=os.getpid()))
        run, assigned = _await_assignment(endpoint, rendezvous)
        endpoint.rename(assigned.name, run, assigned.incarnations[assigned.name])
        for name, peer in assigned.addresses.items():
            endpoint.connect(name, peer)
        listener = Listener([COORDINATOR], lambda name: f"the {name} at {rendezvous}")
        pulse = Pulse(assigned.name, run, endpoint.incarnation, {COORDINATOR: rendezvous}, ledger, stopwatch.seconds)
        stack.callback(pulse.stop)
        try:
            made = make_role(assigned.name, assigned.job, stopwatch)
            run_role(made, endpoint, listener.check, listener)
            report_and_wait(made, endpoint, stopwatch.seconds, ledger, listener)
        except BaseException as error:
            failure = error if isinstance(error, Exception) else ClusterError(f"{assigned.name} was interrupted")
            endpoint.send(COORDINATOR, abort_message(failure))
            endpoint.close(linger=1.0)
            raise


def _bind_address(rendezvous: str, bind: str | None, stack: ExitStack) -> str:
    if bind is not None:
        return normal_address(bind)
    scheme, _, place = rendezvous.partition("://")
    if scheme == "ipc":
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="psboost-"))
        return f"ipc://{Path(folder) / str(os.getpid())}"
    host = local_host_towards(place.rpartition(":")[0])
    return f"tcp://[{host}]:0" if ":" in host else f"tcp://{host}:0"


def _announced(address: str, announce: str | None) -> str:
    """The address that peers are told."""
    if announce is None:
        if address.startswith(("tcp://0.0.0.0:", "tcp://[::]:")):
            raise ParameterError(
                f"listening at {address}: say with --announce HOST which of this machine's names the others reach it by"
            )
        return address
    port = address.rpartition(":")[2]
    return f"tcp://[{announce}]:{port}" if ":" in announce.strip("[]") and "[" not in announce else f"tcp://{announce}:{port}"


def _await_assignment(endpoint: Endpoint, rendezvous: str) -> tuple[int, AssignRoles]:
    deadline = time.monotonic() + REPLY_SECONDS
    while time.monotonic() < deadline:
        received = endpoint.receive(POLL_SECONDS)
        if received is None:
            continue
        envelope, message = received
        if isinstance(message, Abort):
            raise error_of(message)
        if isinstance(message, AssignRoles):
            return envelope.run, message
    raise ClusterError(
        f"no answer from a coordinator at {rendezvous} within {REPLY_SECONDS:.0f} s: is it running, and are all others?"
    )


