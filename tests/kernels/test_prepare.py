"""Kernels are imported, and an interrupt meanwhile is not lost."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from numba.core.errors import TypingError

from psboost import kernels
from psboost.interrupts import interrupts_wait
from psboost.kernels import histograms, prepare
from psboost.kernels.compile import Kernel, _Cache, float64, int64, kernel


def in_callback(action):
    """Calls `action` from C, which drops what it raises."""
    ctypes.CFUNCTYPE(None)(action)()


def test_an_interrupt_in_a_callback_comes_afterwards():
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_wait():
        in_callback(lambda: os.kill(os.getpid(), signal.SIGINT))
        done.append("the rest")
    assert done == ["the rest"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_have_none():
    failures = []

    def wait():
        try:
            with interrupts_wait():
                pass
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert not failures


def test_a_kernel_is_compiled_when_it_is_called_for_what_it_declares():
    @kernel([int64(int64), float64(float64)])
    def twice(x):
        return 2 * x

    @kernel(int64(int64))
    def four_times(x):
        return twice(twice(x))

    assert not twice.signatures and not four_times.signatures
    assert four_times(3) == 12
    assert len(twice.signatures) == 2 and len(four_times.signatures) == 1
    with pytest.raises(TypeError, match="No matching definition"):
        four_times(1 + 2j)


def test_kernels_are_loaded_meanwhile(monkeypatch):
    """But for those behind one that cannot be, which whoever calls it hears of."""

    @kernel(int64(int64))
    def thrice(x):
        return 3 * x

    @kernel(int64(int64))
    def wrong(x):
        return x.nothing

    @kernel(int64(int64))
    def behind(x):
        return x

    kernels = {prepare._LATER[0]: [("thrice", thrice), ("wrong", wrong), ("behind", behind)]}
    monkeypatch.setattr(prepare, "kernels_of", lambda module: kernels.get(module, []))
    with prepare.loading():
        until = time.monotonic() + 60
        while any(thread.name == "kernels" for thread in threading.enumerate()) and time.monotonic() < until:
            time.sleep(0.01)
    assert thrice.signatures and not behind.signatures and thrice(3) == 9
    with pytest.raises(TypingError):
        wrong(1)
    kernels.clear()
    with prepare.loading():
        assert not any(thread.name == "kernels" for thread in threading.enumerate())


def test_a_kernel_from_the_cache_finds_those_that_it_calls():
    """By name and in a module, itself, in a helper and in a kernel: else the process would end in load()."""
    program = """
from psboost.kernels import histogram_streams, histograms, node_builds, pairs
for kernel in (histogram_streams.pack_histograms, node_builds.build_nodes):
    kernel.load()
print(*[bool(kernel.signatures) for kernel in (histograms.build, pairs.mark_pairs, pairs.join_pairs)])
"""
    prepare.prepare("train", "send")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "True True False\n", done.stdout + done.stderr


def test_each_processor_has_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = kernels._cache_folder()
    assert kernels._processor() and kernels._cache_folder() == folder
    monkeypatch.setattr(kernels, "_processor", lambda: b"another")
    assert kernels._cache_folder() != folder


def test_numba_may_be_there_before_and_keep_other_code_elsewhere(tmp_path):
    program = """
import numba
from psboost.kernels import CACHE_FOLDER, histograms
histograms.build.load()
print(*histograms.build.stats.cache_hits.values(), histograms.build.stats.cache_path.startswith(str(CACHE_FOLDER)))
"""
    prepare.prepare("train")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["1"] * len(histograms.build._declared) + ["True"], done.stdout + done.stderr
    assert not any(tmp_path.iterdir())


def test_a_kernel_that_was_loaded_is_called_by_one_that_is_compiled():
    def minus(x):
        return x - 1

    def below(x):
        return loaded(loaded(x))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "_places", set())
        kernel([int64(int64), float64(float64)])(minus).load()
        Kernel._places.clear()  # as in another process
        loaded, caller = kernel([int64(int64), float64(float64)])(minus), kernel(float64(float64))(below)
    assert loaded(5) == 4 and sum(loaded.stats.cache_hits.values()) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Cache, "load_overload", lambda *_: None)
        assert caller(0.5) == -1.5


def test_no_two_kernels_have_one_name():
    def make(n):
        @kernel(int64(int64))
        def plus(x):
            return x + n

        return plus

    assert make(1)(2) == 3
    with pytest.raises(ValueError, match="already"):
        make(2)


def test_threads_may_call_a_kernel_first_at_the_same_time():
    @kernel(int64(int64))
    def thrice(x):
        return 3 * x

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(thrice, range(8))) == [3 * i for i in range(8)]


def test_a_module_is_compiled_by_who_claims_it_first(tmp_path):
    (tmp_path / "dealing").touch()
    loaded = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "load", lambda kernel: loaded.append(kernel.py_func.__name__))
        prepare.compile_some(["dealing", "links"], str(tmp_path))
        prepare.compile_some(["dealing", "links"], str(tmp_path))
    assert loaded == ["logit", "logistic"]
    assert {path.name for path in tmp_path.iterdir()} == {"dealing", "links"}


def test_every_kernel_is_of_a_job():
    modules = {path.stem for path in Path(prepare.__file__).parent.glob("*.py")} - {"__init__"}
    with_kernels = {module for module in modules if prepare.kernels_of(module)}
    assert with_kernels == {module for modules in prepare.JOBS.values() for module in modules}


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("grid", [(1, 1), (2, 2)])
def test_a_training_takes_the_kernels_of_its_jobs_alone_and_not_what_compiles_them(grid, dense):
    prepare.prepare("train", "send")
    program = f"""
import numpy as np, psboost, sys
from psboost.kernels.prepare import JOBS, kernels_of
from psboost.training import kernel_jobs
X = np.random.default_rng(0).integers(0, 3, (60, 4)).astype(np.float32)
X = X if {dense} else __import__("scipy.sparse").sparse.csr_array(X)
psboost.train({{}}, X, X.sum(1) > 3, grid={grid}, num_boost_round=1)
heavy = [module for module in ("scipy.linalg", "numba.np.linalg", "numba.np.arraymath") if module in sys.modules]
jobs = kernel_jobs("inproc", "block", {grid})
others = {{module for modules in JOBS.values() for module in modules}} - {{module for job in jobs for module in JOBS[job]}}
print(heavy, [(module, name) for module in others for name, kernel in kernels_of(module) if kernel.signatures])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[] []\n", done.stdout + done.stderr
