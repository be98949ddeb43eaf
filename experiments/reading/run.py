"""Knows open_source and scikit-learn's loader: how fast each reads svmlight text; does not know kernels.

python experiments/reading/run.py [--megabytes 48] [--repeats 5] [--out results.json]
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from psboost.data.source import open_source

KINDS = {
    "one_hot": "1 17:1 523:1: every value is 1",
    "mixed": "1 17:1 523:0.0312: half ones, half numbers of 3 digits",
    "float32": "1 17:0.077934693: 9 digits, as float32 is written",
    "float64": "1 17:0.07793469312345678: 16 or 17 digits, as dump_svmlight_file writes float64",
}


def write(path: Path, kind: str, n_bytes: int) -> None:
    """Write about n_bytes of svmlight text of this kind: 100 values per row in 3 million columns."""
    rng = np.random.default_rng(1)
    lines = []
    for _ in range(2000):
        columns = np.unique((3e6 * rng.random(100) ** 3).astype(int)) + 1
        numbers = rng.random(len(columns))
        written = {
            "one_hot": ["1"] * len(columns),
            "mixed": [f"{v:.3g}" if v < 0.5 else "1" for v in numbers],
            "float32": [f"{v:.9g}" for v in numbers.astype(np.float32)],
            "float64": [f"{v:.16g}" for v in numbers],
        }[kind]
        pairs = " ".join(f"{column}:{value}" for column, value in zip(columns, written, strict=True))
        lines.append(f"{rng.integers(2)} {pairs}\n")
    block = "".join(lines).encode()
    with path.open("wb") as file:
        for _ in range(max(1, n_bytes // len(block))):
            file.write(block)


def read(path):
    source = open_source(path)
    return source.read(source.spans(1)[0])


def count(path):
    source = open_source(path)
    return source.count(source.spans(1)[0])


def keep_some(path, keep):
    source = open_source(path)
    return source.read(source.spans(1)[0], keep)


def spread(numbers):
    return {"median": statistics.median(numbers), "least": min(numbers), "most": max(numbers)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core for all
    report = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, what in KINDS.items():
            path = Path(folder) / f"{kind}.svm"
            write(path, kind, options.megabytes << 20)
            features = count(path).features
            keep = np.random.default_rng(2).permutation(features)[: len(features) // 8]
            runs = {"read": lambda p: read(p), "count": count, "keep 1/8": lambda p, k=keep: keep_some(p, k)}
            megabytes = path.stat().st_size / 1e6
            speeds = {name: [] for name in runs}
            ratios = []
            for _ in range(options.repeats):
                for name, run in runs.items():
                    begin = time.process_time()
                    run(path)
                    speeds[name].append(megabytes / (time.process_time() - begin))
                begin = time.process_time()
                load_svmlight_file(str(path), dtype=np.float32)
                ratios.append(speeds["read"][-1] / (megabytes / (time.process_time() - begin)))
            report[kind] = {name: spread(values) for name, values in speeds.items()} | {
                "ratio": spread(ratios)
            }
            print(f"{kind} ({what}), {megabytes:.0f} MB")
            for name, values in report[kind].items():
                unit = "x scikit-learn's" if name == "ratio" else "MB/s"
                low, high = values["least"], values["most"]
                print(f"  {name:10} {values['median']:7.1f} ({low:.1f}..{high:.1f}) {unit}")
            path.unlink()
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
