"""Trains on random data with random settings, on one worker and in random places: the models must be the same, to the byte.

    python -m tests.fuzz                             # ten minutes, other data each time
    python -m tests.fuzz --seconds 60 --seed 1234    # from this seed on: a seed that is printed can be run again

No test of the suite: it prints what differs or fails, with its seed, and exits with 1.
"""

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np
from scipy import sparse

import psboost
from psboost.data import block
from psboost.roles import dealing
from psboost.roles.modes import BLOCK, MODES

_MOST_VALUES = 3_000_000


def make_data(rng, kind, n_rows, n_features, n_stored):
    """A CSR matrix with some popular features; of a kind of values, now and then with zeros and NaN."""
    columns = (n_features * rng.random((n_rows, n_stored)) ** (1 + 3 * rng.random())).astype(np.int64)
    real = rng.normal(size=columns.shape)
    values = {"ones": np.ones(columns.shape), "few": rng.integers(1, 6, columns.shape).astype(float), "real": real}
    values["mixed"] = np.where(rng.random(columns.shape) < 0.5, 1.0, real)
    held = values[kind]
    for odd, share in ((np.nan, 0.02), (0.0, 0.05)):
        if rng.random() < 0.2:
            held = np.where(rng.random(held.shape) < share, odd, held)
    rows = np.repeat(np.arange(n_rows), n_stored)
    _, first = np.unique(rows * n_features + columns.reshape(-1), return_index=True)  # a cell is stored once
    return sparse.csr_matrix((held.reshape(-1)[first], (rows[first], columns.reshape(-1)[first])), (n_rows, n_features))


def make_problem(rng):
    """(arguments of psboost.train, whether cut points are the same on every grid)"""
    kind = str(rng.choice(["ones", "few", "real", "mixed"]))
    n_rows, n_features = int(rng.choice([50, 500, 3_000, 20_000])), int(rng.choice([3, 30, 300, 5_000, 100_000]))
    n_stored = int(min(n_features, rng.choice([2, 15, 60, 150]), _MOST_VALUES // n_rows))
    X = make_data(rng, kind, n_rows, n_features, n_stored)
    if rng.random() < 0.5:  # as data often are: by time, or by what they are about
        by = X[:, int(rng.integers(min(n_features, 3)))].toarray()[:, 0]
        X = X[np.argsort(by, kind="stable")]
    weights = rng.normal(size=n_features) * (rng.random(n_features) < 0.3)
    weights[:3] *= rng.choice([1, 10])
    score = np.nan_to_num(X.data)
    score = sparse.csr_matrix((score, X.indices, X.indptr), X.shape) @ weights + rng.normal(size=n_rows)
    is_binary = rng.random() < 0.7
    sketch = str(rng.choice(["weighted", "exact", "kll"]))
    params = {
        "objective": "binary:logistic" if is_binary else "reg:squarederror", "max_depth": int(rng.choice([1, 3, 6, 8])),
        "max_bin": int(rng.choice([4, 32, 256])), "min_child_weight": float(rng.choice([0, 1, 5])), "sketch": sketch,
    }  # fmt: skip
    if rng.random() < 0.3:
        params["grad_bits"] = int(rng.choice([4, 8, 16, 32]))
    if rng.random() < 0.4:
        params["zero_as_missing"] = [True, False, "unstored"][rng.integers(3)]
    few_values = kind in ("ones", "few")
    if sketch == "weighted" and few_values and rng.random() < 0.5:
        params["sketch_every"] = int(rng.choice([1, 2]))
    arguments = {"params": params, "X": X, "y": (score > np.median(score)).astype(float) if is_binary else score}
    if rng.random() < 0.3:
        some_zero = rng.choice([0, 0.5, 1, 3], n_rows, p=[0.1, 0.3, 0.3, 0.3])
        arguments["sample_weight"] = some_zero if rng.random() < 0.5 else rng.random(n_rows) + 0.1
    if rng.random() < 0.5:
        other = make_data(rng, kind, int(rng.choice([20, n_rows])), n_features, n_stored)
        arguments["evals"] = [(other, (np.arange(other.shape[0]) % 2).astype(float), "other")]
    arguments |= {"num_boost_round": int(rng.integers(2, 6)), "transport": "memory"}
    return arguments, sketch == "exact" or (sketch == "weighted" and few_values)


def make_place(rng):
    mode = str(rng.choice([BLOCK, BLOCK, *MODES]))
    place = {"mode": mode, "grid": (int(rng.integers(1, 5)), 1), "threads": int(rng.integers(1, 4))}
    if mode == BLOCK:
        codec = str(rng.choice(["packed", "packed", "csr"]))
        place |= {"grid": (place["grid"][0], int(rng.integers(1, 4))), "servers": int(rng.integers(1, 4)), "codec": codec}
    return place


def model_of(forest, folder: Path) -> bytes:
    forest.save_model(folder / "model.json")
    return (folder / "model.json").read_bytes()


def try_one(seed: int, folder: Path) -> list[dict]:
    """The places in which another model was grown than by one worker without evaluation sets."""
    rng = np.random.default_rng(seed)
    arguments, same_cut_points = make_problem(rng)
    if len(np.unique(arguments["y"])) < 2:
        return []
    fill, block.DENSE_FILL = block.DENSE_FILL, 2.0 if rng.random() < 0.5 else block.DENSE_FILL
    work, dealing.WORK_OF_A_THREAD = dealing.WORK_OF_A_THREAD, 1
    try:
        first = psboost.train(**{name: value for name, value in arguments.items() if name != "evals"}, threads=1)
        expected, others = model_of(first, folder), []
        for _ in range(3):
            place = make_place(rng)
            is_given = "sketch_every" not in arguments["params"] and (not same_cut_points or rng.random() < 0.5)
            forest = psboost.train(**arguments, **place, bin_mapper=first.bin_mapper if is_given else None)
            others += [place] if model_of(forest, folder) != expected else []
        return others
    finally:
        block.DENSE_FILL, dealing.WORK_OF_A_THREAD = fill, work


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None, help="the first one; by default another each time")
    arguments = parser.parse_args()
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if arguments.seed is None else arguments.seed
    end, n_tried, n_wrong = time.monotonic() + arguments.seconds, 0, 0
    print(f"from seed {seed} on", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            while n_tried == 0 or time.monotonic() < end:
                try:
                    for place in try_one(seed, Path(folder)):
                        n_wrong += 1
                        print(f"seed {seed}: another model in {place}", flush=True)
                except Exception:
                    n_wrong += 1
                    print(f"seed {seed}:\n{traceback.format_exc()}", flush=True)
                seed, n_tried = seed + 1, n_tried + 1
        except KeyboardInterrupt:
            pass
    print(f"{n_tried} problems, {n_wrong} of them or of their places wrong")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
