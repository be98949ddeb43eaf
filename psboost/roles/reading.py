"""Knows how a worker counts what is stored, and reads the rows of its shard; does not know bins, trees or who is told."""

from dataclasses import dataclass

import numpy as np

from psboost.boosting.fixed_point import hesses_of, round_gradients, rounding_key, sizes_of
from psboost.boosting.losses import Bounds
from psboost.data.columns import AnyColumns, stack_columns
from psboost.data.rows import Counts, Held
from psboost.data.source import SideBySide, Source, check_as_wide
from psboost.errors import DataError
from psboost.roles.job import Job
from psboost.roles.role import worker_name
from psboost.wire.messages import DealFeatures, DescribeRows
from psboost.wire.packing import pack_ascending, pack_integers


@dataclass(frozen=True)
class Shard:
    """The rows of one row shard, training rows first, then those of each evaluation set; the worker's features only."""

    n_train: int
    labels: np.ndarray  # (n_rows), as the loss holds them
    weights: np.ndarray  # float64 (n_train), or a single one for all
    whole_weights: np.ndarray | None  # int64 (n_train), in equal steps in all row shards; None: 1 each
    columns: AnyColumns  # features in internal order


class ShardReader:
    """Reads training rows and evaluation sets for worker (r, c): first to count its part of the row shard's rows, and then,
    once features are dealt, all of the shard's rows of its own features.

    bytes_read  from files, so far
    """

    def __init__(
        self, job: Job, row_shard: int, feature_shard: int, source: Source, eval_sources: tuple[Source, ...],
        side_by_side: SideBySide,
    ):  # fmt: skip
        """side_by_side: a `map` in job.n_threads threads."""
        self._job, self._r, self._c = job, row_shard, feature_shard
        self._source, self._eval_sources = source, eval_sources
        self._threads = job.n_threads, side_by_side
        self.bytes_read = 0

    def describe(self) -> DescribeRows:
        """Counts the features of the worker's part of the row shard's rows."""
        self._counted = [self._count(source) for source in (self._source, *self._eval_sources)]
        counts, *eval_counts = [Counts.join(parts) for parts in self._counted]
        labels = self._labels(self._source, counts.span, counts)
        self.bytes_read += counts.bytes_read + sum(part.bytes_read for part in eval_counts)
        weights = _weights(counts)
        of_text = eval_counts if self._source.width is None else []  # which does not say how many columns there are
        for source, part in zip(self._eval_sources, eval_counts, strict=True):
            check_as_wide(source, self._source, part.n_features)
        return DescribeRows(
            n_rows=counts.n_rows,
            n_values=counts.n_values,
            features=pack_ascending(counts.features),
            counts=pack_integers(counts.counts),
            n_distinct=len(counts.features),
            n_features=max(part.n_features for part in (counts, *of_text)),
            max_weight=float(weights.max(initial=0.0)),
            min_weight=float(weights.min(initial=np.inf, where=weights > 0)),
            max_label=float(max(labels.max(initial=0), -float(labels.min(initial=0)))),
            label_range=(float(labels.min()), float(labels.max())) if len(labels) else (),
            stores_zeros=counts.stores_zeros,
            sizes=tuple(source.size for source in (self._source, *self._eval_sources)),
            borders=() if counts.borders is None else (counts.borders,),
            eval_rows=tuple(part.n_rows for part in eval_counts),
            label_sizes=() if self._job.loss.bounded else (sizes_of(labels),),
        )

    def _span(self, source: Source) -> tuple[int, int]:
        return source.spans(self._job.n_row_shards)[self._r]

    def _count(self, source: Source) -> list[Counts]:
        """What the worker's part of the row shard stores, in parts."""
        span = source.split(self._span(source), self._job.n_feature_shards)[self._c]
        return source.count_in_parts(span, *self._threads)

    def _labels(self, source: Source, span: tuple[int, int], part: Held | Counts) -> np.ndarray:
        if part.labels is None:
            raise DataError(f"{source.name} has no labels: give y (or --labels, of training data), or data that hold them")
        return self._job.loss.check_labels(part.labels, lambda row: source.place(span, row))

    def read(self, job: Job, deal: DealFeatures, ids: np.ndarray) -> Shard:
        """The row shard's rows with the worker's features `ids` (int64, user numbers), then the evaluation rows; by the job
        as the coordinator has told it."""
        self._job = job
        sources = [source.with_rule(job.zero_as_missing) for source in (self._source, *self._eval_sources)]
        if job.n_feature_shards > 1:  # others counted some of the rows
            parts = [source.read_columns(self._span(source), ids, *self._threads) for source in sources]
        else:
            _, side_by_side = self._threads
            both = zip(sources, self._counted, strict=True)
            parts = [source.read_counted(counted, ids, side_by_side) for source, counted in both]
        self._counted = []
        for source, part, n_rows in zip(sources, parts, deal.rows_of_shard, strict=True):
            if part.columns.n_rows != n_rows:
                raise DataError(
                    f"{source.name}: {worker_name(self._r, self._c)} reads {part.columns.n_rows} rows of its row shard, of "
                    f"which its workers counted {n_rows} together: give all machines the same file"
                )
        self.bytes_read += sum(part.bytes_read for part in parts)
        labels = [self._labels(source, self._span(source), part) for source, part in zip(sources, parts, strict=True)]
        return Shard(
            n_train=parts[0].columns.n_rows,
            labels=labels[0] if len(labels) == 1 else np.concatenate(labels),
            weights=_weights(parts[0]),
            whole_weights=None if parts[0].weights is None else self._whole_weights(deal, parts[0].weights),
            columns=stack_columns([part.columns for part in parts]),
        )

    def _whole_weights(self, deal: DealFeatures, weights: np.ndarray) -> np.ndarray:
        """int64 (n_train): weights rounded as hessians are, which keeps them above 0."""
        steps = self._job.steps(Bounds(deal.max_weight, deal.max_weight), deal.n_rows)
        nothing = np.zeros(len(weights))
        return hesses_of(round_gradients(nothing, weights, steps, rounding_key(self._job.seed, 0), deal.row_offset))


def _weights(part: Held | Counts) -> np.ndarray:
    """float64: the rows' weights; a single 1 if none are given."""
    return np.ones(min(1, len(part.labels))) if part.weights is None else part.weights
