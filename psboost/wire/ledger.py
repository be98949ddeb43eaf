"""Knows how many messages and bytes were sent, by tree and kind and by receiver; does not know what they say.

`payload` counts the bytes of a message's arrays, `wire` all its frames with what ZeroMQ's protocol (ZMTP) puts
in front of each: a flag and a length of 1 byte, or of 8 bytes for frames above 255 bytes. Every transport is
counted like tcp, so that the bytes of a run do not depend on where it ran.
"""

from collections.abc import Sequence

from psboost.wire.arrays import Frames
from psboost.wire.codec import Envelope, encode
from psboost.wire.kinds import Message

_FIELDS = ("messages", "payload", "wire")

_Sums = dict[str, list[int]]  # messages, payload, wire, by name


def measure(frames: Frames) -> tuple[int, int]:
    """(payload, wire) of one encoded message."""
    wire = 0
    for frame in frames:
        size = frame.nbytes if isinstance(frame, memoryview) else len(frame)
        wire += size + (2 if size <= 255 else 9)
    return frames.payload, wire


class Ledger:
    """Messages and bytes sent by one endpoint, or by many merged. One thread at a time changes it; where all messages are
    counted when they are sent, others may read `bytes_sent` meanwhile."""

    def __init__(self) -> None:
        self._trees: dict[int, dict[str, list[int]]] = {}
        self._receivers: dict[str, list[int]] = {}
        self._bytes_sent = 0
        self._owed: list[tuple[Envelope, Message, str]] = []

    @property
    def bytes_sent(self) -> int:
        """All of them, on the wire."""
        return self._settled()._bytes_sent

    def count(self, kind: str, tree: int, payload: int, wire: int, receiver: str) -> None:
        """Add one message."""
        sums = (1, payload, wire)
        self._bytes_sent += wire
        _add(self._trees.setdefault(tree, {}), kind, sums)
        _add(self._receivers, receiver, sums)

    def owe(self, envelope: Envelope, message: Message, receiver: str) -> None:
        """Add one message that nobody has encoded, when somebody asks or the next tree's come: to encode a tree's one after
        the other takes half the time that each takes between other work."""
        if self._owed and self._owed[-1][1].tree != message.tree:
            self._settled()
        self._owed.append((envelope, message, receiver))

    def _settled(self) -> "Ledger":
        """This one, with all that it owes."""
        owed, self._owed = self._owed, []
        for envelope, message, receiver in owed:
            self.count(type(message).__name__, message.tree, *measure(encode(envelope, message)), receiver)
        return self

    def total(self) -> dict[str, dict[str, int]]:
        """{kind: {"messages", "payload", "wire"}} over all trees."""
        total: _Sums = {}
        for kinds in self._settled()._trees.values():
            for kind, sums in kinds.items():
                _add(total, kind, sums)
        return _named(total)

    def by_tree(self) -> dict[int, dict[str, dict[str, int]]]:
        """{tree: {kind: {"messages", "payload", "wire"}}}; tree -1 is what belongs to no tree."""
        return {tree: _named(kinds) for tree, kinds in sorted(self._settled()._trees.items())}

    def by_receiver(self) -> dict[str, dict[str, int]]:
        """{receiver: {"messages", "payload", "wire"}} over all trees and kinds."""
        return _named(self._settled()._receivers)

    def rename_receiver(self, old: str, new: str) -> None:
        """What was sent to `old` was sent to `new`: a peer that had no name yet."""
        if old in self._settled()._receivers:
            _add(self._receivers, new, self._receivers.pop(old))

    def merge(self, other: "Ledger") -> None:
        """Add all that `other` has counted."""
        self._bytes_sent += other.bytes_sent
        for tree, kinds in other._trees.items():
            for kind, sums in kinds.items():
                _add(self._trees.setdefault(tree, {}), kind, sums)
        for receiver, sums in other._receivers.items():
            _add(self._receivers, receiver, sums)

    def state(self) -> dict:
        """{"trees": {tree: {kind: sums}}, "receivers": {receiver: sums}} with string keys, fit for a message.

        sums: [messages, payload, wire].
        """
        held = self._settled()
        trees = {str(tree): {kind: list(sums) for kind, sums in kinds.items()} for tree, kinds in held._trees.items()}
        return {"trees": trees, "receivers": {receiver: list(sums) for receiver, sums in held._receivers.items()}}

    @classmethod
    def from_state(cls, state: dict) -> "Ledger":
        """The ledger that `state` was taken from."""
        ledger = cls()
        ledger._trees = {
            int(tree): {kind: list(sums) for kind, sums in kinds.items()} for tree, kinds in state["trees"].items()
        }
        ledger._receivers = {receiver: list(sums) for receiver, sums in state["receivers"].items()}
        ledger._bytes_sent = sum(sums[2] for sums in ledger._receivers.values())
        return ledger


def _add(of: _Sums, name: str, sums: Sequence[int]) -> None:
    messages, payload, wire = sums
    entry = of.setdefault(name, [0, 0, 0])
    entry[0] += messages
    entry[1] += payload
    entry[2] += wire


def _named(of: _Sums) -> dict[str, dict[str, int]]:
    return {name: dict(zip(_FIELDS, sums, strict=True)) for name, sums in sorted(of.items())}
