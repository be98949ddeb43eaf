"""A server's or worker's side of a run in several processes: joining, serving, leaving; does not know trees."""

import logging
import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack

from psboost.cluster.addresses import address_facing, announced, bindable, normal_address, rendezvous_address
from psboost.cluster.costs import Stopwatch
from psboost.cluster.liveness import Listener, Pulse
from psboost.cluster.runner import Mailbox, abort_message, is_told, report_and_wait, run_role
from psboost.errors import ClusterError
from psboost.roles.role import COORDINATOR, Role
from psboost.wire.codec import Envelope
from psboost.wire.endpoint import Endpoint, Neighbours
from psboost.wire.kinds import Message
from psboost.wire.ledger import Ledger
from psboost.wire.messages import AssignRoles, Join

_PATIENT_SECONDS = 10.0  # before a member says that it waits
REPLY_SECONDS = 600.0  # how long a member waits for a coordinator that has not said anything

log = logging.getLogger("psboost")


def run_member(
    role: str,
    make_role: Callable[[str, dict, Stopwatch, ExitStack], Role],
    *,
    rendezvous: str,
    bind: str | None = None,
    announce: str | None = None,
    rank: int = -1,
    neighbours: Neighbours | None = None,
) -> None:
    """Joins the coordinator at `rendezvous` as a `role` ("server" or "worker"), and serves until dismissed.

    make_role  makes the role, from the name and the job that the coordinator assigns; what is to be closed
               goes on the stack
    bind       where to listen; by default the address that faces the coordinator, any free port
    announce   the host that the others are told, where it is not the one listened at
    rank       which of the servers or workers to be; by default any that is free
    neighbours the other members of this process, if there are any

    Raises the first cause if the run fails anywhere.
    """
    ledger, stopwatch = Ledger(), Stopwatch()
    rendezvous = rendezvous_address(rendezvous)
    listen_at = address_facing(rendezvous) if bind is None else bindable(normal_address(bind))
    process = f"{role} (pid {os.getpid()})"
    with ExitStack() as stack:
        endpoint = stack.enter_context(
            Endpoint(process, listen_at, run=0, ledger=ledger, neighbours=neighbours)
        )
        endpoint.connect(COORDINATOR, rendezvous)
        address = announced(endpoint.address, announce)
        endpoint.rename(f"{process} at {address}", 0)  # in containers, all have one number
        try:
            endpoint.send(COORDINATOR, Join(role=role, address=address, rank=rank, process=os.getpid()))
            listener = Listener([COORDINATOR], lambda name: f"the {name} at {rendezvous}", REPLY_SECONDS)
            run, assigned, early = _await_assignment(endpoint, listener, rendezvous)
            endpoint.rename(assigned.name, run)
            for name, peer in assigned.addresses.items():
                endpoint.connect(name, peer)
            pulse = Pulse(assigned.name, run, {COORDINATOR: rendezvous}, ledger, stopwatch)
            stack.callback(pulse.stop)

            def check() -> None:
                listener.check()
                pulse.check()

            mailbox = Mailbox(endpoint, check, listener, _ignore, early)
            made = make_role(assigned.name, assigned.job, stopwatch, stack)
            run_role(made, endpoint, mailbox)
            report_and_wait(made, endpoint, mailbox, stopwatch, ledger)
        except BaseException as error:
            failure = error if isinstance(error, Exception) else ClusterError(f"{endpoint.name} was interrupted")
            if not is_told(error):
                endpoint.send(COORDINATOR, abort_message(failure))
            endpoint.close(linger=1.0)
            error.is_told = True  # to the coordinator, which says it
            raise


def _await_assignment(
    endpoint: Endpoint, listener: Listener, rendezvous: str
) -> tuple[int, AssignRoles, list[tuple[Envelope, Message]]]:
    """The run's number, what it assigns, and messages of peers that were assigned earlier and began at once. Says so if
    nobody is at the rendezvous for long."""
    early: list[tuple[Envelope, Message]] = []
    say_at = time.monotonic() + _PATIENT_SECONDS

    def check() -> None:
        nonlocal say_at
        listener.check()
        if time.monotonic() > say_at and not listener.has_heard(COORDINATOR):
            log.warning(
                "psboost: %s waits for a coordinator at %s, where none answers; if one is there, it says of which other "
                "version it is", endpoint.name, rendezvous,
            )  # fmt: skip
            say_at = math.inf

    mailbox = Mailbox(endpoint, check, listener)
    while True:
        envelope, message = mailbox.next()
        if isinstance(message, AssignRoles):
            return envelope.run, message, [pair for pair in early if pair[0].run == envelope.run]
        early.append((envelope, message))


def _ignore(envelope: Envelope, message: Message) -> None:
    """Strangers are the coordinator's business."""
