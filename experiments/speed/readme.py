"""Knows how figures become tables, one in README.md and all in FIGURES.md; does not know how they were measured."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import peers
from datasets import GIVEN, KEPT, USED
from results import PATH, load, rounded, span
from shapes import SHAPES

README = Path(__file__).parents[2] / "README.md"
FIGURES = Path(__file__).with_name("FIGURES.md")
BEGIN, END = "<!-- figures: python experiments/speed/run.py --readme -->", "<!-- end of figures -->"
AGAIN = (
    "Only ratios hold from one machine to another. `python experiments/speed/run.py` measures again (`--only all` as root: "
    "with the shaped links)"
)


class Line(NamedTuple):
    """A line of the table in README.md: which figures it shows; all are in multiples of psboost's."""

    text: str
    measure: str
    whos: tuple[str, ...]  # of these, the one that comes closest
    note: str = ""  # how it begins


_MODES = peers.ROW_SPLIT, peers.COLUMN_SPLIT, peers.DATA, peers.VOTING
_LINK, _LINK_1X4 = "1gbit; of ", "1gbit; ratio: to psboost on a 1x4"
GLANCE = (
    Line("seconds a tree, binning apart: XGBoost `hist`, the matrix as given", "training", (f"{peers.XGBOOST}, {GIVEN}",)),
    Line("- the same without the columns that no row uses", "training", (f"{peers.XGBOOST}, {USED}",)),
    Line("- the same without the columns of fewer than 4 rows", "training", (f"{peers.XGBOOST}, {KEPT}",)),
    Line("- psboost itself on one thread, beside two", "scaling", (f"psboost{peers.ONE_THREAD}",)),
    Line(
        "from the matrix to 100 trees: XGBoost or LightGBM, the quicker, both without columns of fewer than 4 rows", "raw",
        (peers.XGBOOST, peers.LIGHTGBM),
    ),
    Line(
        "binning alone: XGBoost, the quickest of the three ways", "binning",
        tuple(f"{peers.XGBOOST}, {way}" for way in (GIVEN, USED, KEPT)),
    ),
    Line("peak memory: XGBoost, the matrix as given", "memory", (f"{peers.XGBOOST}, {GIVEN}",)),
    Line(
        "predicting a row on one thread: XGBoost, by `DMatrix` or in place; least of 100 and 1,000 trees of depth 6 and 8",
        "prediction", (peers.BY_MATRIX, peers.IN_PLACE),
    ),
    Line("bytes between four hosts, grid 2x2: XGBoost, row split", "bytes", (peers.ROW_SPLIT,), _LINK),
    Line("- LightGBM, `data`", "bytes", (peers.DATA,), _LINK),
    Line("- XGBoost, column split, beside a grid of 1x4", "bytes", (peers.COLUMN_SPLIT,), _LINK_1X4),
    Line("seconds a tree on four hosts, 1 Gbit/s each: XGBoost or LightGBM, the quickest mode", "wall", _MODES, _LINK),
    Line("from files to 20 trees on four hosts: the quickest mode", "raw wall", _MODES, _LINK),
)  # fmt: skip
TABLES = {  # measure: what is in its table
    "training": "**Seconds a tree** (depth 6, 256 bins, learning rate 0.3; binning apart), psboost's, and how many times as "
    "long XGBoost `hist` takes. It pays for declared columns, so it is run three ways; psboost gets the matrix as given. "
    "One thread: CPU seconds; two: wall clock. AUC is on 20,000 other rows, after 20 trees.",
    "raw": "**From the matrix in memory to 100 trees**, everything included; XGBoost and LightGBM start without the columns "
    "of fewer than 4 rows. A peer that was not finished counts with the time that it had had.",
    "binning": "**Binning alone**: from the matrix in memory to the first tree; of XGBoost, `QuantileDMatrix`.",
    "memory": "**Peak memory** of the process that trains, the matrix included.",
    "prediction": "**Predicting a row**, one thread, with the same forest, to the same margins; XGBoost without the unused "
    "columns.",
    "bytes": "**Bytes** on four hosts, 2x2 grid and two servers: counted at their interfaces, and how many times as many "
    "peers send.",
    "wall": "**Seconds a tree on four hosts**, each on a link of its own.",
    "raw wall": "**On four hosts, from the start of the processes to 20 trees.**",
}
QUALITY = (
    "**AUC** of 20 trees on 20,000 other rows, mean over samples of four fifths of the training rows; in brackets the least "
    "and the most, and of the difference two standard errors each way, of samples that overlap and one set of test rows."
)
STAGES = (
    "**Where a tree's time goes**, wall clock, on one thread / on two. The last line is the limit: to read the cells and "
    "gradients of all rows whose histograms are built, in order, as fast as memory gives them."
)
_ALL = "of 20 trees"  # what notes say of most figures on several hosts
BY_SHAPE = {  # measure: how its lines begin
    "scaling": "on two threads, times as quick as on one: ",
    "growth": "",
    "entropy": "histograms of a 2x2 grid: ",
}


