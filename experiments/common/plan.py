"""Knows what an experiment.toml says: which runs there are, at which size; does not know how a run is measured.

    [experiment]
    title, question            texts
    minutes                    of all full runs, on two cores

    [data]                     each name is a data set that runs may take
    url = { shape = "url", rows = 20_000, test_rows = 5_000 }           made from a seed (experiments/speed/shapes.py)
    mine = { file = "url_combined.svm", test = "url_test.svm" }         svmlight or .npz; `n_features` may be added

    [[runs]]                   settings of runs; each combination of those that are lists is a run
    data = ["url", "mine"]
    max_depth = [4, 6]
    quick.max_depth = 4        in its place with --quick

    [quick]                    for all runs that have the setting; `most_rows` is for data
    [tiny]                     for tests, over [quick]
"""

import tomllib
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from psboost.settings import nearest

SIZES = {"full": (), "quick": ("quick",), "tiny": ("quick", "tiny")}
Settings = dict[str, Any]


class PlanError(ValueError):
    """An experiment.toml that does not say what it should."""


@dataclass(frozen=True)
class Plan:
    """An experiment of some size. Runs are different from each other, and in the order in which they are to be made."""

    name: str
    title: str
    question: str
    minutes: float
    data: dict[str, dict]
    runs: list[Settings]


def read_plan(path: Path, size: str = "full") -> Plan:
    """The plan that a file holds. Raises PlanError."""
    try:
        content = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"{path} is no TOML: {error}") from error
    _check(path, content, ("experiment", "data", "runs", *SIZES["tiny"]), required=("experiment", "runs"))
    head = content["experiment"]
    names = ("title", "question", "minutes")
    _check(f"{path}: [experiment]", head, names, required=names)
    layers = [content.get(name, {}) for name in SIZES[size]]
    most_rows = min((layer["most_rows"] for layer in layers if "most_rows" in layer), default=None)
    data = {name: _data(f"{path}: data {name}", given, most_rows) for name, given in content.get("data", {}).items()}
    runs: dict[tuple, Settings] = {}
    for entry in content["runs"]:
        own = {name: entry.pop(name, {}) for name in SIZES["tiny"]}
        for layer in (layer for name in SIZES[size] for layer in (content.get(name, {}), own[name])):
            entry |= {name: value for name, value in layer.items() if name in entry}
        for values in product(*(value if isinstance(value, list) else [value] for value in entry.values())):
            settings = dict(zip(entry, values, strict=True))
            if "data" in settings:
                if settings["data"] not in data:
                    raise PlanError(f"{path}: no data named {settings['data']!r}{nearest(settings['data'], data)}")
                rows = data[settings["data"]].get("rows")
                settings |= {} if rows is None else {"rows": rows}
            runs[tuple(settings.items())] = settings
    return Plan(path.parent.name, **{name: head[name] for name in names}, data=data, runs=list(runs.values()))


def _data(where: str, given: dict, most_rows: int | None) -> dict:
    _check(where, given, ("shape", "file", "test", "n_features", "rows", "test_rows"), required=())
    if ("shape" in given) == ("file" in given):
        raise PlanError(f"{where}: name a shape or a file")
    capped = {
        name: min(value, most_rows) if most_rows and name in ("rows", "test_rows") else value
        for name, value in given.items()
    }
    return capped | ({"rows": most_rows} if most_rows and "rows" not in given else {})


def _check(where, table: dict, known: tuple[str, ...], required: tuple[str, ...]) -> None:
    for name in table:
        if name not in known:
            raise PlanError(f"{where}: unknown {name!r}{nearest(name, known)}")
    for name in required:
        if name not in table:
            raise PlanError(f"{where}: {name} is missing")
