"""Knows the values of features as exact runs (value, count), and how they are added up; does not know sketches or bins."""

from dataclasses import dataclass

import numpy as np

from psboost.errors import ProtocolError
from psboost.kernels import binning as kernels
from psboost.kernels.sorted_columns import runs_of_sorted, sort_columns

UINTS = (np.uint8, np.uint16, np.uint32, np.uint64)


@dataclass(frozen=True)
class Runs:
    """Feature f holds counts[i] times values[i], for i in offsets[f] .. offsets[f+1]; values ascending.

    offsets int64 (n_features + 1), values float32, counts int64: how many rows, or their weight
    """

    offsets: np.ndarray
    values: np.ndarray
    counts: np.ndarray

    @property
    def n_features(self) -> int:
        return len(self.offsets) - 1

    @staticmethod
    def of(held: dict[int, tuple[np.ndarray, np.ndarray]], n_features: int) -> "Runs":
        """Runs of the few features in `held` (ascending: values, which ascend, and their counts), and of no others."""
        values, counts = (np.concatenate(arrays) for arrays in zip(*held.values(), strict=True))
        offsets = np.cumsum([0, *(len(values) for values, _ in held.values())])
        return Runs(offsets, values, counts).among(np.array(list(held)), n_features)

    @staticmethod
    def of_one(value: np.float32, counts: np.ndarray) -> "Runs":
        """Runs of features that hold one value each, int64 so often, or nothing."""
        held = np.flatnonzero(counts)
        return Runs(np.arange(len(held) + 1), np.full(len(held), value, np.float32), counts[held]).among(held, len(counts))

    @staticmethod
    def add(pieces: list["Runs"]) -> "Runs":
        """The sum of several runs of the same features."""
        if len(pieces) == 1:
            return pieces[0]
        offsets = np.sum([piece.offsets for piece in pieces], axis=0)
        values, counts = np.empty(offsets[-1], np.float32), np.empty(offsets[-1], np.int64)
        cursors = offsets[:-1].copy()
        for piece in pieces:
            kernels.append_runs(piece.offsets, piece.values, piece.counts, cursors, values, counts)
        if np.count_nonzero([np.diff(piece.offsets) for piece in pieces], axis=0).max(initial=0) <= 1:
            return Runs(offsets, values, counts)  # no feature is in two of them
        places = (np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))).astype(np.int32)
        sort_columns(offsets, places, values)
        added, sums = np.empty_like(offsets), np.empty_like(counts)
        kernels.collapse_runs(offsets, places, counts, values, added, sums)
        if added[-1] < offsets[-1]:
            values, sums = values[: added[-1]].copy(), sums[: added[-1]].copy()
        return Runs(added, values, sums)

    @staticmethod
    def join(pieces: list["Runs"]) -> "Runs":
        """The runs of the features of one piece after another's."""
        lengths = np.concatenate([np.empty(0, np.int64), *(np.diff(piece.offsets) for piece in pieces)])
        return Runs(
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.concatenate([np.empty(0, np.float32), *(piece.values for piece in pieces)]),
            np.concatenate([np.empty(0, np.int64), *(piece.counts for piece in pieces)]),
        )

    def among(self, features: np.ndarray, n_features: int) -> "Runs":
        """These as the runs of `features`, which ascend, among n_features of which the others have none."""
        offsets = np.zeros(n_features + 1, np.int64)
        offsets[features + 1] = np.diff(self.offsets)
        return Runs(np.cumsum(offsets), self.values, self.counts)

    def without(self, features) -> "Runs":
        """These runs less those of `features`."""
        lengths = np.diff(self.offsets)
        if not lengths[features].any():
            return self
        kept = np.ones(len(lengths), bool)
        kept[features] = False
        offsets = np.zeros_like(self.offsets)
        np.cumsum(lengths * kept, out=offsets[1:])
        keep = np.repeat(kept, lengths)
        return Runs(offsets, self.values[keep], self.counts[keep])

    def sums(self) -> np.ndarray:
        """int64 (n_features): what the counts of each feature come to."""
        up_to = np.zeros(len(self.counts) + 1, np.int64)
        np.cumsum(self.counts, out=up_to[1:])
        return up_to[self.offsets[1:]] - up_to[self.offsets[:-1]]


def count_runs(columns: list[np.ndarray], most: int) -> tuple[Runs, np.ndarray]:
    """The runs of columns in order of value, NaN last; none of one of more than `most`. And how many NaN each has."""
    lengths = np.array([len(values) for values in columns])
    offsets, n = np.concatenate([[0], np.cumsum(lengths)]), int(np.minimum(lengths, most).sum())
    in_order = columns[0] if len(columns) == 1 else np.concatenate(columns)
    run_offsets, missing = np.empty(len(offsets), np.int64), np.empty(len(columns), np.int64)
    values, counts = np.empty(n, np.float32), np.empty(n, np.int64)  # most of it is never touched
    runs_of_sorted(offsets, in_order, most, run_offsets, values, counts, missing)
    n = run_offsets[-1]
    return Runs(run_offsets, values[:n].copy(), counts[:n].copy()), missing


# --- for the wire


def narrow(numbers: np.ndarray) -> np.ndarray:
    """Non-negative integers in the narrowest unsigned type that holds them."""
    largest = numbers.max(initial=0)
    return numbers.astype(next(dtype for dtype in UINTS if largest <= np.iinfo(dtype).max))


def total(counts: np.ndarray) -> float:
    return float(counts.sum(dtype=np.float64))


def ascends_in(features: np.ndarray, n_features: int) -> bool:
    """Whether they ascend strictly, in 0 .. n_features."""
    return len(features) == 0 or (
        features[0] >= 0 and features[-1] < n_features and bool(np.all(features[1:] > features[:-1]))
    )


def values_ascend(offsets: np.ndarray, values: np.ndarray) -> bool:
    """Whether the values of each feature ascend strictly, and none is NaN."""
    ascends = np.ones(len(values), bool)
    ascends[1:] = values[1:] > values[:-1]
    ascends[offsets[:-1][np.diff(offsets) > 0]] = True
    return bool(ascends.all()) and not bool(np.isnan(values).any())


def require(holds: bool, problem: str) -> None:
    if not holds:
        raise ProtocolError(f"sketches with {problem}")
