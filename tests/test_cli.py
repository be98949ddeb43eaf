"""Knows what the psboost command says to wrong flags and wrong data, and what it leaves behind; not how it trains."""

import fcntl
import gzip
import json
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import psboost
from psboost.cli import run
from psboost.errors import DataError
from psboost.kernels import prepare
from tests.cluster.command import environment, write_svmlight


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    write_svmlight(tmp_path / "train.svm")


def train(*arguments):
    return run(["train", "--transport", "memory", "--num-boost-round", "2", *map(str, arguments)])


def check_refused(tmp_path, capsys, code, said, before):
    """One clear line, exit code 2, no file that was not there."""
    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == "" and said in printed.err and len(printed.err.splitlines()) == 1, printed.err
    assert {path.name for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.svm"], "nothing.svm: no such file"),
        (["."], "is a directory"),
        (["train.svm", "--model", "missing/m.json"], "there is no folder missing"),
        (["train.svm", "--report", "missing/r.json"], "there is no folder missing"),
        (["train.svm", "--model", "folder"], "folder is a directory"),
        (["train.svm", "--model", "."], ". is a directory"),
        (["train.svm", "--model", "nowhere/"], "--model must be the path of a file, not 'nowhere/'"),
        (["train.svm", "--report", "-"], "-: name a file"),
        (["train.svm", "--config", ""], "--config must be the path of a file, not ''"),
        (["train.svm", "--grid", "0x2"], "--grid must be ROWSxFEATURES"),
        (["train.svm", "--servers", "0"], "--servers must be a whole number from 1"),
        (["train.svm", "--transport", "pigeon"], "--transport must be one of tcp"),
        (["train.svm", "--config", "none.toml"], "cannot read the configuration none.toml"),
        (["train.svm", "--bin-mapper", "none.npz"], "none.npz"),
        (["train.svm", "--bin-mapper", "train.svm"], "train.svm is no bin mapper: not an .npz file"),
        (["train.svm", "--eval", "x=none.svm"], "none.svm: no such file"),
        (["empty.svm"], "no rows"),
        (["one-class.svm"], "class"),
        (["malformed.svm"], "malformed.svm:2:"),
        (["zipped.svm"], ": this is a gzip file: give it a name that ends with .gz"),
        (["archive.svm"], ": this is a zip archive, as .npz files are: give it a name that ends with .npz"),
        (["train.svm", "--eval", "x=weights.npz"], "weights.npz: 'weights' in it would not be read: metrics have no"),
        (["train.svm", "--model", "./train.svm"], "train.svm would take the place of train.svm"),
        (["train.svm", "--model", "m.json", "--report", "m.json"], "m.json would take the place of m.json"),
        (["train.svm", "--eval", "x=empty.svm", "--report", "empty.svm"], "empty.svm would take the place of empty.svm"),
        (["train.svm", "--config", "c.toml", "--report", "c.toml"], "c.toml would take the place of c.toml"),
        (["train.svm", "--bin-mapper", "b.npz", "--report", "b.npz"], "b.npz would take the place of b.npz"),
    ],
)
def test_bad_input_is_refused(tmp_path, capsys, arguments, said):
    (tmp_path / "folder").mkdir()
    (tmp_path / "c.toml").touch()
    (tmp_path / "b.npz").touch()
    (tmp_path / "empty.svm").write_text("# nothing\n")
    (tmp_path / "one-class.svm").write_text("1 1:1\n1 2:1\n")
    (tmp_path / "malformed.svm").write_text("1 1:1\n0 x:1\n")
    (tmp_path / "zipped.svm").write_bytes(gzip.compress(b"1 1:1\n0 2:1\n"))
    held = {"indptr": [0, 1, 2], "indices": [0, 1], "data": [1.0, 1.0], "shape": [2, 2], "y": [1, 0], "weights": [1, 2]}
    for name in ("archive.svm", "weights.npz"):
        with open(tmp_path / name, "wb") as file:
            np.savez(file, **held)
    before = {path.name for path in tmp_path.rglob("*")}
    model = [] if "--model" in arguments else ["--model", "m.json"]
    check_refused(tmp_path, capsys, train(*arguments, "--quiet", *model), said, before)


def test_unknown_variables_and_flags_are_refused(tmp_path, capsys, monkeypatch):
    with pytest.raises(SystemExit, match="2"):
        train("train.svm", "--model", "m.json", "--grdi", "1x2")
    said = capsys.readouterr().err
    assert "usage: psboost train" in said and "unrecognized arguments: --grdi 1x2; did you mean --grid?" in said
    for flag in ("--subsample=0.5", "--colsample_bytree=1", "--n-jobs"):
        with pytest.raises(SystemExit, match="2"):
            train("train.svm", "--model", "m.json", flag)
        assert f"{flag.partition('=')[0]} is no flag of psboost: " in capsys.readouterr().err
    monkeypatch.setenv("PSBOOST_GRDI", "1x2")
    code = train("train.svm", "--model", "m.json", "--quiet")
    check_refused(tmp_path, capsys, code, "PSBOOST_GRDI in the environment; did you mean PSBOOST_GRID?", {"train.svm"})


