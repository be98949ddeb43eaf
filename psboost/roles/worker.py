"""Knows what a worker of any mode does with its rows: bins and routes them; does not know who sums histograms."""

from collections.abc import Callable
from functools import partial

import numpy as np

from psboost.boosting.fixed_point import RoundingKeys, Steps, hesses_of
from psboost.boosting.growth import Frontier
from psboost.boosting.histogram import Histograms
from psboost.boosting.living import LivingFeatures
from psboost.boosting.partition import NodeRows, RowPartition
from psboost.boosting.row_gradients import RowGradients
from psboost.boosting.split import SplitRule
from psboost.data.block import Members, bin_offsets_of
from psboost.data.columns import AnyColumns, SortedColumns, join_columns, sort_columns
from psboost.data.cut_points import CutPoints
from psboost.data.sketches import Sketches
from psboost.data.source import SideBySide, Source
from psboost.kernels.gradients import add_values
from psboost.kernels.prepare import prepare
from psboost.kernels.splits import NODE, SHARD
from psboost.kernels.words import n_words_of
from psboost.roles.grower import AnySplits, Grower
from psboost.roles.job import Job, steps_of_tree
from psboost.roles.modes import kernel_jobs
from psboost.roles.part import Part
from psboost.roles.reading import Shard, ShardReader
from psboost.roles.role import COORDINATOR, worker_name
from psboost.wire.messages import (
    CloseTree,
    DealFeatures,
    PushBitvectors,
    PushEvaluation,
    PushLeafSums,
    PushMaxima,
    ShareCutPoints,
)
from psboost.wire.packing import pack_bitvector, unpack_bitvector, unpack_integers

_ALL_ONES = np.uint64(2**64 - 1)
Threads = Callable[[int], SideBySide]  # of n of them, a `map` that calls its function in these


def one_thread(n: int) -> SideBySide:
    """The caller's, however many are asked for."""
    return map


