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
STAGES = {
    "a tree", "gradients", "build", "search", "choose", "route", "update", "messages, and waiting for threads",
    "reading once, at memory's bandwidth",
}  # fmt: skip


@pytest.mark.parametrize(
    "shape, figures",
    [
        ("dense", {(name, "") for name in ("training", "scaling", "binning", "memory")}),
        ("rcv1", {("growth", note) for note in TIMES}),
        ("bosch", {("stages", note) for note in STAGES}),
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


ROWS = """measure,shape,who,threads,value,unit,ratio,least,most,note,repeats,date,machine
training,url,psboost,1,0.1,CPU s a tree,,,,,3,2026-01-01,here
training,url,"XGBoost, as given",1,6,CPU s a tree,60,50,70,,3,2026-01-01,here
training,url,"XGBoost, as given",2,3,s a tree,55,50,70,,3,2026-01-02,there
raw,url,XGBoost,1,99,CPU s for 100 trees: not finished,9.9,9,10,,1,2026-01-02,here
raw,url,LightGBM,1,120,CPU s for 100 trees,12,11,13,,1,2026-01-02,here
wall,url,"LightGBM, data",1,1,s a tree,2,1,3,1gbit; of 20 trees,3,2026-01-02,here
wall,url,"LightGBM, data",1,1,s a tree,1.5,1,3,"1gbit, real-time; of 20 trees",3,2026-01-02,here
bytes,url,"XGBoost, row split",1,1,MB a tree,800,1,3,1gbit; of 20 trees,3,2026-01-02,here
start,,psboost,1,1,s,,,,import psboost,3,2026-01-03,elsewhere
"""


def _run(code: str) -> str:
    """What some code prints that imports the modules of experiments/speed."""
    code = f"import sys; from pathlib import Path; sys.path.insert(0, {str(ROOT / 'speed')!r}); {code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT.parent).stdout


def test_table_at_a_glance_has_the_peer_that_comes_closest(tmp_path):
    (tmp_path / "results.csv").write_text(ROWS)
    code = f"import readme, results; print(readme.glance(results.load(Path({str(tmp_path / 'results.csv')!r}))))"
    lines = _run(code).splitlines()
    assert any(line.startswith("Measured 2026-01-01 to 2026-01-02 on here and on there (figures with *).") for line in lines)
    cells = [line.split("|")[2].strip() for line in lines if line.startswith("|")]
    assert cells[0] == "url" and [cell for cell in cells[2:] if cell] == ["60 / 55*", "over 9.9", "800", "2"]


def test_parts_for_hosts_hold_all_and_as_much(tmp_path):
    code = (
        f"import wire; data = wire.data_of('rcv1', 0.01, Path({str(tmp_path)!r})); "
        "paths = [data.train, *data.parts('row'), *data.parts('column')]; "
        "print(*(n for X, _ in map(wire.load, paths) for n in (*X.shape, X.nnz)))"
    )
    (rows, columns, stored), *of_parts = zip(*3 * [map(int, _run(code).split())], strict=True)
    by_row, by_column = of_parts[:4], of_parts[4:]
    assert all(part[:2] == (rows // 4, columns) for part in by_row) and sum(n for *_, n in by_row) == stored
    assert all(n == rows for n, _, _ in by_column) and sum(n for _, n, _ in by_column) == columns
    assert sum(n for *_, n in by_column) == stored
    assert all(abs(n - stored / 4) < 0.02 * stored for *_, n in by_column)
