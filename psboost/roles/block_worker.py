"""Knows how a worker of a block sends its histograms to servers, or proposes splits; does not know how its rows are kept."""

from collections.abc import Callable
from functools import cached_property, partial
from itertools import pairwise, zip_longest

import numpy as np

from psboost.boosting.histogram import Histograms, Total
from psboost.boosting.levels import Levels
from psboost.boosting.living import LivingFeatures
from psboost.boosting.partition import NodeRows
from psboost.boosting.split import Proposals, best_of
from psboost.boosting.twins import Elders, number_elders
from psboost.data.block import NARROW_BINS, SparseBlock
from psboost.data.cut_points import CutPoints
from psboost.kernels.row_bins import STRIDES
from psboost.kernels.splits import BUILD_LEFT
from psboost.roles.role import server_name
from psboost.roles.worker import Worker, one_thread
from psboost.wire.histogram_codecs import Packer, encode_histograms
from psboost.wire.messages import PushHistograms, PushSketches, ShareCutPoints
from psboost.wire.packing import pack_integers, unpack_living

# Bytes of a message, two milliseconds on a link of 1 Gbit/s: it is sent while the next one is packed. Smaller ones go
# together: where roles share cores, who gets the first would take the core that packs the second.
_LARGE = 1 << 18
_UNEVEN = 1.05  # times as many stored values, a thread may get if that saves a part: one more costs each row some time
_MOST_PARTS, _NEARLY_ALL = 16, 7 / 8  # of a range, where the first has so many of its values; else two
MANY_TWINS = 0.25  # of a root's bins: fewer are not worth a second way