def test_roles_of_other_processes_need_sockets(tmp_path, capsys):
    arguments = ["coordinator", "train.svm", "--model", "m.json", "--rendezvous"]
    code = run([*arguments, "127.0.0.1:0", "--transport", "memory"])
    check_refused(tmp_path, capsys, code, "need tcp or ipc", {"train.svm"})
    check_refused(tmp_path, capsys, run([*arguments, "127.0.0.1"]), "HOST:PORT", {"train.svm"})
    check_refused(tmp_path, capsys, run([*arguments, "127.0.0.1:65536"]), "HOST:PORT", {"train.svm"})
    check_refused(tmp_path, capsys, run(["worker", "--rendezvous", "::1:5"]), "HOST:PORT", {"train.svm"})
    for nowhere in ("127.0.0.1:0", "tcp://127.0.0.1:*"):
        check_refused(tmp_path, capsys, run(["worker", "--rendezvous", nowhere]), "give the port that", {"train.svm"})


def test_prediction_without_its_model_or_data_is_refused(tmp_path, capsys):
    code = run(["predict", "none.json", "train.svm", "--out", "p.txt"])
    check_refused(tmp_path, capsys, code, "none.json", {"train.svm"})


def test_flags_that_would_do_nothing_are_refused(tmp_path, capsys):
    assert train("train.svm", "--model", "m.json", "--quiet") == 0
    before = {path.name for path in tmp_path.iterdir()}
    predict = ["predict", "m.json", "train.svm", "--out", "p.txt"]
    for flag, value in (("--report", "r.json"), ("--servers", "1"), ("--transport", "tcp")):
        check_refused(tmp_path, capsys, run([*predict, flag, value]), f"{flag} is for block-distributed", before)
    check_refused(tmp_path, capsys, run([*predict, "--grid", "2x1", "--threads", "2"]), "--threads is for", before)
    check_refused(tmp_path, capsys, run([*predict[:-1], "train.svm"]), "would take the place of train.svm", before)


@pytest.mark.parametrize(
    "arguments",
    [["worker", "--rank", "-7"], ["members", "--workers", "2", "--first-worker", "-2"], ["members", "--workers", "-1"]],
)
def test_ranks_below_0_are_refused(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        run([*arguments, "--rendezvous", "127.0.0.1:5555"])
    assert "give a whole number, 0 or more" in capsys.readouterr().err


def test_a_bin_mapper_may_be_written_where_it_was(tmp_path):
    assert train("train.svm", "--model", "m.json", "--quiet") == 0
    before = (tmp_path / "m.bins.npz").read_bytes()
    assert train("train.svm", "--model", "m.json", "--bin-mapper", "m.bins.npz", "--quiet") == 0
    assert (tmp_path / "m.bins.npz").read_bytes() == before


def shell(command):
    """By a shell, with $psboost for the command."""
    there = environment(psboost=f"{sys.executable} -m psboost")
    there.pop("PYTHONUNBUFFERED", None)  # as users have it: what cannot be written is tried again when the process ends
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, env=there)
    return done.returncode, done.stdout, done.stderr


def test_what_is_written_may_go_into_a_pipe(tmp_path):
    assert train("train.svm", "--model", "m.json", "--quiet") == 0
    assert run(["predict", "m.json", "train.svm", "--out", "p.txt"]) == 0
    for out in (">(cat)", "/dev/stdout | cat", "-", "/dev/stdout > q.txt; cat q.txt"):
        assert shell(f"$psboost predict m.json train.svm --out {out}") == (0, (tmp_path / "p.txt").read_text(), "")
    options = "--transport memory --num-boost-round 2 --quiet --model /dev/stdout"
    assert shell(f"$psboost train train.svm {options} | cat") == (0, (tmp_path / "m.json").read_text(), "")
    assert {path.name for path in tmp_path.iterdir()} == {"train.svm", "m.json", "m.bins.npz", "p.txt", "q.txt"}
    added = "echo first > q.txt; $psboost predict m.json train.svm --out /dev/stdout >> q.txt; head -n 1 q.txt"
    assert shell(added) == (0, "first\n", "")


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-"])
def test_nobody_has_to_read_what_is_said(tmp_path, stderr):
    assert train("train.svm", "--model", "m.json", "--quiet") == 0
    options = "--transport memory --num-boost-round 2 --model n.json"
    assert shell(f"$psboost train train.svm {options} {stderr}")[0] == 0
    assert (tmp_path / "n.json").read_bytes() == (tmp_path / "m.json").read_bytes()
    assert shell(f"$psboost predict n.json nothing.svm --out p {stderr}")[0] == 2


