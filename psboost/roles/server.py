"""Knows a server's part of the training: merging and searching; does not know rows, nor where they go."""

from dataclasses import astuple
from itertools import pairwise

import numpy as np

from psboost.boosting.growth import Frontier, feature_range
from psboost.boosting.histogram import Entries, HistogramMerger, Histograms
from psboost.boosting.losses import Bounds
from psboost.boosting.split import SplitFinder
from psboost.boosting.twins import Twins
from psboost.data import zeros
from psboost.data.cut_points import CutPoints
from psboost.data.sketch_bytes import SketchBytes
from psboost.data.sketches import Sketches
from psboost.kernels.splits import BUILD_LEFT, NODE
from psboost.roles.job import Job
from psboost.roles.role import COORDINATOR, Role, server_name
from psboost.wire.histogram_codecs import decode_histograms
from psboost.wire.messages import (
    ApplySplits,
    DealRanges,
    ProposeSplits,
    PushHistograms,
    PushSketches,
    ShareCutPoints,
    StartTree,
)
from psboost.wire.packing import pack_living, unpack_integers


class Server(Role):
    """Server s of a training run: owns one range of features of every feature shard."""

    def __init__(self, job: Job, server: int, stage=None):
        super().__init__(server_name(server), stage)
        self._job = job

    def run(self):
        job = self._job
        yield from self._set_up()
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
        self._twins: dict[str, Twins] = {}  # by worker
        self._without_twins = Entries()
        of_shards = [self._features.bin_offsets[b : e + 1] for b, e in pairwise(self._shard_offsets)]
        self._offsets_of_shards = [(int(offsets[0]), offsets - offsets[0]) for offsets in of_shards]

    def _grow(self, tree: int):
        job = self._job
        if not job.loss.bounded:
            [start] = yield from self.gather(StartTree, [COORDINATOR], tree=tree)
            self._bounds = Bounds(start.max_grad, start.max_hess)
        if job.renews_cut_points(tree):
            yield from self._find_cut_points(tree)
        self._finder.start_tree(job.steps(self._bounds, self._n_rows))
        frontier, level = Frontier.root(), 0
        while True:
            yield from self._propose(tree, level)
            [splits] = yield from self.gather(ApplySplits, [COORDINATOR], tree=tree, level=level)
            nodes = splits.fields[:, NODE].tolist()
            if not nodes or splits.last:
                return
            self._finder.apply(frontier.positions(nodes), splits.fields[:, BUILD_LEFT])
            frontier = frontier.split(nodes)
            level += 1

    def _propose(self, tree: int, level: int):
        """Merges the workers' histograms over row shards, and proposes the best split of each open node."""
        job = self._job
        self._merger.entries.end = 0
        pushed = yield from self.gather(PushHistograms, job.workers, tree=tree, level=level, make=self._decode)
        parts = [(first_bin, histograms) for first_bin, histograms, _ in pushed]
        totals = sum(totals for *_, totals in pushed[:: job.n_feature_shards])
        with self.stage("merge"):
            self._finder.add(self._merger.sum(parts, totals))
        with self.stage("search"):
            proposals = self._finder.find()
        living: tuple[np.ndarray, ...] = ()
        if not job.is_last(level):
            with self.stage("encode"):
                living = tuple(
                    pack_living(*self._finder.flags(*edges)) for edges in pairwise(self._shard_offsets.tolist())
                )
        self.send(COORDINATOR, ProposeSplits(tree=tree, level=level, living=living, **vars(proposals)))

    def _decode(self, worker: str, message: PushHistograms) -> tuple[int, Histograms, np.ndarray]:
        """The first bin of the worker's feature shard, its histograms, counted from there, and their totals."""
        i = self._job.workers.index(worker)
        first, offsets = self._offsets_of_shards[i % self._job.n_feature_shards]
        with self.stage("merge"):
            if message.level == 0 and worker in self._twins:
                self._without_twins.end = 0
                sent = decode_histograms(message.codec, message.arrays, offsets, self._without_twins)
                return first, self._twins[worker].spread(sent, self._merger.entries), message.totals
            held = decode_histograms(message.codec, message.arrays, offsets, self._merger.entries)
            for numbers in message.twins:
                n_bins = int(held.offsets[-1] - held.offsets[0])
                self._twins[worker] = Twins.of(held, unpack_integers(numbers, n_bins))
        return first, held, message.totals
