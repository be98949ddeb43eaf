"""Runs roles one after another in one thread, through the codec but without sockets; knows no clock and no order.

Which message is delivered next is up to the caller: tests shuffle, delay and repeat.
"""

from collections.abc import Callable

from psboost.errors import ClusterError
from psboost.roles.role import Role
from psboost.wire.codec import Envelope, decode, encode, new_run
from psboost.wire.ledger import Ledger, measure
from psboost.wire.messages import Message

Mail = list[tuple[str, list]]  # (receiver, frames)


def first_come(mail: Mail) -> tuple[str, list]:
    """Takes the oldest message."""
    return mail.pop(0)


def run_in_memory(
    roles: list[Role], ledgers: dict[str, Ledger], take: Callable[[Mail], tuple[str, list]] = first_come
) -> None:
    """Runs `roles` to their ends. `take` picks the next message to deliver; it may leave it in, to repeat it.

    Raises ClusterError if all wait and nothing is under way.
    """
    by_name = {role.name: role for role in roles}
    mail: Mail = []
    sent = dict.fromkeys(by_name, 0)
    run = new_run()

    def post(sender: str, outbox: list[tuple[str, Message]]) -> None:
        for receiver, message in outbox:
            frames = encode(Envelope(run=run, sender=sender, incarnation=0, sequence=sent[sender]), message)
            ledgers[sender].count(type(message).__name__, message.tree, *measure(frames), receiver)
            sent[sender] += 1
            mail.append((receiver, [bytes(frame) for frame in frames]))

    for role in roles:
        post(role.name, role.start())
    while mail:
        receiver, frames = take(mail)
        envelope, message = decode(frames)
        post(receiver, by_name[receiver].handle(envelope.sender, message))
    check_all_done(roles)


def check_all_done(roles: list[Role]) -> None:
    """ClusterError if some of the roles wait, while nothing is under way."""
    waiting = [f"{role.name} waits for {role.waits_for}" for role in roles if not role.done]
    if waiting:
        raise ClusterError("nothing is under way, but " + "; ".join(waiting))
