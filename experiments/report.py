"""Knows what the page of all experiments shows: questions, figures, tables, dates; does not know how any was measured.

    ./scripts/reproduce report             report.html, of the committed results and those measured since
    ./scripts/reproduce report --quick     of experiments-quick/
"""

import argparse
import base64
import csv
import os
import subprocess
import sys
from pathlib import Path

from markdown_it import MarkdownIt

from experiments.common.plan import Plan, read_plan
from experiments.common.table import DATE, Table
from experiments.reproduce import CSV, QUICK, ROOT, experiments
from psboost.pages.html import Markup, folded, join, page, table, tag

PAGE = "report.html"
OPEN_ROWS = 12  # a table of more rows is folded

_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "autolink", "image"])


def report_page(folders: dict[str, Path], size: str = "full") -> str:
    """The page as text. `folders`: of each experiment, where its results and figure are."""
    plans = {name: read_plan(ROOT / name / "experiment.toml", size) for name in folders}
    there = {name: folder for name, folder in folders.items() if (folder / CSV).exists()}
    title = "psboost: experiments" + (" (small runs)" if size == "quick" else "")
    entries = (
        tag("li", tag("a", plans[name].title, href=f"#{name}"), ": ", tag("span", plans[name].question, class_="soft"))
        for name in there
    )
    parts = [tag("h1", title), tag("nav", tag("ol", *entries), aria_label="contents")]
    if missing := [name for name in folders if name not in there]:
        names = join((tag("code", name) for name in missing), ", ")
        parts.append(tag("p", "Without results yet: ", names, ".", class_="soft"))
    return page(title, *parts, *(_section(plans[name], folder, size) for name, folder in there.items()))


def _section(plan: Plan, folder: Path, size: str) -> Markup:
    with open(folder / CSV, newline="") as file:
        columns, *rows = csv.reader(file)
    command = f"./scripts/reproduce {plan.name}" + (" --quick" if size == "quick" else "")
    missing = len(Table(folder / CSV, plan).missing())
    facts = [
        tag("code", command), f"measured {_dates(columns, rows, folder / CSV)}",
        *([f"{missing} of {len(plan.runs)} runs are missing"] if missing else []),
    ]  # fmt: skip
    listed = table(columns, rows, f"{plan.title}: {plan.name}/{CSV}")
    n_rows = f"{len(rows)} {'row' if len(rows) == 1 else 'rows'}"
    return tag(
        "section",
        tag("h2", plan.title),
        tag("p", plan.question),
        tag("p", join(facts, "; "), class_="soft"),
        _figure(plan, folder),
        *([] if size == "quick" else [_notes(ROOT / plan.name / "README.md", command)]),
        folded(f"The table ({n_rows})", listed, is_open=len(rows) <= OPEN_ROWS),
        id=plan.name,
    )


def _figure(plan: Plan, folder: Path) -> Markup:
    svg = folder / "figure.svg"
    if not svg.exists():
        return tag("p", f"The figure has not been drawn: {svg.name} is missing.")
    address = "data:image/svg+xml;base64," + base64.b64encode(svg.read_bytes()).decode()
    return tag("figure", tag("img", src=address, alt=f"Figure: {plan.title}. {plan.question} Its numbers are in the table."))


def _notes(readme: Path, command: str) -> Markup:
    """What the experiment's README says after the command; what stands before it is on the page already."""
    if not readme.exists():
        return Markup("")
    lines = readme.read_text().splitlines()
    at = next((i for i, line in enumerate(lines) if line.strip().startswith(command)), 0)
    return Markup(_MARKDOWN.render("\n".join(lines[at + 1 :])))


def _dates(columns: list[str], rows: list[list[str]], path: Path) -> str:
    """When the rows were measured; if they do not say, when the file was committed."""
    if DATE in columns:
        days = sorted({row[columns.index(DATE)] for row in rows} - {""})
        if days:
            return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    said = subprocess.run(
        ["git", "log", "-1", "--format=%cs", "--", path.name], cwd=path.parent, capture_output=True, text=True
    )
    return said.stdout.strip() or "at an unknown date"


def main() -> None:
    parser = argparse.ArgumentParser("reproduce report", description="One HTML page of all experiments' figures and tables.")
    parser.add_argument("--out", type=Path, metavar="FILE", default=ROOT.parent / PAGE, help=f"where to write it ({PAGE})")
    parser.add_argument("--quick", action="store_true", help=f"of the small runs, in {QUICK.name}/")
    arguments = parser.parse_args()
    folder = QUICK if arguments.quick else ROOT
    content = report_page({name: folder / name for name in experiments()}, "quick" if arguments.quick else "full")
    try:
        arguments.out.write_text(content, encoding="utf-8")
    except OSError as error:
        sys.exit(f"reproduce report: {arguments.out} cannot be written: {error.strerror}")
    print(os.path.relpath(arguments.out))


if __name__ == "__main__":
    main()
