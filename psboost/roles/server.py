"""Knows a server's part of the training: merging and searching; does not know rows, nor where they go."""

from collections.abc import Sequence
from dataclasses import astuple
from functools import partial
from itertools import pairwise

import numpy as np

from psboost.boosting.growth import Frontier, feature_range
from psboost.boosting.histogram import Entries, HistogramMerger, Histograms
from psboost.boosting.split import SplitFinder
from psboost.boosting.twins import Twins
from psboost.data.cut_points import CutPoints
from psboost.data.sketch_bytes import SketchBytes
from psboost.data.sketches import Sketches
from psboost.errors import ProtocolError
from psboost.kernels.splits import BUILD_LEFT
from psboost.roles.grower import Grower
from psboost.roles.job import Job, steps_of_tree
from psboost.roles.role import COORDINATOR, server_name
from psboost.wire.histogram_codecs import decode_histograms
from psboost.wire.messages import (
    DealRanges,
    PushHistograms,
    PushSketches,
    ShareCutPoints,
    split_by_range,
)
from psboost.wire.packing import pack_living, unpack_integers


class Server(Grower):
    """Server s of a training run: owns ranges of features, and merges the histograms of the workers that hold them."""

    def __init__(self, job: Job, server: int, stage=None):
        super().__init__(server_name(server), job, stage)
        self._workers, self._shards, self._number = job.workers_of_server(server), job.shards_of_server(server), server

    def run(self):
        yield from self._set_up()
        job = self._job
        for self.tree in range(job.n_rounds):
            yield from self._grow(self.tree)

    def _set_up(self):
        [self._deal] = yield from self.gather(DealRanges, [COORDINATOR])
        deal = self._deal
        job = self._job = self.read(COORDINATOR, self._job.as_told, deal)
        self._shard_of_ranges = [c for c, _ in job.ranges_of_servers[self._number]]
        self.check_number(COORDINATOR, len(deal.range_offsets) - 1, len(self._shard_of_ranges), "ranges of features")
        self._ranges_of = {  # the numbers of its ranges, for each worker
            worker: [k for k, own in enumerate(self._shard_of_ranges) if own == c]
            for worker, c in zip(self._workers, self._shards * job.n_row_shards, strict=True)
        }
        self._ids = self.read(COORDINATOR, unpack_integers, deal.features, int(deal.range_offsets[-1]))
        self._range_offsets = deal.range_offsets
        self._usual_steps = job.steps(job.loss.bounds(deal.max_weight, deal.max_label), deal.n_rows)
        if deal.cut_points:
            self._use_cut_points(self.read(COORDINATOR, CutPoints.from_arrays, deal.cut_points, len(self._ids)))
        else:
            yield from self._find_cut_points()

    def _find_cut_points(self, tree: int = -1):
        """Cut points of the server's ranges, from the workers' sketches."""
        job, by_shard, taken = self._job, [], SketchBytes()
        pushed = yield from self.gather(PushSketches, self._workers, tree=tree)
        for i, c in enumerate(self._shards):
            workers = job.workers_of_features(c)
            ranges = self._ranges_of[workers[0]]
            sent = [
                self.read(worker, split_by_range, message.sketches, len(ranges))
                for worker, message in zip(workers, pushed[i :: len(self._shards)], strict=True)
            ]
            with self.stage("sketch"):
                cut_points = CutPoints.join(
                    [self._cut(k, workers, of_range) for k, of_range in zip(ranges, zip(*sent, strict=True), strict=True)]
                )
            taken = sum((SketchBytes.of(*of_ranges) for of_ranges in sent), taken)  # which are sound by now
            by_shard.append(cut_points)
            for worker in workers:
                self.send(worker, ShareCutPoints(tree=tree, cut_points=cut_points.to_arrays()))
        cut_points = CutPoints.join(by_shard)
        share = ShareCutPoints(tree=tree, cut_points=cut_points.to_arrays(), sketch_bytes=astuple(taken))
        self.send(COORDINATOR, share)
        self._use_cut_points(cut_points)

    def _cut(self, k: int, workers: list[str], sent: Sequence[tuple[np.ndarray, ...]]) -> CutPoints:
        """Cut points of range k, from the sketches of its features that these workers sent."""
        job, n_features = self._job, int(self._range_offsets[k + 1] - self._range_offsets[k])
        by_worker = zip(workers, sent, strict=True)
        merged = Sketches.merge([self.read(one, Sketches.from_arrays, arrays, n_features) for one, arrays in by_worker])
        return merged.cut_points(max_bin=job.parameters.max_bin, zero_as_missing=job.zero_as_missing)

    def _use_cut_points(self, cut_points: CutPoints) -> None:
        """Merges and searches the bins of these cut points."""
        job, deal, ids = self._job, self._deal, self._ids
        sizes = np.diff(deal.range_offsets)
        locals_ = np.arange(len(ids)) + np.repeat(deal.range_begins - deal.range_offsets[:-1], sizes)
        shards = np.repeat(self._shard_of_ranges, sizes)
        self._features = feature_range(ids, shards, locals_, cut_points, job.zero_as_missing)
        self._finder = SplitFinder(self._features, job.rule)
        self._merger = HistogramMerger(self._features.bin_offsets)
        self._twins: dict[tuple[str, int], Twins] = {}  # by worker and range
        self._without_twins = Entries()
        of_ranges = [self._features.bin_offsets[b : e + 1] for b, e in pairwise(self._range_offsets)]
        self._offsets_of_ranges = [(int(offsets[0]), offsets - offsets[0]) for offsets in of_ranges]

    def _grow(self, tree: int):
        job = self._job
        steps = yield from steps_of_tree(self, job, tree, self._usual_steps)
        if job.renews_cut_points(tree):
            yield from self._find_cut_points(tree)
        self._finder.start_tree(steps)
        frontier, level, n_built = Frontier.root(), 0, 1
        while True:
            splits = yield from self._find_splits(tree, level, frontier, n_built)
            if job.is_last(level):
                break
            fields = splits.fields
            positions, _ = self.read(job.chooser, frontier.positions, fields)
            if len(fields) == 0:
                break
            self._finder.apply(positions, fields[:, BUILD_LEFT])
            frontier, level, n_built = frontier.split(len(fields)), level + 1, len(fields)
        self._end_tree(tree)

    def _find_splits(self, tree: int, level: int, frontier: Frontier, n_nodes: int):
        """Merges the workers' histograms over row shards, and finds and agrees on the best splits of the open nodes."""
        self._merger.entries.end = 0
        decode = partial(self._decode, n_nodes)
        pushed = yield from self.gather(PushHistograms, self._workers, tree=tree, level=level, make=decode)
        totals = sum(totals for _, totals in pushed[:: len(self._shards)])
        with self.stage("merge"):
            self._finder.add(self._merger.sum([part for parts, _ in pushed for part in parts], totals))
        with self.stage("search"):
            proposals = self._finder.find()
        living: tuple[np.ndarray, ...] = ()
        if not self._job.is_last(level):
            with self.stage("encode"):
                living = tuple(
                    pack_living(*self._finder.flags(*edges)) for edges in pairwise(self._range_offsets.tolist())
                )
        return (yield from self._agree(tree, level, frontier, proposals, living))

    def _decode(self, n_nodes: int, worker: str, message: PushHistograms) -> tuple[list[tuple[int, Histograms]], np.ndarray]:
        """The worker's histograms of so many nodes over each of its ranges, with the first bin, from which their bins are
        counted; and their totals."""
        ranges = self._ranges_of[worker]
        of_ranges = split_by_range(message.arrays, len(ranges))
        twins = split_by_range(message.twins, len(ranges))
        with self.stage("merge"):
            parts = [
                self._decode_range((worker, k), message, *of_range)
                for k, *of_range in zip(ranges, of_ranges, twins, strict=True)
            ]
        if {len(message.totals), *(histograms.n_nodes for _, histograms in parts)} != {n_nodes}:
            raise ProtocolError(f"histograms of another number of nodes than {n_nodes}")
        return parts, message.totals

    def _decode_range(
        self, place: tuple[str, int], message: PushHistograms, arrays: tuple[np.ndarray, ...], twins: tuple[np.ndarray, ...]
    ) -> tuple[int, Histograms]:
        """What `arrays` hold of a worker's range, the one that `twins` are of, if there are any."""
        entries, (first, offsets) = self._merger.entries, self._offsets_of_ranges[place[1]]
        if message.level == 0 and place in self._twins:
            self._without_twins.end = 0
            sent = decode_histograms(message.codec, arrays, offsets, self._without_twins)
            return first, self._twins[place].spread(sent, entries)
        held = decode_histograms(message.codec, arrays, offsets, entries)
        for numbers in twins:
            n_bins = int(held.offsets[-1] - held.offsets[0])
            self._twins[place] = Twins.of(held, unpack_integers(numbers, n_bins))
        return first, held
