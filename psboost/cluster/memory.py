"""Runs roles one after another in one thread, without sockets; knows no clock and no order.

Which message is delivered next is up to the caller: tests shuffle, delay and repeat.
"""

from collections.abc import Callable

from psboost.errors import ClusterError
from psboost.roles.role import Role
from psboost.wire.codec import Envelope, decode, encode, new_run
from psboost.wire.kinds import Message
from psboost.wire.ledger import Ledger, measure

Letter = list[bytes] | tuple[str, Message]  # frames; or the sender, and what was not made frames
Mail = list[tuple[str, Letter]]  # (receiver, letter)


def first_come(mail: Mail) -> tuple[str, Letter]:
    """Takes the oldest message."""
    return mail.pop(0)


def run_in_memory(
    roles: list[Role],
    ledgers: dict[str, Ledger],
    take: Callable[[Mail], tuple[str, Letter]] = first_come,
    *,
    by_reference: bool = False,
) -> None:
    """Runs `roles` to their ends. `take` picks the next message to deliver; it may leave it in, to repeat it.

    by_reference  a receiver gets the message itself, which is only encoded to count its bytes: for roles that never write
                  over arrays that they have sent; else what it comes to through the codec

    Raises ClusterError if all wait and nothing is under way.
    """
    by_name = {role.name: role for role in roles}
    mail: Mail = []
    sent = dict.fromkeys(by_name, 0)
    run = new_run()

    def post(sender: str, outbox: list[tuple[str, Message]]) -> None:
        for receiver, message in outbox:
            envelope = Envelope(run=run, sender=sender, sequence=sent[sender])
            sent[sender] += 1
            if by_reference:
                ledgers[sender].owe(envelope, message, receiver)
                mail.append((receiver, (sender, message)))
                continue
            frames = encode(envelope, message)
            ledgers[sender].count(type(message).__name__, message.tree, *measure(frames), receiver)
            mail.append((receiver, [bytes(frame) for frame in frames]))

    try:
        for role in roles:
            post(role.name, role.start())
        while mail:
            receiver, letter = take(mail)
            sender, message = letter if by_reference else _read(letter)
            post(receiver, by_name[receiver].handle(sender, message))
        check_all_done(roles)
    finally:
        for role in roles:
            role.let_go()


def check_all_done(roles: list[Role]) -> None:
    """ClusterError if some of the roles wait, while nothing is under way."""
    waiting = [f"{role.name} waits for {role.waits_for}" for role in roles if not role.done]
    if waiting:
        raise ClusterError("nothing is under way, but " + "; ".join(waiting))


def _read(frames: list[bytes]) -> tuple[str, Message]:
    envelope, message = decode(frames)
    return envelope.sender, message
