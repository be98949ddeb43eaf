"""Knows every message of the protocol, each with its addressee; does not know how it becomes bytes.

Scalars, strings, small dicts and small arrays travel in a message's header, each large array as a frame of its own
(wire/arrays.py).
"""

import numpy as np

from psboost.errors import ProtocolError
from psboost.wire.kinds import (
    Float32s,
    Float64Pairs,
    Float64s,
    Int64Pairs,
    Int64s,
    Masks,
    Message,
    Packed,
    Proposed,
    RingMessage,
    Splits,
    Totals,
)


def split_by_range(arrays: tuple[np.ndarray, ...], n_ranges: int) -> list[tuple[np.ndarray, ...]]:
    """What a message's arrays hold of each range, one after another. ProtocolError if they are not as many for each."""
    n = len(arrays) // n_ranges
    if n * n_ranges != len(arrays):
        raise ProtocolError(f"{len(arrays)} arrays for {n_ranges} ranges of features")
    return [arrays[i * n : (i + 1) * n] for i in range(n_ranges)]


# --- cluster: liveness and start-up; sent by drivers, never seen by roles


class Join(Message):
    """any -> coordinator, once: this process is up and listens at `address`."""

    role: str
    address: str
    rank: int = -1
    process: int = 0


class AssignRoles(Message):
    """coordinator -> any, once: the receiver's name, everybody's address, and the job to do."""

    name: str
    addresses: dict
    job: dict


class Beat(Message):
    """any -> coordinator and back, about once a second: alive; with bytes sent and seconds by stage so far."""

    bytes_sent: int = 0
    seconds: dict = {}


class Abort(Message):
    """any -> coordinator -> all: stop now; `cause` is the first thing that went wrong."""

    cause: str
    kind: str = "ClusterError"


class ReportCosts(Message):
    """any -> coordinator, once, at the end: what the sender spent.

    `times` as Stopwatch.state gives them (seconds by tree and stage, and the timeline), `ledger` as Ledger.state: of what
    was sent before it, so that its own bytes, which depend on how long all took, are in none.
    """

    times: dict
    ledger: dict
    peak_memory: int = 0
    bytes_read: int = 0


class Dismiss(Message):
    """coordinator -> all, once: the job is done, everything is written; exit with 0."""


# --- before the first tree


class DescribeRows(Message):
    """worker -> coordinator, once: the rows of its share of the row shard, and the features stored in them.

    Worker (r, c) counts the c-th part of row shard r, so that together the workers count every row once.
    `features` (int64, ascending user numbers) and `counts` (int64, rows that store the feature) go together, packed.
    `n_distinct` is their number. `min_weight`: the least weight above 0, infinite if there is none. `label_range`: the
    lowest and the highest label, none without rows. `label_sizes`: of an unbounded loss (boosting.fixed_point.sizes_of).
    `stores_zeros`: whether the training rows store a zero, counted or not. `borders`: between which columns of training rows
    bundles end (int64 (n, 2): data.bundles), none where that is not worth knowing. `eval_rows`: rows of the sender's part of
    each evaluation set. `sizes`: rows or bytes (data.source) of the training data and of each evaluation set, all shards
    together: the same for all senders.
    """

    n_rows: int
    n_values: int
    features: Packed
    counts: Packed
    n_features: int
    max_weight: float
    min_weight: float
    max_label: float
    n_distinct: int
    label_range: tuple[float, ...]
    stores_zeros: bool
    sizes: tuple[int, ...]
    borders: tuple[Int64Pairs, ...] = ()
    eval_rows: tuple[int, ...] = ()
    label_sizes: tuple[Int64Pairs, ...] = ()


class DealFeatures(Message):
    """coordinator -> worker, once: its features in internal order, and where its row shard begins.

    `features` (packed integers) lists the user numbers of the shard's features; internal feature i of the shard is
    features[i]. Range i is the internal features range_offsets[i] .. range_offsets[i+1] (int64, n_ranges + 1), of the server
    Job.servers_of_ranges[i]; where nobody merges, the worker's threads look after a range each or, in a ring, after one of
    each worker. `n_rows` counts the rows of all shards; `rows_of_shard` those of the receiver's own, of the training data,
    then of each evaluation set, as its workers have counted them together. `cut_points` are the shard's with a given bin
    mapper, else empty; as in ShareCutPoints. `zero_rule` is the name of the rule for zeros of this training (data/zeros.py),
    `grad_bits` how many bits a row's gradient is rounded to, `n_threads` how many threads of each worker grow trees.
    """

    features: Packed
    range_offsets: Int64s
    row_offset: int
    n_rows: int
    rows_of_shard: tuple[int, ...]
    max_weight: float
    max_label: float
    zero_rule: str
    grad_bits: int
    n_threads: int
    cut_points: tuple[np.ndarray, ...] = ()