def test_a_full_disk_is_said_once(tmp_path):
    code, out, said = shell("cp train.svm t.svm; $psboost train t.svm --num-boost-round 1 --model n.json >/dev/full")
    assert (code, out, said.count("No space left")) == (1, "", 1)
    assert (tmp_path / "n.json").exists()


def test_what_is_missing_is_noticed_before_anything_is_compiled(monkeypatch, capsys, tmp_path):
    def compile_kernels(*_, **__):
        raise AssertionError

    monkeypatch.setattr("psboost.training.prepare_kernels", compile_kernels)
    monkeypatch.setattr("psboost.boosting.forest.prepare", compile_kernels)
    for arguments in (["none.svm"], ["train.svm", "--eval", "x=none.svm"], ["train.svm", "--labels", "none.npy"]):
        check_refused(tmp_path, capsys, train(*arguments, "--model", "m.json"), "no such file", {"train.svm"})
    for data, model in (("train.svm", "none.json"), ("none.svm", "train.svm")):
        code = run(["predict", model, data, "--out", "p.txt"])
        check_refused(tmp_path, capsys, code, "none", {"train.svm"})
    for model in ("-", "m.UBJ"):
        assert train("train.svm", "--model", model) == 2
    (tmp_path / "x.parquet").touch()
    with pytest.raises(DataError, match="files of this kind are not read"):
        psboost.train({}, "x.parquet")


def test_the_version_goes_to_stdout(capsys):
    with pytest.raises(SystemExit, match="0"):
        run(["--version"])
    assert capsys.readouterr() == (f"psboost {psboost.__version__}\n", "")


def test_a_metric_that_is_no_number_is_null_in_the_report(tmp_path):
    (tmp_path / "one-class.svm").write_text("1 1:1\n1 2:1\n")
    assert train("train.svm", "--model", "m.json", "--report", "r.json", "--eval", "x=one-class.svm", "--quiet") == 0
    report = json.loads((tmp_path / "r.json").read_text(), parse_constant=pytest.fail)
    assert report["evaluation"]["x-auc"] == [None, None]


