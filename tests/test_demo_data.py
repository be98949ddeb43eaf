"""Knows what scripts/demo_data.py promises; does not know psboost."""

import bz2
import gzip
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

ROOT = Path(__file__).parents[1]


def load_script():
    spec = importlib.util.spec_from_file_location("demo_data", ROOT / "scripts" / "demo_data.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


demo_data = load_script()


@pytest.fixture
def site_packages(tmp_path):
    """Twenty files of 30 lines in two libraries, one telling word per file; and files that make no row."""
    folder = tmp_path / "site-packages"
    for library in ("numpy", "scipy"):
        (folder / library / "sub").mkdir(parents=True)
        for i in range(20):
            body = "".join(f"    {library}_x = only{library[0]}{i} + {n}\n" for n in range(30))
            (folder / library / "sub" / f"file{i}.py").write_text(f"import {library}\n{body}")
        (folder / library / "__init__.py").write_text("")
    (folder / "scipy" / "short.py").write_text("x = 1\n")
    (folder / "scipy" / "odd.py").write_bytes(b"\xff\xfe bad bytes\n" * 7)
    (folder / "other").mkdir()
    (folder / "other" / "file.py").write_text("y = 1\n" * 100)
    return folder


def rows(path):
    for line in path.read_text().splitlines():
        label, *cells = line.split(" ")
        yield int(label), [(int(i), float(v)) for i, v in (cell.split(":") for cell in cells)]


def test_rows_are_svmlight_with_ascending_indices_from_one(site_packages, tmp_path):
    content = demo_data.build([site_packages], tmp_path / "out")
    for part in ("train", "test"):
        written = list(rows(tmp_path / "out" / f"{part}.svm"))
        assert len(written) == content[part]["rows"] > 0
        assert sum(label for label, _ in written) == content[part]["positives"]
        assert sum(len(cells) for _, cells in written) == content[part]["stored_values"]
        for _, cells in written:
            features = [feature for feature, _ in cells]
            assert features == sorted(set(features))
            assert 1 <= features[0] <= features[-1] <= content["features"]
            assert all(value >= 1 for _, value in cells)
        load_svmlight_file(str(tmp_path / "out" / f"{part}.svm"), n_features=content["features"])
    assert content == json.loads((tmp_path / "out" / "data.json").read_text())
    assert content["features"] >= 1 << 20
    assert not list((tmp_path / "out").glob("*.partial"))


def test_no_file_is_on_both_sides(site_packages, tmp_path):
    content = demo_data.build([site_packages], tmp_path / "out")
    assert content["train"]["files"] + content["test"]["files"] == 41  # 40 and odd.py
    words = {}
    for library in ("n", "s"):
        for i in range(20):
            _, features, _ = demo_data.rows_of(f"only{library}{i}\n" * 6, {})
            words[f"{library}{i}"] = set(features.tolist())
    everywhere = set.intersection(*words.values())
    seen = {}
    for part in ("train", "test"):
        written = rows(tmp_path / "out" / f"{part}.svm")
        features = {feature - 1 for _, cells in written for feature, _ in cells}
        seen[part] = {name for name, own in words.items() if (own - everywhere) & features}
    assert seen["train"] | seen["test"] == set(words)
    assert not seen["train"] & seen["test"]


def test_the_same_sources_give_the_same_bytes(site_packages, tmp_path):
    for name, seed in (("a", "1"), ("b", "2")):
        subprocess.run(
            [sys.executable, ROOT / "scripts" / "demo_data.py", "build", tmp_path / name]
            + ["--site-packages", site_packages],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        )
    for file in ("train.svm", "test.svm", "data.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_what_gives_the_library_away_is_left_out():
    with_name, without = (demo_data.rows_of(f"{line}\n" * 12, {}) for line in ("x = numba y", "x = y"))
    assert all(np.array_equal(a, b) for a, b in zip(with_name, without, strict=True))
    assert demo_data.TELLTALE.search("_PyZMQ_thing")


def test_imports_are_no_code():
    text = """
import os  # the system
from a.b import (  # several
    c,
    d,
)
from . import e
from ..f import \\
    g
x = 1
    import h
important = from_here(2)
"""
    assert demo_data.code_lines(text) == ["x = 1", "important = from_here(2)"]


def test_a_numbers_value_does_not_matter():
    one, two = (demo_data.rows_of(f"x = {number}\n" * 12, {}) for number in ("1", "2.5e3"))
    assert np.array_equal(one[1], two[1])


def test_a_row_ends_where_its_lines_end():
    indptr, features, counts = demo_data.rows_of("alpha beta\n" * 24, {})
    assert len(indptr) == 3
    assert np.array_equal(features[: indptr[1]], features[indptr[1] :])
    assert counts[: indptr[1]].sum() == 24 + 23 + 22


def test_rows_without_any_token_are_rows():
    indptr, features, _ = demo_data.rows_of("numpy\n" * 12, {})
    assert indptr.tolist() == [0, 0]
    assert len(features) == 0


def test_no_sources_is_an_error_that_leaves_nothing(tmp_path):
    with pytest.raises(SystemExit, match="no Python sources"):
        demo_data.build([tmp_path], tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(("suffix", "opener"), [("", open), (".gz", gzip.open), (".bz2", bz2.open)])
def test_a_users_file_is_dealt_by_line(tmp_path, suffix, opener):
    source = tmp_path / f"mine.svm{suffix}"
    lines = [f"{i % 2} {i + 1}:1 # row {i}" for i in range(1000)]
    with opener(source, "wb") as file:
        file.write(("# made by hand\n\n" + "\n".join(lines)).encode())
    content = demo_data.split(source, tmp_path / "out")
    parts = [(tmp_path / "out" / f"{part}.svm").read_text().splitlines() for part in ("train", "test")]
    assert sorted(parts[0] + parts[1]) == sorted(lines)
    assert [content["train"]["rows"], content["test"]["rows"]] == list(map(len, parts))
    assert 150 < len(parts[1]) < 250


def test_a_users_file_that_cannot_be_split(tmp_path):
    (tmp_path / "one.svm").write_text("1 1:1\n")
    (tmp_path / "bad.svm.gz").write_text("1 1:1\n")
    with pytest.raises(SystemExit, match="too few rows"):
        demo_data.split(tmp_path / "one.svm", tmp_path / "out")
    for name in ("none.svm", "bad.svm.gz"):
        with pytest.raises(SystemExit, match="cannot split"):
            demo_data.split(tmp_path / name, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
