"""Knows what the workers' rows hold, and deals features to shards and servers; does not know trees."""

import math
from dataclasses import dataclass, replace

import numpy as np

from psboost.boosting.fixed_point import bits_for, greatest_sum, least_rows, usual_size
from psboost.boosting.losses import FLOAT_MAX
from psboost.boosting.partition import are_shallow
from psboost.data import zeros
from psboost.data.bin_mapper import BinMapper
from psboost.data.bundles import Bundles, bundles_of
from psboost.data.cut_points import CutPoints
from psboost.data.rows import sum_counts
from psboost.errors import DataError, ParameterError, ProtocolError
from psboost.kernels.dealing import deal
from psboost.kernels.row_bins import STRIDES
from psboost.roles.job import Job
from psboost.wire.chunks import EXACT
from psboost.wire.messages import DealFeatures, DealRanges, DescribeRows
from psboost.wire.packing import pack_integers, unpack_ascending, unpack_integers

_TINY = 1e-240  # the greatest weight at least: what is divided by steps of smaller ones may be infinite
_UNEVEN = 1.25  # times the average load, what is dealt by bundles may come to: rows that are half as long save more
_VALUES_PER_BIN = 16  # stored values of which the sums take as long in a tree as the search of one bin does
WORK_OF_A_THREAD = 600_000  # and so many take as long, about, as to wake up one more thread again and again
_QUICKER = 48  # times as quick is that where threads stay awake between trees (boosting.levels)


@dataclass(frozen=True)
class Stock:
    """What all workers hold together.

    rows_of_shards, values_of_shards  of each row shard
    eval_rows                         of each row shard, of each evaluation set
    ids, counts                       int64: the features that any row stores, ascending, and in how many rows
    stores_zeros                      whether any training row stores a zero
    bundles                           int64: of each feature (data.bundles), None where that is not worth knowing
    """

    rows_of_shards: list[int]
    values_of_shards: list[int]
    eval_rows: list[list[int]]
    max_weight: float
    min_weight: float
    max_label: float
    usual_label: float  # of an unbounded loss, else 0
    n_features: int
    ids: np.ndarray
    counts: np.ndarray
    stores_zeros: bool
    bundles: np.ndarray | None

    @property
    def n_rows(self) -> int:
        return sum(self.rows_of_shards)

    def grad_bits(self, job: Job) -> int:
        """Bits of a row's grad and hess."""
        of_labels = self.max_label / self.usual_label if self.usual_label > 0 else 0.0
        return bits_for(job.parameters.grad_bits, self.n_rows, max(self.max_weight / self.min_weight, of_labels))

    @staticmethod
    def of(described: list[DescribeRows], job: Job) -> "Stock":
        """The sum of what the workers, in their order, describe; DataError if nothing can be learnt from it."""
        _check_sizes(described, job)
        by_shard = [described[r * job.n_feature_shards :][: job.n_feature_shards] for r in range(job.n_row_shards)]
        n_sets, (ids, counts) = len(job.eval_names), _sum_counts(described)
        borders = Bundles.join(next(iter(m.borders), None) for m in described)
        label_sizes = [sizes for m in described for sizes in m.label_sizes]
        stock = Stock(
            rows_of_shards=[sum(m.n_rows for m in shard) for shard in by_shard],
            values_of_shards=[sum(m.n_values for m in shard) for shard in by_shard],
            eval_rows=[[sum(m.eval_rows[e] for m in shard) for e in range(n_sets)] for shard in by_shard],
            max_weight=max(m.max_weight for m in described),
            min_weight=min(m.min_weight for m in described),
            max_label=max(m.max_label for m in described),
            usual_label=usual_size(label_sizes, max(1, sum(m.n_rows for m in described))),
            n_features=max(m.n_features for m in described),
            stores_zeros=any(m.stores_zeros for m in described),
            ids=ids,
            counts=counts,
            bundles=None if borders is None else bundles_of(borders, ids),
        )
        stock._check(job, [m.label_range for m in described if m.label_range])
        return stock

    def _check(self, job: Job, label_ranges: list[tuple[float, ...]]) -> None:
        if self.n_rows == 0:
            raise DataError(f"{job.data_name} has no rows")
        for e, name in enumerate(job.eval_names):
            if sum(rows[e] for rows in self.eval_rows) == 0:
                raise DataError(f"the evaluation data {name!r} has no rows")
        if job.objective_is_binary and len({label for pair in label_ranges for label in pair}) < 2:
            raise DataError(
                f"{job.data_name}: all {self.n_rows} labels are {label_ranges[0][0]:g}: a single class, nothing to "
                "learn; check the labels, or use objective=reg:squarederror"
            )
        if self.max_weight <= 0:
            raise DataError(f"{job.data_name}: all rows have weight 0")
        if self.max_weight > FLOAT_MAX:
            raise DataError(
                f"{job.data_name}: a row has weight {self.max_weight:g}: scale weights to at most {FLOAT_MAX:g}"
            )
        if self.max_weight < _TINY:
            raise DataError(
                f"{job.data_name}: no row has a weight above {self.max_weight:g}: scale weights up, to at least {_TINY:g}"
            )
        bits = self.grad_bits(job)
        if job.is_ring and greatest_sum(bits, self.n_rows) > EXACT:
            raise ParameterError(
                f"mode {job.mode} sums in float64, which is exact up to 2^53 only: with grad_bits={bits}, {self.n_rows} "
                "rows may come to more; give fewer grad_bits, or mode=block"
            )


