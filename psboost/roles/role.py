"""Knows how a role waits for messages in any order; does not know what they mean."""

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from psboost.errors import ProtocolError
from psboost.wire.kinds import Message
from psboost.wire.messages import StopTraining

COORDINATOR = "coordinator"

Outbox = list[tuple[str, Message]]
Stage = Callable[[str, int, float], AbstractContextManager]
Step = tuple[int, ...]


def worker_name(row_shard: int, feature_shard: int) -> str:
    return f"worker {row_shard},{feature_shard}"


def server_name(server: int) -> str:
    return f"server {server}"


class _Untimed(nullcontext):
    """A stage, where nobody wants to know how long it takes."""

    def note(self, spans: Iterable[tuple[str, float, float]]) -> None:
        pass


class Role:
    """A state machine, which knows no sockets: `start` once, then `handle` for each message, until `done`.

    A message that comes early waits; one that comes twice, or after its step, is dropped: each kind's steps
    (Message.step) only go up, so a step that was gathered is past. Subclasses write `run`, a generator that gathers and
    sends.
    """

    def __init__(self, name: str, stage: Stage | None = None):
        """`stage(label, tree, share)` is a context manager that a driver may give to time what a role does."""
        self.name = name
        self.done = False
        self.result: Any = None
        self.tree = -1  # that is being grown
        self.bytes_read = 0  # from files
        self._stage = stage or (lambda label, tree, share: _Untimed())
        self._outbox: Outbox = []
        self._waiting: dict[tuple[str, Step], dict[str, Message]] = {}
        self._gathered: dict[str, Step] = {}
        self._wanted: tuple[tuple[str, Step], frozenset[str]] | None = None
        self._make: Callable[[str, Message], Any] | None = None
        self._made: dict[str, Any] = {}
        self._post: Callable[[str, Message], None] | None = None
        self._steps: Generator[None, dict[str, Message], Any] | None = None

    def run(self) -> Generator[None, dict[str, Message], Any]:
        raise NotImplementedError

    def stage(self, label: str, share: float = 1.0) -> AbstractContextManager:
        """Times what is done inside as a stage of the current tree, where a driver wants to know.

        share  what each second counts: of n threads side by side, an n-th each
        """
        return self._stage(label, self.tree, share)

    def post_by(self, post: Callable[[str, Message], None]) -> None:
        """Calls post(receiver, message) for each message as soon as it is made; `start` and `handle` then return none."""
        self._post = post

    def send(self, receiver: str, message: Message) -> None:
        if self._post is None:
            self._outbox.append((receiver, message))
        else:
            self._post(receiver, message)

    def read(self, sender: str, decode: Callable[..., Any], *held: Any) -> Any:
        """What `decode` makes of what a message of `sender` held. A ProtocolError names both ends."""
        try:
            return decode(*held)
        except ProtocolError as error:
            raise ProtocolError(f"{self.name}, from {sender}: {error}") from error

    def check_number(self, sender: str, n: int, expected: int, of_what: str) -> None:
        """ProtocolError, which names both ends, if what a message of `sender` held is not as many as expected."""
        if n != expected:
            raise ProtocolError(f"{self.name}, from {sender}: {n} {of_what}, expected {expected}")

    def gather(
        self, kind: type[Message], senders: Iterable[str], *, tree: int = -1, level: int = -1, hop: int | None = None,
        make: Callable[[str, Message], Any] | None = None,
    ):  # fmt: skip
        """Waits for one message of `kind` for this step from each of `senders`; returns them in that order.

        make  called as make(sender, message) when a message arrives, while others are still to come; what it returns
              takes the message's place
        """
        senders = list(senders)
        if not senders:
            return []
        step = (tree, level) if hop is None else (tree, level, hop)
        self._wanted, self._make = ((kind.__name__, step), frozenset(senders)), make
        arrived = yield
        return [arrived[sender] for sender in senders]

    def start(self) -> Outbox:
        """What the role sends before it hears anything."""
        self._steps = self.run()
        return self._resume(None)

    def handle(self, sender: str, message: Message) -> Outbox:
        """What the role sends after `message`. ProtocolError names a sender that should not have sent it."""
        if isinstance(message, StopTraining):
            if sender != COORDINATOR:
                raise self._not_expected("StopTraining", sender)
            self._end(None)
        if self.done:
            return []
        kind, step = type(message).__name__, message.step
        if step <= self._gathered.get(kind, ()):
            return []
        self._waiting.setdefault((kind, step), {}).setdefault(sender, message)
        return self._resume(self._arrived())

    def _arrived(self) -> dict[str, Message] | None:
        """The messages of the step that is waited for, once all are there."""
        if self._wanted is None:
            return None
        key, senders = self._wanted
        held = self._waiting.get(key)
        if held is None:
            return None
        if not held.keys() <= senders:
            raise self._not_expected(_spelled(key), min(held.keys() - senders))
        if self._make is not None:
            for sender in held.keys() - self._made.keys():
                self._made[sender] = self.read(sender, self._make, sender, held[sender])
        if len(held) < len(senders):
            return None
        self._gathered[key[0]] = key[1]
        arrived = self._waiting.pop(key)
        if self._make is not None:
            arrived = self._made
        self._wanted, self._make, self._made = None, None, {}
        return arrived

    def _not_expected(self, what: str, sender: str) -> ProtocolError:
        return ProtocolError(f"{self.name}: {what} from {sender}, not expected")

    def _resume(self, arrived: dict[str, Message] | None) -> Outbox:
        starting = arrived is None and self._wanted is None
        while starting or arrived is not None:
            try:
                if starting:
                    next(self._steps)
                else:
                    self._steps.send(arrived)
            except StopIteration as stop:
                self._end(stop.value)
                break
            starting, arrived = False, self._arrived()
        outbox, self._outbox = self._outbox, []
        return outbox

    def let_go(self) -> None:
        """It is not to go on, whatever it waits for: threads that `run` has end, and what it holds is freed, at once."""
        if self._steps is not None:
            self._steps.close()
            self._end(None)

    def _end(self, result: Any) -> None:
        """Done. `run` is let go, or it would keep the role, and with it all data, until Python looks for garbage."""
        self.done, self.result, self._steps = True, result, None
        self._waiting.clear()

    @property
    def awaited(self) -> str:
        """The kind of message that the role waits for; none: nothing."""
        return "" if self._wanted is None else self._wanted[0][0]

    @property
    def waits_for(self) -> str:
        """What the role waits for, for error messages."""
        if self._wanted is None:
            return "nothing"
        key, senders = self._wanted
        missing = sorted(senders - self._waiting.get(key, {}).keys())
        return f"{_spelled(key)} from {', '.join(missing)}"


def _spelled(key: tuple[str, Step]) -> str:
    kind, step = key
    return f"{kind} ({', '.join(f'{name} {n}' for name, n in zip(('tree', 'level', 'hop'), step, strict=False))})"