class Worker(Grower):
    """Worker (r, c) of a training run. How splits come out of its rows is up to the subclass: the hooks at the end."""

    def __init__(
        self, job: Job, row_shard: int, feature_shard: int, source: Source, eval_sources=(), stage=None,
        threads: Threads = one_thread,
    ):  # fmt: skip
        """`threads` that a driver may give, as many as job.n_threads: all of them read, no more than are worth it do the
        rest (Dealing)."""
        super().__init__(worker_name(row_shard, feature_shard), job, stage)
        self._r, self._c = row_shard, feature_shard
        self._peers = {c: worker_name(row_shard, c) for c in range(job.n_feature_shards) if c != feature_shard}
        self._threads, self._has_evaluation = threads, bool(eval_sources)
        self._reader = ShardReader(job, row_shard, feature_shard, source, tuple(eval_sources), threads(job.n_threads))

    def run(self):
        with self.stage("read"):
            described = self._reader.describe()
        self.bytes_read = self._reader.bytes_read
        self.send(COORDINATOR, described)
        [deal] = yield from self.gather(DealFeatures, [COORDINATOR])
        job = self._job = self.read(COORDINATOR, self._job.as_told, deal)
        self._side_by_side = self._threads(job.n_threads)
        self.check_number(COORDINATOR, len(deal.range_offsets) - 1, len(job.shares_of_ranges(self._c)), "ranges of features")
        self._ids = self.read(COORDINATOR, unpack_integers, deal.features, int(deal.range_offsets[-1]))
        self._ranges = self._ranges_of_threads(deal.range_offsets.tolist())
        with self.stage("read"):
            shard = self._reader.read(job, deal, self._ids)
        self.bytes_read = self._reader.bytes_read
        self._range_offsets, self._n_train = deal.range_offsets, shard.n_train
        columns = shard.columns
        if job.parameters.sketch_every:
            columns = self._columns = self._in_order(columns)
        if deal.cut_points:
            cut_points = self.read(COORDINATOR, CutPoints.from_arrays, deal.cut_points, len(self._ids))
        else:
            cut_points = yield from self._find_cut_points(columns, shard.whole_weights)
        self._use_cut_points(columns, cut_points)
        self._set_up(deal, shard)
        del shard, columns
        variants = sorted({(part.block.variant, *self._gradients.variant) for part in self._parts})
        prepare(*kernel_jobs(job.mode, (job.n_row_shards, job.n_feature_shards)), variants=variants)
        yield from self._start_margins()
        try:
            for self.tree in range(job.n_rounds):
                yield from self._grow(self.tree)
        finally:
            self._stop_growing()

    # --- before the first tree

    def _in_order(self, columns: AnyColumns) -> SortedColumns:
        """The columns by value, which makes summaries and bins of them again and again in little time."""
        with self.stage("sketch"):
            return join_columns(self._all(lambda features: sort_columns(columns, *features), self._ranges))

    def _find_cut_points(self, columns: AnyColumns, weights: np.ndarray | None, tree: int = -1):
        """The cut points of the worker's features, from its own rows (R = 1), or from those of all row shards.

        weights  int64 (n_train): of the rows; None: 1 each
        """
        summarise = partial(self._summarise, columns, weights)
        if self._job.n_row_shards > 1:
            return (yield from self._merge_sketches(tree, summarise))
        with self.stage("sketch"):
            cut_points = CutPoints.join(self._all(lambda features: self._cut(summarise(features)), self._ranges))
        self.send(COORDINATOR, ShareCutPoints(tree=tree, cut_points=cut_points.to_arrays()))
        return cut_points

    def _summarise(self, columns: AnyColumns, weights: np.ndarray | None, features: tuple[int, int]) -> Sketches:
        """The values that features begin .. end have in the training rows."""
        job = self._job
        return Sketches.summarise(
            columns, *features, self._n_train, max_bin=job.parameters.max_bin, kind=job.parameters.sketch, weights=weights,
            zero_as_missing=job.zero_as_missing,
        )  # fmt: skip

    def _cut(self, sketches: Sketches) -> CutPoints:
        job = self._job
        return sketches.cut_points(max_bin=job.parameters.max_bin, zero_as_missing=job.zero_as_missing)

    def _use_cut_points(self, columns: AnyColumns, cut_points: CutPoints) -> None:
        """Bins the rows by these cut points."""
        self._bin_offsets = bin_offsets_of(cut_points)
        with self.stage("bin"):
            self._parts = self._all(partial(self._make_part, columns, cut_points), self._ranges_to_build(columns))

    def _make_part(self, columns: AnyColumns, cut_points: CutPoints, features: tuple[int, int]) -> Part:
        job, (begin, end) = self._job, features
        points, ids = cut_points.part(begin, end), self._ids[begin:end]
        return Part(begin, end, columns, points, job.zero_as_missing, ids, self._c, self._rule_of_parts())

    def _set_up(self, deal: DealFeatures, shard: Shard) -> None:
        job = self._job
        self._n_rows = shard.columns.n_rows
        self._row_offset = deal.row_offset
        self._labels_of_rows = shard.labels
        self._usual_steps = job.steps(job.loss.bounds(deal.max_weight, deal.max_label), deal.n_rows)
        self._margins = np.zeros(self._n_rows, np.float32)
        self._bitvector = np.empty(n_words_of(self._n_rows), np.uint64)
        self._gradients = RowGradients(
            job.loss, self._margins, shard.labels, shard.weights, deal.max_weight, self._n_train, job.grad_bits,
            job.n_threads, self._side_by_side,
        )  # fmt: skip
        self._rounding_keys = RoundingKeys(job.seed)
        self._partition = RowPartition(
            self._n_rows, self._n_train, job.parameters.max_depth, self._gradients.packed, job.n_threads, self._side_by_side
        )

    def _all(self, function, *items) -> list:
        """What `function` makes of each item, side by side."""
        return list(self._side_by_side(function, *items))

    def _start_margins(self):
        """Margins start from base_score; unless it was given, from the sums of all rows at margin 0."""
        if self._job.parameters.base_score is None and self._c == 0:
            self._push_leaf_sums(-1, np.zeros(1, np.int64), self._usual_steps)
        self._margins[:] = yield from self._leaf_values(-1, 1)

    # --- one tree

    def _steps_of(self, tree: int):
        """The tree's steps; a generator."""
        job = self._job
        if not job.loss.bounded and self._c == 0:
            with self.stage("gradients"):
                max_grad, max_hess = self._gradients.maxima()
            self.send(COORDINATOR, PushMaxima(tree=tree, max_grad=max_grad, max_hess=max_hess))
        return (yield from steps_of_tree(self, job, tree, self._usual_steps))

    def _round(self, tree: int, steps: Steps) -> np.ndarray:
        """New gradients, rounded; returns what they come to (RowGradients.round)."""
        with self.stage("gradients"):
            return self._gradients.round(steps, self._rounding_keys[tree], self._row_offset)

    def _grow(self, tree: int):
        """Grows one tree, level by level, and adds its leaf values to the margins."""
        steps = yield from self._steps_of(tree)
        if self._job.renews_cut_points(tree):
            self._round(tree, steps)
            self._stop_growing()
            self._parts = []  # before others of their size are made
            cut_points = yield from self._find_cut_points(self._columns, hesses_of(self._gradients.packed), tree)
            self._use_cut_points(self._columns, cut_points)
        leaves = yield from self._grow_levels(tree, steps)
        self._end_tree(tree)
        yield from self._close(tree, leaves, steps)

    def _grow_levels(self, tree: int, steps: Steps):
        """Splits the root, its children and theirs, until each row's leaf is known; returns which nodes are leaves (int64),
        in order; a generator."""
        self._partition.reset(self._round(tree, steps))
        self._start_growing(steps)
        frontier, level, built, split = Frontier.root(), 0, np.zeros(1, np.int64), [np.empty(0, np.int32)]
        while True:
            splits = yield from self._find_splits(tree, level, frontier, built)
            fields = splits.fields
            positions, of_children = self.read(self._job.chooser, frontier.positions, fields)
            if len(fields) == 0:
                break
            bits, make = yield from self._route(tree, level, splits)
            with self.stage("route"):
                self._partition.split(fields, bits, last=splits.last, fill=make)
            split.append(fields[:, NODE])
            frontier, built = frontier.split(len(fields)), of_children
            if splits.last:
                break
            self._descend(positions, splits)
            level += 1
        with self.stage("route"):
            self._partition.finish()
        is_leaf = np.ones(frontier.open.stop, bool)
        is_leaf[np.concatenate(split)] = False
        return np.flatnonzero(is_leaf)

    def _build(
        self, nodes: NodeRows, positions: np.ndarray, shares: list[tuple[LivingFeatures, list[int]]]
    ) -> list[Histograms]:
        """Histograms of nodes, at these positions among the open ones, over ranges of features.

        shares  of each part: living features, and its ranges edges[i] .. edges[i + 1], in the worker's numbers
        """
        built = self._all(lambda part, share: part.build(nodes, positions, *share), self._parts, shares)
        return [histograms for of_part in built for histograms in of_part]

    # --- routing

    def _route(self, tree: int, level: int, splits: AnySplits):
        """The rows' bitvector: of its own splits and, as its peers send theirs, of those of all feature shards. And what
        fills it (RowPartition.split), where there are no peers to send it to; else it is full."""
        bits, make = self._bits(splits)
        if not self._peers:
            return bits, make
        owners = set(splits.fields[:, SHARD].tolist())
        with self.stage("route"):
            self._partition.each(make)
        if self._c in owners:
            with self.stage("encode"):
                form, packed = pack_bitvector(bits, self._n_rows)
            message = PushBitvectors(tree=tree, level=level, form=form, bits=packed)
            for peer in self._peers.values():
                self.send(peer, message)
        senders = [peer for c, peer in self._peers.items() if c in owners]
        pushed = yield from self.gather(PushBitvectors, senders, tree=tree, level=level)
        with self.stage("route"):
            for sender, message in zip(senders, pushed, strict=True):
                bits &= self.read(sender, unpack_bitvector, message.form, message.bits, self._n_rows)
        return bits, None

    def _bits(self, splits: AnySplits) -> tuple[np.ndarray, Callable[[slice, Members], None]]:
        """Room for a bitvector, the same each time, and what makes the bits of rows, in whole words, by where their nodes'
        rows are: 0 where one of the worker's own splits sends the row away from its node's default child, else 1."""
        bits = self._bitvector

        def make(rows: slice, members: Members) -> None:
            bits[rows.start // 64 : n_words_of(rows.stop)] = _ALL_ONES
            for part in self._parts:
                part.clear_bits(splits, rows, members, bits)

        return bits, make

    # --- the end of a tree

    def _push_leaf_sums(self, tree: int, leaves: np.ndarray, steps: Steps) -> None:
        self.send(COORDINATOR, PushLeafSums(tree=tree, sums=self._sum_leaves(leaves, steps)))

    def _sum_leaves(self, leaves: np.ndarray, steps: Steps) -> np.ndarray:
        """int64 (n_leaves, 2): what each leaf's rows come to, in leaf steps."""
        with self.stage("update"):
            return self._gradients.sum_by_node(self._partition.node_of_row, leaves[-1] + 1, steps)[leaves]

    def _leaf_values(self, tree: int, n_leaves: int):
        """float32 (n_leaves): what the coordinator makes of all row shards' sums; a generator."""
        [closed] = yield from self.gather(CloseTree, [COORDINATOR], tree=tree)
        self.check_number(COORDINATOR, len(closed.values), n_leaves, "leaf values")
        return closed.values

    def _close(self, tree: int, leaves: np.ndarray, steps: Steps):
        """Leaf sums go up, leaf values come back and move the margins."""
        if self._c == 0:
            self._push_leaf_sums(tree, leaves, steps)
        values = np.zeros(leaves[-1] + 1, np.float32)
        values[leaves] = yield from self._leaf_values(tree, len(leaves))
        node_of_row = self._partition.node_of_row
        self._gradients.move(node_of_row, values)
        if self._has_evaluation and self._c == 0:
            margins = self._margins[self._n_train :]
            with self.stage("update"):
                add_values(node_of_row[self._n_train :], values, margins)
            labels = np.array(self._labels_of_rows[self._n_train :] if tree == 0 else (), np.float64)
            self.send(COORDINATOR, PushEvaluation(tree=tree, margins=margins.copy(), labels=labels))

    # --- what differs from mode to mode

    def _ranges_of_threads(self, range_offsets: list[int]) -> list[tuple[int, int]]:
        """The features, begin .. end, that each thread has, out of the ranges dealt."""
        raise NotImplementedError

    def _ranges_to_build(self, columns: AnyColumns) -> list[tuple[int, int]]:
        """The features of each Part, one for each thread or more, once their bins are known."""
        return self._ranges

    def _rule_of_parts(self) -> SplitRule | None:
        """With a rule, each part finds the splits of its own features."""
        raise NotImplementedError

    def _merge_sketches(self, tree: int, summarise: Callable[[tuple[int, int]], Sketches]):
        """The cut points of the worker's features, from the values of all row shards (R > 1); a generator.

        summarise  what this shard's rows hold of features begin .. end
        """
        raise NotImplementedError

    def _start_growing(self, steps: Steps) -> None:
        """A tree begins, its gradients in multiples of `steps`."""
        raise NotImplementedError

    def _stop_growing(self) -> None:
        """No tree is grown any more with these parts."""

    def _find_splits(self, tree: int, level: int, frontier: Frontier, built: np.ndarray):
        """The splits of the open nodes, of which the histograms of those at the positions `built` are built; a generator."""
        raise NotImplementedError

    def _descend(self, positions: np.ndarray, splits: AnySplits) -> None:
        """The open nodes at these positions were split, and a level of their children follows."""
        raise NotImplementedError