class BlockWorker(Worker):
    """Worker (r, c) of a training by blocks: servers sum its histograms or, with one row shard, it proposes splits."""

    _levels: Levels | None = None  # what it has summed up last is self._leaf_sums

    @cached_property
    def _ranges_of_servers(self) -> dict[str, list[int]]:
        """The numbers of the ranges that each server owns, once the coordinator has dealt them."""
        owners = self._job.servers_of_ranges(self._c)
        return {server_name(s): [i for i, own in enumerate(owners) if own == s] for s in owners}

    def _ranges_of_threads(self, range_offsets):
        offsets = range_offsets if self._job.n_threads > 1 or not self._job.merges else [0, range_offsets[-1]]
        return list(zip(offsets, offsets[1:], strict=False))

    def _ranges_to_build(self, columns):
        if self._job.merges:
            return self._ranges
        n_stored = [columns.n_stored(*features) for features in self._ranges]
        if all(n <= STRIDES[-1] * columns.n_rows for n in n_stored):  # they take a cache line each, however narrow they are
            return self._ranges
        moved = _moved_ranges(self._ranges, self._bin_offsets)
        if moved == self._ranges or (moved and max(columns.n_stored(*own) for own in moved) <= _UNEVEN * max(n_stored)):
            return moved
        of_ranges = [_narrow_parts(*features, self._bin_offsets, columns.n_stored) for features in self._ranges]
        return [part for side_by_side in zip_longest(*of_ranges) for part in side_by_side if part]  # as threads take them

    def _rule_of_parts(self):
        return None if self._job.merges else self._job.rule

    def _merge_sketches(self, tree, summarise):
        offsets = self._range_offsets.tolist()
        with self.stage("sketch"):
            sketches = self._all(summarise, list(zip(offsets, offsets[1:], strict=False)))
        for server, ranges in self._ranges_of_servers.items():
            arrays = tuple(array for i in ranges for array in sketches[i].to_arrays())
            self.send(server, PushSketches(tree=tree, sketches=arrays))
        del sketches
        shared = yield from self.gather(ShareCutPoints, self._ranges_of_servers, tree=tree)
        parts, sizes = [], np.diff(offsets)
        for (server, ranges), message in zip(self._ranges_of_servers.items(), shared, strict=True):
            parts.append(self.read(server, CutPoints.from_arrays, message.cut_points, int(sizes[ranges].sum())))
        return CutPoints.join(parts)

    def _use_cut_points(self, columns, cut_points):
        super()._use_cut_points(columns, cut_points)
        if self._job.merges:
            ranges = pairwise(self._range_offsets.tolist())
            self._offsets_of_ranges = [self._bin_offsets[b : e + 1] - self._bin_offsets[b] for b, e in ranges]
            self._packers = [Packer() for _ in self._offsets_of_ranges]
            self._elders: list[Elders] | None = None  # of each range; none: all bins are sent; None: not known yet

    def _start_growing(self, steps):
        if self._job.merges:
            self._living = LivingFeatures.of_root(len(self._ids))
            return
        for part in self._parts:
            part.finder.start_tree(steps)

    def _grow_levels(self, tree, steps):
        if self._levels is None and self._grows_alone:
            job = self._job
            self._levels = Levels(
                self._parts, self._gradients, self._row_offset, self._partition, self._bitvector, self._c, job.rule,
                job.parameters.max_depth, job.n_threads,
            )  # fmt: skip
        if self._levels is None:
            return (yield from super()._grow_levels(tree, steps))
        best, leaves, self._leaf_sums, spans = self._levels.grow(steps, self._rounding_keys[tree])
        self._chosen_of.append(best)
        self.stage("levels").note(spans)
        return leaves

    def _sum_leaves(self, leaves, steps):
        if self._levels is None:
            return super()._sum_leaves(leaves, steps)
        return self._leaf_sums

    @property
    def _grows_alone(self) -> bool:
        """Whether the worker is alone and has threads."""
        max_depth, has_threads = self._job.parameters.max_depth, self._threads is not one_thread
        return self._job.is_alone and has_threads and Levels.can_grow(self._parts, max_depth)

    def _stop_growing(self):
        if self._levels is not None:
            self._levels.close()
            self._levels = None

    def _find_splits(self, tree, level, frontier, built):
        if self._job.merges:
            self._n_open = len(frontier.open)
            self._send_histograms(tree, level, built)
            return self._hear_splits(tree, level)
        return self._agree(tree, level, frontier, self._search())

    def _descend(self, positions, splits):
        if self._job.merges:
            n_flags, chooser = self._living.n_flags(self._n_open, self._range_offsets), self._job.chooser
            self.check_number(chooser, len(splits.living), len(n_flags), "living sets")
            living = zip(splits.living, n_flags, strict=True)
            flags = [self.read(chooser, unpack_living, packed, n) for packed, n in living]
            self._living = self._living.of_children(positions, flags, self._range_offsets)
            return
        for part in self._parts:
            part.finder.apply(positions, splits.fields[:, BUILD_LEFT])

    def _search(self) -> Proposals:
        """Builds the level's histograms and finds each open node's best split (R = 1)."""
        n_at_once = min(self._job.n_threads, len(self._parts))
        stage, rows = partial(self.stage, share=1 / n_at_once), self._partition.listed
        return best_of(self._all(lambda part: part.propose(rows, stage), self._parts))

    def _send_histograms(self, tree: int, level: int, positions: np.ndarray) -> None:
        """Builds the level's histograms, at these positions among the open nodes, and sends each server its part."""
        rows = self._partition.listed
        with self.stage("build"):
            built = self._build_root(rows) if level == 0 and self._elders else self._build_all(rows, positions)
            twins = self._find_twins(built) if level == 0 and self._elders is None else [()] * len(built)
        encoded = iter(self._side_by_side(partial(self._encode, level), built, range(len(built))))
        held: list[tuple[str, PushHistograms]] = []
        for server, ranges in self._ranges_of_servers.items():
            arrays = tuple([array for _ in ranges for array in next(encoded)])
            message = PushHistograms(
                tree=tree, level=level, totals=rows.totals, codec=self._job.codec, arrays=arrays,
                twins=tuple([array for i in ranges for array in twins[i]]),
            )  # fmt: skip
            held.append((server, message))
            if sum(array.nbytes for array in arrays) >= _LARGE:
                self._send_all(held)
        self._send_all(held)

    def _build_all(self, rows: NodeRows, positions: np.ndarray) -> list[Histograms]:
        """Histograms of nodes, at these positions among the open ones, over each range."""
        edges = self._range_offsets.tolist()
        of_parts = [edges] if len(self._parts) == 1 else map(list, pairwise(edges))
        return self._build(rows, positions, [(self._living, own) for own in of_parts])

    def _build_root(self, rows: NodeRows) -> list[Histograms]:
        """The root's over each range, without twins."""
        [total] = rows.totals.tolist()
        return self._all(lambda elders: elders.sum(self._gradients.packed, Total(*total)), self._elders)

    def _find_twins(self, built: list[Histograms]) -> list[tuple[np.ndarray, ...]]:
        """Which bins of the first root, `built` over each range, are twins, as they are sent; decides on the roots to come.

        The paper's codec goes without them; and so do weights of 0, as whose rows may be missing in a root.
        """
        self._elders, nothing = [], [()] * len(built)
        if self._job.codec != "packed" or not self._gradients.all_have_hess:
            return nothing
        if not all(isinstance(part.block, SparseBlock) for part in self._parts):
            return nothing
        parts = self._parts if len(self._parts) > 1 else self._parts * len(built)
        first_bins = self._bin_offsets[self._range_offsets[:-1]] - self._bin_offsets[[part.begin for part in parts]]
        bins = [held.bins for held in built]
        where = [part.block for part in parts], first_bins.tolist(), bins
        numbers = self._all(number_elders, *where)
        n_bins = sum(map(len, bins))
        if n_bins - sum(int(own.max(initial=-1)) + 1 for own in numbers) <= MANY_TWINS * n_bins:
            return nothing
        self._elders = self._all(lambda *of_range: Elders(*of_range, self._n_train), *where, numbers)
        return [(pack_integers(own),) for own in numbers]

    def _send_all(self, held: list[tuple[str, PushHistograms]]) -> None:
        for server, message in held:
            self.send(server, message)
        held.clear()

    def _encode(self, level: int, built: Histograms, number: int) -> tuple[np.ndarray, ...]:
        """Histograms over the range of that number."""
        with self.stage("encode", 1 / min(self._job.n_threads, len(self._packers))):
            offsets, packer = self._offsets_of_ranges[number], self._packers[number]
            return encode_histograms(self._job.codec, built, offsets, packer, level)


