"""The same model, to the byte, on every grid, server count, transport, codec and mode, and in any order of messages."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import sparse

import psboost
from psboost.boosting import partition
from psboost.boosting.twins import Elders
from psboost.data import block
from psboost.roles import block_worker, dealing, worker
from psboost.roles.modes import ALLREDUCE, MODES
from psboost.roles.part import Part
from tests import runs

PLACES = [
    # grid, servers, threads, transport, codec
    ((1, 1), 3, 1, "inproc", "packed"),
    ((1, 1), 1, 3, "inproc", "packed"),
    ((1, 4), 1, 2, "memory", "csr"),
    ((1, 4), 2, 1, "inproc", "packed"),
    ((4, 1), 4, 3, "memory", "packed"),
    ((4, 1), 1, 1, "inproc", "csr"),
    ((2, 2), 1, 1, "memory", "csr"),
    ((2, 2), 2, 2, "inproc", "packed"),
    ((2, 2), 3, 2, "memory", "packed"),
    ((3, 3), 4, 1, "memory", "packed"),
    ((3, 3), 2, 4, "memory", "csr"),
]


@pytest.fixture(autouse=True)
def few_rows_are_worth_a_thread(monkeypatch):
    monkeypatch.setattr(partition, "GROUP_ROWS", 16)
    monkeypatch.setattr(dealing, "WORK_OF_A_THREAD", 1)


def place(grid, servers, threads, transport, codec):
    return {"grid": grid, "servers": servers, "threads": threads, "transport": transport, "codec": codec}


RING_MODES = MODES[1:]
RINGS = [
    {"mode": mode, "grid": (n_workers, 1), "threads": 1 + (n_workers + i) % 2, "transport": transport}
    for i, mode in enumerate(RING_MODES)
    for n_workers, transport in zip(range(1, 8), ["memory", "inproc"] * 4, strict=False)
]

CASES = {
    "logistic, sparse": {},
    "logistic, dense": {"dense": True},
    "squared, sparse": {"objective": "reg:squarederror"},
    "squared, dense": {"objective": "reg:squarederror", "dense": True},
    "4 bits": {"grad_bits": 4},
    "8 bits": {"grad_bits": 8, "dense": True},
    "16 bits": {"grad_bits": 16},
    "32 bits": {"grad_bits": 32},
    "32 bits, squared": {"grad_bits": 32, "objective": "reg:squarederror", "dense": True},
    "stumps": {"max_depth": 1},
    "dense as if sparse": {"dense": True, "zero_as_missing": True},
    "sparse as if dense": {"zero_as_missing": False},
    "stored zeros missing": {"zero_as_missing": True},
    "stored zeros": {"zero_as_missing": "unstored", "evals": True},
    "stored zeros, squared": {"zero_as_missing": "unstored", "objective": "reg:squarederror"},
    "all cells stored": {"zero_as_missing": "unstored", "dense": True, "evals": True},
    "weights": {"weights": True, "min_child_weight": 0.2},
    "weights, squared, dense": {"weights": True, "objective": "reg:squarederror", "dense": True},
    "evaluation sets": {"evals": True, "reg_alpha": 0.1},
    "base_score": {"base_score": 0.3, "gamma": 0.5, "dense": True},
    "weighted summaries": {"sketch": "weighted", "max_bin": 4, "weights": True, "zero_as_missing": False},
    "cut points of every tree": {"sketch": "weighted", "max_bin": 4, "sketch_every": 1, "evals": True},
    "of every second tree, dense": {"sketch": "weighted", "max_bin": 4, "sketch_every": 2, "weights": True, "dense": True},
    "of every tree, squared": {"sketch": "weighted", "max_bin": 4, "sketch_every": 1, "objective": "reg:squarederror"},
    "heavy children": {"min_child_weight": 4.0, "reg_lambda": 0.0},
}


def problem(dense=False, weights=False, evals=False, n_rows=90, n_features=8, n_values=9, **params):
    """(arguments of psboost.train, X)"""
    make = runs.dense_data if dense else runs.sparse_data
    X, y = make(n_rows, n_features, 0, n_values)
    if params.get("objective") == "reg:squarederror":
        y = y * 3.7 - 11 + np.arange(n_rows) % 5
    given = {"sample_weight": None, "evals": ()}
    if weights:
        given["sample_weight"] = np.random.default_rng(2).choice([0, 0, 1e-6, 0.3, 1, 25], n_rows)
    if evals:
        given["evals"] = [(X, y, "train"), (*make(17, n_features, 5, n_values), "other")]
    return {"params": {"max_depth": 6, "min_child_weight": 0.5} | params, "X": X, "y": y} | given


def stores_zeros(arguments):
    return sparse.issparse(arguments["X"]) and bool((arguments["X"].data == 0).any())


def saved(forest, folder):
    path = folder / "model.json"
    forest.save_model(path)
    return path.read_bytes()


def hold_sparse(monkeypatch, dense):
    """Sparse data of a test are held as sparse blocks, though most of their cells are stored."""
    if not dense:
        monkeypatch.setattr(block, "DENSE_FILL", 2.0)


@pytest.mark.parametrize("case", CASES)
def test_places(case, tmp_path, monkeypatch):
    hold_sparse(monkeypatch, CASES[case].get("dense"))
    arguments = problem(**CASES[case]) | {"num_boost_round": 3, "seed": 11}
    first = psboost.train(**arguments, transport="memory")
    expected = saved(first, tmp_path)
    assert sum((tree.left >= 0).sum() for tree in first.trees) > 2
    assert expected.decode() == runs.model_text(first)
    by_default = "unstored" if stores_zeros(arguments) else False
    assert first.zero_as_missing == arguments["params"].get("zero_as_missing", by_default)
    turn = list(CASES).index(case) % 7  # each case with every ring mode, and each ring with three cases or so
    for i, where in enumerate([place(*one) for one in PLACES] + RINGS[turn::7]):
        # Few distinct values: given or not makes no difference.
        mapper = first.bin_mapper if i % 2 and "sketch_every" not in arguments["params"] else None
        forest = psboost.train(**arguments, **where, bin_mapper=mapper)
        assert saved(forest, tmp_path) == expected, where
        assert forest.report["evaluation"] == first.report["evaluation"], where


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("dense", [False, True])
def test_rows_in_the_order_of_a_feature(dense, bits, tmp_path, monkeypatch):
    """All of a row shard's rows go to the same child, whose histogram is built."""
    hold_sparse(monkeypatch, dense)
    rng, n_rows = np.random.default_rng(0), 1200
    X = (rng.random((n_rows, 31)) < 0.1).astype(np.float32)
    X[:, 0] = np.arange(n_rows) < 0.45 * n_rows
    y = (2 * X[:, 0] + X[:, 1] + rng.normal(size=n_rows) > 1).astype(float)
    arguments = {"params": {"max_depth": 4, "grad_bits": bits}, "y": y, "num_boost_round": 3}
    arguments["X"] = X if dense else sparse.csr_matrix(X)
    expected = saved(psboost.train(**arguments, transport="memory"), tmp_path)
    places = [place((r, c), 2, threads, "memory", "packed") for r in (2, 3, 5) for c in (1, 2) for threads in (1, 3)]
    for where in places + RINGS:
        assert saved(psboost.train(**arguments, **where), tmp_path) == expected, where


