"""Kernels are imported, and an interrupt meanwhile is not lost."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import TypingError

from psboost import kernels
from psboost.interrupts import interrupts_wait
from psboost.kernels import compile, linking, prepare
from psboost.kernels.compile import IN, Kernel, float32, float64, int32, int64, kernel, kernel_for, types


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

    assert twice.n_ready == four_times.n_ready == 0
    assert four_times(3) == 12 and four_times.n_ready == twice.n_ready == 1
    assert [type(twice(x)) for x in (1, 0.5, np.float32(2), np.int8(3))] == [int, float, float, int]
    assert twice.n_ready == 2
    with pytest.raises(TypeError, match="No matching definition of .*four_times.* for complex128"):
        four_times(1 + 2j)


def test_of_a_variant_is_compiled_what_is_for_it_alone(another_process):
    def least(values, added):
        return values[0] + added

    declared = kernel_for(
        {"16 bits": int32, "32 bits": int64}, {"": float32, "seldom": float64}, (int64, float64),
        signature=lambda width, kind, added: float64(IN[width], added) if kind is float32 else float64(IN[kind], added),
    )(least)  # fmt: skip
    declared.load()
    assert declared.n_ready == 0
    declared.load({"16 bits", "dense"})
    assert declared.n_ready == 2 and set(declared.signatures) == {(IN[int32], int64), (IN[int32], float64)}
    assert declared(np.array([2.5]), 1) == 3.5 and declared.n_ready == 3


def test_of_processes_that_call_a_kernel_at_once_one_compiles(tmp_path):
    program = """
import sys
import numpy as np
from psboost.kernels import compile, links
own = compile.Kernel._compile
compile.Kernel._compile = lambda *given: print("compiled") or own(*given)
print("ready", flush=True)
sys.stdin.read()
margins = np.zeros(1, np.float32)
links.logistic(margins, margins)
print(margins[0])
"""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    with ExitStack() as stack:
        processes = [stack.enter_context(subprocess.Popen([sys.executable, "-c", program], **pipes)) for _ in range(3)]
        assert [process.stdout.readline() for process in processes] == 3 * ["ready\n"]
        for process in processes:
            process.stdin.close()
        said = sorted(process.stdout.read() for process in processes)
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert said == ["0.5\n", "0.5\n", "compiled\n0.5\n"]


def test_a_kernel_from_the_cache_finds_those_that_it_calls():
    """By name and in a module, itself, in a helper and in a kernel: else the process would end in load()."""
    program = """
from psboost.kernels import histogram_streams, histograms, node_builds, pairs
histogram_streams.pack_histograms.load()
node_builds.build_nodes.load({"narrow rows", "16 bits"})
print(*[kernel.n_ready > 0 for kernel in (histograms.build, pairs.mark_pairs, pairs.join_pairs)])
"""
    prepare.prepare("train", "merge", variants=[(), ("narrow rows", "16 bits")])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "True True False\n", done.stdout + done.stderr


def test_each_processor_has_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = kernels._cache_folder()
    assert kernels._processor() and kernels._cache_folder() == folder
    monkeypatch.setattr(kernels, "_processor", lambda: b"another")
    assert kernels._cache_folder() != folder


def test_folders_that_nobody_uses_are_removed_when_one_is_made(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = kernels._cache_folder()
    unused, used, other = (folder.parent / name for name in ("kernels-a", "kernels-b", "other"))
    for each, days in ((unused, 40), (used, 20), (other, 40), (folder, 40)):
        each.mkdir(exist_ok=True)
        (each / "file").touch()
        os.utime(each, (time.time() - days * 24 * 3600,) * 2)
    assert kernels._cache_folder() == folder
    assert all(each.exists() for each in (unused, used, other, folder))
    monkeypatch.setattr(kernels, "_processor", lambda: b"another")
    kernels._cache_folder()
    assert not unused.exists() and all((each / "file").exists() for each in (used, other, folder))


def test_who_has_no_home_has_a_temporary_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user whom the system does not know
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert kernels._cache_folder().parent == tmp_path / f"psboost-{os.getuid()}"


def test_a_temporary_folder_is_the_users_alone(monkeypatch, tmp_path):
    (tmp_path / "no-folder").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-folder"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = kernels._cache_folder()
    assert folder.parent == tmp_path / f"psboost-{os.getuid()}" and folder.is_dir()
    assert kernels._cache_folder() == folder
    folder.parent.chmod(0o777)
    with pytest.raises(OSError, match="not this user's alone"):
        kernels._cache_folder()


def test_numba_may_be_there_before_and_keep_other_code_elsewhere(tmp_path):
    program = """
