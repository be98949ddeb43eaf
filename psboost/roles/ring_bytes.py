"""Knows in closed form which bytes the dense modes send for a tree; does not run anything."""

import numpy as np

from psboost.boosting.forest import Tree
from psboost.roles.modes import ALLREDUCE, REDUCE_SCATTER

BYTES_PER_BIN = 16  # a grad and a hess as float64; and so for the totals of the root's rows
BYTES_PER_PROPOSAL = 88  # of ShareSplits and PushSplits, for each open node


def levels_of(tree: Tree, max_depth: int) -> list[tuple[int, int]]:
    """(nodes whose histograms were built, open nodes) of each level that was searched, from a finished tree.

    The root, and then of each split the smaller child; children at max_depth (0: no limit) are leaves, unsearched.
    """
    depth = np.zeros(len(tree.left), np.int64)
    splits = np.flatnonzero(tree.left >= 0)
    for node in splits:  # ascending: parents come before their children
        depth[tree.left[node]] = depth[tree.right[node]] = depth[node] + 1
    n_splits = np.bincount(depth[splits], minlength=1).tolist()
    below = n_splits if max_depth == 0 else n_splits[: max_depth - 1]
    return [(1, 1), *((n, 2 * n) for n in below if n)]


def dense_payload(mode: str, n_workers: int, n_bins: int, levels: list[tuple[int, int]]) -> dict[str, int]:
    """Payload bytes that all workers together send for a tree of these levels, by message kind.

    n_bins  of all features that were dealt: report["bins"]

    With R workers, B bins, N nodes built and P open nodes at a level:

        ReduceHistograms   (R - 1) * 16 * (N * B + R at the root)    every chunk makes R - 1 hops, the totals with each
        ShareHistograms    (R - 1) * 16 * N * B                      allreduce
        ShareSplits        R * ceil(log2 R) * 88 * P                 reduce-scatter
        PushSplits         88 * P                                    worker 0 tells the coordinator, of all levels at once
    """
    if mode not in (ALLREDUCE, REDUCE_SCATTER):
        raise ValueError(f"the bytes of mode {mode!r} depend on the data")
    n_built, n_open = (sum(column) for column in zip(*levels, strict=True))
    chunks = (n_workers - 1) * BYTES_PER_BIN * n_built * n_bins
    payload = {
        "ReduceHistograms": chunks + (n_workers - 1) * BYTES_PER_BIN * n_workers,
        "PushSplits": BYTES_PER_PROPOSAL * n_open,
    }
    if mode == ALLREDUCE:
        payload["ShareHistograms"] = chunks
    else:
        payload["ShareSplits"] = n_workers * (n_workers - 1).bit_length() * BYTES_PER_PROPOSAL * n_open
    return payload
