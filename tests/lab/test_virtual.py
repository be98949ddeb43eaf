"""Knows schedules that were worked out by hand, and that the virtual cluster keeps to them; does not know any data."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

import psboost
from psboost import cli
from psboost.cluster.costs import Stopwatch
from psboost.errors import ClusterError, ParameterError
from psboost.lab import phases
from psboost.lab.cores import Cores
from psboost.lab.events import Events
from psboost.lab.hosts import Cluster
from psboost.lab.links import MOST_PACKETS, Links
from psboost.lab.virtual import VirtualRun
from psboost.roles.job import Grid
from psboost.roles.role import COORDINATOR, Role
from psboost.wire.ledger import Ledger
from psboost.wire.messages import ALL_KINDS, CloseTree, PushHistograms, PushLeafSums
from tests.runs import dense_data, model_text

FREE = {"message_us": 0.0, "byte_ns": 0.0, "latency_ms": 0.0, "goodput": 1.0}
PACKET = 1 / MOST_PACKETS  # of a message of a second: how long before the last second a turn may come


NOTHING, MANY = np.zeros(0, np.float32), np.zeros(10**6 // 4, np.float32)  # bytes: none, a million


class Clock:
    """A CPU clock that only goes on when a role spends time."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds

    def spend(self, seconds):
        self.seconds += seconds


class Scripted(Role):
    """Works and sends when it starts, then does the same for each message it hears; notes when it began each turn."""

    def __init__(self, name, clock, turns, stage=None):
        """turns: what it does in each, the first when it starts: [(stage or None, seconds) | (receiver, message)]"""
        super().__init__(name, stage)
        self._clock, self._turns = clock, list(turns)

    def _act(self):
        for what, how in self._turns.pop(0):
            if what is None:
                self._clock.spend(how)
            elif isinstance(how, float):
                with self.stage(what):
                    self._clock.spend(how)
            else:
                self.send(what, how)
        self.done = not self._turns
        outbox, self._outbox = self._outbox, []
        return outbox

    def start(self):
        return self._act()

    def handle(self, sender, message):
        return self._act()


def play(scripts, placed, **cluster):
    """The report of roles that do what `scripts` say, {role: turns}, and what their stopwatches showed."""
    clock = Clock()
    run = VirtualRun(Cluster(**FREE | cluster), placed, clock)
    watches = {name: Stopwatch(run.time) for name in scripts}
    roles = [Scripted(name, clock, turns, run.stage_of(name, watches[name])) for name, turns in scripts.items()]
    run.run(roles, {name: Ledger() for name in scripts})
    return SimpleNamespace(**run.report(), watches=watches)


def message(kind=PushLeafSums, **fields):
    return kind(**({"sums": np.zeros((2, 2), int)} | fields))


def histograms(array):
    return PushHistograms(codec="csr", totals=np.zeros((0, 3), np.int64), arrays=(array,))


def spent(report, host, phase):
    """(computation, communication, waiting) of a host in a phase."""
    return tuple(report.hosts[host]["phases"].get(phase, dict.fromkeys(phases.WHATS, 0.0)).values())


def approx(*values):
    return pytest.approx(values if len(values) > 1 else values[0])


# --- cores


def ends(works, n_cores):
    """When each of works, (begin, seconds), ends on n_cores."""
    events, done = Events(), {}
    cores = Cores(events, n_cores)

    def begin(i, seconds):
        cores.run(seconds, lambda: done.setdefault(i, events.now))

    for i, (when, seconds) in enumerate(works):
        events.at(when, lambda i=i, seconds=seconds: begin(i, seconds))
    events.run()
    return tuple(done[i] for i in range(len(works)))


@pytest.mark.parametrize(
    ("works", "n_cores", "expected"),
    [
        ([(0, 3)], 1, (3,)),
        ([(0, 3)], 4, (3,)),  # one thread uses one core
        ([(0, 1), (0, 3)], 1, (2, 4)),  # each at half speed until the short one is done at 2; then 2 are left
        ([(0, 1), (0, 3)], 2, (1, 3)),
        ([(0, 2), (0, 2), (0, 2)], 2, (3, 3, 3)),
        ([(0, 2), (1, 2)], 1, (3, 4)),  # alone to 1; together to 3, when the first has had 2 and the second 1
        ([(0, 0), (0, 1)], 1, (0, 1)),
        ([(0, 1), (5, 1)], 1, (1, 6)),
    ],
)
def test_works_share_cores_alike(works, n_cores, expected):
    assert ends(works, n_cores) == pytest.approx(expected)


