"""Knows a server's part of the training: merging, searching, routing; does not know rows' labels or values."""

from dataclasses import astuple
from functools import reduce
from itertools import pairwise

import numpy as np

from psboost.boosting.growth import Frontier, feature_range
from psboost.boosting.histogram import HistogramMerger, Histograms, Total
from psboost.boosting.losses import Bounds
from psboost.boosting.split import SplitFinder
from psboost.data import zeros
from psboost.data.sketches import CutPoints, SketchBytes, Sketches
from psboost.roles.job import Job
from psboost.roles.role import COORDINATOR, Role, server_name, worker_name
from psboost.wire.histogram_codecs import decode_histograms
from psboost.wire.messages import (
    ApplySplits,
    DealRanges,
    ProposeSplits,
    PushBitvectors,
    PushHistograms,
    PushSketches,
    RouteRows,
    ShareCutPoints,
    StartTree,
)
from psboost.wire.packing import pack_bitvector, pack_living, unpack_bitvector, unpack_integers


class Server(Role):
    """Server s of a training run: owns one range of features of every feature shard, and routes row shards r mod S = s.

    With one row shard it merges nothing, with one feature shard it routes nothing; with neither it has nothing to do.
    """

    def __init__(self, job: Job, server: int, stage=None):
        super().__init__(server_name(server), stage)
        self._job = job
        self._row_shards = job.shards_routed_by(server) if job.routes else []

    def run(self):
        job = self._job
        if job.merges:
            yield from self._set_up()
        if not job.merges and not self._row_shards:
            return
        for self.tree in range(job.n_rounds):
            yield from self._grow(self.tree)

    def _set_up(self):
        [self._deal] = yield from self.gather(DealRanges, [COORDINATOR])
        deal = self._deal
        job = self._job = self._job.with_rule(zeros.RULES[deal.zero_rule])
        self._ids = unpack_integers(deal.features, int(deal.shard_offsets[-1]))
        self._shard_offsets = deal.shard_offsets
        self._n_rows = deal.n_rows
        self._bounds = job.loss.bounds(deal.max_weight, deal.max_label)
        if deal.cut_points:
            self._use_cut_points(CutPoints.from_arrays(deal.cut_points))
        else:
            yield from self._find_cut_points()

    def _find_cut_points(self, tree: int = -1):
        """Cut points of the server's range, from the workers' sketches."""
        job = self._job
        pushed = yield from self.gather(PushSketches, job.workers, tree=tree)
        by_shard = []
        for c, size in enumerate(np.diff(self._shard_offsets)):
            of_shard = pushed[c :: job.n_feature_shards]
            with self.stage("sketch"):
                merged = Sketches.merge([Sketches.from_arrays(m.sketches, int(size)) for m in of_shard])
                cut_points = merged.cut_points(max_bin=job.parameters.max_bin, zero_as_missing=job.zero_as_missing)
            by_shard.append(cut_points)
            for worker in job.workers_of_features(c):
                self.send(worker, ShareCutPoints(tree=tree, cut_points=cut_points.to_arrays()))
        cut_points = CutPoints.join(by_shard)
        taken = sum((SketchBytes.of(message.sketches) for message in pushed), SketchBytes())
        share = ShareCutPoints(tree=tree, cut_points=cut_points.to_arrays(), sketch_bytes=astuple(taken))
        self.send(COORDINATOR, share)
        self._use_cut_points(cut_points)

    def _use_cut_points(self, cut_points: CutPoints) -> None:
        """Merges and searches the bins of these cut points."""
        job, deal, ids = self._job, self._deal, self._ids
        shards = np.repeat(np.arange(job.n_feature_shards), np.diff(deal.shard_offsets))
        locals_ = np.arange(len(ids)) - deal.shard_offsets[shards] + deal.shard_begins[shards]
        self._features = feature_range(ids, shards, locals_, cut_points, job.zero_as_missing)
        self._finder = SplitFinder(self._features, job.rule)
        self._merger = HistogramMerger(self._features.bin_offsets)
        of_shards = [self._features.bin_offsets[b : e + 1] for b, e in pairwise(self._shard_offsets)]
        self._offsets_of_shards = [(int(offsets[0]), offsets - offsets[0]) for offsets in of_shards]

    def _grow(self, tree: int):
        job = self._job
        if job.merges:
            if not job.loss.bounded:
                [start] = yield from self.gather(StartTree, [COORDINATOR], tree=tree)
                self._bounds = Bounds(start.max_grad, start.max_hess)
            if job.renews_cut_points(tree):
                yield from self._find_cut_points(tree)
            self._finder.start_tree(job.steps(self._bounds, self._n_rows))
        frontier, level = Frontier.root(), 0
        while True:
            if job.merges:
                yield from self._propose(tree, level)
            [splits] = yield from self.gather(ApplySplits, [COORDINATOR], tree=tree, level=level)
            if not len(splits.nodes):
                return
            if job.merges and not splits.last:
                self._finder.apply(frontier.positions(splits.nodes), [bool(b) for b in splits.build_left])
            if self._row_shards:
                yield from self._route(tree, level, splits)
            if splits.last:
                return
            frontier = frontier.split(splits.nodes)
            level += 1

    def _propose(self, tree: int, level: int):
        """Merges the workers' histograms over row shards, and proposes the best split of each open node."""
        job = self._job
        self._merger.entries.end = 0
        pushed = yield from self.gather(PushHistograms, job.workers, tree=tree, level=level, make=self._decode)
        parts = [(first_bin, histograms) for first_bin, histograms, _ in pushed]
        for node, total in enumerate(sum(totals for *_, totals in pushed[:: job.n_feature_shards]).tolist()):
            with self.stage("merge"):
                self._finder.add(self._merger.sum(node, parts, Total(*total)))
        with self.stage("search"):
            proposals = self._finder.find()
        living: tuple[np.ndarray, ...] = ()
        if not job.is_last(level):
            with self.stage("encode"):
                flags = self._finder.flags()
                living = tuple(self._pack_living(flags, c) for c in range(job.n_feature_shards))
        self.send(COORDINATOR, ProposeSplits(tree=tree, level=level, living=living, **vars(proposals)))

    def _decode(self, worker: str, message: PushHistograms) -> tuple[int, Histograms, np.ndarray]:
        """The first bin of the worker's feature shard, its histograms, counted from there, and their totals."""
        i = self._job.workers.index(worker)
        first, offsets = self._offsets_of_shards[i % self._job.n_feature_shards]
        with self.stage("merge"):
            held = decode_histograms(message.codec, message.arrays, offsets, self._merger.entries)
        return first, held, message.totals

    def _pack_living(self, flags: list[tuple[np.ndarray, np.ndarray]], shard: int) -> np.ndarray:
        """The flags of one feature shard's features, node after node."""
        edges = self._shard_offsets[shard : shard + 2]
        parts = []
        for features, alive in flags:
            begin, end = np.searchsorted(features, edges)
            parts.append(alive[begin:end])
        return pack_living(np.concatenate(parts))

    def _route(self, tree: int, level: int, splits: ApplySplits):
        """ANDs the bitvectors of the feature shards that own a split, for each of the server's row shards."""
        owners = np.unique(splits.shards)
        senders = [worker_name(r, int(c)) for r in self._row_shards for c in owners]
        pushed = yield from self.gather(PushBitvectors, senders, tree=tree, level=level)
        for i, r in enumerate(self._row_shards):
            parts = pushed[i * len(owners) : (i + 1) * len(owners)]
            with self.stage("route"):
                words = reduce(np.bitwise_and, [unpack_bitvector(m.form, m.bits, m.n_bits) for m in parts])
                form, bits = pack_bitvector(words, parts[0].n_bits)
            routed = RouteRows(tree=tree, level=level, n_bits=parts[0].n_bits, form=form, bits=bits)
            for worker in self._job.workers_of_rows(r):
                self.send(worker, routed)
