"""Knows what a person sees of a run: plain lines, a live line on a terminal, nothing; does not know how it runs."""

import io
import sys

import pytest

from psboost.progress import Progress, first_metrics, human_bytes, longest
from psboost.roles.coordinator import Round

METRICS = {"a-auc": 0.5, "a-logloss": 0.7, "b-b-auc": 0.25}


class Screen(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.isatty = lambda: terminal


def shown(monkeypatch, terminal=False, columns="160", **how):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "stderr", Screen(terminal))
    with Progress(2, **how) as progress:
        progress.joining("tcp://h:1", 2)
        progress.joining("tcp://h:1", 1)
        progress.waiting()
        for number in range(2):
            seconds = {"build": 2.0, "route": 0.5, "merge": 1.0, "update": 0.1}
            progress.round(Round(number, 2, 4 + number, METRICS, bytes_sent=1_500_000, seconds=seconds))
    return sys.stderr.getvalue()


def test_plain_lines(monkeypatch):
    lines = shown(monkeypatch).splitlines()
    assert [line[:63] for line in lines] == [
        "[0]  a-auc 0.50000  a-logloss 0.70000  b-b-auc 0.25000  4 leaves"[:63],
        "[1]  a-auc 0.50000  a-logloss 0.70000  b-b-auc 0.25000  5 leaves"[:63],
    ]
    assert all(line.endswith(" s") for line in lines)


@pytest.mark.parametrize("quiet", [True, False])
def test_where_to_join_is_always_said_once(monkeypatch, quiet):
    lines = shown(monkeypatch, by_hand=True, quiet=quiet).splitlines()
    assert lines[0] == "psboost: waiting at tcp://h:1 for 2 roles to join"
    assert len(lines) == (1 if quiet else 3)


def test_quiet_is_silent(monkeypatch):
    assert shown(monkeypatch, quiet=True) == "" and shown(monkeypatch, quiet=True, terminal=True) == ""


def test_live_line(monkeypatch):
    pieces = shown(monkeypatch, terminal=True).rstrip("\n").split("\r")
    last = pieces[-1]
    assert last.startswith("training 2/2 |") and "\n" not in "".join(pieces)
    assert "a-auc 0.50000  b-b-auc 0.25000  1.5 MB  build 2.0s  merge 1.0s  route 0.5s" in last
    assert "a-logloss" not in last


def test_parts():
    assert first_metrics(METRICS) == {"a-auc": 0.5, "b-b-auc": 0.25} and first_metrics({}) == {}
    assert longest({"x": 1.0, "y": 3.0, "z": 2.0}, 2) == [("y", 3.0), ("z", 2.0)]
    assert [human_bytes(n) for n in (0, 999, 1500, 2e6, 3e9, 4e12)] == [
        "0 B", "999 B", "1.5 kB", "2.0 MB", "3.0 GB", "4.0 TB",
    ]  # fmt: skip