# --- links


def arrivals(messages, bytes_per_second, latency=0.0, burst=0.0):
    """When each of messages, (time, from, to, bytes), is out of its sender's link, and when it is there."""
    events = Events()
    links, out, there = Links(events, bytes_per_second, latency, burst), {}, {}
    for i, (when, sender, receiver, n_bytes) in enumerate(messages):

        def send(i=i, sender=sender, receiver=receiver, n_bytes=n_bytes):
            links.send(
                sender, receiver, (sender, receiver), n_bytes,
                lambda: out.setdefault(i, events.now), lambda: there.setdefault(i, events.now),
            )  # fmt: skip

        events.at(when, send)
    events.run()
    return tuple(out[i] for i in range(len(messages))), tuple(there[i] for i in range(len(messages)))


MB = 10**6


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([(0, 0, 1, MB)], (1.5,)),  # a second of bytes, half a second of way
        ([(0, 0, 1, MB), (0, 0, 1, MB)], (1.5, 2.5)),  # one after another, on one connection
        ([(0, 0, 1, MB), (0, 1, 0, MB)], (1.5, 1.5)),  # both ways at once
        ([(0, 0, 1, MB), (0, 2, 3, MB)], (1.5, 1.5)),  # other links
        ([(0, 0, 1, MB), (3, 0, 1, MB)], (1.5, 4.5)),  # the link was idle
        ([(0, 0, 1, 2 * MB), (1, 2, 1, MB)], (3.5, 3.5)),  # one link in: from 1.5 on both come at half speed
    ],
)
def test_messages_queue_on_links(messages, expected):
    assert arrivals(messages, MB, 0.5)[1] == pytest.approx(expected, abs=2 * PACKET)


def test_messages_to_two_hosts_take_turns_on_one_link():
    out, there = arrivals([(0, 0, 1, MB), (0, 0, 2, MB)], MB)
    assert out == there == pytest.approx((2 - PACKET, 2))


def test_messages_from_two_hosts_queue_at_the_receivers_link():
    out, there = arrivals([(0, 1, 0, MB), (0, 2, 0, MB)], MB)
    assert out == pytest.approx((1, 1))
    assert there == pytest.approx((2 - PACKET, 2))


def test_a_short_message_does_not_wait_for_a_long_one_to_another_host():
    _, (long, short) = arrivals([(0, 0, 1, MB), (0.25, 0, 2, 1000)], MB)
    assert (long, short) == pytest.approx((1.001, 0.251), abs=PACKET)


def test_an_unlimited_link_takes_the_latency_alone():
    assert arrivals([(0, 0, 1, 10**12), (0, 2, 1, 1)], None, 0.25)[1] == (0.25, 0.25)


def handled(messages, seconds_per_byte):
    """When messages, (from, to, bytes), sent at 0, are there, if hosts need so long for each byte, one after another."""
    events, there = Events(), {}
    links, hosts = Links(events, MB, 0.0), {host: Cores(events, 1) for host in range(3)}

    def handle(host, n_bytes, then):
        hosts[host].run(seconds_per_byte * n_bytes, then)

    for i, (sender, receiver, n_bytes) in enumerate(messages):
        links.send(
            sender, receiver, (sender, receiver), n_bytes, lambda: None, lambda i=i: there.setdefault(i, events.now), handle
        )
    events.run()
    return tuple(there[i] for i in range(len(messages)))


@pytest.mark.parametrize(
    ("messages", "seconds_per_mb", "expected"),
    [
        ([(0, 1, MB)], 0.5, (1 + 2 * 0.5 * PACKET,)),  # work before its first packet goes and after its last has come
        ([(0, 1, MB)], 2.0, (2 + 3 * PACKET,)),  # the work takes longer than the link
        ([(0, 1, MB), (0, 1, MB)], 0.5, (1 + PACKET, 2 + PACKET)),  # one connection: in order
        ([(0, 1, MB), (0, 2, MB)], 2.0, (4 + 3 * PACKET, 4 + 4 * PACKET)),  # two: they share the sender's core
        ([(0, 1, 1000)], 2.0, (0.005,)),  # a single packet
    ],
)
def test_hosts_work_on_packets_while_others_are_under_way(messages, seconds_per_mb, expected):
    assert handled(messages, seconds_per_mb / MB) == pytest.approx(expected)


