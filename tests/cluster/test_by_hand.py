"""Knows what a person sees who starts coordinator, servers and workers one by one; does not know trees."""

import os
import random
import signal
import socket
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import msgpack
import pytest
import zmq

from psboost.wire.codec import Envelope, encode
from psboost.wire.messages import Abort, Join
from tests.cluster.command import NO_END, Command, run_command, started, write_svmlight

SCRIPTS = Path(__file__).parents[2] / "scripts"
FEW = ("--num-boost-round", "3", "--grid", "2x1", "--servers", "1")
LOCALLY = {"command": [SCRIPTS / "launch_local"], "PYTHONWARNINGS": ""}  # pip, which it may run, warns
SHORT_SILENCE = "import psboost.cluster.liveness as l; l.SILENCE_SECONDS = 2"


@pytest.fixture
def data(tmp_path):
    return write_svmlight(tmp_path / "train.svm")


@pytest.fixture
def expected(tmp_path, data):
    """The model, trained in one process."""
    assert run_command(tmp_path, "train", data, "--model", "one.json", "--transport", "memory", *FEW).end() == 0
    return (tmp_path / "one.json").read_bytes()


@pytest.fixture
def start(tmp_path):
    """Starts a command; all are gone after the test."""
    with ExitStack() as stack:
        yield lambda *arguments, **how: stack.enter_context(started(tmp_path, *arguments, **how))


def rendezvous_of(coordinator: Command) -> str:
    """The address in its "psboost: waiting at tcp://127.0.0.1:1234 for 3 roles to join"."""
    return coordinator.wait_for("psboost: waiting at ").split()[3]


