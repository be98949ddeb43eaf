"""Knows that every experiment loads, runs tiny, draws and goes on where it was interrupted; does not know its figures."""

import csv

import numpy as np
import pytest
from scipy import sparse

import psboost
from experiments import reproduce
from experiments.common.here import NotHere
from experiments.common.plan import PlanError, read_plan
from experiments.common.table import Table
from psboost.boosting.histogram import DTYPES, Histograms
from psboost.boosting.metrics import auc
from psboost.roles.cast import make_role
from tests import runs

NAMES = reproduce.experiments()


@pytest.mark.timeout(600)  # seconds each, more where kernels have to be compiled
@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_runs_tiny(name, tmp_path):
    toml = reproduce.ROOT / name / "experiment.toml"
    assert len(read_plan(toml).runs) >= len(read_plan(toml, "quick").runs) >= len(read_plan(toml, "tiny").runs) > 0
    if not reproduce.reproduce(name, "tiny", tmp_path):
        pytest.skip(f"{name}: a run that this machine has not what it needs for")
    assert not Table(tmp_path / "results.csv", read_plan(toml, "tiny")).missing()
    assert (tmp_path / "figure.svg").read_text().lstrip().startswith("<?xml")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", NAMES)
def test_committed_results_are_those_of_the_plan(name):
    folder = reproduce.ROOT / name
    if (folder / "results.csv").exists():
        assert not Table(folder / "results.csv", read_plan(folder / "experiment.toml")).missing()
        assert (folder / "figure.png").exists() and (folder / "figure.svg").exists() and (folder / "README.md").exists()


TOML = """
[experiment]
title = "T"
question = "Q?"
minutes = 1
[data]
some = { shape = "rcv1", rows = 50 }
[[runs]]
data = "some"
max_depth = [2, 3]
quick.max_depth = 2
[[runs]]
data = "some"
max_bin = [8, 16]
[quick]
most_rows = 20
max_bin = 8
codec = "csr"
"""


@pytest.fixture
def toml(tmp_path):
    path = tmp_path / "made-up" / "experiment.toml"
    path.parent.mkdir()
    path.write_text(TOML)
    return path


def test_plan_multiplies_lists_and_quick_changes_only_what_runs_have(toml):
    assert read_plan(toml).runs == [
        {"data": "some", "max_depth": 2, "rows": 50},
        {"data": "some", "max_depth": 3, "rows": 50},
        {"data": "some", "max_bin": 8, "rows": 50},
        {"data": "some", "max_bin": 16, "rows": 50},
    ]
    assert read_plan(toml, "quick").runs == [
        {"data": "some", "max_depth": 2, "rows": 20},
        {"data": "some", "max_bin": 8, "rows": 20},
    ]


@pytest.mark.parametrize(
    "old, new, complaint",
    [
        ("minutes = 1", "", "minutes is missing"),
        ("[quick]", "[quik]", "unknown 'quik'"),
        ('data = "some"', 'data = "sum"', "no data named 'sum'"),
        ('shape = "rcv1", ', "", "name a shape or a file"),
        ("title =", "title", "is no TOML"),
    ],
)
def test_plan_says_what_is_wrong(toml, old, new, complaint):
    toml.write_text(TOML.replace(old, new))
    with pytest.raises(PlanError, match=complaint):
        read_plan(toml)


def test_table_keeps_finished_runs_and_goes_on(toml, tmp_path):
    path, plan = tmp_path / "results.csv", read_plan(toml)
    first, second = plan.runs[0], plan.runs[1]
    table = Table(path, plan)
    assert table.missing() == plan.runs
    table.add(first, [{"level": 0, "bytes": 1.5}, {"level": 1, "bytes": 2.5}])
    table = Table(path, plan)
    assert table.missing() == plan.runs[1:]
    table.add(second, [{"auc": 0.75}])
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    held = [(row["max_depth"], row["level"], row["auc"]) for row in rows]
    assert held == [("2", "0", ""), ("2", "1", ""), ("3", "", "0.75")]
    assert Table(path, read_plan(toml, "quick")).missing() == read_plan(toml, "quick").runs  # other rows, another run
    with pytest.raises(ValueError, match="data"):
        table.add(second, [{"data": 1}])


def test_runs_that_cannot_be_made_here_are_left_out(toml, tmp_path, monkeypatch):
    def measure(settings, data):
        if "max_bin" in settings:
            raise NotHere("no reason")
        return [{"rows_given": data.X.shape[0]}]

    class Script:
        draw = staticmethod(lambda rows: None)

    Script.measure = staticmethod(measure)
    monkeypatch.setattr(reproduce, "ROOT", toml.parents[1])
    monkeypatch.setattr(reproduce, "script_of", lambda name, which: Script)
    monkeypatch.setattr("experiments.common.style.save", lambda figure, folder: None)
    assert not reproduce.reproduce("made-up", "full", tmp_path / "out")
    assert len(Table(tmp_path / "out" / "results.csv", read_plan(toml)).missing()) == 2


def test_quickscorer_strings_lead_to_the_exit_leaf():
    rng = np.random.default_rng(3)
    X = sparse.random(200, 12, density=0.5, format="csr", dtype=np.float32, rng=rng)
    y = (rng.random(200) < 0.5).astype(float)
    forest = psboost.train({"max_depth": 4, "base_score": 0.5}, X, y, num_boost_round=1, transport="memory")
    run = reproduce.script_of("routing-bytes", "run")
    [tree] = forest.trees
    inner = np.flatnonzero(tree.left >= 0).tolist()
    shards = [run.strings_of(tree, inner[i::2], X.tocsc()) for i in range(2)]
    exits = (shards[0] & shards[1]).argmax(axis=1)
    spans, n_leaves = run.leaf_spans(tree)
    value_of = {begin: tree.value[node] for node, (begin, _) in spans.items() if tree.left[node] < 0}
    assert n_leaves == len(value_of)
    expected = forest.predict(X, output_margin=True)
    assert np.allclose([value_of[leaf] for leaf in exits.tolist()], expected)
    assert auc(expected, y) > 0.5


def test_run_length_bytes_count_changes():
    run = reproduce.script_of("routing-bytes", "run")
    strings = np.array([[1, 1, 1], [1, 0, 1], [0, 0, 0]], bool)
    assert run.run_length_bytes(strings) == -(-(3 + 0 + 2 + 1) * 2 // 8)


def test_held_bytes_are_all_arrays_of_a_role_once():
    held_bytes = reproduce.script_of("grid-shapes", "run").held_bytes
    job = runs.make_job((2, 1), 1, n_rounds=1)
    worker = make_role("worker 0,0", job, None, ())
    before = held_bytes(worker)
    worker.parts = [np.zeros(100, np.uint8)] * 2, {"view": (memory := np.zeros(50, np.int64))[10:20], "whole": memory}
    worker.inner = Histograms(np.zeros(4, np.int64), *[np.empty(0, dtype) for dtype in DTYPES])
    assert held_bytes(worker) == before + 100 + 400 + 4 * 8