def check_described(described: DescribeRows, n_sets: int) -> None:
    """ProtocolError for numbers that no worker counts, of training rows and so many evaluation sets."""
    numbers = described.n_rows, described.n_values, described.n_features, described.n_distinct, *described.eval_rows
    weights = described.max_weight, described.min_weight, described.max_label  # NaN is no weight either
    if len(described.eval_rows) != n_sets or len(described.sizes) != 1 + n_sets or len(described.label_range) not in (0, 2):
        raise ProtocolError(f"a description that is not of {n_sets} evaluation sets")
    if min(numbers) < 0 or not all(weight >= 0 for weight in weights) or described.min_weight == 0:
        raise ProtocolError("a description with numbers that nobody counts")


def _check_sizes(described: list[DescribeRows], job: Job) -> None:
    """DataError if workers do not have the same data."""
    names = [job.data_name, *(f"the evaluation data {name!r}" for name in job.eval_names)]
    first = job.workers[0]
    for worker, message in zip(job.workers, described, strict=True):
        for name, size, of_first in zip(names, message.sizes, described[0].sizes, strict=True):
            if size != of_first:
                raise DataError(
                    f"{name}: {worker} has {size} bytes or rows of it, {first} has {of_first}: give all machines the same "
                    "file"
                )


def _sum_counts(described: list[DescribeRows]) -> tuple[np.ndarray, np.ndarray]:
    features = [unpack_ascending(m.features, m.n_distinct) for m in described]
    return sum_counts(features, [unpack_integers(m.counts, m.n_distinct) for m in described])


