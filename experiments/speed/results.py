"""Knows how measured figures are written down and shown; does not know how they are measured."""

import argparse
import csv
import datetime
import os
import platform
import statistics
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from psboost.files import replaced

PATH = Path(__file__).with_name("results.csv")


@dataclass(frozen=True)
class Figure:
    """One measured thing of one program; of a peer's, also how many times psboost's it is."""

    measure: str  # training, scaling, quality, raw, binning, memory, prediction, growth, start, entropy; bytes, wall, ...
    shape: str
    who: str  # "psboost", or the peer and how it was run
    threads: int
    value: float  # median over the repeats
    unit: str
    ratio: float | None = None  # peer / psboost, median over the repeats of pairs
    least: float | None = None  # of the ratio, or of the value if there is none
    most: float | None = None
    asked: float | None = None  # what the ratio should be at least
    auc: float | None = None  # on test rows
    note: str = ""
    repeats: int = 1
    date: str = ""
    auc_gap: float | None = None  # psboost's AUC less the peer's
    at_most: float | None = None  # what the value should be at most
    machine: str = ""
    versions: str = ""

    @property
    def missed(self) -> bool:
        """Whether it is not as it should be."""
        return (
            (self.asked is not None and not (self.ratio is not None and self.ratio >= self.asked))
            or (self.at_most is not None and not self.value <= self.at_most)
            or (self.auc_gap is not None and self.auc_gap < -AUC_LOSS)
        )


AUC_LOSS = 0.002  # what psboost's AUC may be below a peer's
KEY = ("measure", "shape", "who", "threads", "note")


def compare(ours: list[float], theirs: list[float]) -> dict:
    """ratio, least and most of a Figure, of values that were measured in turns."""
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    return {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}


def keep(figures: list[Figure], path: Path = PATH) -> None:
    """Writes figures to the table, dated, of this machine and these versions; those of the same things are replaced, others
    stay."""
    known = {"date": datetime.date.today().isoformat(), "machine": machine(), "versions": versions()}
    table = {tuple(row[name] for name in KEY): row for row in load(path)}
    for figure in figures:
        row = {name: _text(value) for name, value in asdict(figure).items()}
        row |= {name: row[name] or value for name, value in known.items()}
        table[tuple(row[name] for name in KEY)] = row
    with replaced(path) as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Figure)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(table.values(), key=lambda row: row["measure"]))


def load(path: Path = PATH) -> list[dict[str, str]]:
    """The rows of the table, as text."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def path_of(parser: argparse.ArgumentParser, arguments: argparse.Namespace, what: tuple[str, ...]) -> Path:
    """Where figures go if nothing is said: the table here is for those of the usual arguments, as far as they say what is
    measured; others go to the cache."""
    usual = all(getattr(arguments, name) == parser.get_default(name) for name in what)
    return PATH if usual else arguments.cache / PATH.name


def rounded(value: float) -> str:
    """Three digits; all in front of the point, if there are more."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def span(least: float, most: float) -> str:
    """From the one to the other."""
    return f"{rounded(least)}{' to ' if least < 0 else '-'}{rounded(most)}"


def show(figure: Figure) -> None:
    """Prints one row of a Markdown table; (!) marks what is not as asked."""
    has_spread = figure.least is not None and figure.repeats > 1
    spread = f" ({span(figure.least, figure.most)})" if has_spread else ""
    value, ratio = f"{figure.value:.4g} {figure.unit}", "" if figure.ratio is None else f"{rounded(figure.ratio)}{spread}"
    if figure.ratio is None:
        value += spread
    asked = [f">= {figure.asked:g}"] if figure.asked is not None else []
    asked += [f"<= {figure.at_most:g}"] if figure.at_most is not None else []
    auc = "" if figure.auc is None else f"{figure.auc:.4f}"
    if figure.auc_gap is not None:
        auc += f" (psboost {figure.auc_gap:+.4f})"
    columns = [figure.measure, figure.shape, figure.who, figure.threads, value, ratio]
    columns += [", ".join(asked) + (" (!)" if figure.missed else ""), auc, figure.note]
    print("| " + " | ".join(map(str, columns)) + " |", flush=True)


HEADER = "| measure | shape | who | threads | value | peer / psboost | asked | AUC | note |\n" + "|---" * 9 + "|"


def machine() -> str:
    """Its cores and processor."""
    return f"{os.cpu_count()} cores ({_processor()})"


def versions() -> str:
    """Of what was measured and what it ran on, in a line."""
    parts = [platform.system(), f"Python {platform.python_version()}"]
    for package in ("psboost", "xgboost-cpu", "lightgbm", "numpy", "scipy", "numba", "pyzmq"):
        try:
            parts.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(parts)


def _processor() -> str:
    """The name of the processor, with its family and model, as virtual machines call several alike; else of its kind."""
    path = Path("/proc/cpuinfo")
    of_first = path.read_text().partition("\n\n")[0].splitlines() if path.exists() else []
    known = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in of_first)}
    if "model name" not in known:
        return platform.machine()
    numbers = [f"{key} {known[key]}" for key in ("cpu family", "model") if key in known]
    return ", ".join([known["model name"], *numbers])


def _text(value) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