import numba
from psboost.kernels import compile, histograms
compile.Kernel._compile = None
histograms.build.load({"wide rows", "16 bits"})
print(histograms.build.n_ready)
"""
    prepare.prepare("train", variants=[("wide rows", "16 bits")])
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout == "1\n", done.stdout + done.stderr
    assert not any(tmp_path.iterdir())


@pytest.fixture
def another_process(monkeypatch, tmp_path):
    """Kernels are declared as in another process each time that it is called; the cache is empty at first."""
    monkeypatch.setattr(compile, "CACHE_FOLDER", tmp_path)
    monkeypatch.setattr(Kernel, "_all", {})
    return Kernel._all.clear


def never(*_):
    raise AssertionError("compiled again")


def test_a_kernel_that_was_linked_is_called_by_one_that_is_compiled(another_process, monkeypatch):
    def minus(x):
        return x - 1

    def below(x):
        return linked(linked(x))

    kernel([int64(int64), float64(float64)])(minus).load()
    another_process()
    linked, caller = kernel([int64(int64), float64(float64)])(minus), kernel(float64(float64))(below)
    with monkeypatch.context() as patch:
        patch.setattr(Kernel, "_compile", never)
        assert linked(5) == 4
    assert caller(0.5) == -1.5

    another_process()
    linked, caller = kernel([int64(int64), float64(float64)])(minus), kernel(float64(float64))(below)
    monkeypatch.setattr(Kernel, "_compile", never)
    assert caller(0.5) == -1.5 and linked.n_ready == 1


def test_a_kernel_that_returns_arrays_is_linked(another_process, monkeypatch):
    """Which takes Python's own objects, their dtypes."""

    def first(n):
        return np.full(n, 7), np.ones(n, np.float32)

    signature = types.Tuple([types.Array(int64, 1, "C"), types.Array(float32, 1, "C")])(int64)
    kernel(signature)(first).load()
    another_process()
    linked = kernel(signature)(first)
    monkeypatch.setattr(Kernel, "_compile", never)
    assert [(array.dtype, array.tolist()) for array in linked(2)] == [(np.int64, [7, 7]), (np.float32, [1.0, 1.0])]


@pytest.mark.parametrize("damage", ["cut short", "a byte is another", "empty", "of another source", "gone"])
def test_what_the_cache_does_not_have_whole_is_compiled(another_process, tmp_path, damage):
    def minus(x):
        return x - 1

    kernel(int64(int64))(minus).load()
    [file] = tmp_path.iterdir()
    if damage == "cut short":
        file.write_bytes(file.read_bytes()[:-10])
    elif damage == "a byte is another":
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "gone":
        file.unlink()
    else:
        _, *others = linking.kept(file)
        linking.keep(file, ((0, 0), *others))
    another_process()
    again = kernel(int64(int64))(minus)
    assert again(5) == 4 and again.signatures
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_who_calls_a_kernel_that_cannot_be_compiled_hears_of_it():
    @kernel(int64(int64))
    def wrong(x):
        return x.nothing

    for _ in range(2):
        with pytest.raises(TypingError):
            wrong(1)
    assert wrong.n_ready == 0


