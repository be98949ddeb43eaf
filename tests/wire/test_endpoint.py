"""Knows what an endpoint promises on every transport; does not know roles.

`check_endpoint(address)` is run for inproc, ipc and tcp, with IPv4 and IPv6.
"""

import os
import resource
import signal
import socket
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import zmq

from psboost.cores import may_have_urgent_threads
from psboost.errors import ClusterError, ProtocolError
from psboost.wire import codec
from psboost.wire.endpoint import Endpoint, Neighbours, local_host_towards
from psboost.wire.ledger import Ledger
from psboost.wire.messages import Abort, Beat, Dismiss, PushMargins, PushSketches

PATIENCE = 10.0


def has_ipv6_loopback():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.fixture
def neighbours(request):
    """None for endpoints that share nothing, as in processes of their own."""
    if getattr(request, "param", "shared") == "alone":
        yield None
        return
    neighbours = Neighbours()
    yield neighbours
    neighbours.context.destroy(linger=0)


TRANSPORTS = [("inproc", "shared")] + [(name, how) for name in ("ipc", "tcp", "tcp6") for how in ("shared", "alone")]


@pytest.fixture
def address(request):
    if request.param == "inproc":
        yield "inproc://receiver"
    elif request.param == "ipc":
        # not tmp_path: a socket's path may have about 100 bytes
        with tempfile.TemporaryDirectory(prefix="psb") as folder:
            yield f"ipc://{folder}/receiver"
    elif request.param == "tcp":
        yield "tcp://127.0.0.1:0"
    else:
        if not has_ipv6_loopback():
            pytest.skip("no IPv6 loopback on this machine")
        yield "tcp://[::1]:0"


@pytest.fixture(params=[0, zmq.COPY_THRESHOLD], ids=["never-copied", "usual"])
def copy_threshold(request, monkeypatch):
    monkeypatch.setattr(zmq, "COPY_THRESHOLD", request.param)


def open_endpoint(name, bind, neighbours, run=5, ledger=None):
    return Endpoint(name, bind, run=run, ledger=ledger or Ledger(), neighbours=neighbours)


def receive(endpoint):
    received = endpoint.receive(PATIENCE)
    assert received is not None, "nothing arrived"
    return received


@pytest.mark.parametrize(("address", "neighbours"), TRANSPORTS, indirect=True)
def test_conformance(address, neighbours, copy_threshold):
    check_endpoint(address, neighbours)


def check_endpoint(address, neighbours):
    """The promises of an endpoint that listens at `address`."""
    with open_endpoint("receiver", address, neighbours) as receiver:
        assert receiver.address.split("://")[0] == address.split("://")[0]
        assert not receiver.address.endswith((":0", "*"))
        assert receiver.receive(0) is None
        check_timeout(receiver)
        check_sizes_and_order(receiver, neighbours)
        check_mutation_after_send(receiver, neighbours)
        check_three_senders(receiver, neighbours)
        check_address_in_use(receiver, neighbours)
        check_own_run_only(receiver, neighbours)
        check_garbage(receiver, neighbours)
    with open_endpoint("again", receiver.address, neighbours) as receiver:  # the address is free again
        assert receiver.receive(0) is None


def check_timeout(receiver):
    began = time.monotonic()
    assert receiver.receive(0.05) is None
    assert 0.03 < time.monotonic() - began < 5


def check_sizes_and_order(receiver, neighbours):
    ledger = Ledger()
    with open_endpoint("sender", None, neighbours, ledger=ledger) as sender:
        sender.connect("receiver", receiver.address)
        sender.connect("receiver", receiver.address)
        sender.connect("also receiver", receiver.address)
        sizes = [0, 1, 10, 250_000, 3, 1_000_000, 0]
        for number, size in enumerate(sizes):
            name = "receiver" if number % 2 else "also receiver"
            sender.send(name, PushMargins(tree=number, level=size, margins=np.full(size, number, np.float32)))
        for number, size in enumerate(sizes):
            envelope, message = receive(receiver)
            assert envelope == codec.Envelope(5, "sender", number)
            assert (message.tree, message.level, len(message.margins)) == (number, size, size)
            assert np.all(message.margins == number) and not message.margins.flags.writeable
        assert receiver.receive(0.02) is None
    assert ledger.total()["PushMargins"]["messages"] == len(sizes)
    assert ledger.total()["PushMargins"]["payload"] == 4 * sum(sizes)
    assert sorted(ledger.by_tree()) == list(range(len(sizes)))
    assert 4 * sum(sizes) < ledger.bytes_sent < 4 * sum(sizes) + 100 * len(sizes)


