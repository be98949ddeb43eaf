"""Knows what the page of all experiments must hold of results on disk; does not know what was measured."""

import base64
import csv
import sys
from html import escape

import pytest

from experiments import report
from experiments.common import style
from tests.pages.browser import browser, check
from tests.pages.reading import Page, loaded

TOML = """
[experiment]
title = "Bytes of {name} & <more>"
question = "How many bytes does {name} take?"
minutes = 1
[[runs]]
size = [1, 2{more}]
"""
README = """# Bytes

A question.

    ./scripts/reproduce {name}      # 1 minute

What to see: **two** things, `a` < `b`, and [a link](https://example.org/x).

- one <script>alert(1)</script>
- two
"""


def results(n_rows):
    """Rows of results.csv: quotes, commas, an empty cell, markup and numbers as they are written."""
    names = ["a, b", 'say "x"', "", "<b>", "1e+09", "0.10", "-3"]
    rows = [[str(1 + i % 2), names[i % 7], f"{i * 0.1:.6g}", f"2026-01-{1 + i % 3:02}"] for i in range(n_rows)]
    return [["size", "what", "seconds", "date"], *rows]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Three experiments: few results, many, none."""
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "QUICK", tmp_path / "quick")
    monkeypatch.setattr(report, "experiments", lambda: ["few", "many", "none"])
    for name, more, n_rows in (("few", "", 4), ("many", ", 3", 40), ("none", "", 0)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "experiment.toml").write_text(TOML.format(name=name, more=more))
        if n_rows:
            (folder / "README.md").write_text(README.format(name=name))
            with open(folder / "results.csv", "w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(results(n_rows))
            figure, (axes,) = style.panels(1, 2)
            axes.plot([1, 2], [1, n_rows])
            style.save(figure, folder)
    return tmp_path


def written(root, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["report", "--out", str(root / "r.html"), *arguments])
    report.main()
    return (root / "r.html").read_text()


def test_tables_are_the_csvs_cell_by_cell(root, monkeypatch, capsys):
    content = written(root, monkeypatch)
    assert capsys.readouterr().out.strip().endswith("r.html")
    page = Page(content)
    assert page.tables == [results(4), results(40)]
    assert ["open" in details for details in page.all("details")] == [True, False]
    assert page.text_of("summary") == ["The table (4 rows)", "The table (40 rows)"]


def test_each_has_its_question_command_date_and_figure(root, monkeypatch):
    content = written(root, monkeypatch)
    page = Page(content)
    assert page.text_of("h2") == [f"Bytes of {name} & <more>" for name in ("few", "many")]
    for name in ("few", "many"):
        assert f"How many bytes does {name} take?" in page.text_of("p")
        assert f"./scripts/reproduce {name}" in page.text_of("code")
        assert {"id": name} in page.all("section") and {"href": f"#{name}"} in page.all("a")
    assert content.count("measured 2026-01-01 to 2026-01-03") == 2
    assert "1 of 3 runs are missing" in content and "of 2 runs" not in content
    assert "Without results yet: <code>none</code>" in content
    for name, image in zip(("few", "many"), page.all("img"), strict=True):
        kind, _, data = image["src"].partition(",")
        assert kind == "data:image/svg+xml;base64" and image["alt"].startswith(f"Figure: Bytes of {name} & <more>.")
        assert base64.b64decode(data) == (root / name / "figure.svg").read_bytes()


def test_notes_are_read_as_markdown_and_nothing_is_loaded(root, monkeypatch):
    content = written(root, monkeypatch)
    page = Page(content)
    assert page.text_of("strong") == ["two", "two"] and page.text_of("li").count("two") == 2
    assert escape("<script>alert(1)</script>", quote=False) in content and not page.all("script")
    assert "A question." not in content
    assert loaded(page) == []


def test_dates_of_results_without_any_are_those_of_their_commit(root, monkeypatch):
    (root / "few" / "results.csv").write_text("size,x\n1,2\n2,3\n")
    assert "measured at an unknown date" in written(root, monkeypatch)
    (root / "few" / "figure.svg").unlink()
    assert "The figure has not been drawn" in written(root, monkeypatch)


def test_small_runs_have_a_page_too(root, monkeypatch):
    (root / "quick").mkdir()
    (root / "many").rename(root / "quick" / "many")
    (root / "many").mkdir()
    (root / "many" / "experiment.toml").write_text(TOML.format(name="many", more=""))
    page = Page(written(root, monkeypatch, "--quick"))
    assert page.text_of("h1") == ["psboost: experiments (small runs)"] and page.tables == [results(40)]
    assert "./scripts/reproduce many --quick" in page.text_of("code")


def test_a_page_that_cannot_be_written(root, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["report", "--out", str(root / "missing" / "r.html")])
    with pytest.raises(SystemExit, match="cannot be written: No such file"):
        report.main()


@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser(root, monkeypatch, width):
    written(root, monkeypatch)
    with browser(width, root) as look:
        seen = look(root / "r.html")
        check(seen, n_figures=2)
        assert seen.tables == [results(4), results(40)]


def test_the_committed_results_in_a_browser(tmp_path, monkeypatch):
    names = [name for name in report.experiments() if (report.ROOT / name / "results.csv").exists()]
    monkeypatch.setattr(sys, "argv", ["report", "--out", str(tmp_path / "r.html")])
    report.main()
    tables = []
    for name in names:
        with open(report.ROOT / name / "results.csv", newline="") as file:
            tables.append(list(csv.reader(file)))
    page = Page((tmp_path / "r.html").read_text())
    assert page.tables == tables and loaded(page) == []
    with browser(390, tmp_path) as look:
        seen = look(tmp_path / "r.html")
        check(seen, n_figures=sum((report.ROOT / name / "figure.svg").exists() for name in names))
        assert seen.tables == tables
