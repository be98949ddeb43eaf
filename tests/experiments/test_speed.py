"""Knows that figures of speed are taken and kept, on tiny data; does not know what they are held to."""

import csv
import subprocess
import sys

import pytest

from experiments.reproduce import ROOT

COSTS = "CPU s a tree", "CPU s in all", "peak memory"
TIMES = {
    "CPU s a tree, twice the rows", "bytes of histograms, grid 4x1 over 2x1",
    *(f"{cost}, {n} times the declared features" for cost in COSTS for n in (10, 1000)),
}  # fmt: skip


@pytest.mark.parametrize(
    "shape, figures",
    [
        ("dense", {(name, "") for name in ("training", "scaling", "binning", "memory")}),
        ("rcv1", {("growth", note) for note in TIMES}),
    ],
)
def test_figures_are_taken(shape, figures, tmp_path):
    measures = ",".join({measure for measure, _ in figures})
    how = "--scale", "0.001", "--rounds", "2", "--repeats", "1", "--cache", str(tmp_path)
    command = [sys.executable, str(ROOT / "speed" / "run.py"), "--only", measures, "--shapes", shape, *how]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "Not measured" not in done.stdout, done.stdout + done.stderr
    with open(tmp_path / "results.csv", newline="") as file:
        taken = list(csv.DictReader(file))
    assert {(row["measure"], row["note"]) for row in taken} == figures
    assert all(row["shape"] == shape and float(row["value"]) > 0 for row in taken)
    controls = [row["who"] for row in taken if row["who"].startswith("random reads")]
    assert len(controls) == ("scaling" in measures)
