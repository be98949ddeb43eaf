"""Knows how many bytes histograms are sent as, beside their order-0 entropy; does not know the codec.

The entropy of a message is that of three sequences of symbols, each under its own counts in that message: gaps between
bins, sums of gradients, sums of hessians. No coder of the three by these counts takes fewer bytes; one that writes two of
them as pairs, as psboost may, does.
"""

from collections.abc import Iterator

import datasets
import numpy as np
from child import PARAMETERS
from datasets import GIVEN
from order0 import entropy_bytes, gaps_of
from results import Figure

AT_MOST = 1.3
ROUNDS = 4  # the first is left out: its gradients have two values


def measure(arguments) -> Iterator[Figure]:
    for shape in arguments.shapes:
        if shape == "dense":
            continue
        sent, entropy = _sent(*datasets.load(datasets.prepare(shape, arguments)[GIVEN] / "train"))
        note = "grid 2x2, 2 servers"
        yield Figure("entropy", shape, "psboost, sent", 1, sent / 1e6, "MB a tree", note=note)
        yield Figure("entropy", shape, "order-0 entropy", 1, entropy / 1e6, "MB a tree", note=note)
        yield Figure("entropy", shape, "sent over entropy", 1, sent / entropy, "times", at_most=AT_MOST, note=note)


def _sent(X, y) -> tuple[float, float]:
    """Bytes a tree, and their entropy."""
    import psboost
    from psboost.roles import block_worker

    messages, before = [], []
    encode = block_worker.encode_histograms

    def watched(codec, histograms, *more):
        arrays = encode(codec, histograms, *more)
        streams = gaps_of(histograms), histograms.grads, histograms.hesses
        messages.append((sum(array.nbytes for array in arrays), sum(map(entropy_bytes, streams))))
        return arrays

    block_worker.encode_histograms = watched
    try:
        psboost.train(
            PARAMETERS, X, y, num_boost_round=ROUNDS, grid=(2, 2), servers=2, transport="memory",
            callbacks=[lambda _: before.append(len(messages))],
        )  # fmt: skip
    finally:
        block_worker.encode_histograms = encode
    sent, entropy = np.sum(messages[before[0] :], axis=0) / (ROUNDS - 1)
    return sent, entropy