@dataclass(frozen=True)
class Dealing:
    """Who owns which features.

    features         for each feature shard, int64: user numbers in internal order, range by range, popular ones first
    range_offsets    for each feature shard, int64 (n_ranges + 1): its ranges (Job.shares_of_ranges)
    values_of_feature_shards  int64 (C): stored values;  bins_of_servers  int64 (S): bins, at most
    min_rows         features stored in fewer rows are nobody's: they can never be split
    cut_points       of each feature shard, if a bin mapper was given
    job              with the threads of each worker that grow trees: no more than are worth it
    """

    stock: Stock
    features: list[np.ndarray]
    range_offsets: list[np.ndarray]
    values_of_feature_shards: np.ndarray
    bins_of_servers: np.ndarray
    min_rows: int
    cut_points: list[CutPoints] | None
    job: Job

    @staticmethod
    def of(stock: Stock, job: Job, given: BinMapper | None) -> "Dealing":
        """Deals to shards by stored values and bins, and within a shard to servers by bins, the most popular first.

        Of one-hot data, whole categories are dealt: a row has the same number of values in each shard, or one less, and not
        now 3 and now 12, so that rows of bins are short everywhere (kernels.row_bins): on avazu-shaped data, half as long.
        """
        bounds = job.loss.bounds(stock.max_weight, stock.max_label)
        min_rows = least_rows(job.parameters.min_child_weight, bounds, job.steps(bounds, stock.n_rows))
        usable = stock.counts >= min_rows
        if given is not None:
            _check_fit(given, stock, job, min_rows)
            usable &= np.isin(stock.ids, given.features)
        order = np.lexsort((stock.ids[usable], -stock.counts[usable]))
        ids, counts = stock.ids[usable][order], stock.counts[usable][order]

        bins = np.minimum(counts, job.parameters.max_bin)
        work = counts + _VALUES_PER_BIN * bins  # of who reads the values and searches the bins; servers have the bins alone
        bundles = None if stock.bundles is None else stock.bundles[usable][order]
        job = replace(job, n_threads=_threads_worth_it(counts, bins if bundles is None else np.ones_like(bins), job))
        shards = _deal_alike(work, job.n_feature_shards, bundles)
        features, range_offsets, bins_of_servers = [], [], np.zeros(job.n_servers, np.int64)
        for c in range(job.n_feature_shards):
            own, shares = shards == c, job.shares_of_ranges(c)
            if job.n_row_shards == 1:  # a thread holds each by itself
                ranges = _deal_alike(work[own], len(shares), None if bundles is None else bundles[own])
            else:
                ranges, loads = _deal(bins[own], shares)
            if job.merges:
                np.add.at(bins_of_servers, job.servers_of_ranges(c), loads)
            by_range = np.argsort(ranges, kind="stable")
            features.append(ids[own][by_range])
            edges = np.searchsorted(ranges[by_range], np.arange(len(shares) + 1))
            range_offsets.append(edges.astype(np.int64))
        return Dealing(
            stock=stock,
            features=features,
            range_offsets=range_offsets,
            values_of_feature_shards=np.bincount(shards, counts, job.n_feature_shards).astype(np.int64),
            bins_of_servers=bins_of_servers,
            min_rows=min_rows,
            cut_points=None if given is None else [given.select(of_shard) for of_shard in features],
            job=job,
        )

    def for_worker(self, row_shard: int, feature_shard: int) -> DealFeatures:
        given = () if self.cut_points is None else self.cut_points[feature_shard].to_arrays()
        return DealFeatures(
            features=pack_integers(self.features[feature_shard]),
            range_offsets=self.range_offsets[feature_shard],
            row_offset=sum(self.stock.rows_of_shards[:row_shard]),
            rows_of_shard=(self.stock.rows_of_shards[row_shard], *self.stock.eval_rows[row_shard]),
            cut_points=given,
            **self._shared(),
        )

    def for_server(self, server: int) -> DealRanges:
        ranges = self.job.ranges_of_servers[server]
        edges = [(c, *self.range_offsets[c][i : i + 2].tolist()) for c, i in ranges]
        given: tuple[np.ndarray, ...] = ()
        if self.cut_points is not None:
            given = CutPoints.join([self.cut_points[c].part(begin, end) for c, begin, end in edges]).to_arrays()
        return DealRanges(
            features=pack_integers(np.concatenate([self.features[c][begin:end] for c, begin, end in edges])),
            range_offsets=np.cumsum([0, *(end - begin for _, begin, end in edges)]),
            range_begins=np.array([begin for _, begin, _ in edges]),
            cut_points=given,
            **self._shared(),
        )

    def _shared(self) -> dict:
        return {
            "n_rows": self.stock.n_rows,
            "max_weight": self.stock.max_weight,
            "grad_bits": self.job.grad_bits,
            "n_threads": self.job.n_threads,
            "max_label": self.stock.max_label,
            "zero_rule": zeros.name_of(self.job.zero_as_missing),
        }

    @property
    def n_features_of_owners(self) -> list[int]:
        """How many features each of Job.owners has."""
        job, of_ranges = self.job, [np.diff(edges) for edges in self.range_offsets]
        if job.merges:
            return [int(sum(of_ranges[c][i] for c, i in ranges)) for ranges in job.ranges_of_servers]
        n_owners = job.n_row_shards  # of each shard: 1, or all workers of a ring
        return [n for of_shard in of_ranges for n in of_shard.reshape(n_owners, -1).sum(axis=1).tolist()]

    def by_shard(self, of_servers: list[CutPoints]) -> list[CutPoints]:
        """The servers' cut points, which go range by range within a server, put together for each feature shard."""
        of_shards: list[list[CutPoints]] = [[] for _ in self.features]
        for ranges, points in zip(self.job.ranges_of_servers, of_servers, strict=True):
            at = 0
            for c, i in ranges:
                end = at + int(self.range_offsets[c][i + 1] - self.range_offsets[c][i])
                of_shards[c].append(points.part(at, end))
                at = end
        return [CutPoints.join(parts) for parts in of_shards]


