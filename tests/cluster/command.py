"""Runs the psboost command as a person would, and looks after its processes; knows nothing of what they do."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

PATIENCE = 60.0
NO_END = ("--num-boost-round", "1000000", "--max-depth", "2")


def environment(**more):
    """Without settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PSBOOST_")}
    return kept | {"PYTHONWARNINGS": "error"} | more


def write_svmlight(path: Path, n_rows=120, n_features=30, seed=0) -> Path:
    """Rows of 6 small counts, about as many of either class."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(n_rows):
        features = np.sort(rng.choice(n_features, 6, replace=False)) + 1
        values = rng.integers(1, 5, 6)
        label = int(values[features % 3 == 0].sum() + rng.normal() > 5)
        lines.append(f"{label} " + " ".join(f"{f}:{v}" for f, v in zip(features, values, strict=True)) + "\n")
    path.write_text("".join(lines))
    return path


class Command:
    """A psboost command that runs in a session of its own, with what it prints in files."""

    def __init__(self, folder: Path, *arguments, patch: str = "", command=None, **more_environment):
        """`patch`: Python statements to run first; `command`: to run instead of psboost."""
        name = f"{time.monotonic_ns()}"
        self.out, self.err = folder / f"{name}.out", folder / f"{name}.err"
        program = [sys.executable, "-c", f"{patch}\nfrom psboost.cli import main; main()"]
        self.folder = folder
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                [str(a) for a in (*(command or program), *arguments)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, cwd=folder,
                env=environment(TMPDIR=str(folder), **more_environment),
            )  # fmt: skip
        self.pid = self.process.pid

    @property
    def stderr(self) -> str:
        return self.err.read_text()

    def wait_for(self, text: str, seconds=PATIENCE) -> str:
        """The first line on stderr that holds `text`, once it is there."""
        return until(lambda: next((line for line in self.stderr.splitlines() if text in line), None), seconds, self)

    def end(self, seconds=PATIENCE) -> int:
        """The exit code, once it has ended."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running; stderr:\n{self.stderr}") from None

    def __repr__(self):
        return f"exit code {self.process.poll()}, stderr:\n{self.stderr}"


def until(holds, seconds=PATIENCE, shown=""):
    """What `holds()` returns, once that is true."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"waited for {seconds} s in vain; {shown}"
        time.sleep(0.02)
    return found


def descendants(pid: int) -> dict[int, str]:
    """{pid: command line} of all that a process has started, and that they have, now: in the order in which each started its
    own. Numbers rise, and begin anew behind the greatest."""
    parents, n_numbers = {}, int(Path("/proc/sys/kernel/pid_max").read_text())
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # ended meanwhile
    found = [pid]
    for one in found:
        own = [child for child, parent in parents.items() if parent == one]
        found += sorted(own, key=lambda child: (child - one) % n_numbers)
    return {one: command_line(one) for one in found[1:]}


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def alive(pids) -> list[int]:
    """Those that run; one that has ended, and that nobody has waited for yet, does not."""
    states = {}
    for pid in pids:
        try:
            states[pid] = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
    return [pid for pid, state in states.items() if state != "Z"]


@contextmanager
def started(folder: Path, *arguments, **how):
    """A Command that is running; whatever happens, it and all that it started are gone afterwards."""
    command = Command(folder, *arguments, **how)
    seen: set[int] = set()
    command.seen = seen
    try:
        yield command
    finally:
        seen |= descendants(command.pid).keys()
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()
        for pid in alive(seen):
            os.kill(pid, signal.SIGKILL)


def run_command(folder: Path, *arguments, **how) -> Command:
    """A Command that has ended."""
    with started(folder, *arguments, **how) as command:
        command.end()
    return command