@pytest.mark.parametrize("max_depth", [12, 0])
@pytest.mark.parametrize("dense", [False, True])
def test_deep_trees(max_depth, dense, tmp_path, monkeypatch):
    """More leaves than a word has bits."""
    hold_sparse(monkeypatch, dense)
    sizes = {"n_rows": 700, "n_features": 12}
    arguments = problem(dense, **sizes, max_depth=max_depth, min_child_weight=0, reg_lambda=0.01)
    flipped = np.random.default_rng(7).random(700) < 0.2
    arguments |= {"y": np.where(flipped, 1 - arguments["y"], arguments["y"]), "num_boost_round": 1}
    first = psboost.train(**arguments, transport="memory")
    assert (first.trees[0].left < 0).sum() > 64
    expected = saved(first, tmp_path)
    for where in [place(*PLACES[i]) for i in (1, 2, 4, 7, 9)] + RINGS[2::7]:
        assert saved(psboost.train(**arguments, **where), tmp_path) == expected, where


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("grid", [(7, 1), (1, 7), (7, 2), (2, 9), (8, 8)])
def test_more_workers_than_rows_or_features(grid, dense, tmp_path, monkeypatch):
    hold_sparse(monkeypatch, dense)
    arguments = problem(dense, n_rows=5, n_features=3, min_child_weight=0, evals=True) | {"num_boost_round": 3}
    expected = saved(psboost.train(**arguments, transport="memory"), tmp_path)
    for servers in (1, 4):
        forest = psboost.train(**arguments, transport="memory", grid=grid, servers=servers)
        assert saved(forest, tmp_path) == expected
    for mode in RING_MODES if grid[1] == 1 else ():
        assert saved(psboost.train(**arguments, transport="memory", grid=grid, mode=mode), tmp_path) == expected


