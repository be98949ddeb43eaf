"""Knows .npz files as sources of rows; does not know what rows are for."""

import os
import struct
import zipfile
import zlib

import numpy as np
import scipy  # scipy.sparse is imported where it is first named: it takes a quarter of a second

from psboost.data.matrix import CsrSource, as_csr
from psboost.data.source import EVALUATION, PREDICTION, TRAINING, Source
from psboost.errors import DataError

WAS_DENSE = "was_dense"  # in a file of ours: it holds what was a dense matrix, and is split as that would be
_MISNAMED = {"y": {"label", "labels", "target"}, "weights": {"w", "weight", "sample_weight"}}
# What a damaged file can make of reading it; RuntimeError: a member says that it is encrypted.
UNREADABLE = (
    OSError, ValueError, TypeError, AttributeError, EOFError, KeyError, NotImplementedError, RuntimeError, struct.error,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def open_npz(name: str, labels, weights, n_features, zero_as_missing, purpose: str = TRAINING) -> Source:
    """The source for a sparse matrix in an .npz file; see open_source.

    Of a CSR matrix, members that are not compressed are mapped, so that a span reads its own bytes only; all
    else is loaded here.
    """
    try:
        members = _Members(name)
        given = {"labels": labels, "weights": weights}
        for key, what in () if purpose == PREDICTION else (("y", "labels"), ("weights", "weights")):
            if what == "weights" and purpose == EVALUATION and (unread := members.keys & {key, *_MISNAMED[key]}):
                raise DataError(f"{name}: {min(unread)!r} in it would not be read: metrics have no weights, leave them out")
            if key in members.keys:
                if given[what] is not None:
                    raise DataError(f"{name}: {what} were given, but it has its own ({key!r}): leave one out")
                given[what] = members.load(key)
            wrong = sorted(members.keys & _MISNAMED[key])
            if wrong and given[what] is None:
                raise DataError(f"{name}: {wrong[0]!r} in it would not be read: name {what} {key!r}, or leave it out")
        layout = "csr"
        if "format" in members.keys:
            layout = members.load("format").item()
            layout = layout.decode() if isinstance(layout, bytes) else str(layout)
        if layout != "csr":
            matrix = as_csr(scipy.sparse.load_npz(name))
            members.bytes_read = os.path.getsize(name)
            parts = (matrix.indptr, matrix.indices, matrix.data)
            shape = np.array(matrix.shape)
            mapped = False
        else:
            missing = [key for key in ("indptr", "indices", "data", "shape") if key not in members.keys]
            if missing:
                raise DataError(
                    f"{name}: no {missing[0]!r} in it: write it with scipy.sparse.save_npz, or with indptr, "
                    f"indices, data and shape"
                )
            shape = members.load("shape")
            indices, data = members.map("indices"), members.map("data")
            mapped = indices is not None and data is not None
            if not mapped:
                indices, data = members.load("indices"), members.load("data")
            parts = (members.load("indptr"), indices, data)
    except DataError:
        raise
    except UNREADABLE as error:
        raise DataError(f"{name}: cannot be read as .npz: {error}; use scipy.sparse.save_npz") from error
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or not 0 <= min(shape.tolist()) <= max(shape.tolist()) < 2**63:
        raise DataError(f"{name}: its shape is {shape.tolist()!r}: two whole numbers, rows and columns, are needed")
    source = CsrSource(name, *parts, tuple(shape.tolist()), given["labels"], given["weights"], n_features, zero_as_missing)
    source.bytes_pending = iter([members.bytes_read])
    source.mapped = mapped
    source.was_dense = WAS_DENSE in members.keys
    return source


class _Members:
    """The arrays of an .npz file, and how many bytes were read for them."""

    def __init__(self, name):
        self._name = name
        with zipfile.ZipFile(name) as archive:
            self._infos = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        self.keys = self._infos.keys()
        self.bytes_read = 0

    def load(self, key):
        """The array `key`. Never unpickles."""
        self.bytes_read += self._infos[key].compress_size
        with np.load(self._name, allow_pickle=False) as archive:
            return archive[key]

    def map(self, key):
        """The array `key`, mapped from the file; None if it is compressed or not a plain row of numbers."""
        info = self._infos[key]
        if info.compress_type != zipfile.ZIP_STORED:
            return None
        with open(self._name, "rb") as file:
            # The local header says itself how long its two variable fields are.
            file.seek(info.header_offset)
            n_name, n_extra = struct.unpack("<26xHH", file.read(30))
            file.seek(info.header_offset + 30 + n_name + n_extra)
            version = np.lib.format.read_magic(file)
            if version != (1, 0):
                return None
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            begin = file.tell()
        if dtype.hasobject or len(shape) != 1:
            return None
        if shape[0] == 0:
            return np.empty(shape, dtype)
        return np.asarray(np.memmap(self._name, dtype, "r", begin, shape))