def check_mutation_after_send(receiver, neighbours):
    with open_endpoint("sender", None, neighbours) as sender:
        sender.connect("receiver", receiver.address)
        for size in (10, 200_000):
            owned, base = np.ones(size, np.int64), np.ones(2 * size, np.int64)
            sender.send("receiver", PushSketches(sketches=(owned, base[:size])))
            with pytest.raises(ValueError, match="read-only"):
                owned[:] = 7
            base[:] = 7
            _, message = receive(receiver)
            assert all(np.all(array == 1) for array in message.sketches)
            assert not any(array.flags.writeable for array in message.sketches)


def check_three_senders(receiver, neighbours):
    n_messages = 100

    def send(name):
        with open_endpoint(name, None, neighbours) as sender:
            sender.connect("receiver", receiver.address)
            for number in range(n_messages):
                margins = np.full(1 + 1000 * (number % 5), number, np.float32)
                sender.send("receiver", PushMargins(level=number, margins=margins))
            sent.wait(PATIENCE)  # closing at once would give up what is on the way

    sent = threading.Event()
    threads = [threading.Thread(target=send, args=(f"sender {k}",)) for k in range(3)]
    for thread in threads:
        thread.start()
    order = {}
    try:
        for _ in range(3 * n_messages):
            envelope, message = receive(receiver)
            assert np.all(message.margins == message.level)
            assert envelope.sequence == message.level
            order.setdefault(envelope.sender, []).append(message.level)
    finally:
        sent.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert order == {f"sender {k}": list(range(n_messages)) for k in range(3)}


def check_address_in_use(receiver, neighbours):
    with pytest.raises(ClusterError, match="second cannot listen at .*(in use|In use)") as caught:
        open_endpoint("second", receiver.address, neighbours)
    assert receiver.address in str(caught.value) and "stop the other process" in str(caught.value)


def check_own_run_only(receiver, neighbours):
    with open_endpoint("sender", None, neighbours, run=4) as sender:
        sender.connect("receiver", receiver.address)
        sender.send("receiver", Beat())
        sender.rename("renamed", 5)
        sender.send("receiver", Beat(bytes_sent=1))
        envelope, message = receive(receiver)
        assert envelope == codec.Envelope(5, "renamed", 0) and message.bytes_sent == 1
        receiver.rename("receiver", 0)
        sender.rename("other", 99)
        sender.send("receiver", Dismiss())
        assert receive(receiver)[0].run == 99
        receiver.rename("receiver", 5)


def check_garbage(receiver, neighbours):
    """Undecodable frames are an error, and the next message is received."""
    good = codec.encode(codec.Envelope(5, "worker-7", 0), PushMargins(level=0, margins=np.ones(5000, "f4")))
    context = zmq.Context() if neighbours is None else neighbours.context
    raw = context.socket(zmq.PUSH)
    raw.setsockopt(zmq.IPV6, 1)
    raw.connect(receiver.address)
    try:
        for frames, said in (
            ([b"nonsense"], "unknown sender"),
            ([b""], "unknown sender"),
            (good[:1], "worker-7"),
        ):
            raw.send_multipart(frames)
            with pytest.raises(ProtocolError, match=said):
                receive(receiver)
        raw.send_multipart(good)
        assert receive(receiver)[0].sender == "worker-7"
    finally:
        raw.close(0)
        if neighbours is None:
            context.term()