def send_garbage(address):
    """What port scanners, other versions and members of an earlier run may send."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port))) as scanner:
        scanner.sendall(b"GET / HTTP/1.1\r\n\r\n")
    (join,) = encode(Envelope(0, "worker (pid 1)", 0), Join(role="worker", address="tcp://127.0.0.1:9", rank=0))
    with zmq.Context() as context, context.socket(zmq.PUSH) as raw:
        raw.setsockopt(zmq.IPV6, 1)
        raw.connect(address)
        raw.send(b"garbage")
        raw.send(msgpack.packb([127, *msgpack.unpackb(join)[1:]]))
        for message in (
            Abort(cause="an earlier run"),
            Join(role="worker", address="nonsense://x"),
            Join(role="king", address="tcp://127.0.0.1:9"),
        ):
            for run in (0, 77):
                raw.send_multipart(encode(Envelope(run, "worker (pid 1)", 0), message))
        raw.close(5000)


def test_roles_one_by_one_through_garbage_and_wrong_members(tmp_path, data, expected, start):
    coordinator = start("coordinator", "--quiet", "--rendezvous", "localhost:0", data, "--model", "m.json", *FEW)
    address = rendezvous_of(coordinator)
    assert address.startswith(("tcp://127.0.0.1:", "tcp://[::1]:")) and not address.endswith(":0")
    send_garbage(address)
    place = address.removeprefix("tcp://")
    first = start("worker", "--rendezvous", address, "--bind", "localhost:0", "--announce", "localhost", "--rank", "1")
    wrong = start("server", "--rendezvous", place, "--rank", "1")
    assert wrong.end() == 1
    assert wrong.stderr == "psboost server: there is no server of rank 1: this run has ranks 0 to 0\n"
    server = start("server", "--rendezvous", place)
    with server.process:
        taken = start("worker", "--rendezvous", place, "--rank", "1")
        assert taken.end() == 1 and first.process.poll() is None
        assert taken.stderr == "psboost worker: the worker of rank 1 has joined already: choose another rank, or none\n"
        surplus = start("server", "--rendezvous", place)
        assert surplus.end() == 1
        assert surplus.stderr == "psboost server: this run has all of its servers already (1)\n"
        last = start("worker", "--rendezvous", f"localhost:{place.rpartition(':')[2]}")
        assert [one.end() for one in (coordinator, server, first, last)] == [0, 0, 0, 0], coordinator
    assert (tmp_path / "m.json").read_bytes() == expected
    lines = coordinator.stderr.splitlines()
    assert len([line for line in lines if "ignored" in line]) == len(lines) - 1 >= 3, coordinator
    assert any("not msgpack" in line or "not one of psboost's" in line for line in lines)
    assert any("version 127 of the protocol" in line for line in lines)
    assert any("nonsense" in line for line in lines)
    assert server.stderr + first.stderr + last.stderr == ""


class Proxy:
    """Stands at 127.0.0.2 for what listens at the same port of 127.0.0.1."""

    def __init__(self):
        self._door, self._held, self._drops = socket.create_server(("127.0.0.2", 0)), [], False
        self.port = self._door.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self):
        with self._door, suppress(OSError):  # shut down
            while True:
                near, far = self._door.accept()[0], socket.socket()
                if far.connect_ex(("127.0.0.1", self.port)):  # nobody listens any more
                    near.close()
                    far.close()
                    continue
                pair = near, far
                self._held += pair
                for ends in (pair, pair[::-1]):
                    self._threads.append(threading.Thread(target=self._pass_on, args=ends))
                    self._threads[-1].start()

    def _pass_on(self, one, other):
        with one, suppress(OSError):
            while data := one.recv(1 << 16):
                if not self._drops:
                    other.sendall(data)
            other.shutdown(socket.SHUT_RDWR)

    def break_connections(self):
        """All of them, and what is under way is lost; new ones can be made."""
        self._drops = True
        time.sleep(0.5)
        self._shut_down(*self._held)
        self._drops = False

    def close(self):
        self._shut_down(self._door, *self._held)
        for thread in self._threads:
            thread.join()

    @staticmethod
    def _shut_down(*sockets):
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def test_a_connection_that_breaks_ends_the_run_and_is_named(data, start):
    with closing(Proxy()) as proxy:
        coordinator = start(
            "coordinator", "--rendezvous", "127.0.0.1:0", data, "--model", "m.json", *FEW[2:], *NO_END, patch=SHORT_SILENCE
        )
        address = rendezvous_of(coordinator)
        at = f"127.0.0.1:{proxy.port}"
        server = start("server", "--rendezvous", address, "--bind", at, "--announce", "127.0.0.2", patch=SHORT_SILENCE)
        workers = [start("worker", "--rendezvous", address, patch=SHORT_SILENCE) for _ in range(2)]
        coordinator.wait_for("[0]")
        proxy.break_connections()
        assert [one.end(60) for one in (coordinator, server, *workers)] == [1, 1, 1, 1]
    said = f"to tcp://127.0.0.2:{proxy.port} broke, and no message has come for"
    assert all(said in one.stderr and "Traceback" not in one.stderr for one in (coordinator, server, *workers)), coordinator


def test_a_member_says_that_nobody_is_there(start):
    with socket.socket() as taken:  # and never listens
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        soon = "import psboost.cluster.member as m; m._PATIENT_SECONDS = 0.5"
        worker = start("worker", "--rendezvous", address, patch=soon)
        worker.wait_for(f"waits for a coordinator at {address}, where none answers")


def test_members_may_come_first_and_a_late_one_is_told(tmp_path, data, start):
    rendezvous = f"ipc://{tmp_path}/r"
    members = start("members", "--rendezvous", rendezvous, "--servers", "1", "--workers", "2", patch=SHORT_SILENCE)
    coordinator = start("coordinator", "--rendezvous", rendezvous, data, "--model", "m.json", *FEW[2:], *NO_END)
    coordinator.wait_for("[0]")
    late = start("worker", "--rendezvous", rendezvous)
    assert late.end() == 1
    assert late.stderr == "psboost worker: this run has all of its workers already (2)\n"
    assert coordinator.process.poll() is None
    os.kill(coordinator.pid, signal.SIGKILL)
    assert members.end(30) == 1
    told = f"the coordinator at {rendezvous} has not been heard of for 2 s"
    assert sorted(line.split(":")[0] for line in members.stderr.splitlines() if told in line) == [
        "psboost server", "psboost worker", "psboost worker",
    ]  # fmt: skip
    assert "Traceback" not in members.stderr
    assert [path.name for path in tmp_path.iterdir() if path.is_socket()] == ["r"]  # of who was killed


def test_who_is_refused_is_not_taken_for_another_of_its_number(data, start):
    """In containers, each process may have the number 1."""
    first = "import os; os.getpid = lambda: 1"
    coordinator = start("coordinator", "--rendezvous", "127.0.0.1:0", data, "--model", "m.json", *NO_END)
    address = rendezvous_of(coordinator)
    start("worker", "--rendezvous", address, patch=first)
    coordinator.wait_for("[0]")
    late = start("worker", "--rendezvous", address, patch=first)
    assert late.end() == 1
    assert late.stderr == "psboost worker: this run has all of its workers already (1)\n"
    time.sleep(0.5)
    assert coordinator.process.poll() is None, coordinator


def test_member_interrupted_before_all_are_there_ends_the_run(data, start):
    coordinator = start("coordinator", "--rendezvous", "127.0.0.1:0", data, "--model", "m.json", *FEW)
    address = rendezvous_of(coordinator)
    server = start("server", "--rendezvous", address)
    surplus = start("server", "--rendezvous", address)
    until_one_is_refused = {server: surplus, surplus: server}
    refused = next(one for one in iter_ended(server, surplus))
    joined = until_one_is_refused[refused]
    os.kill(joined.pid, signal.SIGTERM)
    assert joined.end(10) == 143 and coordinator.end(10) == 1
    assert f"psboost coordinator: server (pid {joined.pid}) at tcp://127.0.0.1:" in coordinator.stderr
    assert "was interrupted" in coordinator.stderr


def iter_ended(*commands):
    while True:
        yield from (one for one in commands if one.process.poll() is not None)


def test_a_member_that_dies_before_the_run_makes_room(tmp_path, data, expected, start):
    coordinator = start("coordinator", "--quiet", "--rendezvous", "127.0.0.1:0", data, "--model", "m.json", *FEW)
    address = rendezvous_of(coordinator)
    dead, other = (start("worker", "--rendezvous", address, "--rank", "0") for _ in range(2))
    refused = next(iter_ended(dead, other))  # so the other one has joined
    os.kill((other if refused is dead else dead).pid, signal.SIGKILL)
    coordinator.wait_for("has left: another one may join")
    members = start("members", "--rendezvous", address, "--workers", "2", "--servers", "1")
    assert [one.end() for one in (coordinator, members)] == [0, 0], coordinator
    assert (tmp_path / "m.json").read_bytes() == expected


def test_coordinator_that_dies_before_the_run_is_noticed(data, start):
    coordinator = start("coordinator", "--rendezvous", "[::1]:0", data, "--model", "m.json", *FEW)
    address = rendezvous_of(coordinator)
    assert address.startswith("tcp://[::1]:")
    servers = start("members", "--rendezvous", address, "--servers", "2", patch=SHORT_SILENCE)
    servers.wait_for("there is no server of rank 1")  # so the one of rank 0 has most likely joined
    time.sleep(0.5)
    os.kill(coordinator.pid, signal.SIGKILL)
    assert servers.end(30) == 1
    assert f"psboost server: the coordinator at {address} has not been heard of for 2 s" in servers.stderr


def test_launch_local(tmp_path, data, expected):
    command = run_command(tmp_path, data, "--model", "m.json", *FEW[:2], **LOCALLY)
    assert command.end() == 0, command
    assert (tmp_path / "m.json").read_bytes() == expected


def test_launch_local_has_the_coordinators_exit_code(tmp_path):
    (tmp_path / "bad.svm").write_text("1 1:1\n0 x:1\n")
    command = run_command(tmp_path, "bad.svm", "--model", "m.json", *FEW[:2], **LOCALLY)
    assert command.end() == 2, command
    assert f"psboost coordinator: {tmp_path}/bad.svm:2:" in command.stderr


def free_port():
    """Not one that the system gives to whoever asks for any: another test might, before it is listened at."""
    while True:
        try:
            with socket.create_server(("127.0.0.1", random.randrange(10_000, 30_000))) as probe:
                return probe.getsockname()[1]
        except OSError:
            continue


def test_launch_hosts(tmp_path, data, expected):
    """With a stand-in for ssh, which runs what the remote shell would; three workers of four are on the second host."""
    (tmp_path / "hosts").write_text("127.0.0.1 # the first\nlocalhost 2\n")
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\necho "$1" >>hosts-used\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    port = str(free_port())
    command = run_command(
        tmp_path, tmp_path / "hosts", "--port", port, data, "--model", tmp_path / "m.json", *FEW[:2], "--grid", "2x2",
        command=[SCRIPTS / "launch_hosts"], PYTHONWARNINGS="", PSBOOST_SSH=str(ssh),
        PSBOOST_REMOTE_COMMAND=str(SCRIPTS.parent / ".venv" / "bin" / "psboost"),
    )  # fmt: skip
    assert command.end() == 0, command
    assert (tmp_path / "m.json").read_bytes() == expected
    assert sorted((tmp_path / "hosts-used").read_text().split()) == ["127.0.0.1"] * 2 + ["localhost"]


def test_port_in_use_is_said(tmp_path, data):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        command = run_command(tmp_path, "coordinator", "--rendezvous", place, data, "--model", "m.json", *FEW)
    assert command.end() == 1
    assert f"cannot listen at tcp://{place}: Address already in use" in command.stderr
    assert "; stop the other process" in command.stderr and len(command.stderr.splitlines()) == 1


