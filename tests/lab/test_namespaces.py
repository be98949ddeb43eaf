"""Knows that namespaces carry what processes send, as shaped, and that nothing is left of them; does not know psboost."""

import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from psboost.errors import ClusterError
from psboost.lab.namespaces import Lab, LabError, OutOfTime, bits_per_second, burst_of

SERVE = """
import socket, sys
listener = socket.create_server((sys.argv[1], 7000))
print("here", flush=True)
connection, _ = listener.accept()
print(sum(iter(lambda: len(connection.recv(1 << 20)), 0)))
"""
WAIT = """
from psboost.lab.namespaces import Lab
with Lab(1) as lab:
    print("made", flush=True)
    lab.wait(60, [lab.start(0, ["sleep", "60"])])
"""
SEND = "import socket, sys; c = socket.create_connection((sys.argv[1], 7000)); c.sendall(bytes(100_000))"


def _why_not():
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not (shutil.which("ip") and shutil.which("tc")):
        return "network namespaces need iproute2 (ip and tc)"
    try:
        with Lab(1, "1gbit"):
            return ""
    except LabError as error:
        return f"this kernel makes no such namespaces: {error}"


@pytest.fixture(scope="module")
def root():
    """Skips the test where namespaces cannot be made."""
    if reason := _why_not():
        pytest.skip(reason)


def devices(pid=None):
    """The machine's namespaces and links that a lab of a process, this one if none is named, may have made."""
    name = f"lab{(pid or os.getpid()) % 10**6}"
    listed = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for command in (
        ["ip", "netns", "list"], ["ip", "-o", "link", "show"])]  # fmt: skip
    return [line for text in listed for line in text.splitlines() if any(name + kind in line for kind in "bnv")]


def python(code, *arguments):
    return [sys.executable, "-c", code, *arguments]


def test_bytes_are_counted_and_nothing_is_left(root):
    lines = []
    with Lab(3, "100mbit") as lab:
        assert len(devices()) >= 2 * 3 + 1
        server = lab.start(0, python(SERVE, lab.hosts[0]), on_line=lines.append, core=0)
        while not lines:
            lab.wait(0.01, [])
        lab.wait(20, [lab.start(2, python(SEND, lab.hosts[0])), server])
        assert lines == ["here", "100000"]
        sent, received = lab.sent(), lab.received()
        assert 100_000 < sent[2] < 120_000
        assert 100_000 < received[0] < 120_000
        assert max(sent[1], received[2]) < 20_000
    assert devices() == []


def test_a_host_has_the_core_that_it_is_given(root):
    lines = []
    with Lab(1) as lab:
        show = "import os; print(sorted(os.sched_getaffinity(0)))"
        before = os.sched_getaffinity(0)
        core = max(before)
        lab.wait(20, [lab.start(0, python(show), on_line=lines.append, core=core)])
        assert lines == [f"[{core}]"]
        assert os.sched_getaffinity(0) == before


def test_nothing_is_left_when_a_process_fails_or_hangs(root):
    with pytest.raises(LabError, match="exit code 3 of"), Lab(1) as lab:
        lab.start(0, python("import sys; sys.exit(3)"))
        lab.wait(20)
    assert devices() == []
    with pytest.raises(OutOfTime), Lab(1) as lab:
        hung = lab.start(0, python("import time; time.sleep(1000)"))
        lab.wait(0.0)
    assert hung.code is not None
    assert devices() == []


def test_nothing_is_left_of_a_process_that_is_ended(root):
    """SIGTERM ends the process that made the namespaces, in the midst of waiting."""
    with subprocess.Popen(python(WAIT), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as maker:
        assert maker.stdout.readline() == "made\n"
        assert devices(maker.pid) != []
        maker.terminate()
        assert maker.wait(60) != 0
    assert devices(maker.pid) == []


def test_without_iproute2_the_error_says_so(monkeypatch):
    with tempfile.TemporaryDirectory() as empty:
        monkeypatch.setenv("PATH", empty)
        with pytest.raises(ClusterError, match="install iproute2"), Lab(1):
            pass


def test_rates():
    assert [bits_per_second(rate) for rate in ("1gbit", "2.5mbit", "unlimited")] == [10**9, 2_500_000, 0]
    assert burst_of("10gbit") > burst_of("1gbit") > burst_of("100mbit") >= 1 << 15
    with pytest.raises(LabError, match="write it as 1gbit"):
        bits_per_second("fast")
