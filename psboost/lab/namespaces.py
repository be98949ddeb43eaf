"""Knows namespaces on one bridge, what each of them sends, and how to end all; does not know what runs in them.

    with Lab(4, "1gbit") as lab:
        lab.start(0, ["python", "server.py", "--listen", lab.hosts[0]], on_line=print)
        lab.start(1, ["python", "client.py", lab.hosts[0]])
        lab.wait(60)
        print(lab.sent())

      host 0           host 1           a host: a namespace with lo, and eth0 with the address hosts[host]
    [ eth0 ] tbf     [ eth0 ] tbf       tbf here shapes what the host sends,
        |                |
    [ veth ] tbf     [ veth ] tbf       and here what it receives; counters are read here, outside the namespace
        +---- bridge ----+              which has no address: nothing reaches other interfaces of the machine

Needs root, iproute2, and veth, bridge and sch_tbf in the kernel. Links carry what the kernel hands them, up to 16 KiB with
one header where TCP can: a real link has one in each packet of 1,500 bytes, 4% more bytes, whatever the program; its time
the shaping does take. A link that was idle takes the first bytes at once (burst_of). TCP is Reno, which every kernel allows
in a namespace and which fills a link that loses nothing: BBR, where it is the machine's choice, leaves up to a fourth of it
unused when both ways are busy.
"""

import atexit
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread

from psboost.cluster.signals import signals_as_interrupt
from psboost.errors import ClusterError

UNITS = {"gbit": 10**9, "mbit": 10**6, "kbit": 10**3}
UNLIMITED = "unlimited"
_GSO_BYTES = 1 << 14  # that TCP hands to a link at once
_QUEUE_BYTES = 1 << 26  # that wait for a link: a switch that drops nothing
_TICK_SECONDS = 0.05
_LAST_LINES = 15  # of a process that fails: in the error


class LabError(ClusterError):
    """The lab cannot be made, or a process in it failed."""


class OutOfTime(LabError):
    """Processes did not end in time."""


def bits_per_second(rate: str) -> int:
    """Of a text such as "1gbit" or "100mbit"; 0 for no limit."""
    if rate == UNLIMITED:
        return 0
    for unit, factor in UNITS.items():
        if rate.endswith(unit):
            return round(float(rate.removesuffix(unit)) * factor)
    raise LabError(f"the rate {rate!r}: write it as 1gbit, 100mbit, 64kbit or {UNLIMITED}")


def burst_of(rate: str) -> int:
    """Bytes that a link takes at once. With fewer it would stand still until a timer fires."""
    return max(2 * _GSO_BYTES, bits_per_second(rate) // 16_000)  # half a millisecond's


class Process:
    """A process in a host; `last` are its last lines, of stdout and stderr."""

    def __init__(self, host: int, command: list[str], popen: subprocess.Popen, on_line):
        self.host, self.command = host, command
        self.last: deque[str] = deque(maxlen=_LAST_LINES)
        self._popen, self._on_line = popen, on_line
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs, or what it wrote is not read to its end."""
        return None if self._reader.is_alive() else self._popen.poll()

    def end(self) -> None:
        """Kills it and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)  # its own session: nothing else is in it
        self._popen.wait()
        self._reader.join()

    def _read(self) -> None:
        with self._popen.stdout as lines:
            for line in lines:
                self.last.append(line.rstrip("\n"))
                if self._on_line is not None:
                    self._on_line(self.last[-1])