@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
def test_a_context_of_its_own(scheme, copy_threshold):
    """Two endpoints that share nothing, as in two processes; close with linger lets the last words out."""
    with tempfile.TemporaryDirectory(prefix="psb") as folder:
        bind = f"ipc://{folder}/r" if scheme == "ipc" else "tcp://127.0.0.1:*"
        with open_endpoint("receiver", bind, None) as receiver:
            sender = open_endpoint("sender", None, None)
            sender.connect("receiver", receiver.address)
            sender.send("receiver", PushMargins(level=0, margins=np.ones(500_000, np.float32)))
            sender.send("receiver", Abort(cause="over"))
            sender.close(linger=PATIENCE)
            assert receive(receiver)[1].margins.sum() == 500_000
            envelope, message = receive(receiver)
            assert (envelope.sequence, message.cause) == (1, "over")


def test_arrays_outlive_the_endpoints():
    with (
        open_endpoint("receiver", "tcp://127.0.0.1:0", None) as receiver,
        open_endpoint("s", None, None) as sender,
    ):
        sender.connect("receiver", receiver.address)
        sender.send("receiver", PushMargins(level=0, margins=np.ones(300_000, np.float32)))
        _, message = receive(receiver)
    assert message.margins.sum() == 300_000


def test_close_with_nothing_delivered_does_not_hang():
    began = time.monotonic()
    for linger in (0, 0.1):
        sender = open_endpoint("sender", "tcp://127.0.0.1:0", None)
        sender.connect("nobody", "tcp://127.0.0.1:9")
        sender.connect("nowhere", "ipc:///tmp/psboost-test-nobody-listens")
        for peer in ("nobody", "nowhere"):
            sender.send(peer, PushMargins(level=0, margins=np.ones(100_000, np.float32)))
        sender.close(linger)
        sender.close()
    assert time.monotonic() - began < 5


