"""The modes that distribute rows alone, from outside: what they refuse, what they ignore, on which transports they run."""

import numpy as np
import pytest

import psboost
from psboost.errors import ParameterError
from psboost.roles.coordinator import Coordinator
from psboost.roles.modes import MODES
from psboost.roles.ring_bytes import dense_payload, levels_of
from tests import runs

RING_MODES = MODES[1:]


def train(n_workers=3, X=None, y=None, n_rounds=3, mode="allreduce", params=None, **how):
    if X is None:
        X, y = runs.sparse_data(120, 12)
    params = {"max_depth": 4, "min_child_weight": 0.5} | (params or {})
    how = {"transport": "memory", "grid": (n_workers, 1)} | how
    return psboost.train(params, X, y, num_boost_round=n_rounds, mode=mode, **how)


def test_more_than_one_feature_shard_is_refused():
    with pytest.raises(ParameterError, match="rows alone: give a grid of 6x1, or mode block for 3x2"):
        train(grid=(3, 2))


def test_an_unknown_mode_is_refused():
    with pytest.raises(ParameterError, match="mode must be one of block, allreduce"):
        train(mode="ring")


@pytest.mark.parametrize("mode", MODES)
def test_servers_take_part_in_block_mode_alone(mode):
    forest = train(mode=mode, servers=2)
    assert forest.report["mode"] == mode
    servers = [name for name in forest.report["roles"] if name.startswith("server")]
    assert len(servers) == (2 if mode == "block" else 0)


def test_sums_that_float64_does_not_hold_are_refused():
    from tests.roles.test_training_messages import describe

    def run(n_rows, mode):
        job = runs.make_job((2, 1), 1, mode=mode, grad_bits=32)
        coordinator = Coordinator(job)
        coordinator.start()
        coordinator.handle("worker 0,0", describe([2], [1], n_rows=n_rows))
        coordinator.handle("worker 1,0", describe([2], [1], n_rows=2**22))

    for mode, n_rows in (("allreduce", 2**22), ("block", 2**22 + 1)):
        run(n_rows, mode)
    with pytest.raises(ParameterError, match="with grad_bits=32, 8388609 rows may come to more; give"):
        run(2**22 + 1, "allreduce")


@pytest.mark.parametrize(("transport", "mode"), list(zip(["tcp", "ipc", "tcp"], RING_MODES, strict=False)))
def test_processes(transport, mode):
    expected = train(1, mode="block")
    forest = train(3, mode=mode, transport=transport)
    assert runs.model_text(forest) == runs.model_text(expected)
    in_memory = train(3, mode=mode).report["bytes"]
    for kind, sums in in_memory.items():
        assert forest.report["bytes"][kind] == sums  # of the same messages, whatever carries them


@pytest.mark.parametrize("mode", RING_MODES)
def test_a_callback_ends_the_training(mode):
    for transport in ("memory", "inproc"):
        forest = train(4, mode=mode, transport=transport, callbacks=[lambda round_: round_.number == 1], n_rounds=5)
        assert len(forest.trees) == 2
        assert runs.model_text(forest) == runs.model_text(train(1, mode="block", n_rounds=2))


# --- bytes


@pytest.mark.parametrize("n_workers", range(1, 8))
@pytest.mark.parametrize("mode", RING_MODES[:2])
def test_payload_is_the_closed_form(mode, n_workers):
    for max_depth, gamma in ((1, 0), (4, 0), (0, 0.3)):
        forest = train(n_workers, mode=mode, params={"max_depth": max_depth, "gamma": gamma})
        report = forest.report
        for number, tree in enumerate(forest.trees):
            sent = report["bytes_by_tree"][number]
            formula = dense_payload(mode, n_workers, report["bins"], levels_of(tree, max_depth))
            for kind, payload in formula.items():
                assert sent.get(kind, {"payload": 0})["payload"] == payload, (kind, max_depth)
        kinds = {"ReduceHistograms", "ShareHistograms", "ShareSplits", "ProposeSplits", "PushHistograms"}
        assert kinds & report["bytes"].keys() <= formula.keys()


def test_levels_of_a_tree():
    forest = train(1, mode="block", params={"max_depth": 4})
    for tree in forest.trees:
        by_level, nodes = [], [0]
        while nodes:
            split = [node for node in nodes if tree.left[node] >= 0]
            by_level.append((max(1, len(nodes) // 2), len(nodes)))
            nodes = [int(child) for node in split for child in (tree.left[node], tree.right[node])]
        assert levels_of(tree, 0) == by_level
        assert levels_of(tree, 4) == by_level[:4]
        assert sum(built for built, _ in by_level[:4]) <= 8


def test_sparse_chunks_take_fewer_bytes_where_bins_are_absent():
    X, y = runs.sparse_data(40, 300, n_values=30)
    payload = {}
    for mode in RING_MODES:
        sent = train(4, X, y, mode=mode).report["bytes"]
        payload[mode] = sum(sent.get(kind, {"payload": 0})["payload"] for kind in ("ReduceHistograms", "ShareHistograms"))
    assert payload["sparse-allreduce"] < payload["allreduce"] / 2
    assert payload["reduce-scatter"] < 0.51 * payload["allreduce"]


@pytest.mark.parametrize("sketch", ["kll", "exact"])
@pytest.mark.parametrize(("mode", "grid"), [("block", (1, 2)), ("block", (3, 2)), ("allreduce", (4, 1))])
def test_sketches_three_ways(mode, grid, sketch):
    n_senders = {(1, 2): 0, (3, 2): 3, (4, 1): 3}[grid]  # of each feature
    rng = np.random.default_rng(0)
    X, y = runs.sparse_data(300, 9)
    X = X.toarray()
    X[:, 0] = rng.normal(size=300)  # more distinct values than runs
    X[:, 1] = rng.normal(size=300)
    params = {"sketch": sketch, "max_bin": 4}
    X = np.hstack([X, np.zeros((300, 20))])
    forest = train(X=X, y=y, params=params, mode=mode, grid=grid, servers=2)
    again = train(X=X, y=y, params=params, mode=mode, grid=grid, servers=2, bin_mapper=forest.bin_mapper)
    assert set(again.report["sketches"].values()) == {0}
    report = forest.report
    sketches, sent = report["sketches"], report["bytes"].get("PushSketches", {"messages": 0, "payload": 0})
    assert sketches["held"] == sent["payload"]
    assert report["features"]["declared"] == 29
    assert sketches["with_headers"] == sent["payload"] + 16 * 29 * n_senders + 8 * sent["messages"]
    if n_senders:
        largest = sketches["padded"] / (29 * n_senders)
        # 75 to 100 runs of a value and a count; as a sketch, what datasketches makes of so many values
        low, high = (75 * 5, 100 * 5 + 10) if sketch == "exact" else (75 * 4, 100 * 4 + 60)
        assert low <= largest <= high and largest == int(largest)
    else:
        assert set(sketches.values()) == {0}
