"""Knows how workers that hold whole rows sum histograms and all choose the same splits; does not know servers."""

from dataclasses import astuple, dataclass
from itertools import pairwise

import numpy as np

from psboost.boosting.histogram import Histograms, NodeSums, Total
from psboost.boosting.split import Proposals, SplitFinder, best_of
from psboost.data.cut_points import CutPoints
from psboost.data.sketch_bytes import SketchBytes
from psboost.data.sketches import Sketches
from psboost.kernels.open_nodes import UNKNOWN
from psboost.kernels.splits import BUILD_LEFT
from psboost.roles.modes import REDUCE_SCATTER, SPARSE_ALLREDUCE
from psboost.roles.part import Part, make_finder
from psboost.roles.ring import Ring
from psboost.roles.ring_sums import DenseSums, SparseSums
from psboost.roles.role import COORDINATOR
from psboost.roles.worker import Worker
from psboost.wire.messages import PushSketches, ShareCutPoints


@dataclass(frozen=True)
class _Search:
    """Features that one thread searches, from `first` on; their bins are begin .. end of the worker's."""

    first: int
    begin: int
    end: int
    finder: SplitFinder


class RingWorker(Worker):
    """Worker (r, 0) of a training by rows alone (roles/modes.py names the ways).

    Worker r owns the r-th of R chunks of the features: it merges their sketches, and its sums of them are the ones that are
    shared or, in mode reduce-scatter, searched. Each level's histograms of the smaller children are summed, those of their
    siblings are parent - child at each worker; all choose the same splits, so that the coordinator is only told of them.
    """

    def _ranges_of_threads(self, range_offsets):
        offsets = range_offsets[:: self._job.n_row_shards]
        return list(zip(offsets, offsets[1:], strict=False))

    def _rule_of_parts(self):
        return None

    def _merge_sketches(self, tree, summarise):
        """Sends every other worker what the rows hold of its features, and shares the cut points of the own ones."""
        offsets = self._range_offsets[:: self._job.n_threads].tolist()
        with self.stage("sketch"):
            sketches = self._all(summarise, list(zip(offsets, offsets[1:], strict=False)))
        others = [worker for worker in self._job.workers if worker != self.name]
        own = sketches.pop(self._r)
        for worker, held in zip(others, sketches, strict=True):
            self.send(worker, PushSketches(tree=tree, sketches=held.to_arrays()))
        del sketches
        pushed = yield from self.gather(PushSketches, others, tree=tree)
        with self.stage("sketch"):
            received = [
                self.read(worker, Sketches.from_arrays, message.sketches, own.n_features)
                for worker, message in zip(others, pushed, strict=True)
            ]
            received.insert(self._r, own)
            cut_points = self._cut(Sketches.merge(received))
        arrays = cut_points.to_arrays()
        for worker in others:
            self.send(worker, ShareCutPoints(tree=tree, cut_points=arrays))
        taken = sum((SketchBytes.of(message.sketches) for message in pushed), SketchBytes())
        self.send(COORDINATOR, ShareCutPoints(tree=tree, cut_points=arrays, sketch_bytes=astuple(taken)))
        shared = yield from self.gather(ShareCutPoints, others, tree=tree)
        sizes = np.delete(np.diff(offsets), self._r).tolist()
        parts = [
            self.read(worker, CutPoints.from_arrays, message.cut_points, n_features)
            for worker, message, n_features in zip(others, shared, sizes, strict=True)
        ]
        parts.insert(self._r, cut_points)
        return CutPoints.join(parts)

    def _use_cut_points(self, columns, cut_points):
        super()._use_cut_points(columns, cut_points)
        self._cut_points = cut_points
        edges = self._bin_offsets[self._range_offsets[:: self._job.n_threads]].tolist()
        self._sums = SparseSums(edges) if self._job.mode == SPARSE_ALLREDUCE else DenseSums(edges)
        ranges = self._ranges
        if self._job.mode == REDUCE_SCATTER:  # the own chunk's, one for each thread
            own = self._range_offsets[self._r * self._job.n_threads :].tolist()
            ranges = list(zip(own, own[1 : self._job.n_threads + 1], strict=False))
        self._searches = [self._make_search(*features) for features in ranges]
        self._bins_of_chunks = np.diff(edges).tolist()

    @property
    def _ring(self) -> Ring:
        return Ring(self, self._job.workers, self._bins_of_chunks)

    def _make_search(self, begin: int, end: int) -> _Search:
        job = self._job
        points, ids = self._cut_points.part(begin, end), self._ids[begin:end]
        finder = make_finder(begin, points, job.zero_as_missing, ids, self._c, job.rule)
        return _Search(begin, int(self._bin_offsets[begin]), int(self._bin_offsets[end]), finder)

    def _start_growing(self, steps):
        for search in self._searches:
            search.finder.start_tree(steps)

    def _find_splits(self, tree, level, frontier, built):
        job, is_sparse = self._job, self._job.mode == SPARSE_ALLREDUCE
        totals = self._sum_present(built) if is_sparse else self._sum_all()
        # Below the root every worker knows the totals, from the splits.
        sent = totals if level == 0 else totals[:0]
        own, totals = yield from self._ring.reduce_scatter(tree, level, len(built), sent, self._sums)
        if level == 0:
            self._totals = totals.astype(np.int64)
        if job.mode == REDUCE_SCATTER:
            self._ring.put(self._r, own, self._sums)
        else:
            yield from self._ring.all_gather(tree, level, len(built), own, self._sums)
        best = best_of(self._all(self._search, self._searches))
        if job.mode == REDUCE_SCATTER:
            best = yield from self._ring.agree(tree, level, best)
        return self._choose_splits(level, frontier, best)

    def _descend(self, positions, splits):
        self._totals = splits.built_sums
        for search in self._searches:
            search.finder.apply(positions, splits.fields[:, BUILD_LEFT])

    # --- histograms

    def _sum_all(self) -> np.ndarray:
        """Starts a level with the own rows' sums of the nodes to build in all bins; returns their totals, float64
        (n_nodes, 2)."""
        rows = self._partition.listed
        self._sums.start(len(rows.spans))

        def add_up(part: Part) -> None:
            for node in range(len(rows.spans)):
                sums = part.sum(rows.node(node))
                self._sums.fill(node, int(self._bin_offsets[part.begin]), sums.acc, sums.pairs)

        with self.stage("build"):
            self._all(add_up, self._parts)
        return rows.totals[:, :2].astype(np.float64)

    def _sum_present(self, positions: np.ndarray) -> np.ndarray:
        """The same in the present bins of features that may still be split, which all workers know alike; at these
        positions among the open nodes."""
        edges = [0, *(part.end for part in self._parts)]
        shares = [
            (search.finder.living.from_(search.first), list(pair))
            for search, pair in zip(self._searches, pairwise(edges), strict=True)
        ]
        rows = self._partition.listed
        with self.stage("build"):
            built = self._build(rows, positions, shares)
        with self.stage("encode"):
            self._sums.start(Histograms.join(built, self._bin_offsets[edges[:-1]].tolist()), self._all)
        return rows.totals[:, :2].astype(np.float64)

    def _search(self, search: _Search) -> Proposals:
        """The best split of each open node in a thread's features, once the sums of the built ones are there."""
        share = 1 / len(self._searches)
        for node, (grad, hess) in enumerate(self._totals.tolist()):
            with self.stage("merge", share):
                acc = self._sums.acc(node, search.begin, search.end)
            with self.stage("search", share):
                search.finder.add(NodeSums(acc, Total(grad, hess, UNKNOWN)))
        with self.stage("search", share):
            return search.finder.find()
