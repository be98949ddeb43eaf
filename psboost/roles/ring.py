"""Knows how workers in a ring sum chunks, share them and agree on splits; does not know what chunks are made of.

Worker r sends to worker r + 1 alone, R - 1 times for each of the two, whatever R is; every worker sends (R - 1) / R of all
chunks in each. So R workers send as many bytes in all as for a sum at one place, and nobody sends more than the others.

    reduce_scatter, R = 3    hop 0         hop 1                then it has
    worker 0 sends           its chunk 2   chunk 1 of 2 and 0   chunk 0, summed over all
    worker 1 sends           its chunk 0   chunk 2 of 0 and 1   chunk 1
    worker 2 sends           its chunk 1   chunk 0 of 1 and 2   chunk 2
"""

from dataclasses import dataclass

import numpy as np

from psboost.boosting.split import Proposals, best_of
from psboost.roles.ring_sums import Sums
from psboost.roles.role import Role
from psboost.wire.chunks import Chunk, read_chunk
from psboost.wire.messages import ReduceHistograms, ShareHistograms, ShareSplits


@dataclass(frozen=True)
class Ring:
    """One worker's place among the workers, who sum one level's histograms of a tree.

    n_bins  of each chunk; chunk r belongs to worker r
    """

    role: Role
    workers: list[str]
    n_bins: list[int]

    @property
    def rank(self) -> int:
        return self.workers.index(self.role.name)

    def _at(self, distance: int) -> str:
        return self.workers[(self.rank + distance) % len(self.workers)]

    @property
    def _after(self) -> str:
        return self._at(1)

    @property
    def _before(self) -> str:
        return self._at(-1)

    def _read(self, message: ReduceHistograms | ShareHistograms, n_nodes: int, chunk: int) -> Chunk:
        return self.role.read(self._before, read_chunk, message.form, message.arrays, n_nodes, self.n_bins[chunk])

    def reduce_scatter(self, tree: int, level: int, n_nodes: int, totals: np.ndarray, sums: Sums):
        """This worker's own chunk and the totals, both summed over all workers; a generator.

        totals  float64 (n, 2)
        sums    this worker's of all chunks
        """
        n_workers, rank = len(self.workers), self.rank
        passing, passing_totals = sums.take((rank - 1) % n_workers), totals
        for hop in range(n_workers - 1):
            reduce = ReduceHistograms(
                tree=tree, level=level, hop=hop, totals=passing_totals, form=passing.form, arrays=passing.arrays
            )
            self.role.send(self._after, reduce)
            [message] = yield from self.role.gather(ReduceHistograms, [self._before], tree=tree, level=level, hop=hop)
            chunk = (rank - 2 - hop) % n_workers
            with self.role.stage("merge"):
                passing = sums.add(chunk, self._read(message, n_nodes, chunk))
                self.role.check_number(self._before, len(message.totals), len(totals), "totals of nodes")
                passing_totals = message.totals + totals
        return passing, passing_totals

    def all_gather(self, tree: int, level: int, n_nodes: int, own: Chunk, sums: Sums):
        """Puts all chunks into `sums`, of which each worker gives its own; a generator."""
        n_workers, rank, passing = len(self.workers), self.rank, own
        self.put(rank, own, sums)
        for hop in range(n_workers - 1):
            share = ShareHistograms(tree=tree, level=level, hop=hop, form=passing.form, arrays=passing.arrays)
            self.role.send(self._after, share)
            [message] = yield from self.role.gather(ShareHistograms, [self._before], tree=tree, level=level, hop=hop)
            chunk = (rank - 1 - hop) % n_workers
            passing = self._read(message, n_nodes, chunk)
            self.put(chunk, passing, sums)

    def put(self, chunk: int, whole: Chunk, sums: Sums) -> None:
        with self.role.stage("merge"):
            sums.put(chunk, whole)

    def agree(self, tree: int, level: int, best: Proposals):
        """The best of all workers' proposals; a generator.

        After hop h a worker has heard of the 2^(h+1) workers up to itself. For the last hop that may be some twice,
        which does not change the best.
        """
        for hop in range((len(self.workers) - 1).bit_length()):
            self.role.send(self._at(1 << hop), ShareSplits(tree=tree, level=level, hop=hop, **vars(best)))
            sender = self._at(-(1 << hop))
            [message] = yield from self.role.gather(ShareSplits, [sender], tree=tree, level=level, hop=hop)
            best = best_of([best, self.role.read(sender, Proposals.of, message, len(best.gains))])
        return best
