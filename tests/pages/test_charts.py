"""Knows what drawings must show of given values, by reading their geometry; does not know what they are of."""

import re

import pytest

from psboost.pages import charts
from tests.pages.reading import Page

BAR = re.compile(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)h-[\d.]+z")


def bars(path):
    """(left, top, width, height) of each rectangle of a path."""
    return [tuple(map(float, found)) for found in BAR.findall(path)]


@pytest.mark.parametrize(
    ("low", "high", "n", "expected"),
    [(0, 10, 5, [0, 2, 4, 6, 8, 10]), (0.93, 0.99, 5, [0.94, 0.96, 0.98]), (0, 0.7, 4, [0, 0.2, 0.4, 0.6]), (3, 3, 5, [3])],
)
def test_ticks_are_round(low, high, n, expected):
    assert charts.ticks(low, high, n) == pytest.approx(expected)


def test_lines_go_through_their_values():
    page = Page(charts.line_chart("auc", {"train": [0.5, 0.75, 1.0], "test": [0.5, float("nan"), 0.5]}, "round"))
    lines = [one for one in page.all("path") if one["stroke"].startswith("var(--c") and one["d"].startswith("M0 ")]
    places = [[tuple(map(float, pair.split())) for pair in one["d"][1:].split("L")] for one in lines]
    height = places[0][0][1]  # the lowest value is at the bottom
    assert places == [[(0, height), (50, height / 2), (100, 0)], [(0, height), (100, height)]]
    assert lines[0]["stroke"] != lines[1]["stroke"] and lines[0]["stroke-dasharray"] != lines[1]["stroke-dasharray"]
    assert [text for text in page.text_of("li")] == ["train: 1 at the end", "test: 0.5 at the end"]
    assert page.text_of("title") == ["auc"] and "train: from 0.5 to 1 in 3 steps" in page.text_of("desc")[0]


@pytest.mark.parametrize("values", [[0.7], [2.0, 2.0], [0.0], [float("nan")], [-1.0, 1e300]])
def test_few_or_equal_values_are_drawn_too(values):
    page = Page(charts.line_chart("x", {"a": values}, "round", from_zero=True))
    numbers = [float(n) for one in page.all("path") for n in re.findall(r"-?\d+\.?\d*(?:e[+-]\d+)?", one["d"])]
    assert numbers and all(abs(n) < 1000 for n in numbers)


def test_tracks_are_as_full_as_the_time_was(monkeypatch):
    monkeypatch.setattr(charts, "N_COLUMNS", 4)
    spans = [("build", 0.0, 1.0), ("build", 1.0, 1.25), ("search", 1.5, 1.75), ("build", 3.0, 4.0), ("search", 3.0, 4.0)]
    paths = charts._tracks(spans, 0.0, 4.0, 100.0)
    # a column is a quarter of the width; in the second, a quarter of each, and in the last two threads side by side
    assert bars(paths["build"]) == [(0, 100, 25, 16), (25, 112, 25, 4), (75, 108, 25, 8)]
    assert bars(paths["search"]) == [(25, 108, 25, 4), (75, 100, 25, 8)]


def test_spans_outside_of_the_window_are_cut():
    assert bars(charts._tracks([("a", -5.0, 5.0)], 0.0, 10.0, 0.0)["a"]) == [(0, 0, 50, 16)]
    assert charts._tracks([("a", -5.0, -1.0), ("b", 11.0, 12.0), ("c", 3.0, 3.0)], 0.0, 10.0, 0.0) == {}


def test_a_timeline_names_rows_stages_and_what_is_not_known():
    rows = {"worker 0,0": [("build", 0.0, 1.0)], "server 0": []}
    looks = {"build": ("var(--c0)", 1), "never": ("var(--c1)", 1)}
    page = Page(charts.timeline("all", rows, looks, 0.0, 10.0, (2.0, 4.0)))
    assert {"worker 0,0", "server 0", "not kept", "5.00 s"} <= set(page.text_of("text"))
    assert page.text_of("li") == ["build"]
    assert any(one.get("x") == "20" and one["width"] == "20" for one in page.all("rect"))
    Page(charts.timeline("nothing", {"coordinator": []}, {}, 0.0, 0.0))
