"""Knows a worker's part of the training: its block, histograms, routing and margins; does not know the other blocks."""

from dataclasses import dataclass

import numpy as np

from psboost.boosting.fixed_point import Steps, round_gradients, rounding_key
from psboost.boosting.growth import Frontier, feature_range
from psboost.boosting.histogram import HistogramBuilder, Histograms
from psboost.boosting.losses import Bounds
from psboost.boosting.partition import RowPartition, n_words
from psboost.boosting.split import SplitFinder
from psboost.data.block import Block
from psboost.data.columns import to_columns
from psboost.data.sketches import CutPoints, Sketches
from psboost.data.source import Counts, Rows, Source
from psboost.errors import DataError
from psboost.kernels import gradients as gradient_kernels
from psboost.kernels import routing as routing_kernels
from psboost.roles.job import Job
from psboost.roles.role import COORDINATOR, Role, worker_name
from psboost.wire.histogram_codecs import encode_histograms
from psboost.wire.messages import (
    ApplySplits,
    CloseTree,
    DealFeatures,
    DescribeRows,
    ProposeSplits,
    PushBitvectors,
    PushEvaluation,
    PushHistograms,
    PushLeafSums,
    PushMaxima,
    PushSketches,
    RouteRows,
    ShareCutPoints,
    StartTree,
)
from psboost.wire.packing import (
    pack_ascending,
    pack_bitvector,
    pack_integers,
    unpack_bitvector,
    unpack_integers,
    unpack_living,
)


@dataclass(frozen=True)
class Shard:
    """The rows of one row shard, training rows first, then those of each evaluation set; the worker's features only."""

    n_train: int
    n_rows: int
    labels: np.ndarray  # float64 (n_rows), as the loss wants them
    weights: np.ndarray  # float64 (n_train)
    columns: object  # Columns, features in internal order