def test_a_burst_goes_at_once_and_is_due_again_after_a_pause():
    messages = [(0, 0, 1, MB // 2), (0, 0, 1, MB // 2), (5, 0, 1, MB // 2)]
    assert arrivals(messages, MB, burst=MB / 2)[1] == pytest.approx((0, 0.5, 5))


# --- roles


def test_a_round_trip_by_hand():
    """1 s of work, 2 s of way, 3 s of work at the other host, 2 s of way, 4 s of work."""
    report = play(
        {
            "a": [[("build", 1.0), ("b", histograms(NOTHING))], [(None, 4.0)]],
            "b": [[], [("search", 3.0), ("a", CloseTree(values=NOTHING))]],
        },
        {"a": 0, "b": 1}, gbit=None, latency_ms=2000,
    )  # fmt: skip
    assert report.seconds == approx(12)
    # a: builds; its message is out of its link at once, and it waits for what has no kind here; then it comes
    assert spent(report, 0, "histograms") == approx(1, 0, 0)
    assert spent(report, 0, "leaves") == approx(4, 2, 0)
    assert report.hosts[0]["cpu_seconds"] == approx(5)
    assert spent(report, 1, "histograms") == approx(0, 2, 0)
    assert spent(report, 1, "splits") == approx(3, 0, 0)
    assert spent(report, 1, phases.END) == approx(0, 0, 6)
    assert report.watches["b"].timeline.spans[-1] == [("search", approx(3), approx(6))]


def test_roles_of_one_host_share_its_core_and_talk_without_links():
    scripts = {
        "a": [[(None, 1.0), ("b", message())], []],
        "b": [[(None, 3.0)], [(None, 1.0), ("a", message())]],
    }
    report = play(scripts, {"a": 0, "b": 0}, latency_ms=1000)
    assert report.seconds == approx(5)  # a's message, of 2, waits until b's own start is over at 4
    assert sum(sum(of.values()) for of in report.hosts[0]["phases"].values()) == approx(5)
    assert report.hosts[0]["bytes"] == {}
    two_cores = play(scripts, {"a": 0, "b": 0}, latency_ms=1000, host_cores=2)
    assert two_cores.seconds == approx(4)
    assert two_cores.hosts[0]["cpu_seconds"] == approx(5)


def test_hosts_may_share_a_core_but_not_their_links():
    scripts = {"a": [[(None, 2.0), ("b", message())]], "b": [[(None, 2.0)], []]}
    report = play(scripts, {"a": 0, "b": 1}, latency_ms=1000, hosts_per_core=2)
    assert report.seconds == approx(5)  # both are done at 4; then it is a second to b
    assert spent(report, 0, "reading") == approx(4, 0, 0)  # at half speed: it computes all the time
    assert play(scripts, {"a": 0, "b": 1}, latency_ms=1000).seconds == approx(3)


def test_messages_leave_while_the_turn_goes_on():
    """What sockets take: a second a message at each end. The first of two is under way when the second is sent."""
    scripts = {"a": [[("b", message()), ("c", message())]], "b": [[], []], "c": [[], []]}
    report = play(scripts, {"a": 0, "b": 1, "c": 2}, gbit=None, message_us=1e6)
    assert spent(report, 0, "leaves") == approx(2, 0, 0)
    assert spent(report, 1, "leaves")[0] == approx(1)
    assert spent(report, 1, phases.END)[2] == approx(1)  # from 2 to 3
    assert report.seconds == approx(3)


def test_slowdown_and_the_cost_of_bytes():
    scripts = {"a": [[(None, 1.0), ("b", message())]], "b": [[], []]}
    assert play(scripts, {"a": 0, "b": 1}, gbit=None, slowdown=3).seconds == approx(3)
    once = play(scripts, {"a": 0, "b": 1}, gbit=None, byte_ns=1e6)
    n_bytes = once.hosts[0]["bytes"]["leaves"]["sent"]
    assert n_bytes == once.hosts[1]["bytes"]["leaves"]["received"] > 0
    assert once.seconds == approx(1 + 2 * n_bytes * 1e-3)


def test_sockets_work_beside_the_turns():
    """A microsecond for each byte at each end. Of a's turn, 1 s is done at 2, beside that for a million bytes."""
    scripts = {
        "a": [[("b", CloseTree(values=MANY))], [(None, 2.0)]],
        "b": [[], []],
        "c": [[("a", message())]],
    }
    report = play(scripts, {"a": 0, "b": 1, "c": 2}, gbit=8e-3, byte_ns=1e3)
    assert report.seconds == pytest.approx(3, abs=0.01)
    assert report.hosts[0]["cpu_seconds"] == pytest.approx(3, abs=0.01)
    assert report.hosts[1]["cpu_seconds"] == pytest.approx(1, abs=0.01)
    assert spent(report, 0, "leaves")[0] == pytest.approx(3, abs=0.01)
    assert spent(report, 1, phases.END)[2] == pytest.approx(1 - 2 * PACKET, abs=0.02)  # all there soon after 2


def test_two_messages_under_way_share_the_time_between_their_phases():
    scripts = {
        "a": [[("c", CloseTree(values=MANY))]],
        "b": [[("c", histograms(MANY))]],
        "c": [[], [], []],
    }
    report = play(scripts, {"a": 0, "b": 1, "c": 2}, gbit=8e-3)  # a MB a second, a MB each
    leaves, others = spent(report, 2, "leaves")[1], spent(report, 2, "histograms")[1]
    assert (leaves, others) == pytest.approx((1, 1), abs=2 * PACKET)
    assert spent(report, 0, "leaves")[1] == pytest.approx(1, abs=PACKET)  # out of a's link


def test_computing_hides_what_is_under_way():
    scripts = {
        "a": [[("b", CloseTree(values=MANY)), (None, 0.0)]],
        "b": [[("build", 0.75)], []],
    }
    report = play(scripts, {"a": 0, "b": 1}, gbit=8e-3)
    assert spent(report, 1, "histograms") == approx(0.75, 0, 0)
    assert spent(report, 1, "leaves")[1] == pytest.approx(0.25, abs=PACKET)


def test_stages_that_encode_belong_to_the_one_before():
    report = play({"a": [[("route", 1.0), ("encode", 2.0), ("build", 4.0), ("encode", 8.0)]]}, {"a": 0})
    assert spent(report, 0, "routing")[0] == approx(3)
    assert spent(report, 0, "histograms")[0] == approx(12)


def test_who_waits_for_ever_is_named():
    class Waiter(Role):
        def run(self):
            yield from self.gather(CloseTree, ["b"])

    run = VirtualRun(Cluster(), {"a": 0})
    with pytest.raises(ClusterError, match="a waits for CloseTree"):
        run.run([Waiter("a")], {"a": Ledger()})


def test_what_a_callback_does_is_not_counted():
    clock = Clock()
    run = VirtualRun(Cluster(**FREE), {"a": 0}, clock)

    class Telling(Scripted):
        def _act(self):
            with run.not_counted():
                clock.spend(100)
            return super()._act()

    run.run([Telling("a", clock, [[(None, 1.0)]])], {"a": Ledger()})
    assert run.report()["seconds"] == approx(1)


# --- phases


def test_every_message_of_a_training_has_a_phase():
    drivers = {"Join", "AssignRoles", "Beat", "Abort", "ReportCosts", "Dismiss"}
    of_predictions = {"PushPartialExits", "PushMargins"}
    assert ALL_KINDS.keys() - drivers - of_predictions <= phases.OF_KIND.keys()


# --- the cluster


def test_where_roles_are():
    grid = Grid(3, 3, 3)
    apart = Cluster(hosts=12, servers_apart=True, coordinator_host=11).place(grid)
    assert [apart[name] for name in (COORDINATOR, *grid.servers, *grid.workers)] == [11, 9, 10, 11, *range(9)]
    beside = Cluster(hosts=2).place(grid)
    assert [beside[name] for name in (COORDINATOR, *grid.servers, *grid.workers)] == [0, 0, 1, 0, *[0, 1] * 4, 0]
    assert set(Cluster().place(grid).values()) == set(range(9))
    assert set(Cluster(servers_apart=True).place(grid).values()) == set(range(12))


@pytest.mark.parametrize(
    ("cluster", "text"),
    [
        ({"hosts": 0}, "hosts must be a whole number from 1"),
        ({"gbit": 0.0}, "gbit must be a finite number above 0"),
        ({"latency_ms": -1}, "latency_ms"),
        ({"hosts": 3, "servers_apart": True}, "need at least 4 hosts"),
        ({"hosts": 3, "coordinator_host": 3}, "there are only hosts 0 to 2"),
        ({"hosts_per_core": 2, "host_cores": 2}, "share a core"),
    ],
)
def test_a_wrong_cluster_is_refused(cluster, text):
    with pytest.raises(ParameterError, match=text):
        Cluster(**cluster).place(Grid(2, 1, 3))


# --- trainings

PARAMS = {"max_depth": 3, "max_bin": 8, "sketch": "exact"}
RUNS = [((2, 2), 2, "block"), ((1, 1), 1, "block"), ((1, 3), 2, "block"), ((3, 1), 1, "allreduce")]


@pytest.mark.parametrize(("grid", "servers", "mode"), RUNS, ids=str)
def test_a_training_is_that_of_memory(grid, servers, mode):
    X, y = dense_data()
    how = {"num_boost_round": 3, "grid": grid, "servers": servers, "mode": mode, "evals": [(X, y, "same")], "threads": 1}
    memory = psboost.train(PARAMS, X, y, transport="memory", **how)
    cluster = psboost.lab.Cluster(hosts=3, host_cores=2)
    virtual = psboost.train(PARAMS, X, y, transport="virtual", cluster=cluster, **how)
    assert model_text(virtual) == model_text(memory)
    for part in ("bytes", "bytes_by_tree", "edges"):
        assert virtual.report[part] == memory.report[part]
    report = virtual.report["virtual"]
    assert list(report["seconds_by_tree"]) == [0, 1, 2]
    assert virtual.report["seconds"]["total"] == report["seconds"] > sum(report["seconds_by_tree"].values()) > 0
    for host in report["hosts"]:
        assert sum(s for of in host["phases"].values() for s in of.values()) == approx(report["seconds"])
    mean = [sum(s for of in tree.values() for s in of.values()) for tree in report["phases_by_tree"].values()]
    assert sum(mean) == approx(report["seconds"])
    assert mean[1:] == pytest.approx(list(report["seconds_by_tree"].values()))
    _check_bytes(report, virtual.report["edges"])


def _check_bytes(report, edges):
    """What went over links is what the ledgers counted between roles of different hosts."""
    placed = report["placed"]
    for number, host in enumerate(report["hosts"]):
        sent = [
            sums["wire"]
            for sender, receivers in edges.items()
            for receiver, sums in receivers.items()
            if placed[sender] == number != placed[receiver]
        ]
        assert sum(of["sent"] for of in host["bytes"].values()) == sum(sent)
        assert host["roles"] == [name for name, where in placed.items() if where == number]
    received = [of["received"] for host in report["hosts"] for of in host["bytes"].values()]
    assert sum(received) == sum(of["sent"] for host in report["hosts"] for of in host["bytes"].values())


def test_only_the_virtual_transport_has_a_cluster():
    X, y = dense_data(10)
    with pytest.raises(ParameterError, match="give transport virtual"):
        psboost.train(PARAMS, X, y, transport="memory", cluster=Cluster())
    with pytest.raises(ParameterError, match="must be a psboost.lab.Cluster"):
        psboost.train(PARAMS, X, y, transport="virtual", cluster=12)
    with pytest.raises(ParameterError, match="threads 2"):
        psboost.train(PARAMS, X, y, transport="virtual", threads=2)
    assert psboost.train(PARAMS, X, y, transport="virtual", num_boost_round=1).report["virtual"]["cluster"]["hosts"] == 1


def test_the_command_line_has_a_virtual_cluster(tmp_path, capsys):
    X, y = dense_data(60)
    np.savez(tmp_path / "train.npz", **_csr_arrays(X), y=y)
    (tmp_path / "run.toml").write_text('transport = "virtual"\n[cluster]\nhosts = 7\ngbit = 10\nservers_apart = true\n')
    model, report = tmp_path / "model.json", tmp_path / "report.json"
    flags = ["--model", str(model), "--report", str(report), "--num-boost-round", "1", "--max-depth", "2"]
    command = ["train", str(tmp_path / "train.npz"), *flags, "--grid", "2x2", "--servers", "2", "--quiet"]
    assert cli.run([*command, "--config", str(tmp_path / "run.toml"), "--hosts", "6", "--latency-ms", "0.5"]) == 0
    virtual = json.loads(report.read_text())["virtual"]
    given = {"hosts": 6, "gbit": 10.0, "servers_apart": True, "latency_ms": 0.5, "host_cores": 1}
    assert virtual["cluster"] | given == virtual["cluster"]
    assert [virtual["placed"][f"server {s}"] for s in (0, 1)] == [4, 5]
    assert list(virtual["seconds_by_tree"]) == ["0"]
    assert cli.run([*command, "--hosts", "6"]) == 2
    assert "give transport virtual" in capsys.readouterr().err


def _csr_arrays(X):
    csr = sparse.csr_matrix(np.nan_to_num(X))
    return {"indptr": csr.indptr, "indices": csr.indices, "data": csr.data, "shape": csr.shape}
