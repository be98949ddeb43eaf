"""Knows how splits are found, compared and written down; does not know messages or rows."""

from dataclasses import dataclass

import numpy as np

from psboost.boosting.fixed_point import Steps, least_units
from psboost.boosting.histogram import Histograms
from psboost.errors import ProtocolError
from psboost.kernels import histograms as histogram_kernels
from psboost.kernels import splits as kernels

MIN_GAIN = 1e-6  # a smaller gain is no gain (XGBoost's kRtEps)


@dataclass(frozen=True)
class SplitRule:
    """What makes a split good, and allowed."""

    reg_lambda: float
    reg_alpha: float
    gamma: float
    min_child_weight: float

    def leaf_value(self, sum_grad: float, sum_hess: float) -> float:
        """-T(G) / (H + lambda), before the learning rate (XGBoost paper, equation 5)."""
        shrunk = np.sign(sum_grad) * max(abs(sum_grad) - self.reg_alpha, 0.0)
        return 0.0 if sum_hess <= 0 else float(-shrunk / (sum_hess + self.reg_lambda))


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

    def bin_features(self) -> np.ndarray:
        """int32 (n_bins): the feature of each bin."""
        return np.repeat(np.arange(self.n_features, dtype=np.int32), np.diff(self.bin_offsets))


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


def better(a, b, i: int) -> bool:
    """Whether `a` proposes the better split of node i: greater gain, lower feature, lower bin, missing right (D1)."""
    if a.gains[i] != b.gains[i]:
        return bool(a.gains[i] > b.gains[i])
    return (a.features[i], a.bins[i], a.default_left[i]) < (b.features[i], b.bins[i], b.default_left[i])


class SplitFinder:
    """Keeps the histograms of one range level by level, and finds each open node's best split.

    `find` gets the histograms of the nodes that were built; the siblings' are parent - child, which is exact. Then
    `apply` says which nodes are split, and the children are the next open nodes.
    """

    def __init__(self, features: FeatureRange, rule: SplitRule):
        self._range, self._rule = features, rule
        self._bin_features = features.bin_features()
        self._all = np.arange(features.n_features, dtype=np.int32)

    def start_tree(self, steps: Steps) -> None:
        rule = self._rule
        self._constants = np.array([steps.grad, steps.hess, rule.reg_lambda, rule.reg_alpha, MIN_GAIN])
        self._least = least_units(rule.min_child_weight, steps.hess)
        self._histograms: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._living: list[np.ndarray] = []
        self._sums = np.zeros((0, 2), np.int64)
        self._splits: list[tuple[int, bool]] | None = None

    def apply(self, positions: list[int], build_left: list[bool]) -> None:
        """The open nodes to split, by position, and which child of each is built."""
        self._splits = list(zip(positions, build_left, strict=True))

    def find(self, built: Histograms, totals: np.ndarray) -> tuple[Proposals, list[tuple[np.ndarray, np.ndarray]]]:
        """The best split of each open node; and the features that lived in its parent, with whether they live on (uint8).

        `totals` (int64, n_built x 2): sum_grad, sum_hess over all rows of the nodes built.
        """
        nodes = self._open(built, totals)
        proposals, flags = Proposals.empty(len(nodes)), []
        self._histograms, self._living = [], []
        best, best_gain = np.zeros(7, np.int64), np.zeros(1)
        for i, (histogram, parent_living, sums) in enumerate(nodes):
            bins, grads, hesses = histogram
            alive = np.empty(len(parent_living), np.uint8)
            n_kept = kernels.find_split(
                bins, grads, hesses, self._bin_features, self._range.bin_offsets, self._range.default_bins,
                self._range.ids, parent_living, np.array([*sums, self._least]), self._constants,
                alive, best, best_gain,
            )  # fmt: skip
            self._histograms.append((bins[:n_kept], grads[:n_kept], hesses[:n_kept]))
            self._living.append(parent_living[alive.view(bool)])
            flags.append((parent_living, alive))
            proposals.node_sums[i] = sums
            if best[kernels.FOUND] and best_gain[0] >= self._rule.gamma:
                self._write(proposals, i, best, best_gain[0])
        self._sums = proposals.node_sums
        return proposals, flags

    def _write(self, proposals: Proposals, i: int, best: np.ndarray, gain: float) -> None:
        feature = best[kernels.FEATURE]
        proposals.gains[i] = gain
        proposals.features[i] = self._range.ids[feature]
        proposals.shards[i] = self._range.shards[feature]
        proposals.locals[i] = self._range.locals[feature]
        proposals.bins[i] = best[kernels.BIN]
        proposals.default_left[i] = best[kernels.DEFAULT_LEFT]
        proposals.left_sums[i] = best[kernels.LEFT_GRAD], best[kernels.LEFT_HESS]

    def _open(self, built: Histograms, totals: np.ndarray):
        """(histogram, parent's living features, sums) of each open node; the root, or left, right, left, right."""
        if self._splits is None:
            return [(_own(built.node(0)), self._all, totals[0])]
        nodes = []
        for k, (position, build_left) in enumerate(self._splits):
            child, living, sums = built.node(k), self._living[position], totals[k]
            sibling = _subtract(self._histograms[position], child)
            pair = [(_own(child), living, sums), (sibling, living, self._sums[position] - sums)]
            nodes += pair if build_left else pair[::-1]
        return nodes

    def living(self, i: int) -> np.ndarray:
        """int32 ascending: the features that live in open node i."""
        return self._living[i]


def _own(arrays):
    """Arrays that may be changed."""
    return tuple(np.array(a) for a in arrays)


def _subtract(parent, child):
    size = len(parent[0])
    bins, grads, hesses = np.empty(size, np.int32), np.empty(size, np.int64), np.empty(size, np.int64)
    end = histogram_kernels.subtract(*parent, *child, bins, grads, hesses)
    if end < 0:
        raise ProtocolError("a child's histogram is not part of its parent's")
    return bins[:end], grads[:end], hesses[:end]