class Worker(Role):
    """Worker (r, c) of a training run."""

    def __init__(self, job: Job, row_shard: int, feature_shard: int, source: Source, eval_sources=(), stage=None):
        super().__init__(worker_name(row_shard, feature_shard), stage)
        self._job, self._r, self._c = job, row_shard, feature_shard
        self._source, self._eval_sources = source, tuple(eval_sources)

    def run(self):
        job = self._job
        self._describe()
        [deal] = yield from self.gather(DealFeatures, [COORDINATOR])
        self._ids = unpack_integers(deal.features, int(deal.server_offsets[-1]))
        with self.stage("read"):
            shard = self._read()
        cut_points = yield from self._find_cut_points(deal, shard)
        with self.stage("bin"):
            self._block = Block.build(shard.columns, cut_points, job.zero_as_missing)
        self._set_up(deal, shard, cut_points)
        del shard
        yield from self._start_margins()
        for self.tree in range(job.n_rounds):
            yield from self._grow(self.tree)

    # --- before the first tree

    def _describe(self) -> None:
        """Counts the features of this worker's part of the row shard's rows (DescribeRows)."""
        with self.stage("read"):
            counts, labels = self._count(self._source)
            eval_counts = [self._count(source)[0] for source in self._eval_sources]
        self.bytes_read += counts.bytes_read + sum(part.bytes_read for part in eval_counts)
        weights = _weights(counts)
        self.send(
            COORDINATOR,
            DescribeRows(
                n_rows=counts.n_rows,
                n_values=counts.n_values,
                features=pack_ascending(counts.features),
                counts=pack_integers(counts.counts),
                n_distinct=len(counts.features),
                n_features=max([counts.n_features, *(part.n_features for part in eval_counts)]),
                max_weight=float(weights.max(initial=0.0)),
                max_label=float(np.abs(labels).max(initial=0.0)),
                label_range=(float(labels.min()), float(labels.max())) if len(labels) else (),
                eval_rows=tuple(part.n_rows for part in eval_counts),
            ),
        )

    def _span(self, source: Source) -> tuple[int, int]:
        return source.spans(self._job.n_row_shards)[self._r]

    def _count(self, source: Source) -> tuple[Counts, np.ndarray]:
        """What the worker's part of the row shard stores, and its labels."""
        span = source.split(self._span(source), self._job.n_feature_shards)[self._c]
        counts = source.count(span)
        return counts, self._labels(source, span, counts)

    def _labels(self, source: Source, span: tuple[int, int], part: Rows | Counts) -> np.ndarray:
        if part.labels is None:
            raise DataError(f"{source.name} has no labels: give y, or a file that holds them")
        return self._job.loss.check_labels(part.labels, lambda row: source.place(span, row))

    def _read(self) -> Shard:
        """The row shard's rows with this worker's features, then the evaluation rows."""
        sources = (self._source, *self._eval_sources)
        parts = [source.read(self._span(source), keep=self._ids) for source in sources]
        self.bytes_read += sum(part.bytes_read for part in parts)
        train = parts[0]
        labels = [self._labels(source, self._span(source), part) for source, part in zip(sources, parts, strict=True)]
        indptr, features, values = _stack(parts)
        return Shard(
            n_train=len(train.indptr) - 1,
            n_rows=len(indptr) - 1,
            labels=np.concatenate(labels),
            weights=_weights(train),
            columns=to_columns(indptr, features, values, len(self._ids)),
        )

    def _find_cut_points(self, deal: DealFeatures, shard: Shard):
        """The cut points of the worker's features: given, from the servers, or (R = 1) from its own rows."""
        if deal.cut_points:
            return CutPoints.from_arrays(deal.cut_points)
        job, parameters = self._job, self._job.parameters

        def summarise(begin: int, end: int) -> Sketches:
            return Sketches.summarise(
                shard.columns, begin, end, shard.n_train, max_bin=parameters.max_bin, kind=parameters.sketch
            )

        if not job.merges:
            with self.stage("sketch"):
                cut_points = summarise(0, len(self._ids)).cut_points(
                    max_bin=parameters.max_bin, zero_as_missing=job.zero_as_missing, n_rows=deal.n_rows
                )
            self.send(COORDINATOR, ShareCutPoints(cut_points=cut_points.to_arrays()))
            return cut_points
        for s, server in enumerate(job.servers):
            with self.stage("sketch"):
                sketches = summarise(int(deal.server_offsets[s]), int(deal.server_offsets[s + 1]))
            self.send(server, PushSketches(sketches=sketches.to_arrays()))
        shared = yield from self.gather(ShareCutPoints, job.servers)
        return CutPoints.join([CutPoints.from_arrays(message.cut_points) for message in shared])

    def _set_up(self, deal: DealFeatures, shard: Shard, cut_points: CutPoints) -> None:
        job, n_features = self._job, len(self._ids)
        self._n_train, self._n_rows = shard.n_train, shard.n_rows
        self._n_rows_of_all, self._row_offset = deal.n_rows, deal.row_offset
        self._labels_of_rows, self._weights_of_rows = shard.labels, shard.weights
        self._bounds = job.loss.bounds(deal.max_weight, deal.max_label)
        self._server_offsets = deal.server_offsets
        numbers = np.arange(n_features, dtype=np.int32)
        self._features = feature_range(
            self._ids, np.full(n_features, self._c, np.int32), numbers, cut_points, job.zero_as_missing
        )
        self._finder = None if job.merges else SplitFinder(self._features, job.rule)
        block = self._block
        self._builder = HistogramBuilder(
            block.indptr, block.bins, block.posting_offsets, block.posting_rows, block.bin_offsets
        )
        self._margins = np.zeros(self._n_rows, np.float32)
        self._grads, self._hesses = np.empty(self._n_train), np.empty(self._n_train)
        self._node_of_row = np.zeros(self._n_rows, np.int32)
        self._train = RowPartition(0, self._n_train, self._node_of_row)
        self._eval = RowPartition(self._n_train, self._n_rows, self._node_of_row)

    def _start_margins(self):
        """Margins start from base_score; unless it was given, from the sums of all rows at margin 0."""
        if self._job.parameters.base_score is None and self._c == 0:
            self._update_gradients()
            steps = self._job.steps(self._bounds, self._n_rows_of_all)
            self._push_leaf_sums(-1, [0], steps)
        [start] = yield from self.gather(CloseTree, [COORDINATOR])
        self._margins[:] = start.values[0]

    # --- one tree

    def _start_tree(self, tree: int):
        """New gradients, rounded; all rows in the root. Returns the tree's steps."""
        job = self._job
        with self.stage("gradients"):
            self._update_gradients()
        if not job.loss.bounded:
            if self._c == 0:
                max_grad = float(np.abs(self._grads).max(initial=0.0))
                max_hess = float(self._hesses.max(initial=0.0))
                self.send(COORDINATOR, PushMaxima(tree=tree, max_grad=max_grad, max_hess=max_hess))
            [start] = yield from self.gather(StartTree, [COORDINATOR], tree=tree)
            self._bounds = Bounds(start.max_grad, start.max_hess)
        steps = job.steps(self._bounds, self._n_rows_of_all)
        with self.stage("gradients"):
            key = rounding_key(job.seed, tree)
            self._packed = round_gradients(self._grads, self._hesses, steps, key, self._row_offset)
        if self._finder is not None:
            self._finder.start_tree(steps)
        for partition in (self._train, self._eval):
            partition.reset()
        return steps

    def _grow(self, tree: int):
        """Grows one tree, level by level, and adds its leaf values to the margins."""
        steps = yield from self._start_tree(tree)
        frontier, level, leaves = Frontier.root(), 0, []
        build = [0]
        living = [self._split_by_server(np.arange(self._features.n_features, dtype=np.int32))]
        while True:
            if self._finder is not None:
                self._propose(tree, level, build)
            else:
                features = [np.concatenate(living[i]) for i in frontier.positions(build)]
                self._send_histograms(tree, level, build, features)
            [splits] = yield from self.gather(ApplySplits, [COORDINATOR], tree=tree, level=level)
            positions = frontier.positions(splits.nodes)
            split = set(splits.nodes.tolist())
            leaves += [node for node in frontier.open if node not in split]
            if not len(splits.nodes):
                break
            words = yield from self._route(tree, level, splits)
            with self.stage("route"):
                self._move_rows(frontier, splits, words)
            children, frontier = frontier.children(splits.nodes), frontier.split(splits.nodes)
            if splits.last:
                leaves += frontier.open
                break
            if self._finder is None:
                living = self._living_of_children(living, positions, splits)
            build = [
                left if build_left else right
                for (_, left, right), build_left in zip(children, splits.build_left, strict=True)
            ]
            if self._finder is not None:
                self._finder.apply(positions, [bool(b) for b in splits.build_left])
            level += 1
        yield from self._close(tree, sorted(leaves), steps)

    def _update_gradients(self) -> None:
        train = slice(0, self._n_train)
        self._job.loss.gradients(
            self._margins[train], self._labels_of_rows[train], self._weights_of_rows, self._grads, self._hesses
        )

    # living features: one list for each open node, of one array for each server: the features that lived in its parent

    def _split_by_server(self, features: np.ndarray) -> list[np.ndarray]:
        return np.split(features, np.searchsorted(features, self._server_offsets[1:-1]))

    def _living_of_children(self, living, positions: list[int], splits: ApplySplits) -> list[list[np.ndarray]]:
        by_server = []
        for s, packed in enumerate(splits.living):
            sizes = np.array([len(parts[s]) for parts in living])
            flags = np.split(unpack_living(packed, int(sizes.sum())), np.cumsum(sizes)[:-1])
            by_server.append(flags)
        alive = [[features[by_server[s][i] != 0] for s, features in enumerate(living[i])] for i in positions]
        return [features for features in alive for _ in ("left", "right")]

    def _propose(self, tree: int, level: int, nodes: list[int]) -> None:
        """Builds the histograms of `nodes` and proposes each open node's best split (R = 1)."""
        for node in nodes:
            with self.stage("build"):
                sums = self._builder.sum(self._train.rows(node), self._packed)
            with self.stage("search"):
                self._finder.add(sums)
        with self.stage("search"):
            proposals = self._finder.find()
        self.send(COORDINATOR, ProposeSplits(tree=tree, level=level, living=(), **vars(proposals)))

    def _send_histograms(self, tree: int, level: int, nodes: list[int], living: list[np.ndarray]) -> None:
        """Builds the histograms of `nodes` and sends each server its part (R > 1)."""
        with self.stage("build"):
            built, totals = self._builder.build([self._train.rows(node) for node in nodes], living, self._packed)
        for s, server in enumerate(self._job.servers):
            with self.stage("encode"):
                arrays = self._encode(built, int(self._server_offsets[s]), int(self._server_offsets[s + 1]))
            self.send(
                server,
                PushHistograms(tree=tree, level=level, totals=totals, codec=self._job.codec, arrays=arrays),
            )

    def _encode(self, built: Histograms, begin: int, end: int) -> tuple[np.ndarray, ...]:
        offsets = self._features.bin_offsets[begin : end + 1]
        part = built.restrict(int(offsets[0]), int(offsets[-1]))
        return encode_histograms(self._job.codec, part, offsets - offsets[0])

    # --- routing

    def _route(self, tree: int, level: int, splits: ApplySplits):
        """The bitvector of the shard's rows: own splits' bits, or those of all feature shards, ANDed by the server."""
        mine = np.flatnonzero(splits.shards == self._c)
        with self.stage("route"):
            words = np.full(n_words(self._n_rows), ~np.uint64(0))
            for k in mine:
                self._clear_deviating(splits, k, words)
        if not self._job.routes:
            return words
        router = self._job.router_of(self._r)
        if len(mine):
            with self.stage("encode"):
                form, bits = pack_bitvector(words, self._n_rows)
            self.send(
                router,
                PushBitvectors(
                    tree=tree, level=level, shard=self._c, n_bits=self._n_rows, form=form, bits=bits
                ),
            )
        [routed] = yield from self.gather(RouteRows, [router], tree=tree, level=level)
        return unpack_bitvector(routed.form, routed.bits, self._n_rows)

    def _clear_deviating(self, splits: ApplySplits, k: int, words: np.ndarray) -> None:
        """Clears the bits of the rows whose stored value goes away from the default child of split k."""
        block, feature = self._block, int(splits.locals[k])
        first = int(block.bin_offsets[feature])
        edge = int(splits.bins[k]) + 1
        n_cuts = int(block.n_cuts[feature])
        has_nan_bin = int(block.bin_offsets[feature + 1]) - first > n_cuts
        unstored_left = bool(splits.unstored_left[k])
        ranges = [(edge, n_cuts) if unstored_left else (0, edge)]
        if has_nan_bin and bool(splits.default_left[k]) != unstored_left:
            ranges.append((n_cuts, n_cuts + 1))
        for begin, end in ranges:
            rows = block.posting_rows[
                block.posting_offsets[first + begin] : block.posting_offsets[first + end]
            ]
            routing_kernels.clear_bits(rows, self._node_of_row, int(splits.nodes[k]), words)

    def _move_rows(self, frontier: Frontier, splits: ApplySplits, words: np.ndarray) -> None:
        for (node, left, right), unstored_left in zip(
            frontier.children(splits.nodes), splits.unstored_left, strict=True
        ):
            for partition in (self._train, self._eval):
                partition.split(node, words, bool(unstored_left), left, right)

    # --- the end of a tree

    def _push_leaf_sums(self, tree: int, leaves: list[int], steps: Steps) -> None:
        sums = np.zeros((len(leaves), 2), np.int64)
        for i, leaf in enumerate(leaves):
            gradient_kernels.sum_rows(
                self._grads, self._hesses, self._train.rows(leaf), steps.leaf_grad, steps.leaf_hess, sums[i]
            )
        self.send(COORDINATOR, PushLeafSums(tree=tree, sums=sums))

    def _close(self, tree: int, leaves: list[int], steps: Steps):
        """Leaf sums go up, leaf values come back and are added to the margins."""
        if self._c == 0:
            with self.stage("update"):
                self._push_leaf_sums(tree, leaves, steps)
        [closed] = yield from self.gather(CloseTree, [COORDINATOR], tree=tree)
        with self.stage("update"):
            for leaf, value in zip(leaves, closed.values, strict=True):
                for partition in (self._train, self._eval):
                    routing_kernels.add_value(partition.rows(leaf), value, self._margins)
        if self._eval_sources and self._c == 0:
            labels = self._labels_of_rows[self._n_train :] if tree == 0 else np.empty(0)
            margins = self._margins[self._n_train :].copy()
            self.send(COORDINATOR, PushEvaluation(tree=tree, margins=margins, labels=labels))


def _weights(part: Rows | Counts) -> np.ndarray:
    """float64: the rows' weights, 1 where none are given."""
    return np.ones(len(part.labels)) if part.weights is None else part.weights


def _stack(parts: list[Rows]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """CSR of the parts' rows, one part after another."""
    if len(parts) == 1:
        return parts[0].indptr, parts[0].features, parts[0].values
    ends = np.cumsum([part.indptr[-1] for part in parts])
    moved = [part.indptr[1:] + end - part.indptr[-1] for part, end in zip(parts, ends, strict=True)]
    return (
        np.concatenate([np.zeros(1, np.int64), *moved]),
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.values for part in parts]),
    )
