"""Knows how long psboost takes to start: importing, compiling once, a first tree; does not know what is compiled."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from results import Figure

IMPORT_AT_MOST, COMPILE_AT_MOST, FIRST_TREE_AT_MOST = 0.5, 40.0, 2.0
N_TOGETHER, TOGETHER_AT_MOST = 9, 1.2

PYTHON = (sys.executable, "-P", "-c")  # -P: the psboost that is installed, not one that lies here

IMPORT = "import time; t = time.perf_counter(); import psboost; print(time.perf_counter() - t)"
FIRST_TREE = """
import time
import numpy as np
import psboost
rng = np.random.default_rng(0)
X = rng.normal(size=(1000, 20)).astype(np.float32)
psboost.train({}, X, X[:, 0] > 0, num_boost_round=1)
print(time.time(), time.process_time())
"""
FIRST_TREE_OF_A_GRID = """
import time
import numpy as np
import psboost
from scipy import sparse
X = sparse.csr_array(sparse.random(1000, 2000, 0.01, random_state=0))
psboost.train({}, X, X.sum(1) > 10, num_boost_round=1, grid=(2, 2), servers=2)
print(time.time(), time.process_time())
"""


def measure(arguments) -> Iterator[Figure]:
    _run(FIRST_TREE)  # compiled from here on
    imports = [float(_run(IMPORT)) for _ in range(arguments.repeats)]
    yield _figure("import psboost", "s", imports, IMPORT_AT_MOST)
    later = [_first_tree(FIRST_TREE) for _ in range(arguments.repeats)]
    yield from _until_first_tree("a later process", later, FIRST_TREE_AT_MOST)
    firsts = {"the first process": FIRST_TREE, "the first, of a 2x2 grid on sparse rows": FIRST_TREE_OF_A_GRID}
    for which, code in firsts.items():
        with tempfile.TemporaryDirectory() as empty:
            yield from _until_first_tree(which, [_first_tree(code, empty)], COMPILE_AT_MOST)
    what = f"CPU of {N_TOGETHER} processes that start together without kernels, over 1's; their own starts apart"
    yield _figure(what, "times", [_together_over_alone() for _ in range(arguments.repeats)], TOGETHER_AT_MOST)


def _figure(what: str, unit: str, values: list[float], at_most: float | None) -> Figure:
    return Figure(
        "start", "", "psboost", 1, statistics.median(values), unit, least=min(values), most=max(values),
        at_most=at_most, note=what, repeats=len(values),
    )  # fmt: skip


def _until_first_tree(which: str, times: list[tuple[float, float]], at_most: float) -> Iterator[Figure]:
    wall, cpu = map(list, zip(*times, strict=True))
    yield _figure(f"{which}, until it has a tree", "s", wall, at_most)
    yield _figure(f"{which}, until it has a tree: CPU", "CPU s", cpu, None)


def _environment(cache: str | None) -> dict:
    return os.environ | ({} if cache is None else {"XDG_CACHE_HOME": cache})


def _run(code: str, cache: str | None = None) -> str:
    done = subprocess.run([*PYTHON, code], env=_environment(cache), text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{code!r} ended with code {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _first_tree(code: str, cache: str | None = None) -> tuple[float, float]:
    """Wall clock seconds and CPU seconds from the start of the process until it has its first tree."""
    begin = time.time()
    then, cpu = map(float, _run(code, cache).split())
    return then - begin, cpu


def _together_over_alone() -> float:
    alone, together = map(_cpu_seconds_to_compile, (1, N_TOGETHER))
    return together / alone


def _cpu_seconds_to_compile(n: int) -> float:
    """What n processes take more that start together without kernels than with them."""
    with tempfile.TemporaryDirectory() as empty:
        return _cpu_seconds(n, empty) - _cpu_seconds(n, empty)


def _cpu_seconds(n: int, cache: str | None = None) -> float:
    """Of n processes that grow a tree at the same time."""
    command = [*PYTHON, FIRST_TREE]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = [subprocess.Popen(command, env=_environment(cache), **quiet) for _ in range(n)]
    total = 0.0
    for process in running:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{command} ended with code {process.returncode}")
        total += used.ru_utime + used.ru_stime
    return total
