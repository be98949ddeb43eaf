"""Knows what histograms take at each step from dense to psboost's; does not know how that is drawn.

    dense                   16 bytes a bin of all declared features, from each worker to a server for each histogram: what a
                            worker of a dense mode gives into its ring, here counted for the blocks of this grid
    csr                     the paper's sparse arrays, of every feature that the rows of the node store
    packed                  the same histograms in psboost's codec
    without dead features   only those of features that can still be split (design D3), and the bits that say which these are
    without twins           roots, but for the first one, only with the first of bins that hold the same rows
    8 bits, 4 bits          the same with coarser gradients; all before have 16 bits

With every step but dense goes the entropy of its messages: each its gaps between bins, its sums of gradients and its sums of
hessians, under their own counts. Nobody can decode at that, the counts themselves are not in it.
All bytes are those of a tree, of array contents: what frames messages is not in them.
"""

from contextlib import contextmanager, nullcontext

import numpy as np

from experiments.common.data import Data
from experiments.common.plan import Settings
from experiments.common.training import grid_of, test_auc, train, watched
from experiments.speed.order0 import entropy_bytes, gaps_of
from psboost.boosting.living import LivingFeatures
from psboost.roles import block_worker, dealing
from psboost.roles.block_worker import BlockWorker
from psboost.wire.histogram_codecs import decode_histograms
from psboost.wire.messages import ApplySplits, ProposeSplits, PushHistograms

STEPS = {
    "dense": {"codec": "packed", "grad_bits": 16, "all": True, "twins": True},
    "csr": {"codec": "csr", "grad_bits": 16, "all": True, "twins": True},
    "packed": {"codec": "packed", "grad_bits": 16, "all": True, "twins": True},
    "without dead features": {"codec": "packed", "grad_bits": 16, "all": False, "twins": True},
    "without twins": {"codec": "packed", "grad_bits": 16, "all": False, "twins": False},
    "8 bits": {"codec": "packed", "grad_bits": 8, "all": False, "twins": False},
    "4 bits": {"codec": "packed", "grad_bits": 4, "all": False, "twins": False},
}
MANY_BINS = np.array([0, 2**31 - 1])  # for decoding: more than any message has


def measure(settings: Settings, data: Data) -> list[dict]:
    step = dict(STEPS[settings["step"]])
    everything, with_twins = step.pop("all"), step.pop("twins")
    sent = {"histograms_bytes": 0, "flags_bytes": 0, "entropy_bytes": 0.0}

    def count(arrays) -> None:
        sent["histograms_bytes"] += sum(array.nbytes for array in arrays)
        if step["codec"] == "packed":
            held = decode_histograms("packed", arrays, MANY_BINS)
            sent["entropy_bytes"] += sum(map(entropy_bytes, (gaps_of(held), held.grads, held.hesses)))

    def see(sender, receiver, message, payload) -> None:
        if isinstance(message, PushHistograms):
            count(message.arrays)
            sent["histograms_bytes"] += sum(array.nbytes for array in message.twins)
        elif isinstance(message, ProposeSplits | ApplySplits):
            sent["flags_bytes"] += sum(array.nbytes for array in message.living)

    with of_all_features(count) if everything else watched(see), all_twins_sent() if with_twins else nullcontext():
        forest = train(settings | step, data, own=("step",))
    if settings["step"] == "dense":
        dense = forest.report["dense"]
        sent["histograms_bytes"] = dense["bytes_per_histogram"] * dense["histograms"] * grid_of(settings)[0]
    row = {name: size / len(forest.trees) for name, size in sent.items()}
    if settings["step"] in ("dense", "csr"):
        row["entropy_bytes"] = ""  # not asked
    return [row | {"auc": test_auc(forest, data)}]


@contextmanager
def all_twins_sent():
    """No bins are left out for holding the same rows as others."""
    before, block_worker.MANY_TWINS = block_worker.MANY_TWINS, 2.0
    try:
        yield
    finally:
        block_worker.MANY_TWINS = before


@contextmanager
def of_all_features(count):
    """Shows what workers would send of all features that they store, if it were not known which ones can be split."""

    def show(worker, tree, level, positions) -> None:
        edges = worker._range_offsets.tolist()
        every, of_root = LivingFeatures.of_root(edges[-1]), np.zeros_like(positions)
        for number, built in enumerate(worker._build(worker._partition.listed, of_root, [(every, edges)])):
            count(worker._encode(level, built, number))
        send(worker, tree, level, positions)

    send, least_rows = BlockWorker._send_histograms, dealing.least_rows
    BlockWorker._send_histograms, dealing.least_rows = show, lambda *_: 1
    try:
        yield
    finally:
        BlockWorker._send_histograms, dealing.least_rows = send, least_rows
