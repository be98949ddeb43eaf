"""The modes that distribute rows alone, from outside: what they refuse, what they ignore, on which transports they run."""

import pytest

import psboost
from psboost.errors import ParameterError
from psboost.roles.modes import MODES
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
        coordinator = runs.make_coordinator(job)
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
