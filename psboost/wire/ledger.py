"""Knows how many messages and bytes were sent, by tree and kind; does not know what they say.

`payload` counts the array frames of a message, `wire` all its frames with what ZeroMQ's protocol (ZMTP) puts
in front of each: a flag and a length of 1 byte, or of 8 bytes for frames above 255 bytes. Every transport is
counted like tcp, so that the bytes of a run do not depend on where it ran.
"""

from collections.abc import Sequence

import numpy as np

_FIELDS = ("messages", "payload", "wire")


def measure(frames: Sequence[bytes | memoryview]) -> tuple[int, int]:
    """(payload, wire) of one encoded message: header first, then the arrays."""
    sizes = [frame.nbytes if isinstance(frame, memoryview | np.ndarray) else len(frame) for frame in frames]
    return sum(sizes[1:]), sum(size + (2 if size <= 255 else 9) for size in sizes)


class Ledger:
    """Messages and bytes sent by one endpoint, or by many merged. Belongs to one thread."""

    def __init__(self) -> None:
        self._trees: dict[int, dict[str, list[int]]] = {}

    def count(self, kind: str, tree: int, payload: int, wire: int) -> None:
        """Add one message."""
        self._add(tree, kind, (1, payload, wire))

    def total(self) -> dict[str, dict[str, int]]:
        """{kind: {"messages", "payload", "wire"}} over all trees."""
        total = Ledger()
        for kinds in self._trees.values():
            for kind, sums in kinds.items():
                total._add(0, kind, sums)
        return total.by_tree().get(0, {})

    def by_tree(self) -> dict[int, dict[str, dict[str, int]]]:
        """{tree: {kind: {"messages", "payload", "wire"}}}; tree -1 is what belongs to no tree."""
        return {
            tree: {kind: dict(zip(_FIELDS, sums, strict=True)) for kind, sums in sorted(kinds.items())}
            for tree, kinds in sorted(self._trees.items())
        }

    @property
    def bytes_sent(self) -> int:
        """All bytes on the wire."""
        return sum(sums[2] for kinds in self._trees.values() for sums in kinds.values())

    def merge(self, other: "Ledger") -> None:
        """Add all that `other` has counted."""
        for tree, kinds in other._trees.items():
            for kind, sums in kinds.items():
                self._add(tree, kind, sums)

    def state(self) -> dict:
        """The ledger as {tree: {kind: [messages, payload, wire]}} with string keys, fit for a message."""
        return {
            str(tree): {kind: list(sums) for kind, sums in kinds.items()}
            for tree, kinds in self._trees.items()
        }

    @classmethod
    def from_state(cls, state: dict) -> "Ledger":
        """The ledger that `state` was taken from."""
        ledger = cls()
        for tree, kinds in state.items():
            for kind, sums in kinds.items():
                ledger._add(int(tree), kind, sums)
        return ledger

    def _add(self, tree: int, kind: str, sums: Sequence[int]) -> None:
        messages, payload, wire = sums
        entry = self._trees.setdefault(tree, {}).setdefault(kind, [0, 0, 0])
        entry[0] += messages
        entry[1] += payload
        entry[2] += wire
