"""Knows some of a worker's features, one thread's or half of these: bins, histograms and splits; not who is told of them."""

import numpy as np

from psboost.boosting.builders import HistogramBuilder
from psboost.boosting.growth import feature_range
from psboost.boosting.histogram import Histograms, NodeSums
from psboost.boosting.living import LivingFeatures
from psboost.boosting.partition import NodeRows
from psboost.boosting.split import Proposals, SplitFinder, SplitRule
from psboost.data.block import Members, build_block
from psboost.data.columns import AnyColumns, SortedColumns
from psboost.data.cut_points import CutPoints
from psboost.data.zeros import Rule
from psboost.errors import ProtocolError
from psboost.roles.grower import AnySplits


def make_finder(
    begin: int, cut_points: CutPoints, zero_as_missing: Rule, ids: np.ndarray, feature_shard: int, rule: SplitRule,
    *, tells_living: bool = True,
) -> SplitFinder:  # fmt: skip
    """Finds the splits of the features of `cut_points` and `ids`, which the worker numbers from `begin` on."""
    numbers = np.arange(begin, begin + len(ids), dtype=np.int32)
    shards = np.full(len(ids), feature_shard, np.int32)
    return SplitFinder(feature_range(ids, shards, numbers, cut_points, zero_as_missing), rule, tells_living=tells_living)


class Part:
    """Features begin .. end of a worker's. With a SplitRule it also finds their splits (R = 1)."""

    def __init__(
        self, begin: int, end: int, columns: AnyColumns, cut_points: CutPoints, zero_as_missing: Rule,
        ids: np.ndarray, feature_shard: int, rule: SplitRule | None,
    ):  # fmt: skip
        """`columns` of all the worker's features; `cut_points`, and `ids` (int64, user numbers), of these alone. These
        features' values are lost, unless columns are sorted, which are for cut points to come."""
        self.begin, self.end, self._shard = begin, end, feature_shard
        overwrite = not isinstance(columns, SortedColumns)
        self.block = build_block(columns, cut_points, zero_as_missing, begin, overwrite=overwrite)
        self.builder = HistogramBuilder.of(self.block)
        of_features = begin, cut_points, zero_as_missing, ids, feature_shard, rule
        self.finder = None if rule is None else make_finder(*of_features, tells_living=False)

    def propose(self, nodes: NodeRows, stage) -> Proposals:
        """Builds nodes' histograms, and proposes each open node's best split. `stage(label)` times it."""
        with stage("build"):
            self.finder.add(self.builder.sums(nodes))
        with stage("search"):
            return self.finder.find()

    def sum(self, node: NodeRows) -> NodeSums:
        """The sums of one node over all bins of the part; until the next node's."""
        return self.builder.sum(node)

    def build(
        self, nodes: NodeRows, positions: np.ndarray, living: LivingFeatures, edges: list[int]
    ) -> list[Histograms]:
        """Histograms of nodes over each range of the part's features (HistogramBuilder.build), numbered as the worker
        does."""
        return self.builder.build(nodes, positions, living, edges)

    def clear_bits(self, splits: AnySplits, rows: slice, members: Members, bits: np.ndarray) -> None:
        """Clears the bits of `rows` that leave by those of the splits that are by its own features (Block.clear_bits)."""
        if not self.block.clear_bits(splits.fields, self._shard, self.begin, rows, members, bits):
            raise ProtocolError("splits by bins that their features do not have")
