"""Knows how a worker of a block sends its histograms to servers, or proposes splits; does not know how its rows are kept."""

from functools import partial
from itertools import pairwise

import numpy as np

from psboost.boosting.histogram import Histograms
from psboost.boosting.living import LivingFeatures
from psboost.boosting.split import best_of
from psboost.data.cut_points import CutPoints
from psboost.kernels.splits import BUILD_LEFT
from psboost.roles.role import COORDINATOR
from psboost.roles.worker import Worker
from psboost.wire.histogram_codecs import Packer, encode_histograms
from psboost.wire.messages import ApplySplits, ProposeSplits, PushHistograms, PushSketches, ShareCutPoints
from psboost.wire.packing import unpack_living

# Bytes of a message, two milliseconds on a link of 1 Gbit/s: it is sent while the next one is packed. Smaller ones go
# together: where roles share cores, who gets the first would take the core that packs the second.
_LARGE = 1 << 18


class BlockWorker(Worker):
    """Worker (r, c) of a training by blocks: servers sum its histograms or, with one row shard, it proposes splits."""

    def _ranges_of_parts(self, range_offsets):
        offsets = range_offsets if self._job.n_threads > 1 or not self._job.merges else [0, range_offsets[-1]]
        return list(zip(offsets, offsets[1:], strict=False))

    def _rule_of_parts(self):
        return None if self._job.merges else self._job.rule

    def _merge_sketches(self, tree, summarise):
        job, offsets = self._job, self._range_offsets.tolist()
        with self.stage("sketch"):
            sketches = self._all(summarise, list(zip(offsets, offsets[1:], strict=False)))
        for server, held in zip(job.servers, sketches, strict=True):
            self.send(server, PushSketches(tree=tree, sketches=held.to_arrays()))
        del sketches
        shared = yield from self.gather(ShareCutPoints, job.servers, tree=tree)
        return CutPoints.join([CutPoints.from_arrays(message.cut_points) for message in shared])

    def _use_cut_points(self, columns, cut_points):
        super()._use_cut_points(columns, cut_points)
        if self._job.merges:
            ranges = pairwise(self._range_offsets.tolist())
            self._packers = [Packer() for _ in self._job.servers]
            self._offsets_of_servers = [self._bin_offsets[b : e + 1] - self._bin_offsets[b] for b, e in ranges]

    def _start_growing(self, steps):
        if self._job.merges:
            self._living = LivingFeatures.of_root(len(self._ids))
            return
        for part in self._parts:
            part.finder.start_tree(steps)

    def _find_splits(self, tree, level, frontier, build):
        if self._job.merges:
            self._n_open = len(frontier.open)
            self._send_histograms(tree, level, build, frontier.positions(build))
        else:
            self._propose(tree, level, build)
        [splits] = yield from self.gather(ApplySplits, [COORDINATOR], tree=tree, level=level)
        return splits

    def _descend(self, positions, splits):
        if self._job.merges:
            n_flags = self._living.n_flags(self._n_open, self._range_offsets)
            flags = [unpack_living(packed, n) for packed, n in zip(splits.living, n_flags, strict=True)]
            self._living = self._living.of_children(positions, flags, self._range_offsets)
            return
        for part in self._parts:
            part.finder.apply(positions, splits.fields[:, BUILD_LEFT])

    def _propose(self, tree: int, level: int, nodes: list[int]) -> None:
        """Builds the histograms of `nodes` and proposes each open node's best split (R = 1)."""
        stage = partial(self.stage, share=1 / len(self._parts))
        with self.stage("build"):
            rows = self._rows_of(nodes)
        proposals = best_of(self._all(lambda part: part.propose(rows, self._gradients.packed, stage), self._parts))
        self.send(COORDINATOR, ProposeSplits(tree=tree, level=level, living=(), **vars(proposals)))

    def _send_histograms(self, tree: int, level: int, nodes: list[int], positions: list[int]) -> None:
        """Builds the histograms of `nodes`, at these places among the open ones, and sends each server its part."""
        edges = self._range_offsets.tolist()
        with self.stage("build"):
            rows = self._rows_of(nodes)
            of_parts = [edges] if len(self._parts) == 1 else map(list, pairwise(edges))
            built = self._build(rows, positions, [(self._living, own) for own in of_parts])
        encoded = self._side_by_side(partial(self._encode, level), built, range(self._job.n_servers))
        held: list[tuple[str, PushHistograms]] = []
        for server, arrays in zip(self._job.servers, encoded, strict=True):
            message = PushHistograms(tree=tree, level=level, totals=rows.totals, codec=self._job.codec, arrays=arrays)
            held.append((server, message))
            if sum(array.nbytes for array in arrays) >= _LARGE:
                self._send_all(held)
        self._send_all(held)

    def _send_all(self, held: list[tuple[str, PushHistograms]]) -> None:
        for server, message in held:
            self.send(server, message)
        held.clear()

    def _encode(self, level: int, built: Histograms, server: int) -> tuple[np.ndarray, ...]:
        """A server's histograms."""
        with self.stage("encode", 1 / min(self._job.n_threads, self._job.n_servers)):
            offsets, packer = self._offsets_of_servers[server], self._packers[server]
            return encode_histograms(self._job.codec, built, offsets, packer, level)