class DealRanges(Message):
    """coordinator -> server, once: the features of its ranges (Job.ranges_of_servers), one range after another.

    `features` as in DealFeatures. `range_offsets` (int64, n_ranges + 1): the features of range k are
    features[range_offsets[k] : range_offsets[k+1]], the first of which is feature range_begins[k] (int64, n_ranges) of its
    shard. `cut_points`, `zero_rule`, `grad_bits` and `n_threads` as in DealFeatures.
    """

    features: Packed
    range_offsets: Int64s
    range_begins: Int64s
    n_rows: int
    max_weight: float
    max_label: float
    zero_rule: str
    grad_bits: int
    n_threads: int
    cut_points: tuple[np.ndarray, ...] = ()


class PushSketches(Message):
    """worker -> server (ring: every other worker), once: the values of the receiver's features, summarised.

    `sketches`: of each range of the sender's shard that a server owns, one after another; in a ring of all that the receiver
    owns together. With sketch_every again before every so-many-th tree (`tree`), its rows weighed by their hessians.
    """

    sketches: tuple[np.ndarray, ...]


class ShareCutPoints(Message):
    """server (R = 1, ring: worker) -> workers of the shards, and coordinator, once: cut points of the sender's ranges.

    With sketch_every again, as PushSketches. `cut_points` as CutPoints.to_arrays writes them: of all ranges together for the
    coordinator, for a worker of those of its own shard. `sketch_bytes`, for the coordinator: SketchBytes of all that the
    sender has received for them.
    """

    cut_points: tuple[np.ndarray, ...]
    sketch_bytes: tuple[int, ...] = ()


# --- each tree


class PushMaxima(Message):
    """worker (r, 0) -> coordinator, once a tree if the loss has no bounds: the shard's largest |grad| and hess."""

    max_grad: float
    max_hess: float


class StartTree(Message):
    """coordinator -> all, for the first tree, and for each if the loss has no bounds: its steps, as fixed_point.Steps says
    them. Else they follow from the bounds."""

    grad: float
    hess: float
    leaf_grad: float
    leaf_hess: float
    exact: bool


class PushHistograms(Message):
    """worker -> server, once a level (R > 1), if the server owns features of its shard: histograms of the nodes to build.

    `totals` (int64, n_nodes x 3): sum_grad, sum_hess and the sum of absolute grads of all rows of each node in the sender's
    row shard; the last says whether the server may add grads and hesses as one integer. `arrays` hold the histograms over
    each range of the shard that the receiver owns, one after another, in the form that `codec` names
    (wire/histogram_codecs.py).

    `twins`, with the first root by these cut points, if many bins are twins: an array for each of these ranges (packed
    integers), the number of each bin's elder (kernels/twins.py). Whoever has sent it leaves the twins out of every root that
    follows.
    """

    totals: Totals
    codec: str
    arrays: tuple[np.ndarray, ...]
    twins: tuple[Packed, ...] = ()


class ProposeSplits(Message):
    """servers (R = 1: workers) -> the first one of them, which chooses, once a level: best splits, and what lives on.

    One entry for each open node, in order of node number: `gains` (float64; -inf: no split) and `fields` (int64, n x 10):
    feature (user number), feature shard, the feature's number in it, bin (in the feature), default_left, unstored_left,
    sum_grad and sum_hess of the left child, and of the node (kernels/splits.py). unstored_left: a cell that is not stored
    goes left, so the left child is the default child. `living` holds, for each range of a server, one packed bit for each
    feature that lived in the node's parent (wire/packing.py, pack_living): 1 if it lives on in the node. None from workers,
    and none of the last level.
    """

    gains: Float64s
    fields: Proposed
    living: tuple[Packed, ...]


