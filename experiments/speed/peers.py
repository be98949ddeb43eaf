"""Knows who is run beside whom, each in a process of its own and in turns; does not know what their figures are held to."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

CHILD = Path(__file__).with_name("child.py")
XGBOOST, LIGHTGBM = "XGBoost", "LightGBM"
# Ways to run them, as figures name them: predicting, and on several hosts.
BY_MATRIX, IN_PLACE = f"{XGBOOST}, DMatrix", f"{XGBOOST}, in place"
ROW_SPLIT, COLUMN_SPLIT = f"{XGBOOST}, row split", f"{XGBOOST}, column split"
DATA, VOTING = f"{LIGHTGBM}, data", f"{LIGHTGBM}, voting"
# LightGBM's own parameters by shape: where most are real values, a cell that is not stored is missing to the others, no 0.
LIGHTGBM_ON = {"bosch": {"zero_as_missing": True}}
ONE_THREAD = ", 1 thread"  # behind who is beside two threads of its own


def need(*packages: str) -> None:
    """Ends the process if some of them are not installed."""
    if missing := [package for package in packages if find_spec(package) is None]:
        sys.exit(f"{' and '.join(missing)} to measure beside: not installed here (pip install '.[bench]')")


class ChildError(RuntimeError):
    pass


def ask(job: dict) -> dict:
    """What child.py makes of a job; of a training that took longer than its `timeout`, {"unfinished": times so far}."""
    threads = str(job.get("threads", 1))
    environment = os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    done = subprocess.run(
        [sys.executable, str(CHILD)], input=json.dumps(job, default=str), env=environment, text=True, capture_output=True
    )
    if done.returncode:
        raise ChildError(f"{job} ended with code {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def in_turns(jobs: dict, repeats: int) -> dict:
    """{key: results}, a result of each job before the second of any; one that was not finished is a job's last."""
    results: dict = {key: [] for key in jobs}
    for _ in range(repeats):
        for key, job in jobs.items():
            if not (results[key] and is_unfinished(results[key][-1])):
                results[key].append(ask(job))
    return results


def is_unfinished(result: dict) -> bool:
    return "unfinished" in result


def training(program: str, folder: Path, threads: int, rounds: int, timeout: float | None = None, **more) -> dict:
    """The job of training on folder/train, for `timeout` seconds at most, and of predicting folder/test if that is there."""
    test = folder / "test"
    job = {"task": "train", "program": program, "train": folder / "train", "threads": threads, "rounds": rounds}
    return job | {"timeout": timeout} | ({"test": test} if test.exists() else {}) | more


def clock_of(threads: int) -> int:
    """Which of a pair of times counts: CPU seconds of one thread, as the machine may be shared, else wall clock."""
    return 1 if threads == 1 else 0


def unit_of(threads: int) -> str:
    return "CPU s" if threads == 1 else "s"
