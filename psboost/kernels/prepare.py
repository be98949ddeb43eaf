"""Knows when kernels have to be compiled, and that one process does it while the others wait."""

import fcntl
import os
import signal
import sys
from collections.abc import Callable
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from psboost.kernels import CACHE_FOLDER

_NO_KERNELS = ("__init__", "compile", "prepare")


def to_stderr(text: str) -> None:
    sys.stderr.write(f"psboost: {text}\n")
    sys.stderr.flush()


def prepare(say: Callable[[str], None] | None = to_stderr) -> None:
    """Imports all kernels, which compiles them if this installation has not done so; `say` is told when it must.

    The lock is the system's: a process that dies while it compiles leaves nothing that stops the next one.
    """
    compiled = CACHE_FOLDER / "compiled"
    if compiled.exists():
        _import_kernels()
        return
    with open(CACHE_FOLDER / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if say is not None:
                say("waiting for another process, which is compiling")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if say is not None and not compiled.exists():
            say("compiling, once for this installation (under a minute)")
        _import_kernels()
        compiled.touch()


def _import_kernels() -> None:
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    for name in names:
        if name not in _NO_KERNELS:
            with _interrupts_wait():
                import_module(f"psboost.kernels.{name}")


@contextmanager
def _interrupts_wait():
    """Inside, Ctrl-C and its like are put off: what they raise would be lost where LLVM calls Python back."""
    came: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: handler for number in signals if callable(handler := signal.getsignal(number))}
    try:
        for number in handlers:
            signal.signal(number, lambda number, frame: came.append(number))
    except ValueError:  # not the main thread, which is the one that handles signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in came:
            os.kill(os.getpid(), number)