@pytest.mark.parametrize("given", ["mapper", "exact"])
@pytest.mark.parametrize("dense", [False, True])
def test_features_of_many_values(given, dense, tmp_path, monkeypatch):
    """More distinct values than bins: with the first run's cut points, or exact ones."""
    hold_sparse(monkeypatch, dense)
    rng = np.random.default_rng(4)
    arguments = problem(dense, n_rows=200, max_bin=8, sketch="exact" if given == "exact" else "kll")
    shift = rng.normal(size=(200, 8)).astype(np.float32)
    X = arguments["X"] if dense else arguments["X"].toarray()
    X = np.where(X == 0, X, X + shift)
    arguments["X"] = X if dense else runs.sparse.csr_array(X)
    arguments["num_boost_round"] = 3
    first = psboost.train(**arguments, transport="memory")
    expected = saved(first, tmp_path)
    assert np.diff(first.bin_mapper.offsets).max() == 8
    for where in [place(*one) for one in PLACES] + RINGS[3::7]:
        mapper = first.bin_mapper if given == "mapper" else None
        assert saved(psboost.train(**arguments, **where, bin_mapper=mapper), tmp_path) == expected, where


@pytest.mark.parametrize("grid", [(1, 1), (2, 2)])
def test_rows_of_bins_narrow_and_wide(grid, tmp_path, monkeypatch):
    monkeypatch.setattr(block, "DENSE_FILL", 2.0)
    arguments = problem(n_rows=400) | {"num_boost_round": 3, "grid": grid, "servers": 2, "transport": "memory"}
    narrow = saved(psboost.train(**arguments), tmp_path)
    monkeypatch.setattr(block, "NARROW_BINS", 0)
    assert saved(psboost.train(**arguments), tmp_path) == narrow