class ApplySplits(Message):
    """server 0 (R = 1: worker 0,0) -> all others, once a level: the splits to make, in order of nodes; none: the tree is
    grown. Servers need none of the last level that max_depth allows. In a ring all choose, and nobody is told.

    `fields` (int32, n x 7): the node; as in ProposeSplits the feature shard, the feature's number in it, bin, default_left
    and unstored_left; build_left: the left child is the one whose histogram is built, its sibling's is parent - child. The
    children of the k-th split are numbered from the tree's node count on: left, right, left, right. `last`: the children are
    leaves, no histogram will be built. `living`: for a worker, the living sets of the split nodes in its shard, one array
    for each range.
    """

    fields: Splits
    last: bool
    living: tuple[Packed, ...] = ()


class PushSplits(Message):
    """server 0 (R = 1, ring: worker 0,0) -> coordinator, once a tree: the best splits, as in ProposeSplits, of all nodes
    that were open, in order of node number; of these the tree's were chosen."""

    gains: Float64s
    fields: Proposed


class PushBitvectors(Message):
    """worker (r, c) -> the other workers (r, *), once a level (C > 1), if c owns a split: which rows keep the default side.

    One bit for each row of the row shard: 0 if a split of this level, owned by the sender, sends the row away from
    its node's default child; `form` says how the bits are held (wire/packing.py, pack_bitvector). Whoever gets those of all
    owners ANDs them.
    """

    form: str
    bits: Packed


class PushLeafSums(Message):
    """worker (r, 0) -> coordinator, once a tree: sums of grad and hess of each leaf at full precision.

    `sums` (int64, n_leaves x 2), leaves in order of node number. With tree = -1: all rows at margin 0, for base_score.
    """

    sums: Int64Pairs


class CloseTree(Message):
    """coordinator -> workers, once a tree: the value (float32) of each leaf, in order of node number.

    With tree = -1: the one value that all margins start from.
    """

    values: Float32s


class StopTraining(Message):
    """coordinator -> workers and servers, at most once: no further tree is wanted."""


class PushEvaluation(Message):
    """worker (r, 0) -> coordinator, once a tree if there are evaluation sets: their rows' margins after this tree.

    The shard's rows of the first set, then those of the second, and so on. `labels` (float64) come with tree 0 only.
    """

    margins: Float32s
    labels: Float64s


# --- histograms summed in a ring of workers (roles/ring.py)


class ReduceHistograms(RingMessage):
    """worker r -> worker r + 1, R - 1 times a level: a chunk of the bins, summed over the workers that it has passed.

    All nodes to build in one, at hop h chunk r - 1 - h. `arrays` hold it in the form that `form` names (wire/chunks.py).
    `totals` (float64, 1 x 2; level 0 only, else none): sum_grad and sum_hess of all rows of the same workers.
    """

    totals: Float64Pairs
    form: str
    arrays: tuple[np.ndarray, ...]


class ShareHistograms(RingMessage):
    """worker r -> worker r + 1, R - 1 times a level: a chunk of the bins, summed over all workers.

    At hop h chunk r - h; `form` and `arrays` as in ReduceHistograms.
    """

    form: str
    arrays: tuple[np.ndarray, ...]


class ShareSplits(RingMessage):
    """worker r -> worker r + 2^hop, log2 R times a level (mode reduce-scatter): the best splits that it has heard of.

    As in ProposeSplits.
    """

    gains: Float64s
    fields: Proposed


# --- block-distributed prediction


class PushPartialExits(Message):
    """worker (r, c) -> server r mod S, once a batch of trees and of rows: the bitvectors that its own features narrow.

    `tree` is the first tree of the batch, `level` the number of the batch of rows, `n_rows` the row shard's rows. A
    (row, tree) pair that none of the sender's features narrows is all ones and is not sent. `positions` (packed
    ascending, n_positions of them): row * n_trees + tree, both within the batch; `masks` (uint64, n x n_words).
    """

    n_rows: int
    n_positions: int
    positions: Packed
    masks: Masks


class PushMargins(Message):
    """server r mod S -> coordinator, once for each row shard, which `level` numbers: its rows' margins (float32)."""

    margins: Float32s


ALL_KINDS: dict[str, type[Message]] = {}


def _register(base: type[Message]) -> None:
    for kind in base.__subclasses__():
        if kind.__subclasses__():
            _register(kind)
        else:
            ALL_KINDS[kind.__name__] = kind


_register(Message)
