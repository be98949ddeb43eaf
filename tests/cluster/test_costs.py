"""Knows what roles' times and bytes must add up to in a report; does not know how roles run."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import msgpack
import pytest

import psboost
from psboost.cluster import timeline
from psboost.cluster.costs import Stopwatch
from psboost.cluster.timeline import Timeline
from tests import runs


class Clock:
    """Goes on by what the test says."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_stopwatch_knows_how_long_and_when_and_survives_a_message():
    clock = Clock()
    stopwatch = Stopwatch(clock)
    with stopwatch.stage("tree", 3):
        clock.now += 1
        with stopwatch.stage("build", 3, 0.5):
            clock.now += 2
    with stopwatch.stage("build"):
        clock.now += 4
    for of in (stopwatch, Stopwatch.from_state(msgpack.unpackb(msgpack.packb(stopwatch.state())))):
        assert of.seconds == {"tree": 3.0, "build": 5.0}
        assert of.by_tree == {3: {"tree": 3.0, "build": 1.0}, -1: {"build": 4.0}}
        assert of.timeline.spans == {3: [("build", 101.0, 103.0), ("tree", 100.0, 103.0)], -1: [("build", 103.0, 107.0)]}
        assert of.timeline.n_left_out == 0


class SecondsOfThreads(threading.local):
    """A clock that each thread has for itself: a second goes by whenever it is asked."""

    now = 0.0

    def __call__(self):
        self.now += 1
        return self.now


def test_stages_of_several_threads_are_all_counted_while_somebody_asks():
    stopwatch, n_stages = Stopwatch(SecondsOfThreads()), 30_000

    def pass_stages():
        for _ in range(n_stages):
            with stopwatch.stage("build", 0):
                pass

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(3) as pool:
            passing = [pool.submit(pass_stages) for _ in range(3)]
            while not all(one.done() for one in passing):
                assert stopwatch.seconds.get("build", 0) <= 3 * n_stages
        for one in passing:
            one.result()
    finally:
        sys.setswitchinterval(interval)
    assert stopwatch.by_tree == {0: {"build": 3.0 * n_stages}}


def test_what_a_stopwatch_said_stays_while_it_goes_on():
    stopwatch = Stopwatch(Clock())
    said = stopwatch.seconds, stopwatch.by_tree
    with stopwatch.stage("build", 0):
        pass
    assert said == ({}, {}) and stopwatch.seconds == {"build": 0.0}


@pytest.mark.parametrize(("n_trees", "kept"), [(4, [0, 1, 2, 3]), (5, [0, 1, 3, 4]), (9, [0, 1, 7, 8])])
def test_a_timeline_keeps_the_first_and_the_last_trees_and_counts_the_others(monkeypatch, n_trees, kept):
    monkeypatch.setattr(timeline, "KEPT_TREES", 2)
    monkeypatch.setattr(timeline, "KEPT_SPANS", 3)
    of = Timeline()
    for tree in range(-1, n_trees):
        for i in range(4):
            of.add(tree, f"stage {i}", 10 * tree + i, 10 * tree + i + 1)
    assert list(of.spans) == [-1, *kept]
    assert of.spans[kept[-1]][-1] == ("stage 2", 10 * kept[-1] + 2, 10 * kept[-1] + 3)
    assert of.n_left_out == 4 * (n_trees + 1) - 3 * (len(kept) + 1)
    assert Timeline.from_state(of.state()).n_left_out == of.n_left_out


@pytest.mark.parametrize("transport", ["memory", "inproc", "tcp"])
def test_edges_add_up_to_the_bytes_and_the_timeline_to_the_seconds(transport):
    X, y = runs.sparse_data()
    forest = psboost.train({"max_depth": 3}, X, y, num_boost_round=2, grid=(2, 2), servers=2, transport=transport)
    report = forest.report
    by_kind, by_edge = ([sums[field] for sums in of] for of, field in (
        (report["bytes"].values(), "wire"), ([sums for to in report["edges"].values() for sums in to.values()], "wire"),
    ))  # fmt: skip
    assert sum(by_kind) == sum(by_edge) > 0
    assert {name: sum(sums["wire"] for sums in to.values()) for name, to in report["edges"].items()} == {
        name: role["bytes_sent"] for name, role in report["roles"].items()
    }
    assert all(to.keys() <= report["roles"].keys() for to in report["edges"].values())
    assert report["edges"]["worker 0,0"].keys() == {"coordinator", "server 0", "worker 0,1"}
    spans = report["timeline"]["spans"]
    assert spans.keys() == report["roles"].keys() and report["timeline"]["left_out"] == 0
    assert min(begin for trees in spans.values() for of in trees.values() for _, begin, _ in of) == 0
    for name, trees in spans.items():
        seconds = dict.fromkeys(report["roles"][name]["seconds"], 0.0)
        for stage, begin, end in (span for of in trees.values() for span in of):
            assert begin <= end
            seconds[stage] += end - begin
        assert seconds == pytest.approx(report["roles"][name]["seconds"], rel=1e-3, abs=1e-4)