@pytest.mark.parametrize("zero_as_missing", [False, True])
def test_dense_rows_are_split_as_they_are_in_memory_by_every_transport(zero_as_missing):
    """Of features of many values, cut points depend on where row shards begin."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(301, 4))
    X[:150][rng.random((150, 4)) < 0.6] = 0
    params = {"max_depth": 3, "max_bin": 4, "zero_as_missing": zero_as_missing}
    arguments = {"params": params, "X": X, "y": X[:, 0] > 0, "num_boost_round": 2, "grid": (2, 1)}
    in_memory, by_files = (psboost.train(**arguments, transport=transport) for transport in ("inproc", "ipc"))
    assert runs.model_text(by_files) == runs.model_text(in_memory)


@pytest.mark.parametrize("grad_bits", [16, 32])
@pytest.mark.parametrize(("grid", "evals"), [((1, 1), False), ((2, 2), False), ((1, 2), True)])
def test_rows_by_tiles(grid, evals, grad_bits, tmp_path, monkeypatch):
    monkeypatch.setattr(block, "DENSE_FILL", 2.0)
    arguments = problem(n_rows=400, evals=evals, grad_bits=grad_bits)
    arguments |= {"num_boost_round": 3, "grid": grid, "servers": 2, "threads": 1, "transport": "memory"}
    without = saved(psboost.train(**arguments), tmp_path)
    made, tilings_of = [], block.tilings_of
    monkeypatch.setattr(block, "TILINGS", ((12, 1), (32, 1)))
    monkeypatch.setattr(block, "tilings_of", lambda *a: made.append(tilings_of(*a)) or made[-1])
    assert saved(psboost.train(**arguments), tmp_path) == without
    assert len(made) == grid[0] * grid[1] and all(len(tiles.bins) > 0 for tilings in made for tiles in tilings)


@pytest.mark.parametrize(("grid", "threads"), [((1, 1), 1), ((1, 1), 2), ((1, 2), 1)])
def test_features_of_a_thread_in_two_parts(grid, threads, tmp_path, monkeypatch):
    arguments = problem(n_rows=400) | {"num_boost_round": 3, "transport": "memory"}
    first = psboost.train(**arguments)
    whole, n_bins = saved(first, tmp_path), int(first.bin_mapper.offsets[-1])
    monkeypatch.setattr(block_worker, "STRIDES", (0,))  # rows are not short
    monkeypatch.setattr(block_worker, "NARROW_BINS", 2 * n_bins // (3 * grid[1] * threads))
    made = []
    monkeypatch.setattr(worker, "Part", lambda *a: made.append(Part(*a)) or made[-1])
    assert saved(psboost.train(**arguments, grid=grid, threads=threads), tmp_path) == whole
    assert len(made) > threads * grid[1]


def test_a_border_between_threads_moves(tmp_path, monkeypatch):
    """One of two has a single feature, the other all others: too many bins for narrow rows."""
    arguments = problem(n_rows=400) | {"num_boost_round": 3, "transport": "memory"}
    first = psboost.train(**arguments)
    whole, n_bins = saved(first, tmp_path), int(first.bin_mapper.offsets[-1])

    def uneven_ranges(self, range_offsets):
        return [(0, 1), (1, int(range_offsets[-1]))]

    monkeypatch.setattr(block_worker.BlockWorker, "_ranges_of_threads", uneven_ranges)
    monkeypatch.setattr(block_worker, "STRIDES", (0,))  # rows are not short
    monkeypatch.setattr(block_worker, "_UNEVEN", 2.0)
    monkeypatch.setattr(block_worker, "NARROW_BINS", 3 * n_bins // 4)
    made = []
    monkeypatch.setattr(worker, "Part", lambda *a: made.append(Part(*a)) or made[-1])
    assert saved(psboost.train(**arguments, threads=2), tmp_path) == whole
    assert len(made) == 2 and max(part.block.n_bins for part in made) <= 3 * n_bins // 4
    assert min(part.end for part in made) > 1


@pytest.mark.parametrize("where", [{}, {"grid": (1, 2)}, {"grid": (2, 2)}, {"mode": ALLREDUCE, "grid": (2, 1)}])
@pytest.mark.parametrize(("work", "n_threads"), [(1, 4), (1 << 40, 1)])
def test_no_more_threads_than_are_worth_it(where, work, n_threads, tmp_path, monkeypatch):
    arguments = problem(n_rows=400) | {"num_boost_round": 3, "transport": "memory"}
    whole = saved(psboost.train(**arguments), tmp_path)
    monkeypatch.setattr(dealing, "WORK_OF_A_THREAD", work)
    made = []
    monkeypatch.setattr(worker, "Part", lambda *a: made.append(Part(*a)) or made[-1])
    forest = psboost.train(**arguments, **where, threads=4)
    assert saved(forest, tmp_path) == whole
    assert forest.report["job"]["n_threads"] == n_threads
    n_workers = math.prod(where.get("grid", (1, 1)))
    assert len(made) == n_workers * n_threads


@pytest.mark.parametrize(("grid", "threads"), [((1, 1), 2), ((1, 2), 1), ((2, 2), 1), ((1, 2), 2)])
def test_rows_of_one_hot_data_are_short_in_each_part(grid, threads, tmp_path, monkeypatch):
    """Eight categories of six values: each of two parts has four, of four parts two."""
    rng = np.random.default_rng(5)
    values = rng.integers(0, 6, (400, 8))
    X = sparse.csr_array(np.eye(6, dtype=np.float32)[values].reshape(len(values), -1))
    y = (values[:, 0] + values[:, 5] + rng.integers(0, 4, len(values)) > 6).astype(float)
    arguments = {"X": X, "y": y, "params": {"max_depth": 3}, "num_boost_round": 3, "transport": "memory"}
    whole = saved(psboost.train(**arguments), tmp_path)
    strides = []
    monkeypatch.setattr(worker, "Part", lambda *a: (part := Part(*a), strides.append(part.block.stride))[0])
    assert saved(psboost.train(**arguments, grid=grid, threads=threads), tmp_path) == whole
    assert strides == [4] * grid[0] * grid[1] * threads
    strides.clear()
    monkeypatch.setattr(dealing, "STRIDES", (0,))  # no rows are short
    assert saved(psboost.train(**arguments, grid=grid, threads=threads), tmp_path) == whole
    assert any(stride != 4 for stride in strides)


@pytest.mark.parametrize("grid", [(1, 1), (2, 2)])
def test_zeros_among_256_bins_of_a_dense_array(grid, tmp_path, monkeypatch):
    """Where cells are bytes, zeros are held in the bin of 0; in sparse rows nowhere."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(4000, 3)).astype(np.float32)
    X[rng.random(X.shape) < 0.004] = 0
    y = ((X == 0).any(axis=1) | (X[:, 0] > 1)).astype(float)
    params = {"max_depth": 4, "max_bin": 256, "min_child_weight": 2, "sketch": "exact"}
    arguments = {"params": params, "X": X, "y": y, "num_boost_round": 3, "transport": "memory"}
    dense = psboost.train(**arguments, grid=grid)
    assert np.diff(dense.bin_mapper.offsets).max() == 256
    monkeypatch.setattr(block, "DENSE_FILL", 2.0)
    assert saved(psboost.train(**arguments), tmp_path) == saved(dense, tmp_path)


