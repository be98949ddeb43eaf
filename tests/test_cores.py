"""How many cores a process may use, by its scheduler and its container."""

import os

import pytest

from psboost import cores


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"cpu.max": "1000 100000\n"}, 1),
        ({"cpu.max": "6400000 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
    ],
)
def test_no_more_cores_than_a_container_may_use(files, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(cores, "_CONTROL_GROUP", tmp_path)
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert cores.n_cores() == expected


@pytest.mark.usefixtures("eight_cores")
def test_no_more_cores_than_the_scheduler_gives(tmp_path, monkeypatch):
    monkeypatch.setattr(cores, "_CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert cores.n_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")  # macOS
    assert cores.n_cores() == 8
