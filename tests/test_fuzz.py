"""The command that trains on random data: it runs, and sees another model."""

from itertools import count

from tests import fuzz


def test_models_are_the_same(tmp_path):
    assert [fuzz.try_one(seed, tmp_path) for seed in (7, 9, 11)] == [[], [], []]


def test_another_model_is_seen(tmp_path, monkeypatch):
    numbers = count()
    monkeypatch.setattr(fuzz, "model_of", lambda forest, folder: b"%d" % next(numbers))
    assert len(fuzz.try_one(7, tmp_path)) == 3