def many_values(dense, **params):
    """Arguments of psboost.train with more distinct values than a weighted summary of 4 bins keeps."""
    arguments = problem(dense, n_rows=200, max_bin=4, sketch="weighted", **params)
    X = arguments["X"] if dense else arguments["X"].toarray()
    X = np.where(X == 0, X, X + np.random.default_rng(4).normal(size=X.shape).astype(np.float32))
    return arguments | {"X": X if dense else sparse.csr_array(X), "num_boost_round": 3}


SAME_ROW_SHARDS = [
    place((3, 1), 2, 1, "memory", "packed"),
    place((3, 2), 1, 1, "memory", "csr"),
    place((3, 3), 4, 2, "inproc", "packed"),
    *({"mode": mode, "grid": (3, 1), "transport": "memory", "threads": 2} for mode in RING_MODES),
]


@pytest.mark.parametrize("sketch_every", [0, 1])
@pytest.mark.parametrize("dense", [False, True])
def test_summaries_of_many_values(dense, sketch_every, tmp_path):
    """The same row shards give the same summaries, merged in any order: the same model, every time."""
    arguments = many_values(dense, weights=dense, sketch_every=sketch_every)
    for shards in (SAME_ROW_SHARDS, [place((1, c), 1, 1, "memory", "packed") for c in (1, 1, 3)]):
        first = psboost.train(**arguments, **shards[0])
        assert np.diff(first.bin_mapper.offsets).max() == 4
        for where in shards:
            assert saved(psboost.train(**arguments, **where), tmp_path) == saved(first, tmp_path), where