def test_no_two_kernels_have_one_name():
    def make(n):
        @kernel(int64(int64))
        def plus(x):
            return x + n

        return plus

    assert make(1)(2) == 3
    with pytest.raises(ValueError, match="already"):
        make(2)


def test_threads_may_call_a_kernel_first_at_the_same_time(monkeypatch):
    @kernel(int64(int64))
    def thrice(x):
        return 3 * x

    both = threading.Barrier(2)
    number_of = Kernel._number_of
    with monkeypatch.context() as patch:
        patch.setattr(Kernel, "_number_of", lambda *given: both.wait() >= 0 and number_of(*given))
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(thrice, range(2))) == [0, 3]
    monkeypatch.setattr(Kernel, "_compile_for_args", never)  # now it is found at once
    assert thrice(2) == 6


def test_a_module_is_compiled_by_who_claims_it_first(tmp_path):
    (tmp_path / "dealing").touch()
    loaded = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "load", lambda kernel, variant: loaded.append((kernel.py_func.__name__, *variant)))
        for _ in range(2):
            prepare.compile_some([("dealing", ()), ("links", ()), ("dealing", ("dense",))], str(tmp_path))
    assert loaded == [("logit",), ("logistic",), ("deal", "dense")]
    assert {path.name for path in tmp_path.iterdir()} == {"dealing", "links", "dealing-dense"}


def test_nothing_is_said_of_a_variant_that_a_job_has_no_kernels_of(tmp_path, monkeypatch):
    said, compiled = [], []
    monkeypatch.setattr(prepare, "CACHE_FOLDER", tmp_path)
    monkeypatch.setattr(prepare, "_compile", compiled.append)
    dense = ("dense", "16 bits", "squared error")
    for jobs in (["send"], ["send", "propose"], ["propose", "send"]):
        prepare.prepare(*jobs, variants=[dense], say=said.append)
    assert compiled == [[(name, dense) for name in prepare.JOBS["propose"]]]
    assert [text.partition(":")[0] for text in said] == [
        "compiling what it takes to propose (dense, 16 bits, squared error)"
    ]  # fmt: skip


def test_every_kernel_is_of_a_job():
    modules = {path.stem for path in Path(prepare.__file__).parent.glob("*.py")} - {"__init__"}
    with_kernels = {module for module in modules if prepare.kernels_of(module)}
    named = {name for names in prepare.JOBS.values() for name in names}
    assert with_kernels == {name for name in named if "." not in name}
    assert all(len(prepare.kernels_of(name)) == 1 for name in named if "." in name)
    declared = [variant for name in named for kernel in prepare.kernels_of(name) for variant in kernel._variants]
    assert set().union(*declared) == set(prepare.SELDOM)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(("mode", "grid"), [*product(["block"], [(1, 1), (1, 2), (2, 1), (2, 2)]), ("allreduce", (2, 1))])
def test_a_training_takes_the_kernels_of_its_jobs_alone_and_not_what_compiles_them(mode, grid, dense):
    program = f"""
import numpy as np, psboost, sys
from psboost.kernels.prepare import JOBS, kernels_of
from psboost.roles.modes import kernel_jobs
X = np.random.default_rng(0).integers(0, 3, (60, 4)).astype(np.float32)
X = X if {dense} else __import__("scipy.sparse").sparse.csr_array(X)
before = set(sys.modules)
psboost.train({{}}, X, X.sum(1) > 3, mode={mode!r}, grid={grid}, transport="memory", num_boost_round=2)
heavy = sorted({{"scipy.linalg", "numba.np.linalg", "numba.np.arraymath"}} & (set(sys.modules) - before))
jobs = kernel_jobs({mode!r}, {grid})
others = {{module for modules in JOBS.values() for module in modules}} - {{module for job in jobs for module in JOBS[job]}}
print(heavy, [(module, kernel.__name__) for module in others for kernel in kernels_of(module) if kernel.n_ready])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[] []\n", done.stdout + done.stderr
