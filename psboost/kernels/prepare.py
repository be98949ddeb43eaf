"""Knows when kernels have to be compiled, and that one process does it while the others wait."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from psboost.cores import n_cores
from psboost.kernels import CACHE_FOLDER

if TYPE_CHECKING:
    from psboost.kernels.compile import Claims

_NO_KERNELS = ("__init__", "compile", "prepare")
_MOST_PROCESSES = 8


def to_stderr(text: str) -> None:
    sys.stderr.write(f"psboost: {text}\n")
    sys.stderr.flush()


def prepare(say: Callable[[str], None] | None = to_stderr) -> None:
    """Imports all kernels, which compiles them if this installation has not done so; `say` is told when it must.

    The lock is the system's: a process that dies while it compiles leaves nothing that stops the next one.
    """
    compiled = CACHE_FOLDER / "compiled"
    if not compiled.exists():
        with open(CACHE_FOLDER / "lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if say is not None:
                    say("waiting for another process, which is compiling")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not compiled.exists():
                if say is not None:
                    say("compiling, once for this installation (about a minute)")
                _compile()
                compiled.touch()
    _import_kernels()


def _compile() -> None:
    """Compiles all kernels in as many processes as there are cores, and has them all in this one."""
    with TemporaryDirectory() as folder:
        quiet = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)"  # Ctrl-C: this process ends the others
        code = f"{quiet}; sys.path[:] = {sys.path!r}; from {__name__} import compile_some; compile_some({folder!r}, True)"
        helpers = [
            subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL)
            for _ in range(min(n_cores(), _MOST_PROCESSES) - 1 if sys.executable else 0)
        ]
        try:
            claims = compile_some(folder)
            for helper in helpers:
                helper.wait()
        finally:
            for helper in helpers:
                helper.kill()
                helper.wait()
    with _interrupts_wait():
        claims.compile_left()


def compile_some(folder: str, backwards: bool = False) -> "Claims":
    """Imports all kernels and compiles those that no other process has claimed in `folder`."""
    from psboost.kernels.compile import Claims

    with Claims(Path(folder)) as claims:
        _import_kernels(backwards)
    return claims


def _import_kernels(backwards: bool = False) -> None:
    names = sorted((path.stem for path in Path(__file__).parent.glob("*.py")), reverse=backwards)
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
