"""Knows deterministic summaries of weighted values, and their rank errors; does not know sketches of other kinds, or bins.

XGBoost's weighted quantile sketch (Chen and Guestrin 2016, appendix A) in a form whose merging is addition. Of W, all that
a feature's values weigh, a summary says of each value that it kept

    weight   what the value itself weighs
    before   what certainly is less than it, and not than the kept value before it
    after    what possibly is greater than it, and certainly less than the kept value after it

    rows         1  1  2  5  6  6  8  9      prune to 3      1  6  9
    weight       2     1  1  2     1  1      ---------->     2  2  1
                                             before          0  2  1
                                             after           2  1  0

So what is less than v weighs at least the sum of `before` of kept values <= v and of `weight` of those < v; and what is at
most v weighs at most the sum of `weight` of kept values <= v and of `after` of those < v. The two differ by at most eps W
between kept values. What several summaries say of a value just adds up: the merged one's eps is the greatest of theirs,
whatever the order, and nothing is lost. Pruned to n + 1 values it grows by 1 / n. All numbers are integers; so equal
summaries are equal to the byte.
"""

from dataclasses import dataclass

import numpy as np

from psboost.data.columns import Columns, SortedColumns
from psboost.data.runs import UINTS, Runs, ascends_in, narrow, require, total, values_ascend
from psboost.kernels import quantile_sketch as kernels
from psboost.kernels.quantile_sketch import AFTER, BEFORE, WEIGHT


@dataclass(frozen=True)
class Summaries:
    """Summaries of a few features.

    features  int32 (k): ascending
    offsets   int64 (k + 1): the i-th one's entries are offsets[i] .. offsets[i+1], the least and greatest value among them
    values    float32 (n): ascending within a feature
    masses    int64 (n, 3): weight, before, after
    """

    features: np.ndarray
    offsets: np.ndarray
    values: np.ndarray
    masses: np.ndarray

    @staticmethod
    def none() -> "Summaries":
        return Summaries(np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.float32), np.empty((0, 3), np.int64))

    @staticmethod
    def of(runs: Runs, features: np.ndarray) -> "Summaries":
        """The runs of `features` alone."""
        are_theirs, offsets = _entries_of(features, runs.offsets)
        masses = np.zeros((offsets[-1], 3), np.int64)
        masses[:, WEIGHT] = runs.counts[are_theirs]
        return Summaries(features.astype(np.int32), offsets, runs.values[are_theirs], masses)

    def select(self, which: np.ndarray) -> "Summaries":
        """Those at these places alone, which ascend."""
        are_theirs, offsets = _entries_of(which, self.offsets)
        return Summaries(self.features[which], offsets, self.values[are_theirs], self.masses[are_theirs])

    @staticmethod
    def join(parts: list["Summaries"], first_features: list[int]) -> "Summaries":
        """Those of one part's features after another's, which are numbered from first_features on."""
        sizes = [np.diff(part.offsets) for part in parts]
        numbers = [part.features + np.int32(first) for part, first in zip(parts, first_features, strict=True)]
        return Summaries(
            np.concatenate([np.empty(0, np.int32), *numbers]),
            np.concatenate([[0], np.cumsum(np.concatenate([np.empty(0, np.int64), *sizes]))]).astype(np.int64),
            np.concatenate([np.empty(0, np.float32), *(part.values for part in parts)]),
            np.concatenate([np.empty((0, 3), np.int64), *(part.masses for part in parts)]),
        )

    @staticmethod
    def merge(parts: list["Summaries"]) -> "Summaries":
        """What all parts say together; eps is the greatest of theirs."""
        parts = [part for part in parts if len(part.values)] or parts[:1]
        if len(parts) == 1:
            return parts[0]
        features = np.concatenate([np.repeat(part.features, np.diff(part.offsets)) for part in parts])
        values = np.concatenate([part.values for part in parts])
        order = np.lexsort((values, features))
        features, values = features[order], values[order]
        is_first = np.ones(len(order), bool)
        is_first[1:] = (features[1:] != features[:-1]) | (values[1:] != values[:-1])
        first = np.flatnonzero(is_first)
        masses = np.add.reduceat(np.concatenate([part.masses for part in parts])[order], first)
        known, begins = np.unique(features[first], return_index=True)
        return Summaries(known, np.append(begins, len(first)).astype(np.int64), values[first], masses)

    def prune(self, most: int) -> "Summaries":
        """At most `most` >= 2 entries of each, evenly by rank; eps grows by 1 / (most - 1)."""
        lengths = np.minimum(np.diff(self.offsets), most)
        offsets, n = np.empty_like(self.offsets), int(lengths.sum())
        values, masses = np.empty(n, np.float32), np.empty((n, 3), np.int64)
        kernels.prune(self.offsets, self.values, self.masses, most, offsets, values, masses)
        return Summaries(self.features, offsets, values[: offsets[-1]].copy(), masses[: offsets[-1]].copy())

    def runs(self, n_features: int) -> Runs:
        """The kept values as runs of their weights, which leaves out all between them."""
        return Runs(self.offsets, self.values, self.masses[:, WEIGHT].copy()).among(self.features, n_features)

    def sums(self) -> np.ndarray:
        """int64 (k): what all values of each feature weigh."""
        up_to = np.zeros(len(self.values) + 1, np.int64)
        np.cumsum(self.masses[:, WEIGHT] + self.masses[:, BEFORE], out=up_to[1:])
        return up_to[self.offsets[1:]] - up_to[self.offsets[:-1]]

    # --- the wire

    def to_arrays(self) -> tuple[np.ndarray, ...]:
        """Features, entries of each; values, weight, before and after of the entries.

        `after` is empty where it is but the next entry's `before`: of what was pruned once, and not merged.
        """
        weights, before, after = (np.ascontiguousarray(column) for column in self.masses.T)
        if np.array_equal(after[:-1], before[1:]):
            after = after[:0]
        return (self.features, narrow(np.diff(self.offsets)), self.values, narrow(weights), narrow(before), narrow(after))

    @staticmethod
    def from_arrays(arrays: tuple[np.ndarray, ...], n_features: int) -> "Summaries":
        """The summaries that `to_arrays` wrote. Raises ProtocolError on anything that it does not write."""
        features, sizes, values, weights, before, after = arrays
        require(all(array.dtype in UINTS for array in (sizes, weights, before, after)), "summaries of another type")
        require(features.dtype == np.int32 and values.dtype == np.float32, "summaries of another type")
        require(ascends_in(features, n_features), "summarised features that do not ascend")
        require(len(sizes) == len(features), "summaries that do not fit the features")
        require(sizes.min(initial=2) >= 2 and sizes.max(initial=0) <= len(values), "a summary of an odd size")
        offsets = np.zeros(len(features) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:], dtype=np.int64)
        n = int(offsets[-1])
        require(len(values) == len(weights) == len(before) == n and len(after) in (0, n), "entries that do not fit")
        require(values_ascend(offsets, values), "summaries whose values do not ascend")
        require(weights.min(initial=1) > 0, "a value that weighs nothing")
        require(max(total(weights) + total(before), total(after)) < 2**62, "weights out of range")
        masses = np.zeros((n, 3), np.int64)
        masses[:, WEIGHT], masses[:, BEFORE] = weights, before
        if len(after):
            masses[:, AFTER] = after
        else:
            masses[:-1, AFTER] = masses[1:, BEFORE]
        firsts, lasts = offsets[:-1], offsets[1:] - 1
        require(not masses[firsts, BEFORE].any() and not masses[lasts, AFTER].any(), "weight beyond the extremes")
        return Summaries(features, offsets, np.ascontiguousarray(values), masses)