def write() -> None:
    """Puts the table at a glance between README.md's markers, and all tables into FIGURES.md."""
    text, rows = README.read_text(), load(PATH)
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"README.md must hold {BEGIN} and {END} once each")
    before, rest = text.split(BEGIN)
    README.write_text(f"{before}{BEGIN}\n{glance(rows)}\n{END}{rest.split(END)[1]}")
    FIGURES.write_text(f"# Figures\n{tables(rows)}\n")


def glance(rows: list[dict]) -> str:
    """A line for each of GLANCE, a column for each shape: how many times as much as psboost the peer takes that takes least;
    on one thread / on two, where both were measured."""
    if not rows:
        return "\nNothing has been measured yet."
    rows, when, where = _dated([row for row in rows if any(_is_of(row, line) for line in GLANCE)])
    shapes = [shape for shape in SHAPES if any(row["shape"] == shape for row in rows)]
    table = [["", *shapes]]
    for line in GLANCE:
        of_line = [row for row in rows if _is_of(row, line)]
        table.append([line.text, *(_closest([row for row in of_line if row["shape"] == shape]) for shape in shapes)])
    return (
        f"\nMeasured {when} on {where}. How many times as much as psboost the peer takes, medians of runs in turns; one "
        f"thread / two threads:\n\n{_table(table)}\n\n{AGAIN}; `experiments/speed/FIGURES.md` has all figures, in seconds, "
        "megabytes and bytes, with their spread, and the versions of all programs."
    )


def _is_of(row: dict, line: Line) -> bool:
    of_measure = row["measure"] == line.measure and row["who"] in line.whos
    return of_measure and row["note"].startswith(line.note) and bool(row["ratio"])


def _closest(rows: list[dict]) -> str:
    least = []
    for threads in sorted({row["threads"] for row in rows}):
        row = min((row for row in rows if row["threads"] == threads), key=lambda row: float(row["ratio"]))
        least.append(f"{_unfinished(row)}{rounded(float(row['ratio']))}{row['mark']}")
    return " / ".join(least)


def tables(rows: list[dict]) -> str:
    if not rows:
        return "\nNothing has been measured yet."
    rows, when, where = _dated(rows)
    versions = "; or ".join(dict.fromkeys(row["versions"] for row in rows))
    parts = [
        f"\nMeasured {when} on {where}, with {versions}. Median, and in brackets the least and the most, of runs in "
        f"turns. {AGAIN}, and keeps every figure in `results.csv`, of which `--readme` makes these tables."
    ]
    parts += [f"{text}\n\n{_pivot(of, measure)}" for measure, text in TABLES.items() if (of := _of(rows, measure))]
    if of := _of(rows, "quality"):
        parts.append(f"{QUALITY}\n\n{_by_shape(of)}")
    if of := [row for measure in BY_SHAPE for row in _of(rows, measure)]:
        parts.append(f"**Growth**: how many times as much, where not said otherwise.\n\n{_by_shape(of)}")
    if of := _of(rows, "stages"):
        parts.append(f"{STAGES}\n\n{_by_shape(of)}")
    if of := _of(rows, "start"):
        parts.append("**Start.**\n\n" + _table([["what", ""], *([row["note"], _value(row)] for row in of)]))
    return "\n\n".join(parts)


def _dated(rows: list[dict]) -> tuple[list[dict], str, str]:
    """The rows as _marked has them, when they were measured, and where."""
    dates = sorted({row["date"] for row in rows})
    marked, machines = _marked(rows)
    return marked, dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}", machines


