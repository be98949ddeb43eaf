"""Knows how splits are found, compared and written down; does not know messages or rows."""

from dataclasses import dataclass, fields

import numpy as np

from psboost.boosting.fixed_point import Steps, least_units
from psboost.boosting.histogram import NodeSums, Total
from psboost.data import zeros
from psboost.data.sketches import CutPoints
from psboost.errors import ProtocolError
from psboost.kernels import ascending
from psboost.kernels import splits as kernels
from psboost.kernels.node_histograms import NodeHistogram

MIN_GAIN = 1e-6  # a smaller gain is no gain (XGBoost's kRtEps)


@dataclass(frozen=True)
class SplitRule:
    """What makes a split good, and allowed."""

    reg_lambda: float
    reg_alpha: float
    gamma: float
    min_child_weight: float

    def leaf_values(self, sum_grads: np.ndarray, sum_hesses: np.ndarray) -> np.ndarray:
        """float64: -T(G) / (H + lambda), before the learning rate (XGBoost paper, equation 5)."""
        shrunk = np.sign(sum_grads) * np.maximum(np.abs(sum_grads) - self.reg_alpha, 0.0)
        present = sum_hesses > 0
        return np.where(present, -shrunk / np.where(present, sum_hesses + self.reg_lambda, 1.0), 0.0)


