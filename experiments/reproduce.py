"""Knows how an experiment is run: missing runs, table, figure; does not know what any experiment measures or shows.

    ./scripts/reproduce byte-ladder            the runs that its results.csv lacks, then its figure
    ./scripts/reproduce all                    all experiments, one after another
    ./scripts/reproduce all --quick            small, into experiments-quick/
    ./scripts/reproduce report                 one HTML page of all results

An experiment is a folder with experiment.toml (its runs), run.py (`measure(settings, data)`: one run's rows) and plot.py
(`draw(rows)`: a figure). Each run is in results.csv as soon as it is done: interrupted, it goes on from there.
"""

import argparse
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from tqdm import tqdm

from experiments.common.data import load
from experiments.common.here import NotHere
from experiments.common.plan import PlanError, Settings, read_plan
from experiments.common.table import Table, as_text, read_rows
from psboost.settings import nearest

ROOT = Path(__file__).parent
QUICK = ROOT.parent / "experiments-quick"
CSV = "results.csv"


def experiments() -> list[str]:
    """The names of all experiments."""
    return sorted(path.parent.name for path in ROOT.glob("*/experiment.toml"))


def script_of(name: str, which: str) -> ModuleType:
    """An experiment's run.py or plot.py; its folder's name need not be Python's."""
    path = ROOT / name / f"{which}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_{which}".replace("-", "_"), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reproduce(name: str, size: str, out: Path, *, again: bool = False) -> bool:
    """Makes the missing runs of an experiment (all of them: `again`) and draws its figure; False if some cannot be made."""
    plan = read_plan(ROOT / name / "experiment.toml", size)
    if again:
        (out / CSV).unlink(missing_ok=True)
    table, left_out = Table(out / CSV, plan), 0
    if missing := table.missing():
        measure = script_of(name, "run").measure
        for settings in tqdm(missing, desc=name, unit="run", disable=not sys.stderr.isatty()):
            say(f"{name}: {described(settings)}")
            try:
                table.add(settings, measure(settings, load(plan.data[settings["data"]]) if "data" in settings else None))
            except NotHere as reason:
                say(f"{name}: left out: {described(settings)}: {reason}")
                left_out += 1
    if rows := read_rows(out / CSV):
        from experiments.common import style

        style.save(script_of(name, "plot").draw(rows), out)
        say(f"{name}: {len(plan.runs) - left_out} of {len(plan.runs)} runs; {shown(out / 'figure.svg')}")
    return not left_out


def described(settings: Settings) -> str:
    return ", ".join(f"{name} {as_text(value)}" for name, value in settings.items())


def shown(path: Path) -> str:
    return os.path.relpath(path)


def say(text: str) -> None:
    tqdm.write(text, file=sys.stderr)


def main() -> int:
    names = experiments()
    parser = argparse.ArgumentParser(
        "reproduce", description="Reproduce experiments: NAME, several names, or all.", epilog=f"NAMEs: {', '.join(names)}"
    )
    parser.add_argument("names", metavar="NAME", nargs="+")
    parser.add_argument("--quick", action="store_true", help=f"small, into {QUICK.name}/, in minutes")
    parser.add_argument("--again", action="store_true", help="measure again what is measured already")
    arguments = parser.parse_args()
    chosen = names if arguments.names == ["all"] else arguments.names
    for name in chosen:
        if name not in names:
            parser.error(f"no experiment {name!r}{nearest(name, names)}; there are {', '.join(names)}")
    size = "quick" if arguments.quick else "full"
    failures = []
    for name in chosen:
        try:
            reproduce(name, size, QUICK / name if arguments.quick else ROOT / name, again=arguments.again)
        except PlanError as error:
            say(f"{name}: {error}")
            failures.append(name)
        except Exception:
            traceback.print_exc()
            failures.append(name)
    if failures:
        say(f"failed: {', '.join(failures)}")
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("interrupted; what is measured is kept, the same command goes on from here")
        sys.exit(130)
