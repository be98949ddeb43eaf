"""Knows who owns what, and what has been learnt; holds no rows, no histograms and no bitvectors."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from psboost.boosting.fixed_point import Steps, exact_steps
from psboost.boosting.forest import Forest, Tree, base_margin
from psboost.boosting.growth import Frontier, grown_tree
from psboost.boosting.losses import Bounds
from psboost.boosting.metrics import METRICS
from psboost.boosting.split import Proposals, choose_splits
from psboost.data import zeros
from psboost.data.bin_mapper import BinMapper
from psboost.data.cut_points import AllCuts, CutPoints
from psboost.data.sketch_bytes import SketchBytes
from psboost.kernels.splits import NODE
from psboost.roles.dealing import Dealing, Stock, check_described
from psboost.roles.job import Job
from psboost.roles.role import COORDINATOR, Role, worker_name
from psboost.wire.messages import (
    CloseTree,
    DescribeRows,
    PushEvaluation,
    PushLeafSums,
    PushMaxima,
    PushSplits,
    ShareCutPoints,
    StartTree,
    StopTraining,
)


@dataclass(frozen=True)
class Round:
    """What is known after a boosting round: its number (from 0), and metrics["set-metric"].

    Drivers add the bytes that all roles have sent so far, and the slowest role's seconds by stage: where roles are
    processes, of servers and workers alone, as they last told.
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
        self._n_histograms: list[int] = []  # built for each tree
        self._sketch_bytes, self._n_sketchings = SketchBytes(), 0

    def run(self):
        described = yield from self.gather(DescribeRows, self._job.workers)
        with self.stage("deal"):
            for worker, message in zip(self._job.workers, described, strict=True):
                self.read(worker, check_described, message, len(self._job.eval_names))
            self._stock = Stock.of(described, self._job)
            given = self._job.zero_as_missing
            rule = zeros.default_rule(self._stock.stores_zeros) if given is None else given
            self._job = self._job.with_rules(rule, self._stock.grad_bits(self._job))
            bounds = self._job.loss.bounds(self._stock.max_weight, self._stock.max_label)
            self._usual_steps = self._job.steps(bounds, self._stock.n_rows)
            self._dealing = Dealing.of(self._stock, self._job, self._given)
            self._job = self._dealing.job
            self._deal()
        yield from self._learn_cut_points()
        with self.stage("train"):
            self._base_score = yield from self._start_margins()
            yield from self._boost()
        return self._training()

    def _boost(self):
        job = self._job
        for self.tree in range(job.n_rounds):
            with self.stage("tree"):
                n_leaves = yield from self._grow(self.tree)
                metrics = yield from self._evaluate(self.tree)
            round_ = Round(self.tree, job.n_rounds, n_leaves, metrics)
            if self._on_round is not None and self._on_round(round_) and self.tree + 1 < job.n_rounds:
                for name in (*job.workers, *job.servers):
                    self.send(name, StopTraining())
                return

    # --- before the first tree

    def _deal(self) -> None:
        """Tells every worker and server which features are its own."""
        job, dealing = self._job, self._dealing
        for r in range(job.n_row_shards):
            for c in range(job.n_feature_shards):
                self.send(worker_name(r, c), dealing.for_worker(r, c))
        for s, server in enumerate(job.servers):
            self.send(server, dealing.for_server(s))

    def _learn_cut_points(self, tree: int = -1):
        """Cut points of all shards."""
        job, dealing = self._job, self._dealing
        if self._given is not None:
            self._use_cut_points(dealing.cut_points)
            return
        shared = yield from self.gather(ShareCutPoints, job.owners, tree=tree)
        points = [
            self.read(owner, CutPoints.from_arrays, message.cut_points, n_features)
            for owner, message, n_features in zip(job.owners, shared, dealing.n_features_of_owners, strict=True)
        ]
        self._sketch_bytes = sum((SketchBytes(*message.sketch_bytes) for message in shared), self._sketch_bytes)
        self._n_sketchings += 1
        if job.merges:
            points = dealing.by_shard(points)
        self._use_cut_points([CutPoints.join(points)] if job.is_ring else points)

    def _use_cut_points(self, of_shards: list[CutPoints]) -> None:
        self._cut_points, self._all_cuts = of_shards, AllCuts.of(of_shards)

    def _start_margins(self):
        """base_score, given or from the sums of all rows at margin 0; the workers' margins start from it."""
        job, base_score = self._job, self._job.parameters.base_score
        if base_score is None:
            [sums] = yield from self._leaf_sums(-1, 1, self._usual_steps)
            base_score = job.loss.intercept(*sums)
        margin = base_margin(job.loss.name, base_score)
        for worker in job.workers:
            self.send(worker, CloseTree(values=np.array([margin], np.float32)))
        return base_score

    # --- one tree

    def _start_tree(self, tree: int):
        """The tree's steps; tells them to all, if they do not know them."""
        job, stock, steps = self._job, self._stock, self._usual_steps
        if not job.loss.bounded:
            senders = [worker_name(r, 0) for r in range(job.n_row_shards)]
            maxima = yield from self.gather(PushMaxima, senders, tree=tree)
            steps = job.steps(Bounds(max(m.max_grad for m in maxima), max(m.max_hess for m in maxima)), stock.n_rows)
        elif tree == 0 and stock.max_weight == stock.min_weight:
            steps = exact_steps(steps, job.loss, self._base_score, stock.max_weight)
        if job.tells_steps(tree):
            start = StartTree(tree=tree, **vars(steps))
            for name in (*job.workers, *job.servers):
                self.send(name, start)
        return steps

    def _leaf_sums(self, tree: int, n_leaves: int, steps: Steps):
        """float64 (n_leaves, 2): sum_grad and sum_hess of each leaf over all rows."""
        senders = [worker_name(r, 0) for r in range(self._job.n_row_shards)]
        pushed = yield from self.gather(PushLeafSums, senders, tree=tree)
        for sender, message in zip(senders, pushed, strict=True):
            self.check_number(sender, len(message.sums), n_leaves, "leaf sums")
        return sum(message.sums for message in pushed) * np.array([steps.leaf_grad, steps.leaf_hess])

    def _grow(self, tree: int):
        """Grows one tree; returns its number of leaves."""
        job = self._job
        steps = yield from self._start_tree(tree)
        if job.renews_cut_points(tree):
            yield from self._learn_cut_points(tree)
        chooser = job.chooser
        [message] = yield from self.gather(PushSplits, [chooser], tree=tree)
        with self.stage("choose"):
            best = self.read(chooser, Proposals.of, message, len(message.gains))
            splits = choose_splits(best, 0, last=True)  # in order of node, all that were open follow each other
            thresholds = self.read(chooser, self._all_cuts.thresholds, splits.fields)
            n_open = Frontier.after(splits.fields[:, NODE].tolist(), job.is_last).open.stop
            self.check_number(chooser, len(best.gains), n_open, "best splits of a tree's nodes")
        self._n_histograms.append(1 + n_open // 2)  # the root's, and one of each two children's
        sums = yield from self._leaf_sums(tree, 1 + len(splits.fields), steps)
        values = job.rule.leaf_values(sums, job.parameters.learning_rate)
        closed = CloseTree(tree=tree, values=values)
        for worker in job.workers:
            self.send(worker, closed)
        self._trees.append(grown_tree(splits, thresholds, best.root_sums, values, steps, job.rule))
        return len(values)

    # --- metrics and the result

    def _evaluate(self, tree: int):
        """metrics["set-metric"] after this tree."""
        job = self._job
        if not job.eval_names:
            return {}
        senders = [worker_name(r, 0) for r in range(job.n_row_shards)]
        pushed = yield from self.gather(PushEvaluation, senders, tree=tree)
        if tree == 0:
            self._eval_labels = self._by_set(senders, [message.labels for message in pushed])
        metrics = {}
        for e, margins in enumerate(self._by_set(senders, [message.margins for message in pushed])):
            for metric in job.parameters.metrics:
                metrics[f"{job.eval_names[e]}-{metric}"] = METRICS[metric](margins, self._eval_labels[e])
        for name, value in metrics.items():
            self._evaluation_log.setdefault(name, []).append(value)
        return metrics

    def _by_set(self, senders: list[str], of_shards: list[np.ndarray]) -> list[np.ndarray]:
        """One array for each evaluation set, from one for each row shard."""
        cut = []
        for sender, values, rows in zip(senders, of_shards, self._stock.eval_rows, strict=True):
            self.check_number(sender, len(values), sum(rows), "margins or labels of evaluation rows")
            cut.append(np.split(values, np.cumsum(rows)[:-1]))
        return [np.concatenate(parts) for parts in zip(*cut, strict=True)]

    def _training(self) -> Training:
        job = self._job
        forest = Forest(
            trees=self._trees,
            objective=job.parameters.objective,
            base_score=self._base_score,
            n_features=self._stock.n_features,
            zero_as_missing=job.zero_as_missing,
            attributes={"psboost.seed": str(job.seed), "psboost.parameters": self._parameters_as_text()},
        )
        return Training(forest, self._bin_mapper(), self._facts())

    def _bin_mapper(self) -> BinMapper:
        """The one that was given, or the cut points that the last tree was grown by."""
        if self._given is not None:
            return self._given
        return BinMapper.collect(
            list(zip(self._dealing.features, self._cut_points, strict=True)),
            zero_as_missing=self._job.zero_as_missing,
            max_bin=self._job.parameters.max_bin,
            n_features=self._stock.n_features,
            min_rows=self._dealing.min_rows,
        )

    def _parameters_as_text(self) -> str:
        """JSON of what shaped the model; the forest knows its own objective and rule for zeros."""
        others = ("objective", "base_score", "zero_as_missing", "eval_metric")
        parameters = self._job.parameters.to_dict()
        return json.dumps({name: parameters[name] for name in sorted(parameters) if name not in others})

    def _facts(self) -> dict:
        """What the run knows of its data and balance, for the report."""
        job = self._job
        n_bins = int(sum(points.offsets[-1] + points.has_missing.sum() for points in self._cut_points))
        n_used = sum(len(features) for features in self._dealing.features)
        n_workers = job.n_row_shards * job.n_feature_shards
        dense_bins = n_bins + self._stock.n_features - n_used
        return {
            "mode": job.mode,
            "job": job.to_dict(),
            "rows": self._stock.n_rows,
            "stored_values": sum(self._stock.values_of_shards),
            "features": {
                "declared": self._stock.n_features,
                "stored": len(self._stock.ids),
                "splittable": n_used,
            },
            "bins": n_bins,
            "sketches": self._sketch_bytes.three_ways(
                self._stock.n_features, job.n_sketch_senders * self._n_sketchings
            ),
            "trees": len(self._trees),
            "evaluation": self._evaluation_log,
            "balance": {
                "rows_of_row_shards": self._stock.rows_of_shards,
                "values_of_row_shards": self._stock.values_of_shards,
                "values_of_feature_shards": self._dealing.values_of_feature_shards.tolist(),
                "bins_of_servers": self._dealing.bins_of_servers.tolist(),
            },
            "dense": {
                "bins": dense_bins,
                "histograms": sum(self._n_histograms),
                "bytes_per_histogram": 16 * dense_bins,
                "workers": n_workers,
                "bytes": 2 * (n_workers - 1) * 16 * dense_bins * sum(self._n_histograms),
                "bytes_by_tree": [2 * (n_workers - 1) * 16 * dense_bins * n for n in self._n_histograms],
            },
        }
