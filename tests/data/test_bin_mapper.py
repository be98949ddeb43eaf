"""Bin mappers: collected from shards, selected by feature, saved to the same bytes, refused if damaged."""

import errno
import os
import re
from dataclasses import replace

import numpy as np
import pytest

from psboost.data.bin_mapper import BinMapper
from psboost.data.cut_points import CutPoints
from psboost.errors import ModelError

FLOAT_MAX = np.finfo(np.float32).max
RULES = {"zero_as_missing": False, "max_bin": 4, "n_features": 2**40, "min_rows": 3}


def mapper():
    left = CutPoints(np.array([0, 2, 2, 3]), np.float32([1, FLOAT_MAX, FLOAT_MAX]), np.uint8([0, 0, 1]))
    right = CutPoints(np.array([0, 3]), np.float32([-1, 0.1, FLOAT_MAX]), np.uint8([1]))
    return BinMapper.collect([(np.array([9, 4, 2**35]), left), (np.array([7]), right)], **RULES)


def test_collect_sorts_by_feature_and_drops_those_without_cuts():
    got = mapper()
    assert got.features.tolist() == [7, 9, 2**35]
    assert got.offsets.tolist() == [0, 3, 5, 6]
    np.testing.assert_array_equal(got.cuts, np.float32([-1, 0.1, FLOAT_MAX, 1, FLOAT_MAX, FLOAT_MAX]))
    assert got.has_missing.tolist() == [1, 0, 1]


def test_select_keeps_the_order_asked_for():
    points = mapper().select(np.array([2**35, 8, 7, 2**36, 0]))
    assert points.offsets.tolist() == [0, 1, 1, 4, 4, 4]
    np.testing.assert_array_equal(points.cuts, np.float32([FLOAT_MAX, -1, 0.1, FLOAT_MAX]))
    assert points.has_missing.tolist() == [1, 0, 1, 0, 0]
    assert points.cuts.dtype == np.float32
    assert points.has_missing.dtype == np.uint8


NOTHING = CutPoints(np.zeros(2, np.int64), np.empty(0, np.float32), np.zeros(1, np.uint8))


@pytest.mark.parametrize("shards", [[], [(np.array([5]), NOTHING)]])
def test_a_mapper_of_nothing(shards, tmp_path):
    empty = BinMapper.collect(shards, **RULES)
    empty.save(tmp_path / "empty.npz")
    points = BinMapper.load(tmp_path / "empty.npz").select(np.array([5, 0]))
    assert points.offsets.tolist() == [0, 0, 0]
    assert points.has_missing.tolist() == [0, 0]
    assert mapper().select(np.empty(0, np.int64)).offsets.tolist() == [0]


def test_saved_and_loaded_is_the_same_and_so_are_the_bytes(tmp_path):
    mapper().save(tmp_path / "a.npz")
    loaded = BinMapper.load(tmp_path / "a.npz")
    loaded.save(tmp_path / "b")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.npz", "b"]
    for name, expected in vars(mapper()).items():
        got = getattr(loaded, name)
        np.testing.assert_array_equal(got, expected)
        assert type(got) is type(expected)


@pytest.mark.parametrize("rule", [False, True, "unstored"])
def test_the_rule_for_zeros_comes_back(rule, tmp_path):
    replace(mapper(), zero_as_missing=rule).save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as archive:
        arrays = dict(archive)
    assert arrays["settings"][1] == [False, True, "unstored"].index(rule)
    assert BinMapper.load(tmp_path / "a.npz").zero_as_missing is rule or rule == "unstored"
    for number in (-1, 3):
        arrays["settings"][1] = number
        np.savez(tmp_path / "b.npz", **arrays)
        with pytest.raises(ModelError, match=rf"b\.npz: unknown rule for zeros, number {number}"):
            BinMapper.load(tmp_path / "b.npz")


DAMAGES = {
    "features that do not ascend": {"features": np.array([9, 7, 2**35])},
    "a negative feature": {"features": np.array([-1, 9, 2**35])},
    "a feature past the width": {"n_features": 10},
    "fewer flags": {"has_missing": np.uint8([1, 0])},
    "an odd flag": {"has_missing": np.uint8([1, 0, 2])},
    "offsets past the cuts": {"offsets": np.array([0, 3, 5, 7])},
    "a feature without cuts": {"offsets": np.array([0, 3, 3, 6])},
    "too many bins": {"max_bin": 2},
    "cuts that do not ascend": {"cuts": np.float32([0.1, -1, FLOAT_MAX, 1, FLOAT_MAX, FLOAT_MAX])},
    "a last cut below the maximum": {"cuts": np.float32([-1, 0.1, 1, 1, FLOAT_MAX, FLOAT_MAX])},
    "nan": {"cuts": np.float32([np.nan, 0.1, FLOAT_MAX, 1, FLOAT_MAX, FLOAT_MAX])},
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_mapper_is_refused(damage, tmp_path):
    replace(mapper(), **DAMAGES[damage]).save(tmp_path / "bad.npz")
    with pytest.raises(ModelError, match=r"bad\.npz"):
        BinMapper.load(tmp_path / "bad.npz")


def test_other_files_are_refused(tmp_path):
    mapper().save(tmp_path / "packed.npz")
    damaged = bytearray((tmp_path / "packed.npz").read_bytes())
    for entry in re.finditer(b"PK\x01\x02", bytes(damaged)):  # of the zip's directory: how the member is compressed
        damaged[entry.start() + 10] = 77
    (tmp_path / "packed.npz").write_bytes(damaged)
    with pytest.raises(ModelError, match=r"packed\.npz is no bin mapper: .*compression method"):
        BinMapper.load(tmp_path / "packed.npz")
    path = tmp_path / "other.npz"
    with pytest.raises(ModelError, match=r"other\.npz"):
        BinMapper.load(path)
    for content in (b"", b"text", b"PK\x03\x04 not a zip"):
        path.write_bytes(content)
        with pytest.raises(ModelError, match=r"other\.npz"):
            BinMapper.load(path)
    np.savez(path, features=np.zeros(3))
    with pytest.raises(ModelError, match=r"other\.npz"):
        BinMapper.load(path)
    mapper().save(path)
    content = bytearray(path.read_bytes())
    for at in range(0, len(content), 37):
        broken = bytearray(content)
        broken[at] ^= 0xFF
        path.write_bytes(broken)
        try:
            BinMapper.load(path)
        except ModelError:
            continue


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    mapper().save(path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ModelError, match=r"a\.npz: the bin mapper cannot be written: disk full"):
        mapper().save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.npz"]
