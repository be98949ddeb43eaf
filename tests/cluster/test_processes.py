"""Knows what a person sees of `psboost train` in processes: the same model, an orderly end; does not know trees."""

import os
import signal
import time

import numpy as np
import pytest
from scipy import sparse

import psboost
from tests.cluster.command import NO_END, alive, descendants, run_command, started, until, write_svmlight

GRID = ("--grid", "2x2", "--servers", "2")


@pytest.fixture
def data(tmp_path):
    return write_svmlight(tmp_path / "train.svm")


@pytest.fixture
def training(tmp_path, data):
    """A function that starts a training without end, with 2 servers and 4 workers, and waits for its first round."""

    def start(**how):
        return started(tmp_path, "train", data, "--model", "model.json", *GRID, *NO_END, **how)

    return start


def members_of(command):
    """Process numbers of the nursery, and of the workers, of which the first two have a server beside them, once all are
    running and the first round is over."""
    command.wait_for("[0]")
    (nursery,) = [pid for pid, line in descendants(command.pid).items() if alive([pid]) and "members" in line][:1]
    members = list(descendants(nursery))
    assert len(members) == 4
    command.seen |= {nursery, *members}
    return nursery, members


def leftovers(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith("psboost-") or ".part" in path.name]


def check_gone(command, pids, seconds=30):
    until(lambda: not alive(pids), seconds, command)
    assert leftovers(command.folder) == []
    assert not (command.folder / "model.json").exists()


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_model_is_the_one_of_one_process(tmp_path, data, transport):
    how = ("--num-boost-round", "3", "--eval", f"again={data}")
    one = run_command(tmp_path, "train", data, "--model", "one.json", "--transport", "memory", *how)
    assert one.end() == 0, one
    many = run_command(tmp_path, "train", data, "--model", "many.json", "--transport", transport, *GRID, *how)
    assert many.end() == 0, many
    assert (tmp_path / "many.json").read_bytes() == (tmp_path / "one.json").read_bytes()
    assert [line for line in many.stderr.splitlines() if not line.startswith("[")] == []
    assert "PushHistograms" in many.out.read_text()
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_matrices_reach_the_processes(tmp_path, form):
    rng = np.random.default_rng(3)
    X = rng.integers(0, 4, (90, 5)).astype(float)
    X[rng.random(X.shape) < 0.1] = np.nan
    y, weights = (X[:, 0] > 1).astype(float), rng.integers(1, 3, 90).astype(float)
    if form == "csr":
        X = sparse.csr_matrix(np.nan_to_num(X))

    def model(**how):
        rounds = []
        forest = psboost.train(
            {"max_depth": 3}, X, y, sample_weight=weights, evals=[(X, y, "again")], num_boost_round=3,
            callbacks=[rounds.append], **how,
        )  # fmt: skip
        forest.save_model(tmp_path / "model.json")
        return (tmp_path / "model.json").read_bytes(), [round_.metrics for round_ in rounds]

    transport = "tcp" if form == "dense" else "ipc"
    assert model(transport=transport, grid=(2, 1), servers=1) == model(transport="memory")


def trains_in_a_process():
    X, y = np.arange(8.0).reshape(8, 1), np.arange(8) > 3
    return len(psboost.train({}, X, y, num_boost_round=1, transport="tcp").trees) == 1


def test_the_current_folder_says_nothing_of_what_processes_are(tmp_path, monkeypatch):
    (tmp_path / "psboost").mkdir()
    for name in ("__init__.py", "__main__.py"):
        (tmp_path / "psboost" / name).write_text("raise ImportError('another one')")
    monkeypatch.chdir(tmp_path)
    assert trains_in_a_process()
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert trains_in_a_process()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_signal_while_training_leaves_nothing(training, number, code):
    with training() as command:
        nursery, members = members_of(command)
        os.kill(command.pid, number)
        assert command.end(20) == code, command
        check_gone(command, [nursery, *members], 1)
        assert "psboost train: interrupted" in command.stderr and "Traceback" not in command.stderr


@pytest.mark.parametrize("moment", ["loading", "joining"])
def test_signal_before_training_leaves_nothing(training, moment):
    """To the whole foreground group, as a terminal sends it."""
    with training() as command:
        if moment == "loading":
            time.sleep(0.5)
        else:
            until(lambda: len(descendants(command.pid)) > 3, 20, command)
        pids = descendants(command.pid)
        os.killpg(command.pid, signal.SIGINT)
        assert command.end(20) == 130, command
        check_gone(command, pids, 5)
        assert "Traceback" not in command.stderr


def test_members_end_when_the_parent_is_killed(training):
    with training() as command:
        nursery, members = members_of(command)
        os.kill(command.pid, signal.SIGKILL)
        check_gone(command, [nursery, *members])


@pytest.mark.parametrize("victim", ["worker", "both", "nursery"])
def test_a_killed_process_ends_all_and_is_named(training, victim):
    with training() as command:
        nursery, members = members_of(command)
        pid = {"worker": members[-1], "both": members[1], "nursery": nursery}[victim]
        os.kill(pid, signal.SIGKILL)
        assert command.end(30) == 1, command
        check_gone(command, [nursery, *members])
        name = {
            "worker": "worker 1,1", "both": "worker 0,1 and server 1", "nursery": "the process that starts the roles"
        }[victim]  # fmt: skip
        cause = f"{name} (pid {pid}) was ended by SIGKILL"
        assert [line for line in command.stderr.splitlines() if cause in line] == [f"psboost train: {cause}"], command


def test_a_stopped_worker_is_noticed_by_its_silence(training):
    with training(patch="import psboost.cluster.liveness as l; l.SILENCE_SECONDS = 2") as command:
        nursery, members = members_of(command)
        os.kill(members[2], signal.SIGSTOP)
        assert command.end(30) == 1, command
        check_gone(command, [nursery, *members])
        assert f"worker 1,0 (pid {members[2]}" in command.stderr
        assert "has not been heard of for 2 s" in command.stderr


def test_a_malformed_line_that_only_a_worker_reads_is_named(tmp_path):
    data = write_svmlight(tmp_path / "bad.svm")
    with open(data, "a") as file:
        file.write("1 3:4 oops:1\n")
    command = run_command(tmp_path, "train", data, "--model", "model.json", *GRID)
    assert command.end() == 2, command
    (line,) = [line for line in command.stderr.splitlines() if line.startswith("psboost train:")]
    assert f"{data}:121:" in line and "Traceback" not in command.stderr
    assert leftovers(tmp_path) == [] and not (tmp_path / "model.json").exists()
