"""Knows who owns what and which splits win; holds no rows, no histograms and no bitvectors."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from psboost.boosting.fixed_point import Steps, least_rows
from psboost.boosting.forest import Forest, Tree
from psboost.boosting.growth import Frontier
from psboost.boosting.losses import FLOAT_MAX, Bounds
from psboost.boosting.metrics import METRICS
from psboost.boosting.split import Proposals, better
from psboost.data.bin_mapper import BinMapper
from psboost.data.sketches import CutPoints
from psboost.errors import DataError, ParameterError
from psboost.kernels.dealing import deal
from psboost.roles.job import Job
from psboost.roles.role import COORDINATOR, Role, worker_name
from psboost.wire.messages import (
    ApplySplits,
    CloseTree,
    DealFeatures,
    DealRanges,
    DescribeRows,
    ProposeSplits,
    PushEvaluation,
    PushLeafSums,
    PushMaxima,
    ShareCutPoints,
    StartTree,
    StopTraining,
)
from psboost.wire.packing import pack_integers, unpack_ascending, unpack_integers


@dataclass(frozen=True)
class Round:
    """What is known after a boosting round: its number (from 0), and metrics["set-metric"].

    Drivers add the bytes sent by all roles so far, and the slowest role's seconds by stage.
    """

    number: int
    n_rounds: int
    n_leaves: int
    metrics: dict[str, float]
    bytes_sent: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Training:
    """What a training run leaves behind."""

    forest: Forest
    bin_mapper: BinMapper
    facts: dict


@dataclass
class _Growing:
    """A tree's nodes, as lists, while it grows."""

    left: list = field(default_factory=lambda: [-1])
    right: list = field(default_factory=lambda: [-1])
    feature: list = field(default_factory=lambda: [-1])
    threshold: list = field(default_factory=lambda: [0.0])
    default_left: list = field(default_factory=lambda: [0])
    gain: list = field(default_factory=lambda: [0.0])
    sums: list = field(default_factory=lambda: [(0, 0)])

    def split(self, node: int, left: int, right: int, feature, threshold, default_left, gain, left_sums) -> None:
        self.left[node], self.right[node] = left, right
        self.feature[node], self.threshold[node] = feature, threshold
        self.default_left[node], self.gain[node] = default_left, gain
        for column, blank in (
            (self.left, -1), (self.right, -1), (self.feature, -1), (self.threshold, 0.0), (self.default_left, 0),
            (self.gain, 0.0),
        ):  # fmt: skip
            column += [blank, blank]
        grad, hess = self.sums[node]
        self.sums += [left_sums, (grad - left_sums[0], hess - left_sums[1])]

    def leaves(self) -> list[int]:
        return [node for node, child in enumerate(self.left) if child < 0]