class Lab:
    """n_hosts namespaces on a bridge; hosts: their addresses. A context manager: on leaving, nothing is left of it.

    SIGTERM and SIGHUP leave it too, as Ctrl-C does; after SIGKILL, `ip netns del` and `ip link del` are up to somebody else.
    """

    def __init__(self, n_hosts: int, rate: str = UNLIMITED):
        """rate: of each link, each way, such as "1gbit"."""
        self.n_hosts, self.rate = n_hosts, rate
        self.hosts = [f"10.77.{i // 250}.{i % 250 + 1}" for i in range(n_hosts)]
        self._name = f"lab{os.getpid() % 10**6}"  # device names have at most 15 characters
        self._undo: list[list[str]] = []  # commands
        self._processes: list[Process] = []
        self._counters = [Path(f"/sys/class/net/{self._veth(i)}/statistics") for i in range(n_hosts)]

    def __enter__(self) -> "Lab":
        with ExitStack() as stack:
            stack.enter_context(signals_as_interrupt())
            with _undisturbed():
                stack.callback(self._remove)
                atexit.register(self._remove)  # a second Ctrl-C may come before the first has led to the callback
                self._make()
            self._leaving = stack.pop_all()
        return self

    def __exit__(self, *exc_info) -> None:
        self._leaving.close()

    def start(
        self,
        host: int,
        command: list[str],
        *,
        on_line: Callable[[str], None] | None = None,
        env: dict | None = None,
        core: int | None = None,
    ) -> Process:
        """Starts a process in a host. `on_line` gets each line that it writes, at once, in a thread of its own.

        core  of this machine, the only one that it and what it starts may use
        """
        with _undisturbed(), _on_core(core):
            popen = subprocess.Popen(
                ["ip", "netns", "exec", self._namespace(host), *command],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                bufsize=1, start_new_session=True, env=env,
            )  # fmt: skip
            self._processes.append(Process(host, command, popen, on_line))
        return self._processes[-1]

    def wait(
        self,
        seconds: float,
        processes: Iterable[Process] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Returns when `processes` (all) have ended with exit code 0. Raises OutOfTime; LabError as soon as one fails.

        check  called all the time; what it raises is raised
        """
        waited_for = list(self._processes if processes is None else processes)
        deadline = time.monotonic() + seconds
        while any(process.code is None for process in waited_for):
            for process in waited_for:
                if process.code:
                    raise LabError(_how_it_failed(process))
            if check is not None:
                check()
            if time.monotonic() > deadline:
                raise OutOfTime(f"not done in {seconds:.0f} s: {' '.join(waited_for[0].command)}")
            time.sleep(_TICK_SECONDS)
        for process in waited_for:
            if process.code:
                raise LabError(_how_it_failed(process))

    def sent(self) -> list[int]:
        """Bytes that each host has sent to others so far, with Ethernet, IP and TCP headers."""
        return [int((folder / "rx_bytes").read_text()) for folder in self._counters]

    def received(self) -> list[int]:
        """Bytes that each host has received from others so far."""
        return [int((folder / "tx_bytes").read_text()) for folder in self._counters]

    # --- devices

    def _namespace(self, host: int) -> str:
        return f"{self._name}n{host}"

    def _veth(self, host: int) -> str:
        return f"{self._name}v{host}"

    @property
    def _bridge(self) -> str:
        return f"{self._name}b"

    def _make(self) -> None:
        bits = bits_per_second(self.rate)
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        self._undo.append(["ip", "link", "del", self._bridge])
        _run("ip", "link", "set", self._bridge, "up")
        for i, host in enumerate(self.hosts):
            namespace, veth = self._namespace(i), self._veth(i)
            _run("ip", "netns", "add", namespace)
            self._undo.append(["ip", "netns", "del", namespace])
            _run("ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            self._undo.append(["ip", "link", "del", veth])
            _run("ip", "link", "set", veth, "master", self._bridge)
            _run("ip", "link", "set", veth, "up")
            _run("ip", "-n", namespace, "addr", "add", f"{host}/16", "dev", "eth0")
            _run("ip", "-n", namespace, "link", "set", "lo", "up")
            _run("ip", "-n", namespace, "link", "set", "eth0", "up")
            _run("ip", "netns", "exec", namespace, "sh", "-c", "echo reno > /proc/sys/net/ipv4/tcp_congestion_control")
            inside, outside = ["tc", "-n", namespace, "qdisc", "add", "dev", "eth0"], ["tc", "qdisc", "add", "dev", veth]
            if bits:
                _run("ip", "-n", namespace, "link", "set", "eth0", "gso_max_size", str(_GSO_BYTES))
                shape = ["tbf", "rate", f"{bits}bit", "burst", str(burst_of(self.rate)), "limit", str(_QUEUE_BYTES)]
                _run(*inside, "root", *shape)
                _run(*outside, "root", *shape)

    def _remove(self) -> None:
        with _undisturbed():
            for process in self._processes:
                process.end()
            self._processes.clear()
            while self._undo:
                subprocess.run(self._undo.pop(), stdin=subprocess.DEVNULL, capture_output=True)
            atexit.unregister(self._remove)


@contextmanager
def _undisturbed():
    """Inside, Ctrl-C and its like wait: what is made is also noted, and all of it is removed."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _on_core(core: int | None):
    """What is started inside may use that core only."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except FileNotFoundError:
        raise LabError(f"there is no {command[0]}: install iproute2") from None
    if done.returncode:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip()} (it needs root, and a kernel that has it)")


def _how_it_failed(process: Process) -> str:
    text = "\n".join(f"    {line}" for line in process.last)
    return f"host {process.host}: exit code {process.code} of {' '.join(process.command)}\n{text}"
