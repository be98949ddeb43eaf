"""Knows who shares a process, and what becomes of its exit code; does not know roles."""

import signal
import subprocess
import sys

import pytest

from psboost.cluster.nursery import pair_up


def run_members(processes, body):
    """Of a process of its own: members play `body`, which may return an exit code other than 0; its code and its stderr."""
    program = f"""
from psboost.cluster.nursery import run_members

def play(role, rank, neighbours):
    {body}
    return 0

raise SystemExit(run_members({processes!r}, play, watched=False))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


PAIR = [("worker", 3), ("server", 1)]


def test_a_worker_and_a_server_share_a_process():
    assert pair_up(range(1, 3), range(4, 7)) == [
        [("worker", 4), ("server", 1)], [("worker", 5), ("server", 2)], [("worker", 6)],
    ]  # fmt: skip
    assert pair_up(range(2), range(0)) == [[("server", 0)], [("server", 1)]]


@pytest.mark.parametrize("failing", ["", "worker", "server"])
def test_the_first_code_that_is_not_0_counts(failing):
    assert run_members([PAIR], f"if role == {failing!r}: return 7") == (7 if failing else 0, "")


def test_an_error_in_a_thread_is_a_failure():
    code, stderr = run_members([PAIR], "assert role == 'worker', f'{role} {rank}'")
    assert code == 1 and "AssertionError: server 1" in stderr


def test_members_end_with_the_process_that_forked_them():
    program = f"""
import os, time
from psboost.cluster.nursery import run_members
run_members({[PAIR]!r}, lambda *_: os.write(1, b"%d\\n" % os.getpid()) and time.sleep(60), watched=False)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert len({parent.stdout.readline() for _ in PAIR}) == 1  # a process of both
        parent.kill()
        assert parent.wait() == -signal.SIGKILL
        assert parent.stdout.read() == ""  # to its end: nobody holds it any more


def test_only_those_that_share_a_process_are_neighbours():
    assert run_members([PAIR, [("worker", 9)]], "assert (neighbours is None) == (rank == 9)") == (0, "")