def _threads_worth_it(counts: np.ndarray, n_bins: np.ndarray, job: Job) -> int:
    """How many threads of each worker, job.n_threads at most, grow trees soonest.

    counts, n_bins  int64: in how many rows each feature is stored, and how many bins it may have

    Work that n threads share takes an n-th of the time, and to wake them up n times as long as to wake up one: so the n-th
    is worth it where each has n times WORK_OF_A_THREAD.
    """
    n_values = int(counts.sum() // job.n_row_shards + _VALUES_PER_BIN * n_bins.sum())
    if job.is_alone and are_shallow(job.parameters.max_depth):
        n_values *= _QUICKER
    return max(1, min(job.n_threads, math.isqrt(n_values // job.n_feature_shards // WORK_OF_A_THREAD)))


def _deal(loads: np.ndarray, shares: list[int], most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Deals items by their loads (int64, falling), at most `most` to a part: the part of each (int32), and what each part
    comes to (int64)."""
    parts, totals = np.empty(len(loads), np.int32), np.zeros(len(shares), np.int64)
    deal(loads, np.array(shares, np.int64), len(loads) if most is None else most, totals, parts)
    return parts, totals


def _deal_alike(loads: np.ndarray, n_parts: int, bundles: np.ndarray | None) -> np.ndarray:
    """The part of each feature (int32), by loads (int64, falling) and for equal shares.

    bundles  int64: of each feature. Whole ones are dealt, as many to each part, give or take one, if all rows are short then
             (kernels.row_bins), and no part's load is more than _UNEVEN times the average
    """
    if bundles is not None and n_parts > 1:
        of_bundles = np.bincount(bundles, loads).astype(np.int64)
        held = np.flatnonzero(of_bundles)
        held = held[np.argsort(-of_bundles[held], kind="stable")]
        most = -(-len(held) // n_parts)
        dealt, totals = _deal(of_bundles[held], [1] * n_parts, most)
        if most <= STRIDES[-1] and totals.max() <= _UNEVEN * totals.mean():
            part_of = np.empty(len(of_bundles), np.int32)
            part_of[held] = dealt
            return part_of[bundles]
    return _deal(loads, [1] * n_parts)[0]


def _check_fit(given: BinMapper, stock: Stock, job: Job, min_rows: int) -> None:
    """ParameterError or DataError if a bin mapper does not serve this training."""
    if stock.n_features > given.n_features:
        name = f"{job.data_name} or an evaluation set" if job.eval_names else job.data_name
        raise given.of_other_width(name, stock.n_features)
    if job.parameters.sketch_every:
        raise ParameterError(
            f"sketch_every={job.parameters.sketch_every} makes new cut points, and a bin mapper has those to use: give one "
            "of the two"
        )
    if given.zero_as_missing != job.zero_as_missing:
        raise ParameterError(
            f"the bin mapper was made with zero_as_missing={given.zero_as_missing}, this training has "
            f"{job.zero_as_missing}: give the same rule, or no bin mapper"
        )
    if given.min_rows > min_rows:
        raise ParameterError(
            f"the bin mapper leaves out features stored in fewer than {given.min_rows} rows, but this training could "
            f"split features stored in {min_rows}: raise min_child_weight, or make a new bin mapper"
        )
