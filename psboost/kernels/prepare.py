"""Knows which kernels a job needs, when they have to be compiled, and that one process sees to it while others wait."""

import fcntl
import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from psboost.cores import n_cores
from psboost.kernels import CACHE_FOLDER

# A module comes some time after those whose kernels its own call: what two processes want at once, both compile.
JOBS = {
    "train": (
        "histograms", "node_histograms", "summaries", "gains", "binning", "open_nodes", "routing", "dense", "packing",
        "tiles", "node_builds", "dense_builds", "columns", "members", "cells", "gradients", "dealing", "links", "trees",
        "row_gradients", "bundles", "splits", "arrivals",
    ),
    "send": ("twins", "classes", "pairs", "bitvectors", "chunks", "histogram_streams"),
    "predict": ("cells", "exits", "links", "scoring", "walking"),
    "parse": ("svmlight",),
}  # fmt: skip
_MOST_PROCESSES = 8
_NEW_OBJECTS = 50_000  # between two searches for garbage


def to_stderr(text: str) -> None:
    sys.stderr.write(f"psboost: {text}\n")
    sys.stderr.flush()


def prepare(*jobs: str, say: Callable[[str], None] | None = to_stderr) -> None:
    """Compiles the kernels of these of JOBS if this installation has not done so; `say` is told when it must.

    A kernel is loaded when it is first called. The lock is the system's: a process that dies while it compiles
    leaves nothing that stops the next one.
    """
    if all(_mark(job).exists() for job in jobs):
        return
    with open(CACHE_FOLDER / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if say is not None:
                say("waiting for another process, which is compiling")
            fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [job for job in jobs if not _mark(job).exists()]
        if missing:
            if say is not None:
                say(f"compiling what it takes to {', '.join(missing)}: once for this installation, half a minute or so")
            _compile([module for job in missing for module in JOBS[job]])
            for job in missing:
                _mark(job).touch()


def _mark(job: str) -> Path:
    return CACHE_FOLDER / f"compiled-{job}"


def _compile(modules: list[str]) -> None:
    """Compiles the kernels of these modules in as many processes as there are cores, this one among them."""
    with TemporaryDirectory() as folder:
        quiet = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)"  # Ctrl-C: this process ends the others
        call = f"from {__name__} import compile_some; compile_some({modules!r}, {folder!r})"
        code = f"{quiet}; sys.path[:] = {sys.path!r}; {call}"
        helpers = [
            subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL)
            for _ in range(min(n_cores(), _MOST_PROCESSES) - 1 if sys.executable else 0)
        ]
        try:
            compile_some(modules, folder)
            if any([helper.wait() for helper in helpers]):  # what it claimed is still to be compiled
                compile_some(modules)
        finally:
            for helper in helpers:
                helper.kill()
                helper.wait()


@contextmanager
def _fewer_searches_for_garbage() -> Iterator[None]:
    """Compiling makes many objects, and keeps most."""
    before = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@_fewer_searches_for_garbage()
def compile_some(modules: list[str], folder: str | None = None) -> None:
    """Compiles the kernels of these modules, but for modules that another process has claimed in `folder`."""
    for module in modules:
        try:
            if folder is not None:
                (Path(folder) / module).touch(exist_ok=False)
        except FileExistsError:
            continue
        for _, kernel in kernels_of(module):
            kernel.load()


def load(*jobs: str) -> None:
    """Loads the kernels of these of JOBS, as far as they are compiled; for a process that is to be forked."""
    compile_some([module for job in jobs if _mark(job).exists() for module in JOBS[job]])


def kernels_of(module: str) -> list[tuple]:
    """(name, kernel) of each that is declared in a module of this folder, in their order."""
    from psboost.kernels.compile import Kernel

    imported = import_module(f"psboost.kernels.{module}")
    return [
        (name, held) for name, held in vars(imported).items()
        if isinstance(held, Kernel) and held.py_func.__module__ == imported.__name__
    ]  # fmt: skip
