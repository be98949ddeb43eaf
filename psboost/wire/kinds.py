"""Knows how a kind of message is declared, and what its fields may hold; does not know any kind.

A message never changes. `tree` and `level` say which step of the training it belongs to (-1: before the first tree, or the
tree's end), so what comes late is recognised.
"""

from inspect import get_annotations
from typing import Annotated, Any, dataclass_transform

import numpy as np

# An array's annotation says its dtype and how long its dimensions behind the first are (None: any): the codec neither sends
# nor takes another. Where arrays are of several sorts, it says neither, and whoever reads them looks at that.
Packed = Annotated[np.ndarray, np.uint8]  # bytes
Int64s = Annotated[np.ndarray, np.int64]
Int64Pairs = Annotated[np.ndarray, np.int64, 2]
Float32s = Annotated[np.ndarray, np.float32]
Float64s = Annotated[np.ndarray, np.float64]
Totals = Annotated[np.ndarray, np.int64, 3]
Proposed = Annotated[np.ndarray, np.int64, 10]  # kernels.splits has their columns, and those of the next, but takes numba
Splits = Annotated[np.ndarray, np.int32, 7]
Float64Pairs = Annotated[np.ndarray, np.float64, 2]
Masks = Annotated[np.ndarray, np.uint64, None]


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Message:
    """Base of all messages. A kind is declared, and a message made, as a frozen dataclass is, by names alone.

    For dataclasses, Python would write and compile five functions a kind, in a twentieth of the time that a process takes to
    start.

    types     of all fields, by name, in their order
    defaults  of those that need not be given
    """

    tree: int = -1
    level: int = -1
    types = {"tree": int, "level": int}
    defaults = {"tree": -1, "level": -1}

    def __init_subclass__(cls):
        cls.types = {**cls.types, **get_annotations(cls)}
        cls.defaults = {name: getattr(cls, name) for name in cls.types if hasattr(cls, name)}

    def __init__(self, **values: Any):
        own = vars(self)
        own.update(self.defaults)
        own.update(values)
        if own.keys() != self.types.keys():
            missing, unknown = self.types.keys() - own.keys(), own.keys() - self.types.keys()
            wrong = f"without {', '.join(missing)}" if missing else f"has no {', '.join(unknown)}"
            raise TypeError(f"{type(self).__name__} {wrong}")

    def __setattr__(self, name: str, value: Any):
        raise AttributeError(f"{type(self).__name__}.{name}: a message never changes")

    def __eq__(self, other: object) -> bool:
        """For messages without arrays."""
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    @property
    def step(self) -> tuple[int, ...]:
        """The step of the training that it belongs to: a kind's only go up."""
        return self.tree, self.level


class RingMessage(Message):
    """Base of the messages that workers pass on to each other, `hop` by hop within a level (modes other than block)."""

    hop: int

    @property
    def step(self) -> tuple[int, ...]:
        return self.tree, self.level, self.hop
