"""Knows how results.csv is kept: which runs are in it, and that a run's rows come all at once; does not know what they mean.

A row is the settings of its run, what was measured, and the date. A run may have many rows.
"""

import csv
import datetime
from pathlib import Path
from typing import Any

from experiments.common.plan import Plan, Settings
from psboost.files import replaced

DATE = "date"


class Table:
    """The rows of the runs of a plan; rows of other runs are left out when it is next written."""

    def __init__(self, path: Path, plan: Plan):
        self._path, self._plan = path, plan
        self._names = list(dict.fromkeys(name for run in plan.runs for name in run))
        self._rows: dict[tuple, list[dict[str, str]]] = {}
        keys = set(map(self._key, plan.runs))
        for row in read_rows(path):
            if (key := self._key(row)) in keys:
                self._rows.setdefault(key, []).append(row)

    def missing(self) -> list[Settings]:
        """The runs that have no rows yet."""
        return [run for run in self._plan.runs if self._key(run) not in self._rows]

    def add(self, run: Settings, measured: list[dict[str, Any]]) -> None:
        """Writes what a run measured: the file has it all, or is as it was before."""
        today = datetime.date.today().isoformat()
        settings = dict(zip(self._names, self._key(run), strict=True))
        rows = []
        for row in measured:
            if again := row.keys() & settings.keys():
                raise ValueError(f"measured under the name of a setting: {', '.join(sorted(again))}")
            rows.append(settings | {name: as_text(value) for name, value in row.items()} | {DATE: today})
        self._rows[self._key(run)] = rows
        self._write()

    def _key(self, row: dict) -> tuple[str, ...]:
        return tuple(as_text(row.get(name, "")) for name in self._names)

    def _write(self) -> None:
        rows = [row for run in self._plan.runs for row in self._rows.get(self._key(run), ())]
        columns = [name for name in dict.fromkeys(name for row in rows for name in row) if name != DATE]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(self._path) as file:
            writer = csv.DictWriter(file, [*columns, DATE], restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a results.csv as text; none if there is no such file."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def as_text(value: Any) -> str:
    """What a cell holds: numbers with six digits."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)
