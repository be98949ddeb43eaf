"""Knows how splits are found, compared and written down; does not know messages or rows."""

from dataclasses import dataclass

import numpy as np

from psboost.boosting.fixed_point import Steps, least_units
from psboost.boosting.histogram import Sums, Total
from psboost.boosting.living import LivingFeatures
from psboost.errors import ProtocolError
from psboost.kernels import gains as gain_kernels
from psboost.kernels import open_nodes, trees
from psboost.kernels import splits as kernels
from psboost.kernels.left_sides import room_for
from psboost.kernels.node_histograms import NodeHistogram
from psboost.kernels.words import n_words_of

MIN_GAIN = 1e-6  # a smaller gain is no gain (XGBoost's kRtEps)


@dataclass(frozen=True)
class SplitRule:
    """What makes a split good, and allowed."""

    reg_lambda: float
    reg_alpha: float
    gamma: float
    min_child_weight: float

    def in_steps(self, steps: Steps) -> tuple[int, np.ndarray]:
        """least: the least hess of a child, in steps; constants: what kernels.gains takes as its rule."""
        constants = np.array([steps.grad, steps.hess, self.reg_lambda, self.reg_alpha, MIN_GAIN, self.gamma])
        return least_units(self.min_child_weight, steps.hess), constants

    def leaf_values(self, sums: np.ndarray, learning_rate: float) -> np.ndarray:
        """float32 (n): what a tree's leaves of these sums of grad and hess, float64 (n, 2), are worth (kernels.trees)."""
        values = np.empty(len(sums), np.float32)
        trees.weigh_leaves(sums, self.reg_lambda, self.reg_alpha, learning_rate, values)
        return values


@dataclass(frozen=True)
class FeatureRange:
    """Features side by side, as one role numbers them: 0 .. n_features, possibly out of several feature shards.

    ids           int64: the user's number of each feature
    shards        int32: its feature shard
    locals        int32: its number within that shard
    bin_offsets   int32 (n_features + 1): its bins
    default_bins  int32 (2 n_features), as kernels.gains.find_split takes them
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
    """The best split of each open node within one range.

    gains   float64 (n_nodes); -inf: no split
    fields  int64 (n_nodes, N_PROPOSED): proposals as kernels.splits has them
    """

    gains: np.ndarray
    fields: np.ndarray

    @property
    def root_sums(self) -> np.ndarray:
        """int64 (2): sum_grad and sum_hess of the first node."""
        return self.fields[0, kernels.NODE_GRAD : kernels.NODE_HESS + 1]

    @staticmethod
    def of(told, n_nodes: int) -> "Proposals":
        """Those that a message holds as `gains` and `fields`. ProtocolError if they are not of so many open nodes."""
        if not len(told.gains) == len(told.fields) == n_nodes:
            raise ProtocolError(f"proposals of {len(told.gains)} gains and {len(told.fields)} splits, expected {n_nodes}")
        return Proposals(told.gains, told.fields)

    @staticmethod
    def join(parts: list["Proposals"]) -> "Proposals":
        """Those of nodes that follow each other."""
        if len(parts) == 1:
            return parts[0]
        return Proposals(np.concatenate([part.gains for part in parts]), np.concatenate([part.fields for part in parts]))


def best_of(proposals: list[Proposals]) -> Proposals:
    """The best proposal of each open node, of several ranges', which are of the same nodes."""
    first, *others = proposals
    if not others:
        return first
    best = Proposals(first.gains.copy(), first.fields.copy())
    for other in others:
        kernels.keep_better(other.fields, other.gains, best.fields, best.gains)
    return best


@dataclass(frozen=True)
class Splits:
    """The splits of a level, in order of node number.

    fields       int32 (n, N_SPLIT): splits as kernels.splits has them
    last         whether the children will be leaves
    features     int64: user numbers
    gains        float64
    child_sums   int64 (n, 2, 2): sum_grad and sum_hess of the left child and of the right one
    """

    fields: np.ndarray
    last: bool
    features: np.ndarray
    gains: np.ndarray
    child_sums: np.ndarray

    @property
    def built_sums(self) -> np.ndarray:
        """int64 (n, 2): sum_grad and sum_hess of the child whose histogram is built."""
        return self.child_sums[np.arange(len(self.fields)), 1 - self.fields[:, kernels.BUILD_LEFT]]


def choose_splits(best: Proposals, first_node: int, last: bool) -> Splits:
    """The splits to make of the best proposals of nodes first_node, first_node + 1 ...; whoever chooses, it is the same.

    last  whether the children will be leaves
    """
    n_open = len(best.gains)
    fields, features = np.empty((n_open, kernels.N_SPLIT), np.int32), np.empty(n_open, np.int64)
    gains, child_sums = np.empty(n_open), np.empty((n_open, 4), np.int64)
    n = kernels.choose(best.gains, best.fields, first_node, fields, features, gains, child_sums)
    return Splits(fields[:n], last, features[:n], gains[:n], child_sums[:n].reshape(n, 2, 2))