def _marked(rows: list[dict]) -> tuple[list[dict], str]:
    """The rows, each with a "mark" of one star for the second machine, two for the third; and what the marks say."""
    machines = [name for name, _ in Counter(row["machine"] for row in rows).most_common()]
    marks = {name: "*" * i for i, name in enumerate(machines)}
    spelled = [name + (f" (figures with {marks[name]})" if marks[name] else "") for name in machines]
    return [row | {"mark": marks[row["machine"]]} for row in rows], " and on ".join(spelled)


def _of(rows: list[dict], measure: str) -> list[dict]:
    """In the order of the shapes."""
    order = [*SHAPES, ""]
    return sorted((row for row in rows if row["measure"] == measure), key=lambda row: order.index(row["shape"]))


def _table(rows: list[list[str]]) -> str:
    """The first row is the head."""
    rows = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def _pivot(rows: list[dict], measure: str) -> str:
    """A line for each shape, number of threads and first part of the note; a column for psboost and for each peer."""
    whos = ["psboost", *dict.fromkeys(row["who"] for row in rows if row["who"] != "psboost")]
    lines: dict[tuple, dict] = {}
    for row in rows:
        line = lines.setdefault((row["shape"], row["threads"], row["note"].split("; ")[0]), {})
        line.setdefault(row["who"], []).append(row)
    threaded = len({threads for _, threads, _ in lines}) > 1
    noted = any(note for *_, note in lines)
    with_auc = measure == "training"
    head = ["shape", *(["threads"] if threaded else []), *(["of"] if noted else []), *whos, *(["AUC"] if with_auc else [])]
    table = [head]
    for (shape, threads, note), line in lines.items():
        cells = [shape, *([threads] if threaded else []), *([note] if noted else [])]
        cells += ["; ".join(map(_cell, line[who])) if who in line else _absent(who) for who in whos]
        table.append(cells + ([_aucs(line)] if with_auc else []))
    return _table(table)


def _absent(who: str) -> str:
    """A matrix without columns to remove is not trained on twice."""
    return "the same" if who.endswith("removed") else ""


def _value(row: dict) -> str:
    unit = "" if row["unit"] in ("", "times", "AUC") else f" {row['unit']}"
    return f"{rounded(float(row['value']))}{unit}{_spread(row)}{row['mark']}"


def _cell(row: dict) -> str:
    """psboost's value; a peer's in multiples of it."""
    if not row["ratio"]:
        return f"{rounded(float(row['value']))} {row['unit']}{row['mark']}"
    remark = "".join(f" ({part.removeprefix('ratio: ')})" for part in row["note"].split("; ")[1:] if part != _ALL)
    ratio = float(row["ratio"])
    return f"{_unfinished(row)}{rounded(ratio)}x{_spread(row)}{remark}{row['mark']}"


def _unfinished(row: dict) -> str:
    return "over " if "not finished" in row["unit"] else ""


def _spread(row: dict) -> str:
    if not row["least"] or row["repeats"] == "1":
        return ""
    return f" ({span(float(row['least']), float(row['most']))})"


def _aucs(line: dict) -> str:
    """psboost's / XGBoost's on the matrix as given."""
    return " / ".join(f"{float(of_who[0]['auc']):.4f}" for of_who in list(line.values())[:2])


def _by_shape(rows: list[dict]) -> str:
    """A line for each thing, a column for each shape; on one thread / on two, where there are both."""
    shapes = [shape for shape in SHAPES if any(row["shape"] == shape for row in rows)]
    lines: dict[str, dict] = {}
    for row in rows:
        detail = row["note"] if row["measure"] in ("growth", "stages") else row["who"]
        value = f"{rounded(float(row['ratio']))}{_spread(row)}{row['mark']}" if row["ratio"] else _value(row)
        what = BY_SHAPE.get(row["measure"], "") + detail.removesuffix(peers.ONE_THREAD)
        lines.setdefault(what, {}).setdefault(row["shape"], []).append(value)
    cells = [[what, *(" / ".join(of.get(shape, "")) for shape in shapes)] for what, of in lines.items()]
    return _table([["what", *shapes], *cells])
