"""Knows the bins of one worker's rows and features; does not know values, user feature numbers or trees."""

from dataclasses import dataclass

import numpy as np

from psboost.data.columns import MAX_INT32, Columns
from psboost.data.sketches import CutPoints
from psboost.errors import DataError
from psboost.kernels import binning as kernels


@dataclass(frozen=True)
class Block:
    """One worker's block: bin ids by row, and rows by bin id (postings).

    bin_offsets      int32 (n_features + 1): bins of feature f are bin_offsets[f] .. bin_offsets[f+1]: first
                     the numeric ones, then, where training rows hold NaN, the missing bin
    n_cuts           int32 (n_features): numeric bins
    zero_bin         int32 (n_features): the bin, counted within the feature, of 0.0; -1 with zero_as_missing,
                     and for features without bins
    indptr           int64 (n_rows + 1): row r's bins are indptr[r] .. indptr[r+1]
    bins             int32 (n): ascending within a row
    posting_offsets  int64 (n_bins + 1): bin b's rows are posting_offsets[b] .. posting_offsets[b+1]; those of
                     all bins of a feature lie together: the rows that leave a split's default are one slice
    posting_rows     int32 (n): ascending within a bin
    """

    n_rows: int
    n_features: int
    bin_offsets: np.ndarray
    n_cuts: np.ndarray
    zero_bin: np.ndarray
    indptr: np.ndarray
    bins: np.ndarray
    posting_offsets: np.ndarray
    posting_rows: np.ndarray

    @property
    def n_bins(self) -> int:
        return len(self.posting_offsets) - 1

    @staticmethod
    def build(columns: Columns, cut_points: CutPoints, zero_as_missing: bool) -> "Block":
        """The block of `columns`, whose features are those of `cut_points`, in the same order.

        Values of features without cut points are left out. NaN without a missing bin (no training row holds
        one) is left out with zero_as_missing; else it goes to the last numeric bin, right of every split.
        """
        n_known = len(cut_points.offsets) - 1
        if n_known != columns.n_features:
            raise DataError(f"cut points of {n_known} features for a block of {columns.n_features} features")
        n_cuts = np.diff(cut_points.offsets)
        bin_offsets = bin_offsets_of(cut_points)
        posting_offsets = np.zeros(int(bin_offsets[-1]) + 1, np.int64)
        posting_rows = np.empty(len(columns.rows), np.int32)
        n_kept = kernels.bin_columns(
            columns.offsets, columns.rows, columns.values, cut_points.offsets, cut_points.cuts, bin_offsets,
            not zero_as_missing, posting_offsets, posting_rows,
        )  # fmt: skip
        if n_kept < len(posting_rows):
            posting_rows = posting_rows[:n_kept].copy()
        zero_bin = np.full(columns.n_features, -1, np.int32) if zero_as_missing else zero_bins_of(cut_points)

        indptr = np.zeros(columns.n_rows + 1, np.int64)
        kernels.count_rows(posting_rows, indptr[1:])
        np.cumsum(indptr, out=indptr)
        bins = np.empty(n_kept, np.int32)
        kernels.scatter_bins(posting_offsets, posting_rows, indptr[:-1].copy(), bins)
        return Block(
            columns.n_rows, columns.n_features, bin_offsets, n_cuts.astype(np.int32), zero_bin,
            indptr, bins, posting_offsets, posting_rows,
        )  # fmt: skip


def bin_offsets_of(cut_points: CutPoints) -> np.ndarray:
    """int32 (n_features + 1): the bin ids of each feature. Raises DataError if int32 cannot hold them."""
    offsets = np.zeros(len(cut_points.offsets), np.int64)
    np.cumsum(np.diff(cut_points.offsets) + cut_points.has_missing, out=offsets[1:])
    if offsets[-1] >= MAX_INT32:
        raise DataError(f"{offsets[-1]} bins at one worker or server: use more feature shards or a lower max_bin")
    return offsets.astype(np.int32)


def zero_bins_of(cut_points: CutPoints) -> np.ndarray:
    """int32 (n_features): the bin, counted within the feature, of 0.0; -1 for a feature without cuts."""
    zero_bins = np.empty(len(cut_points.offsets) - 1, np.int32)
    kernels.find_zero_bins(cut_points.offsets, cut_points.cuts, zero_bins)
    return zero_bins
