"""Knows what a mailbox, a roll and a listener promise, and how addresses are written; starts no processes."""

import logging
import os
import signal
import time

import pytest

from psboost.cluster.addresses import announced, bindable, normal_address
from psboost.cluster.costs import Stopwatch
from psboost.cluster.joining import Roll
from psboost.cluster.liveness import Listener, Pulse
from psboost.cluster.processes import Processes
from psboost.cluster.runner import Mailbox, abort_message, error_of
from psboost.cluster.signals import Interrupted, exit_code, signals_as_interrupt
from psboost.errors import ClusterError, DataError, ParameterError, ProtocolError
from psboost.interrupts import interrupts_wait
from psboost.wire.codec import Envelope
from psboost.wire.endpoint import Endpoint
from psboost.wire.ledger import Ledger
from psboost.wire.messages import Abort, Beat, Dismiss, Join, ReportCosts


class StandIn:
    """An endpoint that receives what it is given, without sockets."""

    def __init__(self, *arriving, run=5, broken=(), unconnected=()):
        self.name, self.run, self.arriving, self.sent = "worker 0,0", run, list(arriving), []
        self._broken, self._unconnected, self.left = dict(broken), dict(unconnected), []

    def receive(self, timeout):
        if not self.arriving:
            return None
        next_one = self.arriving.pop(0)
        if isinstance(next_one, Exception):
            raise next_one
        return next_one

    def broken(self):
        return self._broken

    def unconnected(self):
        return self._unconnected

    def disconnect(self, name, linger):
        assert linger > 0
        self.left.append(name)

    def connect(self, name, address, *, watched=True):
        if not address.startswith("tcp://"):
            raise ClusterError(f"cannot connect to {address}")

    def send(self, receiver, message):
        self.sent.append((receiver, message))


def of(run, message, sender="worker 0,0"):
    return Envelope(run, sender, 0), message


def unreadable(run):
    error = ProtocolError("received garbage")
    error.run = run
    return error


def stop():
    raise TimeoutError


def test_mailbox_hands_over_messages_and_keeps_what_drivers_say():
    listener = Listener(["worker 0,0"])
    costs = ReportCosts(times=Stopwatch().state(), ledger=Ledger().state(), peak_memory=7)
    mailbox = Mailbox(StandIn(of(5, Beat(bytes_sent=9)), of(5, costs), of(5, Dismiss())), stop, listener)
    assert isinstance(mailbox.next()[1], Dismiss)
    assert listener.bytes_sent == 9 and mailbox.reports["worker 0,0"].peak_memory == 7
    with pytest.raises(TimeoutError):
        mailbox.next()


@pytest.mark.parametrize("wrong", [{"times": {}}, {"times": Stopwatch().state() | {"seconds": 3}}, {"ledger": {"0": 5}}])
def test_costs_that_are_none_are_refused(wrong):
    costs = {"times": Stopwatch().state(), "ledger": Ledger().state()} | wrong
    with pytest.raises(ProtocolError, match="costs of worker 0,0, which are not as they should be"):
        Mailbox(StandIn(of(5, ReportCosts(**costs))), stop).next()


def test_mailbox_raises_an_abort_of_its_run_only():
    with pytest.raises(DataError, match="line 3"):
        Mailbox(StandIn(of(5, abort_message(DataError("line 3")))), stop).next()
    with pytest.raises(TimeoutError):
        Mailbox(StandIn(of(4, Abort(cause="an earlier run")), run=0), stop).next()


def test_unreadable_messages_of_the_run_are_fatal_and_those_of_strangers_are_logged(caplog):
    with caplog.at_level(logging.WARNING, "psboost"), pytest.raises(TimeoutError):
        Mailbox(StandIn(unreadable(None), unreadable(4)), stop).next()
    assert len(caplog.records) == 2 and "ignored received garbage" in caplog.text
    with pytest.raises(ProtocolError):
        Mailbox(StandIn(unreadable(5)), stop).next()


