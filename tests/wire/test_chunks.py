"""Chunks of either form: their sums, the form that they take, what is loaded of them; and what is no chunk."""

import numpy as np
import pytest

from psboost.boosting.histogram import Histograms
from psboost.errors import ProtocolError
from psboost.wire.chunks import DenseChunk, SparseChunk, add, read_chunk


def dense_sums(seed, fill, n_nodes=3, n_bins=40):
    """float64 (n_nodes, n_bins, 2), a share `fill` of the bins present."""
    rng = np.random.default_rng(seed)
    sums = np.stack([rng.integers(-(2**50), 2**50, (n_nodes, n_bins)), rng.integers(1, 2**50, (n_nodes, n_bins))], axis=2)
    return np.where((rng.random((n_nodes, n_bins)) < fill)[:, :, None], sums, 0).astype(np.float64)


def sparse(sums):
    nodes, bins = np.nonzero(sums[:, :, 1])
    offsets = np.searchsorted(nodes, np.arange(len(sums) + 1)).astype(np.int64)
    values = sums[nodes, bins].astype(np.int64)
    return SparseChunk.of(Histograms(offsets, bins.astype(np.int32), values[:, 0], values[:, 1]), sums.shape[1])


def loaded(chunk, n_bins, begin=0, end=None):
    """The sums of all nodes, loaded one after another into the same place."""
    end = n_bins if end is None else end
    acc, nodes = np.zeros(2 * (end - begin), np.int64), []
    for node in range(len(chunk.arrays[0]) - isinstance(chunk, SparseChunk)):
        chunk.load(node, begin, end, acc)
        nodes.append(acc.copy().reshape(-1, 2))
        chunk.unload(node, begin, end, acc)
    return np.array(nodes)


@pytest.mark.parametrize("forms", ["dense dense", "dense sparse", "sparse dense", "sparse sparse"])
@pytest.mark.parametrize("fill", [0.0, 0.1, 0.9])
def test_sums(forms, fill):
    a, b = dense_sums(1, fill), dense_sums(2, fill)
    made = [DenseChunk(sums) if form == "dense" else sparse(sums) for form, sums in zip(forms.split(), (a, b), strict=True)]
    total = add(*made)
    assert np.array_equal(loaded(total, 40), a + b)
    assert np.array_equal(loaded(total, 40, 11, 30), (a + b)[:, 11:30])
    stays_sparse = forms == "sparse sparse" and fill < 0.9
    assert total.form == ("sparse" if stays_sparse else "dense")
    assert np.array_equal(made[0].arrays[-1].reshape(-1), (a if made[0].form == "dense" else a[a[:, :, 1] > 0]).reshape(-1))


def test_the_form_of_fewer_bytes():
    for fill in np.linspace(0, 1, 21):
        sums = dense_sums(3, fill)
        chunk = sparse(sums)
        n_present = int((sums[:, :, 1] > 0).sum())
        bytes_of = {"sparse": 20 * n_present + 8 * (3 + 1), "dense": 16 * 3 * 40}
        least = chunk.smallest()
        assert sum(array.nbytes for array in least.arrays) == bytes_of[least.form] == min(bytes_of.values())
        assert np.array_equal(loaded(least, 40), sums)


@pytest.mark.parametrize("n_nodes", [0, 1])
def test_no_bins(n_nodes):
    empty = sparse(np.zeros((n_nodes, 0, 2)))
    for chunk in (empty, empty.smallest(), DenseChunk(np.zeros((n_nodes, 0, 2)))):
        total = add(chunk, empty)
        assert total.arrays[-1].size == 0
        assert read_chunk(total.form, total.arrays, n_nodes, 0).form == total.form


def test_what_is_read_is_checked():
    sums = dense_sums(4, 0.2)
    good = sparse(sums)
    assert np.array_equal(loaded(read_chunk("sparse", good.arrays, 3, 40), 40), sums)
    assert np.array_equal(loaded(read_chunk("dense", (sums,), 3, 40), 40), sums)
    offsets, bins, values = good.arrays
    for form, arrays in (
        ("dense", good.arrays), ("sparse", (sums,)), ("packed", (sums,)), ("dense", ()), ("sparse", ()),
        ("dense", (sums[:2],)), ("dense", (sums.astype(np.float32),)), ("dense", (sums[:, :39],)),
        ("sparse", (offsets[:-1], bins, values)), ("sparse", (offsets, bins[:-1], values)),
        ("sparse", (offsets, bins, values.reshape(-1))), ("sparse", (offsets, bins.astype(np.int64), values)),
        ("sparse", (offsets[::-1].copy(), bins, values)), ("sparse", (offsets, bins[::-1].copy(), values)),
        ("sparse", (offsets, bins + np.int32(40), values)), ("sparse", (offsets, bins - np.int32(40), values)),
    ):  # fmt: skip
        with pytest.raises(ProtocolError, match="not of 3 nodes and 40 bins"):
            read_chunk(form, arrays, 3, 40)
