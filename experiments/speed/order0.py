"""Knows how small symbols could be written, by their own counts; does not know what they stand for elsewhere."""

import numpy as np


def entropy_bytes(symbols: np.ndarray) -> float:
    """What the symbols take at -log2 of their share each."""
    counts = np.unique(symbols, return_counts=True)[1]
    return float(counts @ -np.log2(counts / max(len(symbols), 1))) / 8


def gaps_of(histograms) -> np.ndarray:
    """How many bins are skipped before each one, within its node."""
    bins, offsets = np.asarray(histograms.bins, np.int64), np.asarray(histograms.offsets)
    gaps = np.diff(bins, prepend=-1) - 1
    starts = offsets[:-1][np.diff(offsets) > 0]
    gaps[starts] = bins[starts]
    return gaps