class SplitFinder:
    """Keeps the histograms of one range level by level, and finds each open node's best split.

    `add` gets the sums of the nodes that were built, one after the other or all at once; a sibling's are parent - child,
    which is exact; and `find` proposes. Then `apply` says which nodes are split, and the children are the next open nodes.

    living            LivingFeatures: those of the open nodes' parents, where somebody is to be told of them
    memory            NodeHistogram: of all nodes; kept for the next tree, as new memory is slow to touch first, but another
                      one where more is needed
    """

    def __init__(self, features: FeatureRange, rule: SplitRule, *, tells_living: bool = True):
        self._range, self._rule, self._tells_living = features, rule, tells_living
        most_bins = int(np.diff(features.bin_offsets).max(initial=0))
        # Rows a multiple of 4 KiB apart would compete for the same few lines of the cache.
        room = -(-room_for(most_bins) // 512) * 512 + 72
        self._lefts, self._scores = np.empty((2, room)), np.empty(features.n_features)
        self.memory = NodeHistogram(*(np.empty(0, dtype) for dtype in (np.int32, np.int32, np.int32, np.int64)))
        self._used = np.zeros(3, np.int64)

    def start_tree(self, steps: Steps) -> None:
        self._least, self._constants = self._rule.in_steps(steps)
        self._used[:] = 0
        self._nodes = np.zeros((1, open_nodes.N_FIELDS), np.int64)
        self._splits: tuple[np.ndarray, np.ndarray] | None = None
        self._n_added = 0
        if self._tells_living:
            self.living = LivingFeatures.of_root(self._range.n_features)

    def apply(self, positions: np.ndarray, build_left: np.ndarray) -> None:
        """The open nodes to split, by position (int64), and whether the left child of each is built."""
        parents = self._nodes[positions]
        if self._tells_living:  # before a child takes a parent's place
            places = parents[:, [open_nodes.AT_FEATURE, open_nodes.N_FEATURES]].tolist()
            self.living = LivingFeatures.of_parents([self.memory.features[at : at + n] for at, n in places])
        self._splits, self._n_added = (parents, build_left.astype(np.uint8)), 0
        self._nodes = np.zeros((2 * len(positions), open_nodes.N_FIELDS), np.int64)

    def add(self, sums: Sums) -> None:
        """The sums of the root; or, split by split, those of the children that are built. ProtocolError if these are not
        part of their parent's."""
        if self._splits is None:
            self._add_root(sums)
            return
        k, end = self._n_added, self._n_added + len(sums.totals)
        while k < end:
            done = sums.share_out(self.memory, self._used, self._splits, k, self._least, self._nodes)
            if done == open_nodes.MISFIT:
                raise ProtocolError("a child's histogram is not part of its parent's")
            if done < end:
                self.make_room_for_child(self._splits[0][done])
            k = done
        self._n_added = end

    def find(self) -> Proposals:
        """The best split of each open node."""
        of_range, n_nodes = self._range, len(self._nodes)
        fields, gains = np.empty((n_nodes, kernels.N_PROPOSED), np.int64), np.full(n_nodes, -np.inf)
        gain_kernels.find_splits(
            self.memory, self._nodes, of_range.bin_offsets, of_range.default_bins, of_range.ids, of_range.shards,
            of_range.locals, self._least, self._constants, self._lefts, self._scores, fields, gains,
        )  # fmt: skip
        return Proposals(gains, fields)

    @property
    def held(self) -> tuple:
        """What kernels.parts.keep_sparse_part, and keep_dense_part, take of it."""
        own = self._range
        return own.default_bins, own.ids, own.shards, own.locals, self._lefts, self._scores, self.memory, self._used

    def flags(self, begin: int, end: int) -> tuple[np.ndarray, int]:
        """Of each open node, for each feature begin .. end that lived in its parent, a bit: whether it lives on. Words
        (uint64), and how many bits."""
        living = self.living
        n_flags = 2 * len(living.features)
        words = np.empty(n_words_of(n_flags), np.uint64)
        n_flags = open_nodes.flag_living(
            self.memory.features, self._nodes, living.features, living.offsets, begin, end, words
        )
        return words[: n_words_of(n_flags)], n_flags

    def _add_root(self, sums: Sums) -> None:
        [total] = sums.totals
        self.make_room_for_root(total)
        n_features = sums.take(self._range.bin_offsets, self._least, self.memory)
        open_nodes.make_root(self.memory, self._used, n_features, total, self._nodes[0])

    def make_room_for_root(self, total: np.ndarray) -> None:
        """Room for the histogram of all features, whose rows come to `total` (int64, Total)."""
        n_bins = int(self._range.bin_offsets[-1])
        self._make_room(self._range.n_features, n_bins, n_bins << Total(*total.tolist()).needs_pairs)

    def make_room_for_child(self, parent: np.ndarray) -> None:
        """Room for the histogram of a child of this node (kernels.open_nodes)."""
        _, _, _, n_features, n_bins, *_ = parent.tolist()
        self._make_room(n_features, n_bins, 2 * n_bins)

    def _make_room(self, n_features: int, n_bins: int, n_slots: int) -> None:
        """Room for so many more features, bins and slots, and, as more nodes will come, for half as much again."""
        used = self._used.tolist()
        more = n_features + 1, n_bins, n_slots
        sizes = [at + n for at, n in zip(used, more, strict=True)]
        held = list(self.memory)
        for i, (size, at) in enumerate(zip((sizes[0], *sizes), (used[0], *used), strict=True)):
            if size > len(held[i]):
                held[i] = np.empty(size + size // 2, held[i].dtype)
                held[i][:at] = self.memory[i][:at]
        if any(new is not old for new, old in zip(held, self.memory, strict=True)):
            self.memory = NodeHistogram(*held)