def test_more_rows_than_a_packed_sum_holds(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.integers(1, 4, (70_000, 2)).astype(np.float32)
    y = (X[:, 0] + rng.normal(size=70_000) > 2).astype(float)
    arguments = {"params": {"max_depth": 2}, "X": X, "y": y, "num_boost_round": 1, "transport": "memory"}
    expected = saved(psboost.train(**arguments), tmp_path)
    assert saved(psboost.train(**arguments, grid=(2, 2), servers=2), tmp_path) == expected
    assert saved(psboost.train(**arguments, grid=(3, 1), mode="allreduce"), tmp_path) == expected


# --- any order of messages


def tiny(objective="binary:logistic", dense=False):
    X, y = (runs.dense_data if dense else runs.sparse_data)(20, 5, 3, 5)
    return X, y * 2.5 if objective == "reg:squarederror" else y


def chaotic(seed, grid, servers, objective, dense, take=None, job_seed=0, mode="block", params=None, **how):
    """The model of a run on the tiny data in the order of `seed`."""
    X, y = tiny(objective, dense)
    job = runs.make_job(
        grid, servers, n_rounds=2, seed=job_seed, eval_names=("e",), zeros=False if dense else None,
        objective=objective, max_depth=3, min_child_weight=0, mode=mode, **(params or {}),
    )  # fmt: skip
    source = runs.make_source(job, X, y)
    roles = runs.make_roles(job, source, (source,), **how)
    training = runs.run(roles, take or runs.Chaos(seed))
    return runs.model_text(training.forest), training.facts["evaluation"]


@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror"])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(("grid", "servers"), [((2, 2), 2), ((3, 1), 1), ((1, 3), 2)])
def test_any_order_of_messages(grid, servers, dense, objective):
    expected = chaotic(0, (1, 1), 1, objective, dense, runs.first_come)
    assert '"left_children":[1' in expected[0]
    for seed in range(25):
        assert chaotic(seed, grid, servers, objective, dense) == expected, seed


@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror"])
@pytest.mark.parametrize("mode", RING_MODES)
def test_any_order_of_messages_in_a_ring(mode, objective):
    for dense in (False, True):
        expected = chaotic(0, (1, 1), 1, objective, dense, runs.first_come)
        for seed in range(6):
            assert chaotic(seed, (2 + seed % 5, 1), 1, objective, dense, mode=mode) == expected, (dense, seed)


def test_cut_points_of_every_tree_in_any_order_of_messages():
    params = {"sketch": "weighted", "sketch_every": 1, "max_bin": 2}
    for objective in ("binary:logistic", "reg:squarederror"):
        expected = chaotic(0, (1, 1), 1, objective, False, runs.first_come, params=params)
        for seed in range(12):
            for where in ({"grid": (2, 2)}, {"grid": (1, 2)}, {"grid": (3, 1), "mode": RING_MODES[seed % len(RING_MODES)]}):
                got = chaotic(seed, servers=2, objective=objective, dense=False, params=params, **where)
                assert got == expected, (seed, where)


def test_stopping_early_in_any_order():
    expected = chaotic(0, (1, 1), 1, "binary:logistic", False, runs.first_come, on_round=lambda _: True)
    assert expected[0].count('"split_indices"') == 1
    for seed in range(40):
        for grid in ((2, 2), (1, 2), (2, 1)):
            how = {"on_round": lambda _: True}
            assert chaotic(seed, grid, 2, "binary:logistic", False, **how) == expected, seed
    for seed in range(9):
        mode = RING_MODES[seed % len(RING_MODES)]
        assert chaotic(seed, (3, 1), 1, "binary:logistic", False, mode=mode, **how) == expected, seed


def test_the_chaos_is_one():
    """The driver of these tests does repeat and reorder."""
    orders = []
    for seed in range(3):
        chaos, mail = runs.Chaos(seed), [("a", [i]) for i in range(20)]
        order = []
        while mail:
            order.append(chaos(mail)[1][0])
        assert sorted(set(order)) == list(range(20)) and order != sorted(order)
        assert len(order) == 20 + chaos.n_repeated > 20
        orders.append(order)
    assert orders[0] != orders[1]


# --- the oracle can fail


def test_another_seed_gives_another_model():
    def model(seed, bits=8):
        arguments = problem(dense=True, grad_bits=bits)
        return runs.model_text(psboost.train(**arguments, num_boost_round=3, seed=seed, transport="memory"))

    assert model(1) == model(1)
    assert model(1) != model(2)
    assert model(1, 16) != model(1)


@pytest.mark.parametrize("fault", ["offset", "lost", "order"])
def test_a_worker_that_errs_gives_another_model(fault, monkeypatch):
    """Rounding by a local row number, a row shard's histogram left out, splits compared in another order."""
    from psboost.boosting import row_gradients, split
    from psboost.roles import server

    arguments = problem(dense=True, grad_bits=8) | {"num_boost_round": 3, "transport": "memory"}
    expected = runs.model_text(psboost.train(**arguments))
    if fault == "offset":
        right = row_gradients.kernels.round_by_pieces
        local = lambda *args: right(*args[:-3], 0, *args[-2:])  # noqa: E731
        monkeypatch.setattr(row_gradients.kernels, "round_by_pieces", local)
    elif fault == "lost":
        right = server.HistogramMerger.sum
        first = lambda self, parts, totals: right(self, parts[::2], totals)  # noqa: E731
        monkeypatch.setattr(server.HistogramMerger, "sum", first)
    else:
        monkeypatch.setattr(split.kernels, "keep_better", lambda *proposals: None)
    try:
        model = runs.model_text(psboost.train(**arguments, grid=(2, 2), servers=2))
    except psboost.ProtocolError:
        return
    assert model != expected


@pytest.mark.parametrize("grid", [(1, 1), (2, 1)])
def test_evaluation_rows_of_wide_blocks_are_in_no_histogram(grid, tmp_path):
    """A million bins: large nodes are built by going through all bins' rows, those of evaluation sets among them."""
    n_rows, n_stored, n_features = 20_000, 60, 4_600
    rng = np.random.default_rng(0)
    indices = (rng.integers(n_features, size=(n_rows, 1)) + np.arange(n_stored) * 76).reshape(-1) % n_features
    X = sparse.csr_matrix((rng.random(len(indices)) + 1, indices, np.arange(n_rows + 1) * n_stored), (n_rows, n_features))
    y = (rng.random(n_rows) < 0.5).astype(float)
    params = {"max_depth": 2, "base_score": 0.5, "objective": "binary:logistic"}
    run = partial(psboost.train, params, X, y, num_boost_round=2, transport="memory", grid=grid, threads=1)
    alone = run()
    assert alone.report["bins"] >= 2**20
    assert saved(run(evals=[(X, y, "train")]), tmp_path) == saved(alone, tmp_path)


@pytest.mark.parametrize(
    ("case", "leaves_out"),
    [
        ({}, True),
        ({"evals": True, "grad_bits": 32}, True),
        ({"objective": "reg:squarederror"}, True),
        ({"sketch": "weighted", "sketch_every": 2}, True),
        ({"weights": True}, False),  # rows of weight 0 are in no histogram
    ],
    ids=str,
)
def test_bins_of_the_same_rows_are_sent_once(case, leaves_out, tmp_path, monkeypatch):
    """Most values are a bin of their own, so a row's bins are twins: roots are sent without them, but with the first."""
    hold_sparse(monkeypatch, dense=False)
    sums, right = [], Elders.sum
    monkeypatch.setattr(Elders, "sum", lambda elders, *args: sums.append(elders) or right(elders, *args))
    arguments = problem(n_values=10**6, n_features=60, **case) | {"num_boost_round": 5, "seed": 3}
    expected = saved(psboost.train(**arguments, transport="memory"), tmp_path)
    for where in PLACES:
        sums.clear()
        assert saved(psboost.train(**arguments, **place(*where)), tmp_path) == expected, where
        (n_row_shards, n_feature_shards), servers, threads, _, codec = where
        n_roots = {0: 4, 2: 2}[case.get("sketch_every", 0)]  # the first ones by their cut points are sent whole
        job = replace(runs.make_job((n_row_shards, n_feature_shards), servers), n_threads=threads)
        n_ranges = sum(len(job.servers_of_ranges(c)) for c in range(n_feature_shards)) if job.merges else 0
        n_sums = n_row_shards * n_ranges * n_roots if codec == "packed" else 0
        assert len(sums) == n_sums * leaves_out, where
