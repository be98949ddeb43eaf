"""Trees that are grown in one go, by kernels.levels: the same as those that roles grow level by level."""

import threading
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

import psboost
from psboost.boosting import levels, partition
from psboost.boosting.crew import Crew
from psboost.boosting.levels import Levels
from psboost.boosting.split import SplitFinder
from psboost.kernels import levels as kernels
from psboost.kernels import rare_search
from psboost.roles import block_worker, dealing
from psboost.roles.block_worker import BlockWorker
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


@pytest.fixture
def parts(monkeypatch):
    """The features of each part, of every training, one after the other."""
    of_trainings, ranges_to_build = [], BlockWorker._ranges_to_build
    monkeypatch.setattr(
        BlockWorker, "_ranges_to_build", lambda *of: of_trainings.append(ranges_to_build(*of)) or of_trainings[-1]
    )
    return of_trainings


@pytest.fixture
def cut(monkeypatch):
    """Cuts each thread's features in three. Of each tree, of how many parts histograms were built, and how often others'
    features were looked at closer."""
    grow, counts = Levels.grow, []

    def cut_in_three(worker, _):
        if worker._job.merges:
            return worker._ranges
        of_threads = [np.linspace(begin, end, 4).astype(int).tolist() for begin, end in worker._ranges]
        return [part for of_parts in zip(*map(pairwise, of_threads), strict=True) for part in of_parts]

    def counted(self, *args):
        grown = grow(self, *args)
        counts.append((int(self._state[kernels.N_BUILT]), int(self._looks[rare_search.N_CLOSER])))
        return grown

    monkeypatch.setattr(levels, "LEAST_OF_A_ROW", 0)
    monkeypatch.setattr(BlockWorker, "_ranges_to_build", cut_in_three)
    monkeypatch.setattr(Levels, "grow", counted)
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


def test_each_thread_has_one_of_the_large_parts(parts, monkeypatch):
    """Threads take the parts in turns (kernels.levels)."""
    monkeypatch.setattr(block_worker, "NARROW_BINS", 40)
    rng = np.random.default_rng(3)
    X = sparse.csr_matrix((rng.random((2000, 120)) < 0.3).astype(np.float32))
    psboost.train({"max_depth": 2}, X, rng.integers(0, 2, 2000), num_boost_round=1, threads=2)
    assert parts == [[(0, 40), (60, 100), (40, 60), (100, 120)]]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_model_is_the_same_however_features_are_cut(threads, parts, monkeypatch, tmp_path):
    """In many parts, whose features are rarer and rarer; and in one for each thread."""
    rng, models = np.random.default_rng(threads), []
    X = sparse.csr_matrix((rng.random((4000, 300)) < np.geomspace(0.9, 0.01, 300)) * rng.integers(1, 4, (4000, 300)))
    y = X[:, ::7].sum(axis=1).A1 % 2
    for narrow, nearly_all in ((block_worker.NARROW_BINS, block_worker._NEARLY_ALL), (90, 0.0)):
        monkeypatch.setattr(block_worker, "NARROW_BINS", narrow)
        monkeypatch.setattr(block_worker, "_NEARLY_ALL", nearly_all)
        models.append(train(X.astype(np.float32), y, tmp_path, 5, {"max_depth": 5}, threads=threads)[0])
    before, after = map(len, parts)
    assert before == threads and after > 3 * threads
    assert models[0] == models[1]


def data_of_few_rows(n_rows=300, n_features=240):
    """(X, y, weights): but for a few features, each is stored by 1 to 15 rows; some of its values are 0, and some NaN."""
    rng = np.random.default_rng(5)
    columns = [rng.choice(n_rows, n_rows // 4 if f < 20 else rng.integers(1, 16), replace=False) for f in range(n_features)]
    rows, features = np.concatenate(columns), np.repeat(np.arange(n_features), [len(held) for held in columns])
    values = rng.choice([0.0, 1.0, 2.0, 3.0, np.nan], len(rows), p=[0.05, 0.6, 0.15, 0.15, 0.05]).astype(np.float32)
    X = sparse.csr_matrix((values, (rows, features)), (n_rows, n_features))
    shift = np.bincount(rows, np.where(features % 5 == 0, 3.0, 0.1), n_rows)
    return X, (shift + rng.normal(size=n_rows) > np.median(shift)).astype(np.float64), rng.integers(1, 4, n_rows)


OF_RARE = {
    "default": {},
    "any child": {"min_child_weight": 0, "reg_lambda": 0},
    "regularised": {"min_child_weight": 2, "reg_alpha": 0.3, "gamma": 0.2, "reg_lambda": 3},
    "zeros": {"zero_as_missing": False},
    "wide": {"grad_bits": 32},
    "squares": {"objective": "reg:squarederror", "min_child_weight": 1},
    "deep": {"max_depth": 7, "min_child_weight": 0},
    "anew": {"sketch": "weighted", "sketch_every": 2, "max_bin": 4},
}


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("how", OF_RARE.values(), ids=OF_RARE)
@pytest.mark.parametrize("seldom", [1e-9, 1, 10**9], ids=["always", "sometimes", "once"])
def test_rare_features_are_looked_at_as_long_as_that_is_seldom(how, threads, seldom, cut, monkeypatch, tmp_path):
    monkeypatch.setattr(levels, "SELDOM", seldom)
    X, y, weights = data_of_few_rows()
    params = PARAMS | how
    others = {"sample_weight": weights, "evals": [(X[:90], y[:90], "some")]}
    model, _ = train(X, y, tmp_path, 5, params, threads=threads, **others)
    n_looked_at = sum(n_built < 3 * threads for n_built, _ in cut)
    assert cut[0][0] < 3 * threads and sum(n_closer for _, n_closer in cut) > 0
    assert {1e-9: n_looked_at == 5, 1: True, 10**9: n_looked_at < 5}[seldom]
    n_grown = len(cut)
    assert train(X, y, tmp_path, 5, params, grid=(2, 2), servers=2, transport="memory", **others)[0] == model
    assert len(cut) == n_grown == 5


@pytest.mark.parametrize(("least", "n_built"), [(0, 2), (0.9, 2), (1.1, 3)])
def test_rare_features_that_hold_few_values_are_not_looked_at(least, n_built, cut, monkeypatch, tmp_path):
    monkeypatch.setattr(levels, "LEAST_OF_A_ROW", least)
    rng = np.random.default_rng(1)
    n_rows_of = [20] * 40 + [10] * 20  # in parts of 20
    columns = np.repeat(np.arange(60), n_rows_of), np.concatenate([rng.choice(200, n, replace=False) for n in n_rows_of])
    X = sparse.csr_matrix((np.ones(len(columns[0]), np.float32), columns[::-1]), (200, 60))
    train(X, rng.integers(0, 2, 200), tmp_path, 1, threads=1)
    assert [n for n, _ in cut] == [n_built]