@dataclass(frozen=True)
class FeatureRange:
    """Features side by side, as one role numbers them: 0 .. n_features, possibly out of several feature shards.

    ids           int64: the user's number of each feature
    shards        int32: its feature shard
    locals        int32: its number within that shard
    bin_offsets   int32 (n_features + 1): its bins
    default_bins  int32 (2 n_features), as kernels.splits.find_split takes them
    """

    ids: np.ndarray
    shards: np.ndarray
    locals: np.ndarray
    bin_offsets: np.ndarray
    default_bins: np.ndarray

    @property
    def n_features(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Proposals:
    """The best split of each open node within one range; fields as in the message ProposeSplits."""

    gains: np.ndarray
    features: np.ndarray
    shards: np.ndarray
    locals: np.ndarray
    bins: np.ndarray
    default_left: np.ndarray
    left_sums: np.ndarray
    node_sums: np.ndarray

    @staticmethod
    def empty(n_nodes: int) -> "Proposals":
        return Proposals(
            gains=np.full(n_nodes, -np.inf),
            features=np.full(n_nodes, -1, np.int64),
            shards=np.zeros(n_nodes, np.int32),
            locals=np.zeros(n_nodes, np.int32),
            bins=np.zeros(n_nodes, np.int32),
            default_left=np.zeros(n_nodes, np.uint8),
            left_sums=np.zeros((n_nodes, 2), np.int64),
            node_sums=np.zeros((n_nodes, 2), np.int64),
        )


def best_of(proposals: list) -> Proposals:
    """The best proposal of each open node, of several ranges'."""
    first, *others = proposals
    best = Proposals(*(getattr(first, field.name) for field in fields(Proposals)))
    for other in others:
        wins = better(other, best)
        columns = {name: np.where(wins.reshape(-1, *[1] * (column.ndim - 1)), getattr(other, name), column)
                   for name, column in vars(best).items()}  # fmt: skip
        best = Proposals(**columns)
    return best


def better(a, b) -> np.ndarray:
    """bool, for each node: whether `a` proposes the better split: greater gain, lower feature, lower bin, missing right
    (D1)."""
    wins, ties = a.gains > b.gains, a.gains == b.gains
    for name in ("features", "bins", "default_left"):
        of_a, of_b = getattr(a, name), getattr(b, name)
        wins, ties = wins | (ties & (of_a < of_b)), ties & (of_a == of_b)
    return wins


@dataclass(frozen=True)
class Splits:
    """The splits of a level, in order of node number: what Proposals and the message ApplySplits say of each, and

    thresholds   float32: a value below it goes left
    built_sums   int64 (n x 2): sums of the child whose histogram is built
    """

    nodes: np.ndarray
    features: np.ndarray
    shards: np.ndarray
    locals: np.ndarray
    bins: np.ndarray
    thresholds: np.ndarray
    default_left: np.ndarray
    unstored_left: np.ndarray
    gains: np.ndarray
    left_sums: np.ndarray
    built_sums: np.ndarray
    build_left: np.ndarray
    last: bool


def choose_splits(
    best: Proposals, open_nodes: list[int], cut_points: list[CutPoints], rule: zeros.Rule, last: bool
) -> Splits:
    """The splits to make of the best proposals of all open nodes; whoever chooses, it is the same.

    cut_points  of each feature shard
    last        whether the children will be leaves
    """
    chosen = np.flatnonzero(np.isfinite(best.gains))
    shards, locals_, bins = best.shards[chosen], best.locals[chosen], best.bins[chosen]
    thresholds = np.empty(len(chosen), np.float32)
    for shard in np.unique(shards).tolist():
        points, own = cut_points[shard], shards == shard
        thresholds[own] = points.cuts[points.offsets[locals_[own]] + bins[own]]
    default_left, left_sums = best.default_left[chosen], best.left_sums[chosen]
    unstored_left = default_left if zeros.unstored_is_missing(rule) else (thresholds > 0).astype(np.uint8)
    right_sums = best.node_sums[chosen] - left_sums
    build_left = left_sums[:, 1] <= right_sums[:, 1]
    return Splits(
        nodes=np.array(open_nodes, np.int32)[chosen],
        features=best.features[chosen],
        shards=shards,
        locals=locals_,
        bins=bins,
        thresholds=thresholds,
        default_left=default_left,
        unstored_left=unstored_left,
        gains=best.gains[chosen],
        left_sums=left_sums,
        built_sums=np.where(build_left[:, None], left_sums, right_sums),
        build_left=build_left.astype(np.uint8),
        last=last,
    )


@dataclass(frozen=True)
class _Node:
    """An open node: its histogram, whether that is in pairs, and the sums of its rows."""

    histogram: NodeHistogram
    pairs: bool
    total: Total


class _Room:
    """Memory for the histograms of one tree's nodes, kept for the next tree: new memory is slow to touch first.

    It is made in blocks that each hold a root, and so any node: none is too small for what comes in another order.
    """

    _LEAST = 1 << 16

    def __init__(self):
        self._sizes = [self._LEAST] * 3  # of a block: features, bins, slots
        self._blocks: list[NodeHistogram] = []
        self.clear()

    def clear(self) -> None:
        self._at, self._feature, self._entry, self._slot = 0, 0, 0, 0

    def take(self, n_features: int, n_bins: int, pairs: bool) -> NodeHistogram:
        """Space for so many features and bins, until `keep` is told how many of them are used."""
        sizes = [n_features + 1, n_bins, n_bins * (1 + pairs)]
        if any(size > held for size, held in zip(sizes, self._sizes, strict=True)):  # a root like none before
            self._sizes, self._blocks = [*map(max, sizes, self._sizes)], []
            self.clear()
        ends = [begin + size for begin, size in zip((self._feature, self._entry, self._slot), sizes, strict=True)]
        if any(end > held for end, held in zip(ends, self._sizes, strict=True)):
            self._at, self._feature, self._entry, self._slot = self._at + 1, 0, 0, 0
            ends = sizes
        if self._at == len(self._blocks):
            n_starts, n_entries, n_slots = self._sizes
            types = [np.int32, np.int32, np.int32, np.int64]
            self._blocks.append(NodeHistogram(*map(np.empty, (n_starts, n_starts, n_entries, n_slots), types)))
        block = self._blocks[self._at]
        return NodeHistogram(
            block.features[self._feature : ends[0] - 1],
            block.starts[self._feature : ends[0]],
            block.bins[self._entry : ends[1]],
            block.sums[self._slot : ends[2]],
        )

    def keep(self, node: NodeHistogram) -> None:
        """What was taken last, cut to what is used of it, stays until `clear`."""
        self._feature += len(node.starts)
        self._entry += len(node.bins)
        self._slot += len(node.sums)


class SplitFinder:
    """Keeps the histograms of one range level by level, and finds each open node's best split.

    `add` gets the sums of each node that was built; the sibling's are parent - child, which is exact, and `find`
    proposes. Then `apply` says which nodes are split, and the children are the next open nodes.
    """

    def __init__(self, features: FeatureRange, rule: SplitRule):
        self._range, self._rule = features, rule
        most_bins = int(np.diff(features.bin_offsets).max(initial=0))
        # Rows a multiple of 4 KiB apart would compete for the same few lines of the cache.
        room = -(-(kernels.BATCH + 1 + most_bins) // 512) * 512 + 72
        self._candidates, self._scores = np.empty((kernels.N_FIELDS, room), np.int64), np.empty(features.n_features)
        self._room = _Room()

    def start_tree(self, steps: Steps) -> None:
        rule = self._rule
        self._constants = np.array([steps.grad, steps.hess, rule.reg_lambda, rule.reg_alpha, MIN_GAIN])
        self._least = least_units(rule.min_child_weight, steps.hess)
        self._room.clear()
        self._open: list[_Node] = []
        self._parents: list[tuple[_Node, bool]] | None = None
        self._parent_features = [np.arange(self._range.n_features, dtype=np.int32)]

    def apply(self, positions: list[int], build_left: list[bool]) -> None:
        """The open nodes to split, by position, and which child of each is built."""
        self._parents = [(self._open[i], left) for i, left in zip(positions, build_left, strict=True)]
        of_parents = [self._open[i].histogram.features.copy() for i in positions]
        self._parent_features = [features for features in of_parents for _ in ("left", "right")]
        self._open = []

    def add(self, sums: NodeSums) -> None:
        """The sums of the root; or, split by split, those of the child that is built."""
        if self._parents is None:
            self._open.append(self._take(sums))
            return
        parent, build_left = self._parents[len(self._open) // 2]
        pair = self._share_out(parent, sums)
        self._open += pair if build_left else pair[::-1]

    def find(self) -> Proposals:
        """The best split of each open node."""
        n_nodes, of_range = len(self._open), self._range
        sums = np.array([(node.total.grad, node.total.hess, self._least) for node in self._open], np.int64).reshape(-1, 3)
        best, gains = np.zeros((n_nodes, kernels.N_BEST), np.int64), np.zeros(n_nodes)
        for i, node in enumerate(self._open):
            kernels.find_split(
                node.histogram, node.pairs, of_range.bin_offsets, of_range.default_bins, of_range.ids, sums[i],
                self._constants, self._candidates, self._scores, best[i], gains[i : i + 1],
            )  # fmt: skip
        found = np.flatnonzero((best[:, kernels.FOUND] != 0) & (gains >= self._rule.gamma))
        proposals, best, features = Proposals.empty(n_nodes), best[found], best[found, kernels.FEATURE]
        proposals.node_sums[:] = sums[:, :2]
        proposals.gains[found] = gains[found]
        proposals.features[found] = of_range.ids[features]
        proposals.shards[found] = of_range.shards[features]
        proposals.locals[found] = of_range.locals[features]
        proposals.bins[found] = best[:, kernels.BIN]
        proposals.default_left[found] = best[:, kernels.DEFAULT_LEFT]
        proposals.left_sums[found] = best[:, [kernels.LEFT_GRAD, kernels.LEFT_HESS]]
        return proposals

    @property
    def parent_features(self) -> list[np.ndarray]:
        """int32, of each open node: the features that lived in its parent."""
        return self._parent_features

    def flags(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each open node: the features that lived in its parent (int32), and whether they live on (uint8)."""
        flags = [np.empty(len(features), np.uint8) for features in self._parent_features]
        for node, features, alive in zip(self._open, self._parent_features, flags, strict=True):
            ascending.find_members(node.histogram.features, features, alive)
        return list(zip(self._parent_features, flags, strict=True))

    def _take(self, sums: NodeSums) -> _Node:
        """The root."""
        bin_offsets = self._range.bin_offsets
        room = self._room.take(self._range.n_features, int(bin_offsets[-1]), sums.pairs)
        n_features = sums.take(bin_offsets, self._least, room)
        root = _Node(_cut(room, n_features, sums.pairs), sums.pairs, sums.total)
        self._room.keep(root.histogram)
        return root

    def _share_out(self, parent: _Node, sums: NodeSums) -> list[_Node]:
        """The child that was built and its sibling; the parent's histogram is no more."""
        held, rest = parent.histogram, parent.total - sums.total
        room = self._room.take(len(held.features), len(held.bins), sums.pairs)
        forms = np.array([parent.pairs, sums.pairs, rest.needs_pairs])
        if forms[1:].any() and not parent.pairs:
            raise ProtocolError("a child's totals are not part of its parent's")
        n_child, n_rest = sums.share_out(held, forms, self._least, room)
        child = _Node(_cut(room, n_child, sums.pairs), sums.pairs, sums.total)
        self._room.keep(child.histogram)
        return [child, _Node(_cut(held, n_rest, rest.needs_pairs), rest.needs_pairs, rest)]


def _cut(node: NodeHistogram, n_features: int, pairs: bool) -> NodeHistogram:
    """What a kernel has written of `node`."""
    end = node.starts[n_features]
    return NodeHistogram(
        node.features[:n_features], node.starts[: n_features + 1], node.bins[:end], node.sums[: end * (1 + pairs)]
    )
