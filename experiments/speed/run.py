"""Knows which measure is taken by which module, and that all figures are shown and kept; does not know how they are taken.

    python experiments/speed/run.py                                  # all figures but those on shaped links
    python experiments/speed/run.py --only training,raw --shapes rcv1,bosch --repeats 5
    python experiments/speed/run.py --only all --readme              # as root: shaped links, too
    python experiments/speed/run.py --scale 0.05 --repeats 1         # quick, kept apart from the others

Figures are kept in results.csv as soon as they are taken; --readme makes FIGURES.md and the table of the project's README.md
of them.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Iterator
from copy import copy
from importlib import import_module
from pathlib import Path

import peers
import readme
from datasets import default_cache
from installed import settle
from results import HEADER, PATH, Figure, keep, machine, path_of, show, versions
from shapes import SEED, SHAPES, named

from psboost.cluster.signals import exit_code, signals_as_interrupt

HOMES = {
    "training": "training", "scaling": "training", "binning": "training", "memory": "training", "quality": "quality",
    "raw": "raw", "stages": "stages", "prediction": "prediction", "growth": "growth", "start": "start", "entropy": "entropy",
    "wire": "wire",
}  # fmt: skip
AS_ROOT = {"wire"}
BESIDE = {  # who is measured, too
    "training": ["xgboost"], "quality": ["xgboost"], "prediction": ["xgboost"], "raw": ["xgboost", "lightgbm"],
    "wire": ["xgboost", "lightgbm"],
}  # fmt: skip


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help=f"some of {','.join(HOMES)}, or all: with wire if run as root")
    parser.add_argument("--shapes", type=named, default=",".join(SHAPES))
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of rows")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--samples", type=int, default=10, help="of the rows, with --only quality")
    parser.add_argument("--raw-rounds", type=int, default=100)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds that a peer has, with --only raw")
    parser.add_argument("--rates", default="1gbit,100mbit", help="of shaped links")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--data", type=Path, help="a folder with SHAPE-small-train.npz and SHAPE-small-test.npz")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="a folder for matrices and forests")
    parser.add_argument("--out", type=Path, help="the table; results.csv here, if data and rounds are the usual ones")
    parser.add_argument("--readme", action="store_true", help="write FIGURES.md, README.md's table; alone: measure nothing")
    arguments = parser.parse_args()
    arguments.measures_nothing = arguments.readme and arguments.only is None
    names = {None: [name for name in HOMES if name not in AS_ROOT], "all": list(HOMES)}
    arguments.only = names.get(arguments.only) or arguments.only.split(",")
    if set(arguments.only) == set(HOMES) and os.geteuid():
        arguments.only = names[None]
    arguments.rates = arguments.rates.split(",")
    if unknown := set(arguments.only) - set(HOMES):
        parser.error(f"--only: unknown: {', '.join(sorted(unknown))}")
    arguments.cache.mkdir(parents=True, exist_ok=True)
    if arguments.out is None:
        arguments.out = path_of(parser, arguments, ("scale", "seed", "data", "rounds", "samples", "raw_rounds"))
    if arguments.readme and arguments.out != PATH:
        parser.error("--readme makes tables of the figures in results.csv here: not with --out, other data or other rounds")
    return arguments


def parts_of(arguments) -> Iterator[tuple[str, argparse.Namespace]]:
    """(module, arguments of one shape): what is measured together."""
    for home in dict.fromkeys(HOMES[name] for name in arguments.only):
        for shape in [""] if home == "start" else arguments.shapes:
            if not (home == "wire" and shape == "dense"):
                part = copy(arguments)
                part.shapes = [shape]
                yield home, part


def measure(home: str, arguments) -> Iterator[Figure]:
    module = import_module(home)
    if home == "wire":
        yield from module.measure(arguments, data=arguments.data)
    else:
        yield from module.measure(arguments)


def main() -> int:
    arguments = parse()
    missed, failures = [], []
    if not arguments.measures_nothing:
        peers.need(*{package for name in arguments.only for package in BESIDE.get(HOMES[name], ())})
        settle()
        print(f"{machine()}, {versions()}; {arguments.rounds} rounds, {arguments.repeats} repeats\n\n{HEADER}", flush=True)
        for home, part in parts_of(arguments):
            try:
                for figure in measure(home, part):
                    show(figure)
                    keep([figure], arguments.out)
                    missed += [figure] if figure.missed else []
            except Exception:
                traceback.print_exc()
                failures.append(f"{home}, {', '.join(part.shapes)}")
        print(f"\nNot as asked: {len(missed) or 'none'}\n" + (f"\n{HEADER}" if missed else ""))
        for figure in missed:
            show(figure)
        if failures:
            print("\nNot measured: " + "; ".join(failures))
    if arguments.readme:
        readme.write()
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        with signals_as_interrupt():
            code = main()
    except KeyboardInterrupt as interrupt:  # who is measured is gone by now
        code = exit_code(interrupt)
    sys.exit(code)
