"""Trees that are grown in one go, by kernels.levels: the same as those that roles grow level by level."""

import threading

import numpy as np
import pytest
from scipy import sparse

import psboost
from psboost.boosting import levels, partition
from psboost.boosting.crew import Crew
from psboost.boosting.levels import Levels
from psboost.boosting.split import SplitFinder
from psboost.kernels import levels as kernels
from psboost.roles import dealing
from tests import runs

PARAMS = {"objective": "binary:logistic", "max_depth": 5, "min_child_weight": 0.1, "learning_rate": 0.5}


@pytest.fixture(autouse=True)
def few_rows_are_worth_a_thread(monkeypatch):
    monkeypatch.setattr(partition, "GROUP_ROWS", 16)
    monkeypatch.setattr(dealing, "WORK_OF_A_THREAD", 1)


@pytest.fixture
def grown(monkeypatch):
    """How many trees are grown in one go, and how often threads were called for them."""
    counts, grow, call = {"trees": 0, "calls": 0}, Levels.grow, Crew.call

    def count(name, function):
        def counted(*args):
            counts[name] += 1
            return function(*args)

        return counted

    monkeypatch.setattr(Levels, "grow", count("trees", grow))
    monkeypatch.setattr(Crew, "call", count("calls", call))
    return counts


def train(X, y, tmp_path, n_rounds=4, params=PARAMS, **where):
    forest = psboost.train(params, X, y, num_boost_round=n_rounds, **where)
    forest.save_model(tmp_path / "model.json")
    return (tmp_path / "model.json").read_bytes(), forest


def rare_data(n_rows):
    """(X, y): a tenth of the cells are stored."""
    rng = np.random.default_rng(3)
    X = sparse.random(n_rows, 60, 0.1, format="csr", dtype=np.float32, random_state=rng)
    X.data = np.ceil(X.data * 9)
    signal = np.asarray(X[:, :20].sum(axis=1)).ravel()
    return X, (signal + 5 * rng.random(n_rows) > 11).astype(np.float64)


OF_KINDS = pytest.mark.parametrize("make", [rare_data, runs.dense_data], ids=["sparse", "dense"])


@pytest.mark.parametrize("threads", [1, 2, 3])
@OF_KINDS
def test_it_grows_the_trees_of_one_worker(make, threads, grown, tmp_path):
    X, y = make(400)
    model, forest = train(X, y, tmp_path, threads=threads)
    assert grown == {"trees": 4, "calls": grown["calls"]} and forest.report["job"]["n_threads"] == threads
    assert train(X, y, tmp_path, grid=(1, 2), transport="memory")[0] == model and grown["trees"] == 4


@pytest.mark.parametrize(("depth", "n_grown"), [(1, 2), (7, 2), (8, 0), (0, 0)])
def test_deeper_trees_are_grown_level_by_level(depth, n_grown, grown, tmp_path):
    X, y = rare_data(3000)
    params = PARAMS | {"max_depth": depth, "min_child_weight": 0, "reg_lambda": 0}
    model, forest = train(X, y, tmp_path, 2, params, threads=2)
    assert grown["trees"] == n_grown
    assert train(X, y, tmp_path, 2, params, grid=(2, 2), servers=2, transport="memory")[0] == model
    if depth == 7:
        assert max(tree.n_nodes for tree in forest.trees) > 128


@OF_KINDS
def test_a_part_that_is_short_of_memory_goes_on_where_it_was(make, grown, monkeypatch, tmp_path):
    X, y = make(400)
    model, _ = train(X, y, tmp_path, grid=(1, 2), transport="memory")
    room = SplitFinder._make_room

    def just_enough(self, n_features, n_bins, n_slots):
        before = self.memory
        room(self, n_features, n_bins, n_slots)
        if self.memory is not before:
            sizes = [at + n for at, n in zip(self._used.tolist(), (n_features + 1, n_bins, n_slots), strict=True)]
            held = [array[:size] for array, size in zip(self.memory, (sizes[0], *sizes), strict=True)]
            self.memory = type(self.memory)(*[np.ascontiguousarray(array) for array in held])

    monkeypatch.setattr(SplitFinder, "_make_room", just_enough)
    assert train(X, y, tmp_path, threads=2)[0] == model
    assert grown["trees"] == 4 and grown["calls"] > 8


@OF_KINDS
def test_new_cut_points_take_other_threads(make, grown, tmp_path):
    X, y = make(400)
    params = PARAMS | {"sketch": "weighted", "sketch_every": 2, "max_bin": 4}
    model, _ = train(X, y, tmp_path, params=params, grid=(1, 2), transport="memory")
    assert train(X, y, tmp_path, params=params, threads=2)[0] == model and grown["trees"] == 4
    assert not any(thread.name.startswith("psboost crew") for thread in threading.enumerate())


def test_blocks_of_two_kinds_are_grown_level_by_level(grown, tmp_path):
    X, y = runs.sparse_data(400)  # some of its features are nearly full
    models = {}
    for threads in (1, 2, 3):
        before = grown["trees"]
        models[train(X, y, tmp_path, 2, threads=threads)[0]] = True
        kinds = {1: 2, 2: 2, 3: 0}
        assert grown["trees"] - before == kinds[threads]
    assert len(models) == 1


def test_a_thread_that_fails_is_waited_for_by_nobody(monkeypatch):
    X, y = rare_data(400)
    grow = kernels.grow

    def fails(thread, *others):
        if thread == 1:
            raise MemoryError("no more")
        return grow(thread, *others)

    monkeypatch.setattr(levels.kernels, "grow", fails)
    with pytest.raises(MemoryError, match="no more"):
        psboost.train(PARAMS, X, y, num_boost_round=2, threads=2)


def test_its_stages_follow_each_other_within_the_tree():
    X, y = rare_data(400)
    forest = psboost.train(PARAMS, X, y, num_boost_round=3, threads=2)
    of_worker = forest.report["timeline"]["spans"]["worker 0,0"][2]
    of_levels = [span for span in of_worker if span[0] in kernels.STAGES]
    assert [stage for stage, _, _ in of_levels[:5]] == [*kernels.STAGES, "build"]
    assert all(begin <= end for _, begin, end in of_levels)
    ends = [end for _, _, end in of_levels]
    assert ends == sorted(ends)
