"""Knows how workers and servers agree on a level's splits: who proposes, chooses and is told; not how they are found."""

from collections.abc import Sequence

import numpy as np

from psboost.boosting.growth import Frontier
from psboost.boosting.split import Proposals, Splits, best_of, choose_splits
from psboost.roles.job import Job
from psboost.roles.role import COORDINATOR, Role
from psboost.wire.messages import ApplySplits, ProposeSplits, PushSplits

AnySplits = ApplySplits | Splits


class Grower(Role):
    """A role that grows trees. All owners of features propose the best splits of these to the first one, the job's chooser,
    who tells all others what to split, level by level, and the coordinator when the tree is grown. In a ring all know the
    best splits of all features, and each chooses for itself."""

    def __init__(self, name: str, job: Job, stage=None):
        super().__init__(name, stage)
        self._job = job
        self._chosen_of: list[Proposals] = []  # of each level, at the chooser

    def _choose_splits(self, level: int, frontier: Frontier, best: Proposals) -> Splits:
        """The splits to make of the open nodes' best ones of all features."""
        if self.name == self._job.chooser:
            self._chosen_of.append(best)
        with self.stage("choose"):
            return choose_splits(best, frontier.open.start, self._job.is_last(level))

    def _agree(self, tree: int, level: int, frontier: Frontier, best: Proposals, living: tuple[np.ndarray, ...] = ()):
        """Proposes the open nodes' best splits of the own features, and returns those to make (_hear_splits); a generator.

        living  of a server: living sets, one for each of its ranges
        """
        job = self._job
        if self.name != job.chooser:
            self.send(job.chooser, ProposeSplits(tree=tree, level=level, living=living, **vars(best)))
            return (yield from self._hear_splits(tree, level))
        others, n_open = job.owners[1:], len(frontier.open)
        proposed = yield from self.gather(ProposeSplits, others, tree=tree, level=level)
        theirs = [self.read(name, Proposals.of, of_other, n_open) for name, of_other in zip(others, proposed, strict=True)]
        splits = self._choose_splits(level, frontier, best_of([best, *theirs]))
        self._tell_others(tree, level, splits, [living, *(of_other.living for of_other in proposed)])
        return splits

    def _hear_splits(self, tree: int, level: int):
        """The splits to make, from the chooser; None if the role is not told of this level's. A generator."""
        job = self._job
        if job.is_last(level) and self.name in job.servers:
            return None
        [splits] = yield from self.gather(ApplySplits, [job.chooser], tree=tree, level=level)
        return splits

    def _end_tree(self, tree: int) -> None:
        """The tree is grown: the chooser tells the coordinator what its splits were chosen of."""
        if self.name == self._job.chooser:
            best, self._chosen_of = Proposals.join(self._chosen_of), []
            self.send(COORDINATOR, PushSplits(tree=tree, gains=best.gains, fields=best.fields))

    def _tell_others(self, tree: int, level: int, splits: Splits, living: Sequence[tuple[np.ndarray, ...]]) -> None:
        """Tells all of the splits that have something to do for them. `living`: each owner's living sets."""
        job = self._job
        of_shards: list[list[np.ndarray]] = [[] for _ in range(job.n_feature_shards)]
        if job.merges and len(splits.fields) > 0 and not splits.last:
            for server, ranges, sets in zip(job.servers, job.ranges_of_servers, living, strict=True):
                self.check_number(server, len(sets), len(ranges), "living sets")
                for (c, _), of_range in zip(ranges, sets, strict=True):
                    of_shards[c].append(of_range)
        to_tell = [(job.workers_of_features(c), tuple(sets)) for c, sets in enumerate(of_shards)]
        if not splits.last:
            to_tell.append((job.servers, ()))
        for names, sets in to_tell:
            message = ApplySplits(tree=tree, level=level, fields=splits.fields, last=splits.last, living=sets)
            for name in names:
                if name != self.name:
                    self.send(name, message)