def _moved_ranges(ranges: list[tuple[int, int]], bin_offsets: np.ndarray) -> list[tuple[int, int]]:
    """The ranges of features, with their borders moved as little as it takes to make the rows of bins of all of them narrow;
    none if that cannot be."""
    edges, innermost = [ranges[0][0], *[end for _, end in ranges]], range(1, len(ranges))
    for i in innermost:
        edges[i] = min(edges[i], _end_of_narrow(edges[i - 1], bin_offsets))
    for i in reversed(innermost):
        edges[i] = max(edges[i], int(np.searchsorted(bin_offsets, bin_offsets[edges[i + 1]] - NARROW_BINS)))
    are_narrow = np.all(np.diff(bin_offsets[edges]) <= NARROW_BINS)
    return list(pairwise(edges)) if are_narrow else []


def _narrow_parts(
    begin: int, end: int, bin_offsets: np.ndarray, n_stored: Callable[[int, int], int]
) -> list[tuple[int, int]]:
    """Features begin .. end, popular ones first; in parts whose rows of bins (kernels.row_bins) are narrow, or in one, whose
    rows are wide.

    Each part is as large as can be. To go through the rows once for each takes time, too: with three or more, as long as it
    saves, but where nearly all values (n_stored, of features) are in the first. The others' features are rare then, and a
    node has few of them, whose rows are looked for (kernels.node_builds).
    """
    edges = [begin]
    while edges[-1] < end:
        furthest = min(end, _end_of_narrow(edges[-1], bin_offsets))
        if furthest == edges[-1]:
            return [(begin, end)]
        edges.append(furthest)
    parts = list(pairwise(edges))
    if len(parts) == 2 or (2 < len(parts) <= _MOST_PARTS and n_stored(*parts[0]) >= _NEARLY_ALL * n_stored(begin, end)):
        return parts
    return [(begin, end)]


def _end_of_narrow(begin: int, bin_offsets: np.ndarray) -> int:
    """Rows of bins of the features from `begin` up to this one are narrow, and of one more are not."""
    return int(np.searchsorted(bin_offsets, bin_offsets[begin] + NARROW_BINS, side="right")) - 1
