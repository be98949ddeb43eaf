"""Knows the cut points of a data set by the user's feature numbers, and their file; does not know rows."""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from psboost.data import zeros
from psboost.data.cut_points import CutPoints
from psboost.data.npz import UNREADABLE
from psboost.errors import DataError, ModelError
from psboost.files import replaced
from psboost.kernels.floats import FLOAT32_MAX

VERSION = 1
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)
_ARRAYS = {
    "features": np.int64,
    "offsets": np.int64,
    "cuts": np.float32,
    "has_missing": np.uint8,
    "settings": np.int64,
}


@dataclass(frozen=True)
class BinMapper:
    """The bins of a whole data set, saved beside the model.

    features     int64 (k): ascending user numbers of the features that have cut points
    offsets      int64 (k + 1), cuts float32, has_missing uint8 (k): as in CutPoints
    n_features   declared width of the data
    min_rows     features stored in fewer rows were left out
    """

    features: np.ndarray
    offsets: np.ndarray
    cuts: np.ndarray
    has_missing: np.ndarray
    zero_as_missing: zeros.Rule
    max_bin: int
    n_features: int
    min_rows: int

    @staticmethod
    def collect(
        shards: list[tuple[np.ndarray, CutPoints]],
        *,
        zero_as_missing: zeros.Rule,
        max_bin: int,
        n_features: int,
        min_rows: int,
    ) -> "BinMapper":
        """The mapper of features that lie in several shards: each int64 user numbers and their cut points."""
        parts = [cut_points for _, cut_points in shards]
        features = _concatenate((numbers for numbers, _ in shards), np.int64)
        offsets = np.zeros(len(features) + 1, np.int64)
        np.cumsum(_concatenate((np.diff(part.offsets) for part in parts), np.int64), out=offsets[1:])
        cuts = _concatenate((part.cuts for part in parts), np.float32)
        has_missing = _concatenate((part.has_missing for part in parts), np.uint8)
        order = np.argsort(features, kind="stable")
        order = order[np.diff(offsets)[order] > 0]
        ordered = _take(offsets, cuts, has_missing, order)
        return BinMapper(
            features[order], ordered.offsets, ordered.cuts, ordered.has_missing,
            zero_as_missing, max_bin, n_features, min_rows,
        )  # fmt: skip

    def select(self, features: np.ndarray) -> CutPoints:
        """Cut points of user features, in the order given; one that is not known gets no cuts."""
        if len(self.features) == 0:
            nothing = np.zeros(len(features), np.uint8)
            return CutPoints(np.zeros(len(features) + 1, np.int64), np.empty(0, np.float32), nothing)
        at = np.minimum(np.searchsorted(self.features, features), len(self.features) - 1)
        known = np.where(self.features[at] == features, at, -1)
        return _take(self.offsets, self.cuts, self.has_missing, known)

    def of_other_width(self, name: str, n_features: int) -> DataError:
        """What is wrong with data that have so many features."""
        return DataError(
            f"{name} has {n_features} features, the bin mapper was made of data with {self.n_features}: give the same "
            "columns, or leave the bin mapper out"
        )

    def save(self, path: str | Path) -> None:
        """Write the mapper as .npz, whole or not at all; equal mappers give equal bytes. ModelError."""
        settings = [VERSION, zeros.NUMBERED.index(self.zero_as_missing), self.max_bin, self.n_features, self.min_rows]
        arrays = {name: getattr(self, name) for name in _ARRAYS if name != "settings"}
        arrays["settings"] = np.array(settings, np.int64)
        try:
            with replaced(path, "wb") as file, zipfile.ZipFile(file, "w") as archive:
                for name, dtype in _ARRAYS.items():
                    entry = zipfile.ZipInfo(f"{name}.npy", _FIXED_DATE)
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    with archive.open(entry, "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, np.ascontiguousarray(arrays[name], dtype))
        except OSError as error:
            raise ModelError(f"{path}: the bin mapper cannot be written: {error.strerror}") from error

    @staticmethod
    def load(path: str | Path) -> "BinMapper":
        """The mapper in `path`. Raises ModelError if the file cannot be read or is not such a mapper."""
        try:
            with open(path, "rb") as file:
                if not zipfile.is_zipfile(file):
                    raise ValueError("not an .npz file")
                file.seek(0)
                with np.load(file, allow_pickle=False) as archive:
                    arrays = {name: archive[name] for name in _ARRAYS}
        except UNREADABLE as error:
            raise ModelError(f"{path} is no bin mapper: {error}") from error
        for name, dtype in _ARRAYS.items():
            if arrays[name].dtype != dtype or arrays[name].ndim != 1:
                raise ModelError(f"{path}: {name} is not a flat array of {np.dtype(dtype)}")
        settings = arrays.pop("settings").tolist()
        if len(settings) != 5 or settings[0] != VERSION:
            raise ModelError(f"{path}: bin mapper of another version than {VERSION}")
        _, rule, max_bin, n_features, min_rows = settings
        if not 0 <= rule < len(zeros.NUMBERED):
            raise ModelError(f"{path}: unknown rule for zeros, number {rule}")
        mapper = BinMapper(**arrays, zero_as_missing=zeros.NUMBERED[rule], max_bin=max_bin,
                           n_features=n_features, min_rows=min_rows)  # fmt: skip
        problem = mapper._problem()
        if problem:
            raise ModelError(f"{path}: {problem}")
        return mapper

    def _problem(self) -> str:
        """What is wrong with the arrays, or an empty string."""
        k = len(self.features)
        if len(self.offsets) != k + 1 or len(self.has_missing) != k:
            return f"{k} features, but {len(self.offsets)} offsets and {len(self.has_missing)} missing flags"
        if self.max_bin < 2 or self.n_features < 0 or self.min_rows < 0:
            return f"max_bin {self.max_bin}, {self.n_features} features, min_rows {self.min_rows} are odd"
        if k and (self.features[0] < 0 or self.features[-1] >= self.n_features):
            return f"feature numbers {self.features[0]}..{self.features[-1]} of {self.n_features} features"
        if np.any(self.features[1:] <= self.features[:-1]):
            return "feature numbers that do not ascend"
        lengths = np.diff(self.offsets)
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.cuts):
            return f"{len(self.cuts)} cuts, but offsets {self.offsets[0]}..{self.offsets[-1]}"
        if k and (lengths.min() < 1 or lengths.max() > self.max_bin):
            return f"a feature of {lengths.min()} or {lengths.max()} bins, with max_bin {self.max_bin}"
        ascends = self.cuts[1:] > self.cuts[:-1]
        ascends[self.offsets[1:-1] - 1] = True
        if not ascends.all() or np.any(self.cuts[self.offsets[1:] - 1] != FLOAT32_MAX):
            return "cuts that do not ascend to float32's maximum"
        if self.has_missing.max(initial=0) > 1:
            return "missing flags other than 0 and 1"
        return ""


def _take(offsets: np.ndarray, cuts: np.ndarray, has_missing: np.ndarray, which: np.ndarray) -> CutPoints:
    """Cut points of the features at positions `which`; -1 stands for a feature without any."""
    known = which >= 0
    lengths = np.where(known, offsets[which + 1] - offsets[which], 0)
    taken = np.zeros(len(which) + 1, np.int64)
    np.cumsum(lengths, out=taken[1:])
    source = np.arange(taken[-1]) + np.repeat(offsets[which] - taken[:-1], lengths)
    return CutPoints(taken, cuts[source], np.where(known, has_missing[which], 0).astype(np.uint8))


def _concatenate(arrays, dtype) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype), *arrays]).astype(dtype, copy=False)