def test_a_connection_that_broke_is_fatal_once_nothing_is_heard(monkeypatch):
    monkeypatch.setattr("psboost.cluster.liveness.SILENCE_SECONDS", -4.9)
    broken = {"tcp://a:1": time.monotonic()}
    mailbox = Mailbox(StandIn(of(5, Dismiss()), broken=broken), lambda: None)
    assert isinstance(mailbox.next()[1], Dismiss)
    began = time.monotonic()
    with pytest.raises(ClusterError, match="of worker 0,0 to tcp://a:1 broke, and no message has come for 0 s since"):
        mailbox.next()
    assert time.monotonic() - began >= 0.1
    began = time.monotonic()
    with pytest.raises(ClusterError, match="worker 0,0 cannot reach tcp://a:2: no connection has come about for 0 s"):
        Mailbox(StandIn(unconnected={"tcp://a:2": began}), lambda: None).next()
    assert time.monotonic() - began >= 0.1
    for how in ({}, {"run": 0, "broken": broken, "unconnected": broken}):  # nobody has a part in a run yet
        with pytest.raises(TimeoutError):
            Mailbox(StandIn(**how), stop).next()


def test_the_check_is_not_starved_by_beats():
    """With many roles a beat is always about to come; those who are dead must be noticed all the same."""
    endpoint = Endpoint("coordinator", "tcp://127.0.0.1:0", run=5, ledger=Ledger())
    with endpoint, Endpoint("worker 0,0", None, run=5, ledger=Ledger()) as peer:
        peer.connect("coordinator", endpoint.address)
        calls = []

        def check():
            calls.append(time.monotonic())
            if len(calls) == 4:
                raise TimeoutError
            peer.send("coordinator", Beat())

        began = time.monotonic()
        with pytest.raises(TimeoutError):
            Mailbox(endpoint, check).next()
        assert time.monotonic() - began < 3


def test_errors_keep_their_class_and_unknown_ones_are_cluster_errors():
    assert type(error_of(abort_message(DataError("x")))) is DataError
    told = error_of(abort_message(MemoryError("no room")))
    assert type(told) is ClusterError and str(told) == "MemoryError: no room"
    assert type(error_of(Abort(cause="x", kind="SystemExit"))) is ClusterError


def test_listener_is_patient_until_it_hears_somebody_for_the_first_time(monkeypatch):
    monkeypatch.setattr("psboost.cluster.liveness.SILENCE_SECONDS", 0.0)
    listener = Listener(["coordinator"], lambda name: f"the {name} at x", patience=600.0)
    listener.heard("somebody else")
    listener.check()
    listener.heard("coordinator")
    time.sleep(0.001)
    with pytest.raises(ClusterError, match="the coordinator at x has not been heard of for 0 s"):
        listener.check()


def test_who_has_no_pulse_any_more_says_why(monkeypatch):
    def no_sockets(*_, **__):
        raise ClusterError("no more sockets")

    monkeypatch.setattr("psboost.cluster.liveness.Endpoint", no_sockets)
    pulse = Pulse("worker 0,0", 5, {}, Ledger(), Stopwatch())
    pulse.stop()
    with pytest.raises(ClusterError, match="no more sockets"):
        pulse.check()


def test_a_signal_that_comes_while_handlers_are_put_back_loses_none_of_them(monkeypatch):
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    put, calls = signal.signal, []

    def put_and_interrupt(number, handler):
        put(number, handler)
        calls.append(number)
        if len(calls) == len(numbers) + 1:  # the first one that is put back
            raise KeyboardInterrupt

    with signals_as_interrupt():
        before = [signal.getsignal(number) for number in numbers]
        monkeypatch.setattr(signal, "signal", put_and_interrupt)
        with pytest.raises(KeyboardInterrupt), interrupts_wait():
            pass
        monkeypatch.undo()
        assert [signal.getsignal(number) for number in numbers] == before


