"""Knows the borders of features' bins, and what messages carry of them; does not know how they are found."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from psboost.data.runs import UINTS, narrow, require, total, values_ascend
from psboost.errors import ProtocolError
from psboost.kernels.floats import FLOAT32_MAX
from psboost.kernels.splits import find_thresholds


@dataclass(frozen=True)
class CutPoints:
    """The borders of each feature's bins.

    offsets      int64 (n_features + 1): feature f's cuts are offsets[f] .. offsets[f+1]
    cuts         float32 (n): ascends strictly within a feature; value < cuts[b] exactly when its bin is <= b
    has_missing  uint8 (n_features): 1 if a bin for NaN follows the numeric ones

    The last cut is float32's maximum, so a value that training did not see falls in a bin too (that maximum
    itself and inf in the last). A feature that nothing is known of has no cuts.
    """

    offsets: np.ndarray
    cuts: np.ndarray
    has_missing: np.ndarray

    def to_arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What messages carry: how many cuts each feature has, all cuts but each feature's last, has_missing."""
        n_cuts = np.diff(self.offsets)
        inner = np.ones(len(self.cuts), bool)
        inner[self.offsets[1:][n_cuts > 0] - 1] = False
        return narrow(n_cuts), self.cuts[inner], self.has_missing

    @staticmethod
    def from_arrays(arrays: tuple[np.ndarray, ...], n_features: int) -> "CutPoints":
        """The cut points of so many features that `to_arrays` wrote. Raises ProtocolError on arrays that do not fit
        together."""
        require(len(arrays) == 3 and all(array.ndim == 1 for array in arrays), "odd arrays of cut points")
        n_cuts, inner_cuts, has_missing = arrays
        are_known = n_cuts.dtype in UINTS and inner_cuts.dtype == np.float32 and has_missing.dtype == np.uint8
        require(are_known, "cut points of another type")
        are_all = len(n_cuts) == len(has_missing) == n_features
        require(are_all, f"cut points of {len(n_cuts)} and {len(has_missing)} features instead of {n_features}")
        require(total(n_cuts) == len(inner_cuts) + np.count_nonzero(n_cuts), "a number of cut points that does not fit")
        offsets = np.zeros(len(n_cuts) + 1, np.int64)
        np.cumsum(n_cuts, out=offsets[1:], dtype=np.int64)
        inner = np.ones(offsets[-1], bool)
        inner[offsets[1:][n_cuts > 0] - 1] = False
        cuts = np.full(offsets[-1], FLOAT32_MAX, np.float32)
        cuts[inner] = inner_cuts
        require(values_ascend(offsets, cuts), "cut points that do not ascend")
        require(has_missing.max(initial=0) <= 1 and not has_missing[n_cuts == 0].any(), "missing flags that do not fit")
        return CutPoints(offsets, cuts, has_missing)

    def part(self, begin: int, end: int) -> "CutPoints":
        """The cut points of features begin .. end."""
        low, high = self.offsets[begin], self.offsets[end]
        offsets = self.offsets[begin : end + 1] - low
        return CutPoints(offsets, self.cuts[low:high], self.has_missing[begin:end])

    @staticmethod
    def join(parts: list["CutPoints"]) -> "CutPoints":
        """The cut points of several ranges of features, one range after another."""
        if len(parts) == 1:
            return parts[0]
        lengths = [np.diff(part.offsets) for part in parts]
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
        return CutPoints(
            offsets,
            np.concatenate([part.cuts for part in parts]),
            np.concatenate([part.has_missing for part in parts]),
        )


class AllCuts(NamedTuple):
    """The cuts of all feature shards, one shard after another.

    firsts   int64 (n_shards + 1): which of all features is a shard's first one
    offsets  int64 (n_features + 1), cuts float32: as CutPoints has them
    """

    firsts: np.ndarray
    offsets: np.ndarray
    cuts: np.ndarray

    @staticmethod
    def of(shards: list[CutPoints]) -> "AllCuts":
        firsts = np.zeros(len(shards) + 1, np.int64)
        np.cumsum([len(shard.has_missing) for shard in shards], out=firsts[1:])
        joined = CutPoints.join(shards)
        return AllCuts(firsts, joined.offsets, joined.cuts)

    def thresholds(self, splits: np.ndarray) -> np.ndarray:
        """float32 (n): below which values go left, at these splits (kernels.splits). ProtocolError if one has a bin that no
        feature has."""
        thresholds = np.empty(len(splits), np.float32)
        if not find_thresholds(splits, *self, thresholds):
            raise ProtocolError("a split by a bin that no feature has")
        return thresholds