def test_training_writes_model_bin_mapper_and_report(tmp_path, capsys):
    assert train("train.svm", "--model", "m.json", "--report", "r.json", "--eval", "again=train.svm") == 0
    printed = capsys.readouterr()
    assert [line.split("]")[0] for line in printed.err.splitlines()] == ["[0", "[1"]
    assert "120 rows, 30 features declared" in printed.out and "model: m.json" in printed.out
    report = json.loads((tmp_path / "r.json").read_text())
    assert {"read", "sketch", "bin", "train"} <= report["seconds"].keys() and report["trees"] == 2
    assert {path.name for path in tmp_path.iterdir()} == {"train.svm", "m.json", "m.bins.npz", "r.json"}
    assert train("train.svm", "--model", "same.json", "--bin-mapper", "m.bins.npz", "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    assert (tmp_path / "same.json").read_bytes() == (tmp_path / "m.json").read_bytes()


def test_predictions_are_one_number_a_line(tmp_path, capsys):
    assert train("train.svm", "--model", "m.json", "--quiet") == 0
    assert run(["predict", "m.json", "train.svm", "--out", "p.txt"]) == 0
    predictions = np.loadtxt(tmp_path / "p.txt")
    assert predictions.shape == (120,) and np.all((predictions > 0) & (predictions < 1))
    assert run(["predict", "m.json", "train.svm", "--out", "q.txt", "--threads", "3"]) == 0
    assert (tmp_path / "q.txt").read_text() == (tmp_path / "p.txt").read_text()
    assert run(["predict", "m.json", "train.svm", "--out", "r.txt", "--threads", "0"]) == 2
    assert "threads must be a whole number from 1 to 1024, not 0" in capsys.readouterr().err
    assert not (tmp_path / "r.txt").exists()


def test_zeros_mean_what_the_model_says_unless_told_otherwise(tmp_path, capsys):
    (tmp_path / "zeros.svm").write_text("".join(f"{row % 2} {1 + row % 2}:0 3:1\n" for row in range(40)))

    def predictions(*arguments):
        assert run(["predict", "m.json", "zeros.svm", "--out", "p.txt", *arguments]) == 0
        return np.loadtxt(tmp_path / "p.txt")

    for rule, learns in (("auto", True), ("unstored", True), ("true", False), ("false", False)):
        given = ["--zero-as-missing", rule, "--min-child-weight", "0", "--quiet"]
        assert train("zeros.svm", "--model", "m.json", *given) == 0
        found = predictions()
        assert (len(set(found.tolist())) == 2) == learns
        np.testing.assert_array_equal(predictions("--grid", "2x2", "--transport", "memory"), found)
        model = (tmp_path / "m.json").read_text()
        assert f'"psboost.zero_as_missing":"{rule.replace("auto", "unstored")}"' in model
        if rule == "unstored":
            (tmp_path / "m.json").write_text(model.replace('"psboost.zero_as_missing":"unstored",', ""))
            np.testing.assert_array_equal(predictions(), found)  # as in a model of XGBoost's own
            np.testing.assert_array_equal(predictions("--grid", "1x2", "--transport", "memory"), found)
            for other in ("true", "false"):
                assert len(set(predictions("--zero-as-missing", other).tolist())) == 1
    capsys.readouterr()
    code = train("zeros.svm", "--model", "m.json", "--quiet", "--zero-as-missing", "maybe")
    before = {path.name for path in tmp_path.iterdir()}
    said = "--zero-as-missing must be one of true, false, unstored, not 'maybe'"
    check_refused(tmp_path, capsys, code, said, before)
    with pytest.raises(SystemExit, match="2"):
        predictions("--zero-as-missing", "maybe")


def test_disk_trouble_is_one_line(tmp_path, capsys, monkeypatch):
    def full(self, path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("psboost.boosting.forest.Forest.save_model", full)
    assert train("train.svm", "--model", "m.json", "--quiet") == 1
    assert capsys.readouterr().err == "psboost train: [Errno 28] No space left on device: 'm.json'\n"


def test_members_are_some(capsys):
    assert run(["members", "--rendezvous", "tcp://127.0.0.1:9"]) == 2
    assert "give --workers N or --servers N" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["", "train", "predict", "coordinator", "server", "worker", "members"])
def test_help(capsys, command):
    with pytest.raises(SystemExit, match="0"):
        run([*filter(None, [command]), "--help"])
    text = capsys.readouterr().out
    assert len(text.splitlines()) > 8 and "None" not in text and "==SUPPRESS==" not in text


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("psboost, psboost.cli", ["numpy", "scipy", "numba", "zmq"]),
        ("psboost.cluster.processes, psboost.cluster.nursery, psboost.cluster.member", ["scipy", "numba"]),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_used(modules, heavy):
    program = f"import {modules}, sys; sys.exit(str([m for m in {heavy} if m in sys.modules] or ''))"
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True)
    assert done.stderr.strip() == "", done.stderr


def test_one_process_compiles_and_the_others_wait_and_say_so(tmp_path, monkeypatch):
    said, compiled = [], []
    monkeypatch.setattr(prepare, "CACHE_FOLDER", tmp_path)
    monkeypatch.setattr(prepare, "_compile", lambda modules: compiled.append(time.sleep(0.1)))
    threads = [threading.Thread(target=prepare.prepare, args=("train",), kwargs={"say": said.append}) for _ in range(3)]
    with open(tmp_path / "lock", "w") as of_another_process:
        fcntl.flock(of_another_process, fcntl.LOCK_EX)
        for thread in threads:
            thread.start()
        while not said:
            time.sleep(0.01)
        assert said == ["waiting for another process, which is compiling"] and not compiled
    for thread in threads:
        thread.join()
    assert len(compiled) == 1 and len(said) == 2 and said[1].startswith("compiling what it takes to train: once")


def test_compiling_that_fails_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "CACHE_FOLDER", tmp_path)

    compiled = []

    def fail(modules):
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare, "_compile", fail)
    with pytest.raises(KeyboardInterrupt):
        prepare.prepare("train", say=None)
    said = []
    monkeypatch.setattr(prepare, "_compile", compiled.append)
    dense = ("dense", "16 bits", "squared error")
    for jobs, variants in ((["train"], [()]), (["train", "merge"], [()]), (["merge", "train"], [dense, ()])):
        prepare.prepare(*jobs, variants=variants, say=said.append)
    held = {job: [(name, ()) for name in prepare.JOBS[job]] for job in ("train", "merge")}
    of_dense = [(name, dense) for job in ("merge", "train") for name in prepare.JOBS[job]]
    assert compiled == [held["train"], held["merge"], of_dense]
    prepare.prepare("predict", variants=[prepare.SELDOM], say=None)
    prepare.prepare("predict", variants=[dense, ("wide rows", "32 bits", "logistic loss")], say=said.append)
    assert len(compiled) == 4
    assert [text.partition(":")[0].removeprefix("compiling what it takes to ") for text in said] == [
        "train", "merge", "merge (dense, 16 bits, squared error), train (dense, 16 bits, squared error)"
    ]  # fmt: skip