def _entries_of(which: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of all entries, bool, are of the features at these places; and the offsets of these alone."""
    lengths = np.diff(offsets)
    are_wanted = np.zeros(len(lengths), bool)
    are_wanted[which] = True
    return np.repeat(are_wanted, lengths), np.concatenate([[0], np.cumsum(lengths[which])]).astype(np.int64)


def weights_before(weights: np.ndarray, n_rows: int) -> np.ndarray:
    """int64 (n_rows + 1): what all rows before each one weigh, and what all weigh; `weights` (int64 >= 0) are those of the
    first rows, the others weigh nothing."""
    before, n = np.zeros(n_rows + 1, np.int64), len(weights)
    np.cumsum(weights, out=before[1 : n + 1])
    before[n + 1 :] = before[n]
    return before


def sketch(
    columns: Columns, starts: np.ndarray, ends: np.ndarray, n_rows: int, before: np.ndarray | None, max_bin: int,
    per_bin: int,
) -> tuple[Runs, np.ndarray, Summaries]:
    """Exact runs of columns of at most max_bin * per_bin values, the weight of each one's NaN, summaries of the others: as
    XGBoost makes them of the entries starts[f] .. ends[f] of each, in the order of their rows (kernels.quantile_sketch).

    n_rows   if what these rows do not store is 0, how many there are: columns that have numbers have these zeros too; else 0
    before   weights_before of these rows; None: they weigh 1 each. What only rows of weight 0 hold is left out
    """
    arrays = _room(ends - starts + 1, max_bin * per_bin)
    values = np.ascontiguousarray(columns.values)  # of one-hot data, a single one is held
    before = np.empty(0, np.int64) if before is None else before
    kernels.sketch_columns(starts, ends, columns.rows, values, before, n_rows, max_bin, per_bin, *arrays)
    return _parted(*arrays)


def weigh(columns: SortedColumns, before: np.ndarray, most: int) -> tuple[Runs, np.ndarray, Summaries]:
    """Exact runs of the features of at most `most` values, the weight of each one's NaN, summaries of the others, from which
    so many are picked at once; `before` as `sketch` takes it."""
    arrays = _room(np.diff(columns.offsets), most)
    kernels.weigh_columns(columns.offsets, columns.rows, columns.values, before, most, *arrays)
    return _parted(*arrays)


def _room(lengths: np.ndarray, most: int) -> tuple[np.ndarray, ...]:
    """For summaries of columns: their offsets, values and masses; and for what the NaN of each column weigh."""
    n = int(np.minimum(lengths, most).sum())  # most of it is never touched
    return (
        np.empty(len(lengths) + 1, np.int64), np.empty(n, np.float32), np.empty((n, 3), np.int64),
        np.empty(len(lengths), np.int64),
    )  # fmt: skip


def _parted(offsets, values, masses, missing) -> tuple[Runs, np.ndarray, Summaries]:
    """What `sketch` returns, of what its kernel wrote."""
    n = offsets[-1]
    whole = Summaries(np.arange(len(missing), dtype=np.int32), offsets, values[:n], masses[:n])
    inexact = np.flatnonzero(masses[:n, BEFORE] | masses[:n, AFTER])
    pruned = np.unique(np.searchsorted(offsets, inexact, side="right") - 1)
    return whole.runs(len(missing)).without(pruned), missing, whole.select(pruned)