class Coordinator(Role):
    """The coordinator of a training run; its result is a Training."""

    def __init__(
        self,
        job: Job,
        stage=None,
        on_round: Callable[[Round], bool | None] | None = None,
        bin_mapper: BinMapper | None = None,
    ):
        """`on_round` is called after each round; if it returns True, no further tree is grown."""
        super().__init__(COORDINATOR, stage)
        self._job, self._on_round, self._given = job, on_round, bin_mapper
        self._trees: list[Tree] = []
        self._evaluation_log: dict[str, list[float]] = {}
        self._n_histograms = 0

    def run(self):
        described = yield from self.gather(DescribeRows, self._job.workers)
        with self.stage("deal"):
            self._take_stock(described)
            self._deal()
        yield from self._learn_cut_points()
        with self.stage("train"):
            base_score = yield from self._start_margins()
            yield from self._boost()
        return self._training(base_score)

    def _boost(self):
        job = self._job
        for tree in range(job.n_rounds):
            n_leaves = yield from self._grow(tree)
            metrics = yield from self._evaluate(tree)
            round_ = Round(tree, job.n_rounds, n_leaves, metrics)
            if self._on_round is not None and self._on_round(round_) and tree + 1 < job.n_rounds:
                for name in (*job.workers, *job.servers):
                    self.send(name, StopTraining())
                return

    # --- before the first tree

    def _take_stock(self, described: list[DescribeRows]) -> None:
        """Rows, labels and features of all shards; DataError where nothing can be learnt from them."""
        job = self._job
        by_shard = [described[r * job.n_feature_shards :][: job.n_feature_shards] for r in range(job.n_row_shards)]
        self._rows_of_shards = [sum(m.n_rows for m in shard) for shard in by_shard]
        self._values_of_shards = [sum(m.n_values for m in shard) for shard in by_shard]
        self._eval_rows = [
            [sum(m.eval_rows[e] for m in shard) for e in range(len(job.eval_names))] for shard in by_shard
        ]
        self._n_rows = sum(self._rows_of_shards)
        if self._n_rows == 0:
            raise DataError("the training data has no rows")
        for e, name in enumerate(job.eval_names):
            if sum(rows[e] for rows in self._eval_rows) == 0:
                raise DataError(f"the evaluation data {name!r} has no rows")
        ranges = [m.label_range for m in described if m.label_range]
        if job.objective_is_binary and len({label for pair in ranges for label in pair}) < 2:
            raise DataError(
                f"all {self._n_rows} training labels are {ranges[0][0]:g}: a single class, nothing to learn; "
                "check the labels, or use objective=reg:squarederror"
            )
        self._max_weight = max(m.max_weight for m in described)
        if self._max_weight <= 0:
            raise DataError("all training rows have weight 0")
        if self._max_weight > FLOAT_MAX:
            raise DataError(f"a training row has weight {self._max_weight:g}: scale weights to at most {FLOAT_MAX:g}")
        self._max_label = max(m.max_label for m in described)
        self._n_features = max(m.n_features for m in described)
        self._bounds = job.loss.bounds(self._max_weight, self._max_label)

        ids = np.concatenate([unpack_ascending(m.features, m.n_distinct) for m in described])
        counts = np.concatenate([unpack_integers(m.counts, m.n_distinct) for m in described])
        order = np.argsort(ids, kind="stable")
        ids, counts = ids[order], counts[order]
        first = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]])) if len(ids) else np.empty(0, np.int64)
        self._ids = ids[first]
        self._counts = np.add.reduceat(counts, first) if len(ids) else counts

    def _usable(self) -> np.ndarray:
        """bool: the features that could ever be split (D3), and have cut points if those are given."""
        job = self._job
        steps = job.steps(self._bounds, self._n_rows)
        self._min_rows = least_rows(job.parameters.min_child_weight, self._bounds, steps)
        usable = self._counts >= self._min_rows
        if self._given is None:
            return usable
        given = self._given
        if given.zero_as_missing != job.zero_as_missing:
            raise ParameterError(
                f"the bin mapper was made with zero_as_missing={given.zero_as_missing}, this training has "
                f"{job.zero_as_missing}: give the same rule, or no bin mapper"
            )
        if given.min_rows > self._min_rows:
            raise ParameterError(
                f"the bin mapper leaves out features stored in fewer than {given.min_rows} rows, but this training could "
                f"split features stored in {self._min_rows}: raise min_child_weight, or make a new bin mapper"
            )
        return usable & np.isin(self._ids, given.features)

    def _deal(self) -> None:
        """Deals features to shards by stored values, and within a shard to servers by bins; popular ones first (D4)."""
        job = self._job
        usable = self._usable()
        order = np.lexsort((self._ids[usable], -self._counts[usable]))
        ids, counts = self._ids[usable][order], self._counts[usable][order]
        self._load_of_shards = np.zeros(job.n_feature_shards, np.int64)
        shards = np.empty(len(ids), np.int32)
        deal(counts, self._load_of_shards, shards)
        self._load_of_servers = np.zeros(job.n_servers, np.int64)
        self._features, self._server_offsets = [], []
        for c in range(job.n_feature_shards):
            mine, load = ids[shards == c], np.minimum(counts[shards == c], job.parameters.max_bin)
            servers = np.empty(len(mine), np.int32)
            deal(load, self._load_of_servers, servers)
            by_server = np.argsort(servers, kind="stable")
            self._features.append(mine[by_server])
            edges = np.searchsorted(servers[by_server], np.arange(job.n_servers + 1))
            self._server_offsets.append(edges.astype(np.int64))
        self._cut_points = [None if self._given is None else self._given.select(f) for f in self._features]

        row_offsets = np.concatenate([[0], np.cumsum(self._rows_of_shards)])
        shared = {"n_rows": self._n_rows, "max_weight": self._max_weight, "max_label": self._max_label}
        for r in range(job.n_row_shards):
            for c, cut_points in enumerate(self._cut_points):
                self.send(
                    worker_name(r, c),
                    DealFeatures(
                        features=pack_integers(self._features[c]),
                        server_offsets=self._server_offsets[c],
                        row_offset=int(row_offsets[r]),
                        cut_points=() if cut_points is None else cut_points.to_arrays(),
                        **shared,
                    ),
                )
        if job.merges:
            for s, server in enumerate(job.servers):
                self.send(server, self._ranges_of(s, shared))

    def _ranges_of(self, s: int, shared: dict) -> DealRanges:
        begins = [int(offsets[s]) for offsets in self._server_offsets]
        ends = [int(offsets[s + 1]) for offsets in self._server_offsets]
        parts = [features[b:e] for features, b, e in zip(self._features, begins, ends, strict=True)]
        cut_points: tuple[np.ndarray, ...] = ()
        if self._given is not None:
            shards = zip(self._cut_points, begins, ends, strict=True)
            cut_points = CutPoints.join([points.part(b, e) for points, b, e in shards]).to_arrays()
        return DealRanges(
            features=pack_integers(np.concatenate(parts)),
            shard_offsets=np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64),
            shard_begins=np.array(begins, np.int64),
            cut_points=cut_points,
            **shared,
        )

    def _learn_cut_points(self):
        """Cut points of all shards, and the bin mapper made of them."""
        job = self._job
        if self._given is None:
            shared = yield from self.gather(ShareCutPoints, job.proposers)
            points = [CutPoints.from_arrays(message.cut_points) for message in shared]
            if not job.merges:
                self._cut_points = points
            else:
                parts = [[] for _ in range(job.n_feature_shards)]
                for s, of_server in enumerate(points):
                    at = 0
                    for c, offsets in enumerate(self._server_offsets):
                        size = int(offsets[s + 1] - offsets[s])
                        parts[c].append(of_server.part(at, at + size))
                        at += size
                self._cut_points = [CutPoints.join(of_shard) for of_shard in parts]
        self._bin_mapper = self._given or BinMapper.collect(
            list(zip(self._features, self._cut_points, strict=True)),
            zero_as_missing=job.zero_as_missing,
            max_bin=job.parameters.max_bin,
            n_features=self._n_features,
            min_rows=self._min_rows,
        )

    def _start_margins(self):
        """base_score, given or from the sums of all rows at margin 0; the workers' margins start from it."""
        job, base_score = self._job, self._job.parameters.base_score
        if base_score is None:
            steps = job.steps(self._bounds, self._n_rows)
            [sums] = yield from self._leaf_sums(-1, steps)
            base_score = job.loss.intercept(*sums)
        margin = job.loss.margin_of(base_score)
        for worker in job.workers:
            self.send(worker, CloseTree(values=np.array([margin], np.float32)))
        return base_score

    # --- one tree

    def _leaf_sums(self, tree: int, steps: Steps):
        """float64 (n_leaves, 2): sum_grad and sum_hess of each leaf over all rows."""
        senders = [worker_name(r, 0) for r in range(self._job.n_row_shards)]
        pushed = yield from self.gather(PushLeafSums, senders, tree=tree)
        return sum(message.sums for message in pushed) * np.array([steps.leaf_grad, steps.leaf_hess])

    def _grow(self, tree: int):
        """Grows one tree; returns its number of leaves."""
        job = self._job
        if not job.loss.bounded:
            senders = [worker_name(r, 0) for r in range(job.n_row_shards)]
            maxima = yield from self.gather(PushMaxima, senders, tree=tree)
            self._bounds = Bounds(max(m.max_grad for m in maxima), max(m.max_hess for m in maxima))
            start = StartTree(tree=tree, max_grad=self._bounds.grad, max_hess=self._bounds.hess)
            for name in (*job.workers, *(job.servers if job.merges else ())):
                self.send(name, start)
        steps = job.steps(self._bounds, self._n_rows)
        growing, frontier, level = _Growing(), Frontier.root(), 0
        while True:
            proposals = yield from self.gather(ProposeSplits, job.proposers, tree=tree, level=level)
            self._n_histograms += max(1, len(frontier.open) // 2)
            with self.stage("choose"):
                best = self._choose(proposals)
                if level == 0:
                    growing.sums = [tuple(best.node_sums[0])]
                splits = self._apply(tree, level, frontier, best, growing, proposals)
            if not len(splits.nodes) or splits.last:
                break
            frontier, level = frontier.split(splits.nodes), level + 1
        leaves = growing.leaves()
        sums = yield from self._leaf_sums(tree, steps)
        values = _float32([job.parameters.learning_rate * job.rule.leaf_value(*of_leaf) for of_leaf in sums])
        for worker in job.workers:
            self.send(worker, CloseTree(tree=tree, values=values))
        self._trees.append(self._tree(growing, leaves, values, steps))
        return len(leaves)

    @staticmethod
    def _choose(proposals: list[ProposeSplits]) -> Proposals:
        """The best proposal of each open node."""
        n_nodes = len(proposals[0].gains)
        best = Proposals.empty(n_nodes)
        for i in range(n_nodes):
            winner = proposals[0]
            for other in proposals[1:]:
                if better(other, winner, i):
                    winner = other
            for name, column in vars(best).items():
                column[i] = getattr(winner, name)[i]
        return best

    def _apply(self, tree, level, frontier: Frontier, best: Proposals, growing: _Growing, proposals) -> ApplySplits:
        """Writes the splits into the tree, and tells all roles."""
        job = self._job
        chosen = np.flatnonzero(np.isfinite(best.gains))
        nodes = np.array(frontier.open, np.int32)[chosen]
        thresholds = np.array([self._threshold(best, i) for i in chosen], np.float32)
        unstored_left = best.default_left[chosen] if job.zero_as_missing else (thresholds > 0).astype(np.uint8)
        left_sums = best.left_sums[chosen]
        for k, (node, left, right) in enumerate(frontier.children(nodes)):
            i = chosen[k]
            growing.split(
                node, left, right, int(best.features[i]), thresholds[k], int(best.default_left[i]),
                best.gains[i], (int(left_sums[k, 0]), int(left_sums[k, 1])),
            )  # fmt: skip
        splits = ApplySplits(
            tree=tree,
            level=level,
            nodes=nodes,
            shards=best.shards[chosen],
            locals=best.locals[chosen],
            bins=best.bins[chosen],
            default_left=best.default_left[chosen],
            unstored_left=unstored_left,
            build_left=(2 * left_sums[:, 1] <= best.node_sums[chosen, 1]).astype(np.uint8),
            last=job.is_last(level),
        )
        goes_on = len(nodes) > 0 and not splits.last and job.merges
        for r in range(job.n_row_shards):
            for c in range(job.n_feature_shards):
                living = tuple(message.living[c] for message in proposals) if goes_on else ()
                self.send(worker_name(r, c), ApplySplits(**vars(splits) | {"living": living}))
        for s, server in enumerate(job.servers):
            if job.merges or job.shards_routed_by(s):
                self.send(server, splits)
        return splits

    def _threshold(self, best: Proposals, i: int) -> np.float32:
        points = self._cut_points[best.shards[i]]
        return points.cuts[points.offsets[best.locals[i]] + best.bins[i]]

    def _tree(self, growing: _Growing, leaves: list[int], values: np.ndarray, steps: Steps) -> Tree:
        job = self._job
        grads = np.array([grad for grad, _ in growing.sums]) * steps.grad
        hesses = np.array([hess for _, hess in growing.sums]) * steps.hess
        pairs = zip(grads, hesses, strict=True)
        value = _float32([job.parameters.learning_rate * job.rule.leaf_value(*pair) for pair in pairs])
        value[leaves] = values
        return Tree(
            left=np.array(growing.left, np.int32),
            right=np.array(growing.right, np.int32),
            feature=np.array(growing.feature, np.int64),
            threshold=np.array(growing.threshold, np.float32),
            default_left=np.array(growing.default_left, np.uint8),
            value=value,
            gain=_float32(growing.gain),
            sum_hess=_float32(hesses),
        )

    # --- metrics and the result

    def _evaluate(self, tree: int):
        """metrics["set-metric"] after this tree."""
        job = self._job
        if not job.eval_names:
            return {}
        senders = [worker_name(r, 0) for r in range(job.n_row_shards)]
        pushed = yield from self.gather(PushEvaluation, senders, tree=tree)
        if tree == 0:
            self._eval_labels = self._by_set([message.labels for message in pushed])
        metrics = {}
        for e, margins in enumerate(self._by_set([message.margins for message in pushed])):
            for metric in job.parameters.metrics:
                metrics[f"{job.eval_names[e]}-{metric}"] = METRICS[metric](margins, self._eval_labels[e])
        for name, value in metrics.items():
            self._evaluation_log.setdefault(name, []).append(value)
        return metrics

    def _by_set(self, of_shards: list[np.ndarray]) -> list[np.ndarray]:
        """One array for each evaluation set, from one for each row shard."""
        cut = [
            np.split(values, np.cumsum(rows)[:-1]) for values, rows in zip(of_shards, self._eval_rows, strict=True)
        ]
        return [np.concatenate(parts) for parts in zip(*cut, strict=True)]

    def _training(self, base_score: float) -> Training:
        job = self._job
        forest = Forest(
            trees=self._trees,
            objective=job.parameters.objective,
            base_score=base_score,
            n_features=self._n_features,
            zero_as_missing=job.zero_as_missing,
            attributes={"psboost.seed": str(job.seed), "psboost.parameters": self._parameters_as_text()},
        )
        return Training(forest, self._bin_mapper, self._facts())

    def _parameters_as_text(self) -> str:
        """JSON of what shaped the model; the forest knows its own objective and rule for zeros."""
        others = ("objective", "base_score", "zero_as_missing", "eval_metric")
        parameters = self._job.parameters.to_dict()
        return json.dumps({name: parameters[name] for name in sorted(parameters) if name not in others})

    def _facts(self) -> dict:
        """What the run knows of its data and balance, for the report."""
        job = self._job
        n_bins = int(sum(points.offsets[-1] + points.has_missing.sum() for points in self._cut_points))
        n_used = sum(len(features) for features in self._features)
        n_workers = job.n_row_shards * job.n_feature_shards
        dense_bins = n_bins + self._n_features - n_used
        return {
            "rows": self._n_rows,
            "stored_values": sum(self._values_of_shards),
            "features": {"declared": self._n_features, "stored": len(self._ids), "splittable": n_used},
            "bins": n_bins,
            "trees": len(self._trees),
            "evaluation": self._evaluation_log,
            "balance": {
                "rows_of_row_shards": self._rows_of_shards,
                "values_of_row_shards": self._values_of_shards,
                "values_of_feature_shards": self._load_of_shards.tolist(),
                "bins_of_servers": self._load_of_servers.tolist(),
            },
            "dense": {
                "bins": dense_bins,
                "histograms": self._n_histograms,
                "bytes_per_histogram": 16 * dense_bins,
                "workers": n_workers,
                "bytes": 2 * (n_workers - 1) * 16 * dense_bins * self._n_histograms,
            },
        }


def _float32(values) -> np.ndarray:
    """float32, cut to what it can hold: gains of huge labels are not finite in it, and JSON knows no infinity."""
    return np.clip(np.array(values, np.float64), -FLOAT_MAX, FLOAT_MAX).astype(np.float32)
