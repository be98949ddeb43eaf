"""Knows block-distributed prediction: partial bitvectors, ANDed by servers; does not know how trees were grown.

    worker (r, c)                            server r mod S                       coordinator
    bitvectors of its rows and trees,
    narrowed by its own features only
       -- PushPartialExits (a batch) -->     AND over feature shards,
                                             leaf values added in tree order
                                                  -- PushMargins (row shard r) -->
"""

import numpy as np

from psboost.boosting.forest import Forest
from psboost.boosting.scorer import Scorer
from psboost.data.rows import Rows
from psboost.data.source import Source
from psboost.errors import DataError
from psboost.roles.job import Grid
from psboost.roles.role import COORDINATOR, Role, server_name, worker_name
from psboost.wire.messages import PushMargins, PushPartialExits
from psboost.wire.packing import pack_ascending, unpack_ascending

TREES_TOGETHER = 64
ROWS_TOGETHER = 1 << 15


def _tree_batches(n_trees: int) -> list[tuple[int, int]]:
    """(first tree, number of trees); one empty batch if there are no trees."""
    return [(first, min(TREES_TOGETHER, n_trees - first)) for first in range(0, max(n_trees, 1), TREES_TOGETHER)]


def _row_batches(n_rows: int) -> list[tuple[int, int]]:
    """(first row, end); one empty batch if there are no rows."""
    return [(begin, min(begin + ROWS_TOGETHER, n_rows)) for begin in range(0, max(n_rows, 1), ROWS_TOGETHER)]


class PredictionWorker(Role):
    """Worker (r, c): the rows of shard r, and every C-th of the forest's own features from the c-th on."""

    def __init__(
        self, grid: Grid, row_shard: int, feature_shard: int, source: Source, forest: Forest, stage=None
    ):
        super().__init__(worker_name(row_shard, feature_shard), stage)
        self._grid, self._r, self._c = grid, row_shard, feature_shard
        self._source, self._forest = source, forest

    def run(self):
        scorer = self._forest.scorer
        with self.stage("read"):
            rows = self._read(scorer)
        router = self._grid.router_of(self._r)
        for first_tree, n_trees in _tree_batches(scorer.n_trees):
            for number, (begin, end) in enumerate(_row_batches(rows.n_rows)):
                with self.stage("score"):
                    positions, masks = scorer.partial_exits(_slice(rows, begin, end), first_tree, n_trees)
                self.send(
                    router,
                    PushPartialExits(
                        tree=first_tree, level=number, n_rows=rows.n_rows, n_positions=len(positions),
                        positions=pack_ascending(positions), masks=masks,
                    ),
                )  # fmt: skip
        yield from ()

    def _read(self, scorer: Scorer) -> Rows:
        """The shard's rows; features as positions in `scorer.features`."""
        own = np.arange(self._c, len(scorer.features), self._grid.n_feature_shards, dtype=np.int32)
        span = self._source.spans(self._grid.n_row_shards)[self._r]
        rows = self._source.read(span, keep=scorer.features[own])
        self._forest.check_columns(self._source, rows.n_features)
        self.bytes_read += rows.bytes_read
        return Rows(
            rows.indptr, own[rows.features], rows.values, None, None, rows.n_features, rows.bytes_read
        )


def _slice(rows: Rows, begin: int, end: int) -> Rows:
    low, high = rows.indptr[begin], rows.indptr[end]
    indptr = rows.indptr[begin : end + 1] - low
    return Rows(indptr, rows.features[low:high], rows.values[low:high], None, None, rows.n_features, 0)


class PredictionServer(Role):
    """Server s: ANDs the bitvectors of row shards r mod S = s, and adds up their leaf values."""

    def __init__(self, grid: Grid, server: int, forest: Forest, stage=None):
        super().__init__(server_name(server), stage)
        self._grid, self._forest = grid, forest
        self._row_shards = grid.shards_routed_by(server)

    def run(self):
        scorer = self._forest.scorer
        margins: dict[int, np.ndarray] = {}
        for first_tree, n_trees in _tree_batches(scorer.n_trees):
            number, shards = 0, self._row_shards
            while shards:
                senders = [worker_name(r, c) for r in shards for c in range(self._grid.n_feature_shards)]
                pushed = yield from self.gather(PushPartialExits, senders, tree=first_tree, level=number)
                for i, r in enumerate(shards):
                    parts = pushed[i * self._grid.n_feature_shards :][: self._grid.n_feature_shards]
                    _check_rows(r, [part.n_rows for part in parts])
                    if r not in margins:
                        margins[r] = np.full(parts[0].n_rows, scorer.base_margin, np.float32)
                    begin, end = _row_batches(len(margins[r]))[number]
                    with self.stage("route"):
                        exits = scorer.and_exits([(unpack_ascending(m.positions, m.n_positions), m.masks) for m in parts])
                        scorer.margins_from_exits(*exits, end - begin, first_tree, n_trees, margins[r][begin:end])
                number += 1
                shards = [r for r in shards if number < len(_row_batches(len(margins[r])))]
        for r in self._row_shards:
            self.send(COORDINATOR, PushMargins(level=r, margins=margins[r]))


def _check_rows(row_shard: int, n_rows: list[int]) -> None:
    """DataError if the workers of a row shard have read different numbers of rows."""
    if len(set(n_rows)) > 1:
        read = ", ".join(f"{worker_name(row_shard, c)} {n}" for c, n in enumerate(n_rows))
        raise DataError(f"workers of row shard {row_shard} read different numbers of rows ({read}): give all the same file")


class PredictionCoordinator(Role):
    """Collects the margins; its result is float32 (n_rows)."""

    def __init__(self, grid: Grid, stage=None):
        super().__init__(COORDINATOR, stage)
        self._grid = grid

    def run(self):
        parts = []
        for r in range(self._grid.n_row_shards):
            [pushed] = yield from self.gather(PushMargins, [self._grid.router_of(r)], level=r)
            parts.append(pushed.margins)
        return np.concatenate(parts)