def test_roll_gives_asked_ranks_first_and_refuses_others():
    endpoint = StandIn(run=0)
    roll = Roll({"server": ["server 0"], "worker": ["worker 0,0", "worker 0,1", "worker 1,0"]}, endpoint)

    def join(address, role="worker", rank=-1):
        endpoint.sent.clear()
        roll.meet(*of(0, Join(role=role, address=f"tcp://{address}", rank=rank), f"{role} {address}"))
        return endpoint.sent[0][1].cause if endpoint.sent and isinstance(endpoint.sent[0][1], Abort) else None

    assert join("a:1") is None and join("a:2", rank=0) is None
    assert "has joined already" in join("a:3", rank=0)
    for rank in (3, -2):
        assert f"no worker of rank {rank}: this run has ranks 0 to 2" in join("a:3", rank=rank)
    assert "no role 'king'" in join("a:3", role="king")
    assert join("a:1") is None and roll.n_missing == 2 and roll.missing() == "1 server and 1 worker"
    assert join("a:3", rank=2) is None and join("b:1", role="server") is None and roll.n_missing == 0
    assert "all of its workers already (3)" in join("a:4")
    assert endpoint.left == [f"tcp://a:{n}" for n in (3, 3, 3, 3, 4)]
    assert {name: one.address[6:] for name, one in roll.assign().items()} == {
        "server 0": "b:1", "worker 0,0": "a:2", "worker 0,1": "a:1", "worker 1,0": "a:3",
    }  # fmt: skip
    roll.meet(*of(0, Abort(cause="not one of us"), "worker x:9"))
    with pytest.raises(ClusterError, match="interrupted"):
        roll.meet(*of(0, Abort(cause="interrupted"), "worker a:1"))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:5", "tcp://127.0.0.1:5"), ("[::1]:0", "tcp://[::1]:0"), ("tcp://host.org:1", "tcp://host.org:1"),
        ("*:7", "tcp://*:7"), ("ipc:///tmp/x", "ipc:///tmp/x"), ("ipc://@x", "ipc://@x"),
        ("ipc://a/../x", f"ipc://{os.getcwd()}/x"),
    ],
)  # fmt: skip
def test_addresses_that_are_understood(text, address):
    assert normal_address(text) == address


@pytest.mark.parametrize("text", ["127.0.0.1", "::1:5", "host:", ":5", "host:port", "udp://a:1", "tcp://a", "ipc://", ""])
def test_addresses_that_are_not(text):
    with pytest.raises(ParameterError, match="HOST:PORT"):
        normal_address(text)


def test_names_are_resolved_to_listen_and_wildcards_need_a_name_to_announce():
    assert bindable("tcp://localhost:0") in ("tcp://127.0.0.1:0", "tcp://[::1]:0")
    assert bindable("tcp://*:5") == "tcp://*:5" and bindable("ipc:///tmp/x") == "ipc:///tmp/x"
    with pytest.raises(ClusterError, match="no-such-host.invalid"):
        bindable("tcp://no-such-host.invalid:1")
    assert announced("tcp://127.0.0.1:5", None) == "tcp://127.0.0.1:5"
    with pytest.raises(ParameterError, match="--announce here: ipc:///tmp/x has no host"):
        announced("ipc:///tmp/x", "here")
    assert announced("tcp://0.0.0.0:5", "fe80::1") == "tcp://[fe80::1]:5"
    with pytest.raises(ParameterError, match="--announce"):
        announced("tcp://0.0.0.0:5", None)


def test_signals_interrupt_and_have_the_exit_codes_of_a_shell():
    old = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, or a service, may have it ignored
    try:
        with pytest.raises(Interrupted) as caught, signals_as_interrupt():
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(1)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, old)
    assert exit_code(caught.value) == 129 and exit_code(KeyboardInterrupt()) == 130


def test_an_ignored_hangup_stays_ignored():
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_as_interrupt():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, old)


def test_no_processes_need_no_end():
    with Processes() as processes:
        processes.check()
        processes.wait(0)
