"""Knows what sketches take in messages, here and as others lay them out; does not know how they are made."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SketchBytes:
    """What the sketches of a message take, or those of many: n_messages of them.

    held     bytes of the arrays that Sketches.to_arrays gives: PushSketches' payload
    largest  bytes of the largest summary of one feature
    """

    n_messages: int = 0
    held: int = 0
    largest: int = 0

    @staticmethod
    def of(*of_ranges: tuple[np.ndarray, ...]) -> "SketchBytes":
        """Of one message, which holds what Sketches.to_arrays gives of each of these ranges of features."""
        held = sum(array.nbytes for arrays in of_ranges for array in arrays)
        return SketchBytes(1, held, max(int(feature_bytes(arrays).max(initial=0)) for arrays in of_ranges))

    def __add__(self, other: "SketchBytes") -> "SketchBytes":
        return SketchBytes(
            self.n_messages + other.n_messages, self.held + other.held, max(self.largest, other.largest)
        )

    def three_ways(self, n_features: int, n_senders: int) -> dict[str, int]:
        """Bytes of these summaries of n_features declared features, each sent by n_senders: as they are held here, and
        as two versions of XGBoost's row split would lay out the same summaries.

        held          as counted
        padded        n_senders * n_features * largest: every feature as large as the largest summary (before 1.3, and the
                      paper's baseline)
        with_headers  held + 16 * n_senders * n_features + 8 * n_messages: 16 bytes for each declared feature, empty or
                      not, and 8 a message (since 3.3)
        """
        n_summaries = n_senders * n_features if self.n_messages else 0  # cut points may have been given
        return {
            "held": self.held,
            "padded": n_summaries * self.largest,
            "with_headers": self.held + 16 * n_summaries + 8 * self.n_messages,
        }


def feature_bytes(arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    """int64 (n_features): the bytes that each feature takes in what Sketches.to_arrays gives, all but the settings."""
    _, n_runs, values, counts, missing, missing_counts, sketched, sizes = arrays[:8]
    taken = n_runs.itemsize + n_runs.astype(np.int64) * (values.itemsize + counts.itemsize)
    taken[missing] += missing.itemsize + missing_counts.itemsize
    of_entry = sum(column.itemsize for column in arrays[8:] if len(column)) if len(arrays) == 12 else 1
    taken[sketched] += sketched.itemsize + sizes.itemsize + of_entry * sizes.astype(np.int64)
    return taken
