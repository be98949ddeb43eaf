"""Knows which kernels a job needs, when they have to be compiled, and that one process sees to it while others wait."""

import fcntl
import gc
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock

from psboost.cores import n_cores
from psboost.kernels import CACHE_FOLDER

# Modules, and kernels that are of no other job than those that name them. A module comes some time after those whose kernels
# its own call: what two processes want at once, both compile. Where a worker has all rows, it proposes splits; else servers
# merge histograms.
JOBS = {
    "train": (
        "histograms", "sorted_columns", "gains", "binning", "quantile_sketch", "routing", "dense", "packing", "tiles",
        "node_builds", "dense_builds", "columns", "members", "cells", "column_tables", "gradients", "dealing", "links",
        "trees", "row_gradients", "bundles", "splits", "arrivals", "posts",
    ),
    "propose": (
        "node_histograms.take", "node_histograms.share_out", "open_nodes.make_root", "open_nodes.add_sums",
        "node_builds.share_nodes", "dense_builds.share_dense_nodes", "gains.improve_split", "rare", "parts", "levels",
    ),
    "merge": (
        "node_histograms.take_lists", "histograms.mark_bins", "packing.fold_signs", "packing.unfold_signs",
        "packing.lower_counts", "packing.pack_sums", "packing.raise_counts", "classes", "node_histograms.share_out_lists",
        "node_builds.build_nodes", "pairs", "open_nodes.make_root", "open_nodes.add_lists", "histogram_streams",
        "dense_builds.build_dense_nodes", "twins", "open_nodes.flag_living", "open_nodes.count_flags",
        "open_nodes.choose_living",
    ),
    "send": ("bitvectors",),
    "sum in a ring": (
        "histograms.restrict", "chunks", "node_histograms.take", "node_histograms.share_out", "open_nodes.make_root",
        "open_nodes.add_sums",
    ),
    "predict": ("cells", "column_tables", "exits", "links", "scoring", "walking"),
    "parse": ("svmlight",),
}  # fmt: skip
# What only some trainings need: by their blocks, by how wide a row's gradients are, and by their loss.
VARIANTS = [*product(("narrow rows", "wide rows", "dense"), ("16 bits", "32 bits"), ("logistic loss", "squared error"))]
ANY = tuple(dict.fromkeys(name for variant in VARIANTS for name in variant))  # all of them at once
SELDOM = (*ANY, "seldom")  # and what else is compiled only when it is called
_NAMED = {name for names in JOBS.values() for name in names if "." in name}
_MOST_PROCESSES = 8
_NEW_OBJECTS = 50_000  # between two searches for garbage
_threads = RLock()
_is_alone = False  # no other process compiles, but for those that this one started for it


def to_stderr(text: str) -> None:
    """A line for who reads it, if anybody does."""
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(f"psboost: {text}\n")
            sys.stderr.flush()


def prepare(
    *jobs: str, variants: Iterable[tuple[str, ...]] = ((),), say: Callable[[str], None] | None = to_stderr
) -> None:
    """Compiles the kernels of these of JOBS if this installation has not done so; `say` is told when it must.

    variants   (), what all trainings need of them; or some of VARIANTS, ANY or SELDOM, what is needed besides

    A kernel is loaded when it is first called, and compiled then if that was not done before.
    """
    wanted = [(job, variant) for variant in variants for job in jobs]
    if all(_mark(*each).exists() for each in wanted):
        return
    with alone(say):
        missing = [each for each in wanted if not _mark(*each).exists()]
        if to_compile := [each for each in missing if _has_kernels(*each)]:
            if say is not None:
                what = ", ".join(f"{job} ({', '.join(variant)})" if variant else job for job, variant in to_compile)
                say(f"compiling what it takes to {what}: once for this installation, half a minute or so")
            _compile([(name, variant) for job, variant in to_compile for name in JOBS[job]])
        for job, variant in missing:
            for done in (variant, *(each for each in VARIANTS if set(each) <= set(variant))):
                _mark(job, done).touch()


@contextmanager
def alone(say: Callable[[str], None] | None = None) -> Iterator[None]:
    """No other process compiles meanwhile; `say` is told if one has to be waited for.

    The lock is the system's: a process that dies while it compiles leaves nothing that stops the next one.
    """
    global _is_alone
    with ExitStack() as stack:
        stack.enter_context(_threads)
        if _is_alone:
            yield
            return
        CACHE_FOLDER.mkdir(exist_ok=True)  # another version removes it if no process has begun with it for a month
        lock = stack.enter_context(open(CACHE_FOLDER / "lock", "w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if say is not None:
                say("waiting for another process, which is compiling")
            fcntl.flock(lock, fcntl.LOCK_EX)
        _is_alone = True
        try:
            yield
        finally:
            _is_alone = False


def _mark(job: str, variant: tuple[str, ...]) -> Path:
    return CACHE_FOLDER / "-".join(["compiled", job, *variant]).replace(" ", "-")


def _has_kernels(job: str, variant: tuple[str, ...]) -> bool:
    return any(kernel.of_variant(frozenset(variant)) for name in JOBS[job] for kernel in kernels_of(name))


def _compile(named: list[tuple[str, tuple[str, ...]]]) -> None:
    """Compiles what jobs name in as many processes as there are cores, this one among them."""
    with TemporaryDirectory() as folder:
        quiet = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)"  # Ctrl-C: this process ends the others
        call = f"from {__name__} import help_to_compile; help_to_compile({named!r}, {folder!r})"
        code = f"{quiet}; sys.path[:] = {sys.path!r}; {call}"
        helpers: list[subprocess.Popen] = []
        try:
            for _ in range(min(n_cores(), _MOST_PROCESSES) - 1 if sys.executable else 0):
                helpers.append(subprocess.Popen([sys.executable, "-P", "-c", code], stdin=subprocess.DEVNULL))
            compile_some(named, folder)
            if any([helper.wait() for helper in helpers]):  # what it claimed is still to be compiled
                compile_some(named)
        finally:
            for helper in helpers:
                helper.kill()
                helper.wait()


def help_to_compile(named: list[tuple[str, tuple[str, ...]]], folder: str) -> None:
    """For a process that another has started, which is alone."""
    global _is_alone
    _is_alone = True
    compile_some(named, folder)


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
def compile_some(named: list[tuple[str, tuple[str, ...]]], folder: str | None = None) -> None:
    """Compiles these variants of the kernels that a job names, but for what another process has claimed in `folder`."""
    for name, variant in named:
        try:
            if folder is not None:
                (Path(folder) / "-".join([name, *variant])).touch(exist_ok=False)
        except FileExistsError:
            continue
        for kernel in kernels_of(name):
            kernel.load(frozenset(variant))


def link(*jobs: str) -> None:
    """Links the kernels of these of JOBS, as far as they are compiled; for a process that is to be forked."""
    for job in jobs:
        for name in JOBS[job]:
            for kernel in kernels_of(name):
                kernel.link()


def kernels_of(name: str) -> list:
    """Each that a job means by this name, in their order."""
    from psboost.kernels.compile import Kernel

    module, _, one = name.partition(".")
    imported = import_module(f"psboost.kernels.{module}")
    return [
        held for name, held in vars(imported).items()
        if isinstance(held, Kernel) and held.py_func.__module__ == imported.__name__
        and (name == one if one else f"{module}.{name}" not in _NAMED)
    ]  # fmt: skip