@pytest.mark.timeout(20)
@pytest.mark.parametrize("place", [(zmq.Context, "_add_socket"), (zmq.Socket, "setsockopt"), (zmq.Socket, "bind")])
def test_interrupted_while_it_is_made_it_does_not_hang(monkeypatch, place):
    """Ctrl-C comes when there is a socket that the context does not know yet; that nobody else knows; that is not bound."""
    kind, name = place
    before = getattr(kind, name)

    def interrupted(self, *args):
        monkeypatch.undo()
        os.kill(os.getpid(), signal.SIGINT)
        return before(self, *args)

    monkeypatch.setattr(kind, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        Endpoint("worker 0,0", "tcp://127.0.0.1:0", run=1, ledger=Ledger())


def test_connections_that_break_are_told_of_if_they_are_watched():
    with open_endpoint("sender", None, None) as sender:
        with open_endpoint("a", "tcp://127.0.0.1:0", None) as a, open_endpoint("b", "tcp://127.0.0.1:0", None) as b:
            for receiver, watched in ((a, True), (b, False)):
                sender.connect(receiver.name, receiver.address, watched=watched)
                sender.send(receiver.name, Beat())
                receive(receiver)
            assert sender.broken() == {}
        until = time.monotonic() + 5
        while not sender.broken() and time.monotonic() < until:
            time.sleep(0.01)
        assert list(sender.broken()) == [a.address]


def test_connections_that_do_not_come_about_are_told_of_if_they_are_watched():
    with socket.socket() as taken, open_endpoint("sender", None, None) as sender:
        taken.bind(("127.0.0.1", 0))  # and never listens
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        for watched in (False, True):
            assert sender.unconnected() == {}
            sender.connect("nobody", address, watched=watched)
            sender.send("nobody", Beat())
        [since] = sender.unconnected().values()
        assert 0 <= time.monotonic() - since < 5
        with open_endpoint("a", "tcp://127.0.0.1:0", None) as a:
            sender.connect("a", a.address)
            sender.send("a", Beat())
            receive(a)
            assert list(sender.unconnected()) == [address] and sender.broken() == {}
        sender.disconnect("nobody")
        assert sender.unconnected() == {}


def test_an_ipc_path_that_one_may_not_look_at_is_not_taken_over(neighbours, monkeypatch):
    class NotAllowed(socket.socket):
        def connect(self, path):
            raise PermissionError

    with tempfile.TemporaryDirectory(prefix="psb") as folder, open_endpoint("a", f"ipc://{folder}/r", neighbours):
        monkeypatch.setattr(socket, "socket", NotAllowed)
        with pytest.raises(ClusterError, match="Address already in use"):
            open_endpoint("b", f"ipc://{folder}/r", neighbours)
        assert os.path.exists(f"{folder}/r")


def test_a_closed_endpoint_says_so():
    endpoint = open_endpoint("worker-1", "tcp://127.0.0.1:0", None)
    endpoint.close()
    with pytest.raises(ClusterError, match="worker-1 does not listen"):
        endpoint.receive(0)
    with pytest.raises(ClusterError, match="nobody"):
        endpoint.send("worker-2", Beat())


def test_unknown_receiver_and_addresses(neighbours):
    with open_endpoint("worker-1", None, neighbours) as endpoint:
        endpoint.connect("server-0", "inproc://server")
        with pytest.raises(ClusterError, match="Beat to 'server-1': connected only to server-0"):
            endpoint.send("server-1", Beat())
        for wrong in ("tcp://127.0.0.1", "smtp://a:1", "nonsense", ""):
            endpoint.connect("peer", wrong)
            with pytest.raises(ClusterError, match="worker-1 cannot connect to peer"):
                endpoint.send("peer", Beat())
        with pytest.raises(ClusterError, match="does not listen"):
            endpoint.receive(0)


@pytest.mark.parametrize(
    ("bind", "said"),
    [
        ("nonsense", "write it as"),
        ("smtp://a:1", "write it as"),
        ("tcp://", "write it as"),
        ("tcp://127.0.0.1", "write it as"),
        ("tcp://192.0.2.1:0", "address of this machine"),
        ("ipc:///nowhere/at/all", "make the folder"),
        ("ipc:///tmp/" + "x" * 200, "shorter folder"),
    ],
)
def test_addresses_that_cannot_be_bound(bind, said):
    with pytest.raises(ClusterError, match=said) as caught:
        open_endpoint("worker-1", bind, None)
    assert bind.rstrip("0") in str(caught.value) and "worker-1" in str(caught.value)


def test_a_send_to_a_peer_that_is_gone_does_not_block(neighbours):
    receiver = open_endpoint("receiver", "inproc://receiver", neighbours)
    with open_endpoint("sender", None, neighbours) as sender:
        sender.connect("receiver", receiver.address)
        sender.send("receiver", Beat())
        receive(receiver)
        receiver.close()
        with pytest.raises(ClusterError, match="nobody is at inproc://receiver any more"):
            for _ in range(100):
                sender.send("receiver", Beat())
                time.sleep(0.01)


def test_neighbours_do_not_go_through_the_system(neighbours):
    """What one sends to another's address arrives although nothing could leave by it any more."""
    with open_endpoint("receiver", "tcp://127.0.0.1:0", neighbours) as receiver:
        receiver._listener.unbind(receiver.address)
        with open_endpoint("far", None, None) as far, open_endpoint("near", None, neighbours) as near:
            for sender in (far, near):
                sender.connect("receiver", receiver.address)
                sender.send("receiver", Beat())
            assert receive(receiver)[0].sender == "near"
            assert receiver.receive(0.1) is None


def test_what_is_sent_to_a_neighbour_that_is_gone_is_lost_as_elsewhere(neighbours):
    receiver = open_endpoint("receiver", "tcp://127.0.0.1:0", neighbours)
    with open_endpoint("sender", None, neighbours) as sender:
        sender.connect("receiver", receiver.address)
        sender.send("receiver", Beat())
        receiver.close()
        for _ in range(3):
            sender.send("receiver", Beat())


def test_a_wildcard_host_stays(neighbours):
    with open_endpoint("receiver", "tcp://*:0", neighbours) as receiver:
        assert receiver.address.startswith("tcp://0.0.0.0:")
        with open_endpoint("sender", None, neighbours) as sender:
            sender.connect("receiver", receiver.address.replace("0.0.0.0", "localhost"))
            sender.send("receiver", Beat())
            receive(receiver)


def test_a_stale_ipc_path_is_taken_over(neighbours):
    with tempfile.TemporaryDirectory(prefix="psb") as folder:
        path = os.path.join(folder, "r")
        left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        left.bind(path)
        left.close()
        with open_endpoint("receiver", f"ipc://{path}", neighbours) as receiver:
            assert receiver.receive(0) is None


def test_an_ipc_path_is_left_as_it_was(neighbours):
    with tempfile.TemporaryDirectory(prefix="psb") as folder:
        path = os.path.join(folder, "r")
        with open_endpoint("receiver", f"ipc://{path}", neighbours) as receiver:
            assert os.listdir(folder) == ["r"]
        assert os.listdir(folder) == []
        receiver.close()
        path = os.path.join(folder, "of another")
        with open_endpoint("receiver", f"ipc://{path}", neighbours), socket.socket(socket.AF_UNIX) as another:
            os.unlink(path)
            another.bind(path)
        assert os.listdir(folder) == ["of another"]


def test_a_file_that_an_ipc_address_names_by_mistake_stays(tmp_path, neighbours):
    (tmp_path / "d").write_bytes(b"1 1:1\n")
    with pytest.raises(ClusterError, match="cannot listen at .*File exists"), open_endpoint(
        "receiver", f"ipc://{tmp_path}/d", neighbours
    ):
        pass
    assert (tmp_path / "d").read_bytes() == b"1 1:1\n"


def test_what_waits_behind_another_runs_messages_is_received_without_patience():
    with open_endpoint("receiver", "tcp://127.0.0.1:0", None) as receiver, open_endpoint("s", None, None, run=4) as sender:
        sender.connect("receiver", receiver.address)
        for run in (4, 4, 5):
            sender.rename("s", run)
            sender.send("receiver", Beat())
        time.sleep(0.3)  # until all wait
        assert receiver.receive(0)[0].run == 5


def test_local_host():
    assert local_host_towards("127.0.0.1") == "127.0.0.1"
    assert local_host_towards("localhost") in ("127.0.0.1", "::1")
    if has_ipv6_loopback():
        assert local_host_towards("::1") == local_host_towards("[::1]") == "::1"
    with pytest.raises(ClusterError, match="no way to reach host"):
        local_host_towards("no-such-host.invalid")


def policies_of_new_threads(before):
    """The scheduling policies of the two threads that an endpoint starts; `before`: tasks that were there."""
    deadline, names = time.monotonic() + PATIENCE, []
    while len(names) != 2 or not all(name.startswith("ZMQ") for name in names):  # each takes its policy, then its name
        assert time.monotonic() < deadline, names
        tasks = sorted(set(os.listdir("/proc/self/task")) - before)
        names = [Path(f"/proc/self/task/{task}/comm").read_text().strip() for task in tasks]
    return [os.sched_getscheduler(int(task)) for task in tasks]


@pytest.mark.parametrize("may", [True, False])
def test_threads_of_sockets_go_first_where_they_may(may, monkeypatch):
    may_have_urgent_threads.cache_clear()
    own = os.sched_getscheduler(0)
    if not may:
        monkeypatch.setattr(os, "sched_setscheduler", refuse)
    expected = os.SCHED_RR if may_have_urgent_threads() else own
    before = set(os.listdir("/proc/self/task"))  # the one that asked may still be there
    with Endpoint("a", "tcp://127.0.0.1:0", run=1, ledger=Ledger()):
        policies = policies_of_new_threads(before)
    may_have_urgent_threads.cache_clear()
    assert policies == [expected] * 2
    assert os.sched_getscheduler(0) == own
    assert may or expected == own


def refuse(*arguments):
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize(
    ("where", "what", "says"),
    [
        (resource, "getrlimit", (200_000, 200_000)), (os, "nice", 5), (os, "sched_getscheduler", os.SCHED_RR),
        (os, "sched_getscheduler", os.SCHED_IDLE),
    ],
)  # fmt: skip
def test_no_threads_go_first_where_that_is_dangerous_or_was_decided_otherwise(where, what, says, monkeypatch):
    may_have_urgent_threads.cache_clear()
    monkeypatch.setattr(where, what, lambda *a: says)
    assert not may_have_urgent_threads()
    may_have_urgent_threads.cache_clear()
