"""Knows how many bytes five codings of the rows' routing take; does not know how they are drawn.

Worker (r, c) sends, of the rows of row shard r, to the shard's other worker, all of these without what frames messages:

    strings      one QuickScorer string for each row and tree, a bit a leaf: the AND of all its false nodes (the paper's)
    run-length   the same strings, each as the number of places where its bits change, and these places: log2(leaves) bits
                 each (RapidScorer holds the masks of single nodes like this)
    bits         for each level, one bit for each row
    sparse       for each level, the gaps between those rows that leave the default side, packed
    psboost      what is really sent: of bits, sparse and run-length over rows, the smallest for each message

The last three are counted in the messages of a real training, the first two made from its trees. As in the paper, a worker
that owns no node of a tree (or of a level) sends nothing.
"""

from collections import Counter

import numpy as np

from experiments.common.data import Data
from experiments.common.plan import Settings
from experiments.common.training import grid_of, train, watched
from psboost.boosting.forest import Tree
from psboost.kernels.splits import NODE, SHARD
from psboost.wire.messages import ApplySplits, DescribeRows, PushBitvectors
from psboost.wire.packing import pack_ascending, unpack_bitvector


def measure(settings: Settings, data: Data) -> list[dict]:
    sums = dict.fromkeys(("strings", "run-length", "bits", "sparse", "psboost"), 0)
    owners: dict[tuple[int, int], int] = {}  # of the node of a tree: the feature shard
    n_rows: Counter[str] = Counter()  # of a row shard

    def see(sender, receiver, message, payload) -> None:
        if isinstance(message, ApplySplits):
            nodes = message.fields[:, [NODE, SHARD]].tolist()
            owners.update(((message.tree, node), shard) for node, shard in nodes)
        elif isinstance(message, DescribeRows):
            n_rows[sender.split(",")[0]] += message.n_rows
        elif isinstance(message, PushBitvectors):
            n_bits = n_rows[sender.split(",")[0]]
            words = unpack_bitvector(message.form, message.bits, n_bits)
            bits = np.unpackbits(words.view(np.uint8), bitorder="little", count=n_bits)
            sums["bits"] += -(-n_bits // 8)
            sums["sparse"] += len(pack_ascending(np.flatnonzero(bits == 0)))
            sums["psboost"] += payload

    with watched(see):
        forest = train(settings, data)
    columns, n_leaves = data.X.tocsc(), 0
    for number, tree in enumerate(forest.trees):
        n_leaves += int((tree.left < 0).sum())
        for shard in range(grid_of(settings)[1]):
            owned = [node for (of_tree, node), owner in owners.items() if of_tree == number and owner == shard]
            if owned:
                strings = strings_of(tree, owned, columns)
                sums["strings"] += len(strings) * -(-strings.shape[1] // 8)
                sums["run-length"] += run_length_bytes(strings)
    per_row = len(forest.trees) * data.X.shape[0]
    leaves = n_leaves / len(forest.trees)
    return [{"coding": name, "bytes_per_row_and_tree": n / per_row, "leaves": leaves} for name, n in sums.items()]


def strings_of(tree: Tree, nodes: list[int], columns) -> np.ndarray:
    """bool (rows, leaves): the AND of the masks of those of `nodes` that are false for the row, which then goes right."""
    span, n_leaves = leaf_spans(tree)
    strings = np.ones((columns.shape[0], n_leaves), bool)
    for node in nodes:
        right = np.full(columns.shape[0], not tree.default_left[node])
        stored = slice(*columns.indptr[tree.feature[node] : tree.feature[node] + 2])
        right[columns.indices[stored]] = columns.data[stored] >= tree.threshold[node]
        strings[right, slice(*span[tree.left[node]])] = False
    return strings


def leaf_spans(tree: Tree) -> tuple[dict[int, tuple[int, int]], int]:
    """The leaves below each node, numbered from left to right, as [begin, end); and how many there are."""
    spans: dict[int, tuple[int, int]] = {}

    def number(node: int, begin: int) -> int:
        left, right = int(tree.left[node]), int(tree.right[node])
        end = begin + 1 if left < 0 else number(right, number(left, begin))
        spans[node] = begin, end
        return end

    return spans, number(0, 0)


def run_length_bytes(strings: np.ndarray) -> int:
    """Bytes of all rows' strings as the places where a bit differs from the one before it, which is 1 for the first."""
    changes = np.count_nonzero(strings[:, 1:] != strings[:, :-1]) + np.count_nonzero(~strings[:, 0])
    bits = strings.shape[1].bit_length()  # of a place, and of the number of places of a row
    return -(-(len(strings) + changes) * bits // 8)
