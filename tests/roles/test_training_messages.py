"""Roles as lists of messages in and out: who sends what to whom, how often, and what the arrays hold."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from psboost.boosting.fixed_point import least_units, round_gradients, rounding_key
from psboost.boosting.histogram import Histograms
from psboost.boosting.losses import LOSSES
from psboost.data.cut_points import CutPoints
from psboost.data.sketches import Sketches
from psboost.errors import DataError, ParameterError, ProtocolError
from psboost.kernels.gradients import compute_gradients
from psboost.kernels.splits import BUILD_LEFT, FEATURE, LEFT_GRAD, N_PROPOSED, N_SPLIT, NODE, NODE_GRAD, SHARD
from psboost.roles import block_worker, dealing
from psboost.roles.block_worker import BlockWorker
from psboost.roles.coordinator import Coordinator
from psboost.roles.dealing import Dealing, Stock
from psboost.roles.job import told_steps
from psboost.roles.server import Server
from psboost.wire.histogram_codecs import decode_histograms, encode_histograms
from psboost.wire.messages import (
    ApplySplits,
    CloseTree,
    DealFeatures,
    DealRanges,
    DescribeRows,
    ProposeSplits,
    PushBitvectors,
    PushEvaluation,
    PushHistograms,
    PushLeafSums,
    PushMaxima,
    PushSketches,
    PushSplits,
    ShareCutPoints,
    StartTree,
    StopTraining,
    split_by_range,
)
from psboost.wire.packing import (
    pack_ascending,
    pack_bitvector,
    pack_integers,
    pack_living,
    unpack_ascending,
    unpack_bitvector,
    unpack_integers,
    unpack_living,
)
from tests import runs

FLOAT_MAX = np.finfo(np.float32).max
GRIDS = [((1, 1), 1), ((1, 3), 2), ((3, 1), 2), ((2, 2), 1), ((2, 3), 4)]


def kinds(outbox):
    return [(receiver, type(message).__name__) for receiver, message in outbox]


def start_tree(role, job):
    """What the role sends at the start of the first tree, whose steps are those of the loss's bounds."""
    return role.handle("coordinator", StartTree(tree=0, **vars(job.steps(job.loss.bounds(1.0, 1.0), 8))))


def start_margins(worker, job):
    """What the worker sends when margins start from 0, and the first tree starts."""
    assert worker.handle("coordinator", CloseTree(values=np.array([0], np.float32))) == []
    return start_tree(worker, job)


def column(*values):
    return np.array(values, np.float64)


def numbers_in(deal):
    """The user numbers of the features of a DealFeatures or DealRanges."""
    return unpack_integers(deal.features, int(deal.range_offsets[-1])).tolist()


# --- whole runs: what goes over the wire


def record(grid, servers, dense=False, n_rounds=2, evals=True, thin=False, **params):
    X, y = (runs.dense_data if dense else runs.sparse_data)(150 if thin else 60, 9, 1)
    if thin:  # some features are seldom stored
        X = np.where(np.random.default_rng(0).random(X.shape) < np.linspace(0, 0.9, 9), 0, X if dense else X.toarray())
    names = ("e",) if evals else ()
    job = runs.make_job(grid, servers, n_rounds=n_rounds, eval_names=names, zeros=not dense, **params)
    source = runs.make_source(job, X, y)
    roles = runs.make_roles(job, source, (source,) if evals else ())
    sent = runs.recorded(roles)
    training = runs.run(roles)
    return job, sent, training.forest, (X, y)


@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror"])
@pytest.mark.parametrize(("grid", "servers"), GRIDS)
def test_one_message_for_each_sender_receiver_and_step(grid, servers, objective):
    job, sent, forest, _ = record(grid, servers, objective=objective, max_depth=3, min_child_weight=0)
    counts = Counter((s, r, type(m).__name__, m.tree, m.level) for s, r, m in sent)
    assert max(counts.values()) == 1
    present = {type(message) for _, _, message in sent}
    expected = {
        DescribeRows, DealFeatures, ShareCutPoints, StartTree, PushSplits, PushLeafSums, CloseTree, PushEvaluation,
    }  # fmt: skip
    if len(job.owners) > 1:
        expected |= {ProposeSplits}
    if grid != (1, 1):
        expected |= {ApplySplits}
    if grid[0] > 1:
        expected |= {DealRanges, PushSketches, PushHistograms}
    if grid[1] > 1:
        expected |= {PushBitvectors}
    if objective == "reg:squarederror":
        expected |= {PushMaxima}
    assert present == expected
    assert {m.tree for _, _, m in sent if type(m) is StartTree} == ({0} if objective == "binary:logistic" else {0, 1})
    assert len(forest.trees) == 2


@pytest.mark.parametrize(("grid", "servers"), GRIDS)
def test_who_sends_what_to_whom(grid, servers):
    job, sent, _, _ = record(grid, servers, objective="reg:squarederror", max_depth=3, min_child_weight=0)
    n_row_shards, n_feature_shards = grid
    everybody = {*job.workers, *(job.servers if n_row_shards > 1 else ())}
    first_of_rows = {f"worker {r},0" for r in range(n_row_shards)}
    chooser, *proposers = job.servers if n_row_shards > 1 else job.workers
    for kind, senders, receivers in (
        (DescribeRows, set(job.workers), {"coordinator"}),
        (DealFeatures, {"coordinator"}, set(job.workers)),
        (ProposeSplits, set(proposers), {chooser}),
        (ApplySplits, {chooser}, everybody - {chooser}),
        (PushSplits, {chooser}, {"coordinator"}),
        (PushLeafSums, first_of_rows, {"coordinator"}),
        (PushEvaluation, first_of_rows, {"coordinator"}),
        (PushMaxima, first_of_rows, {"coordinator"}),
        (StartTree, {"coordinator"}, everybody),
        (CloseTree, {"coordinator"}, set(job.workers)),
    ):
        pairs = {(s, r) for s, r, m in sent if type(m) is kind}
        assert pairs == {(s, r) for s in senders for r in receivers}, kind
    for sender, receiver, message in sent:
        if type(message) is PushBitvectors:
            assert receiver in job.workers and receiver != sender and receiver.split(",")[0] == sender.split(",")[0]
    if n_row_shards > 1:
        for kind in (PushSketches, PushHistograms):
            pairs = {(s, r) for s, r, m in sent if type(m) is kind}
            assert pairs == {(w, s) for s in job.servers for w in job.workers_of_server(int(s.split()[1]))}
        told = {r for s, r, m in sent if type(m) is ApplySplits and job.is_last(m.level)}
        assert told == set(job.workers)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(("grid", "servers"), [((2, 2), 2), ((3, 1), 1), ((2, 3), 3)])
@pytest.mark.parametrize("codec", ["packed", "csr"])
def test_histograms_hold_the_living_features_and_no_others(grid, servers, dense, codec):
    """Against rows walked down the finished tree: sums over row shards, of features that lived in the parent."""
    params = {"max_depth": 4, "min_child_weight": 1.5, "grad_bits": 8, "base_score": 0.5}
    job, sent, forest, (X, y) = record(
        grid, servers, dense, n_rounds=1, evals=False, thin=True, codec=codec, **params
    )
    deals = {r: m for _, r, m in sent if type(m) is DealFeatures}
    shares = [m.cut_points for _, r, m in sent if type(m) is ShareCutPoints and r == "coordinator"]
    ranges = [m for _, _, m in sent if type(m) is DealRanges]
    cuts = {}  # user feature: cut points
    for deal, arrays in zip(ranges, shares, strict=True):
        numbers = numbers_in(deal)
        points = CutPoints.from_arrays(arrays, len(numbers))
        for i, feature in enumerate(numbers):
            own = points.cuts[points.offsets[i] : points.offsets[i + 1]]
            cuts[feature] = own, len(own) + int(points.has_missing[i])

    # Gradients of the first tree, and the rows of every node.
    n_rows = len(y)
    loss = LOSSES["binary:logistic"]
    grads, hesses = np.empty((2, n_rows), loss.dtype)
    labels = loss.check_labels(np.asarray(y, float), str)
    compute_gradients(np.zeros(n_rows, np.float32), labels, np.ones(1, loss.dtype), grads, hesses)
    [steps] = {told_steps(m) for _, _, m in sent if type(m) is StartTree}
    assert (steps.grad, steps.hess, steps.exact) == (0.5, 0.25, True)
    packed = round_gradients(grads, hesses, steps, rounding_key(0, 0), 0)
    units = packed & 0xFFFFFFFF
    table = X
    stored = table != 0 if dense else (table != 0) & ~np.isnan(table)
    tree, rows_of = forest.trees[0], {0: np.arange(n_rows)}
    for node in np.flatnonzero(tree.left >= 0):
        values = table[rows_of[node], tree.feature[node]]
        missing = np.isnan(values) if dense else np.isnan(values) | (values == 0)
        left = np.where(missing, tree.default_left[node] == 1, values < tree.threshold[node])
        rows_of[tree.left[node]], rows_of[tree.right[node]] = rows_of[node][left], rows_of[node][~left]
    least = least_units(1.5, steps.hess)
    assert least > 1

    def histogram(node, parent):
        """{(feature, bin): (grad, hess)} of the features that lived in the parent."""
        found = {}
        for feature, (own, n_bins) in cuts.items():
            up = rows_of[parent]
            if parent != node and units[up[stored[up, feature]]].sum() < least:
                continue
            for row in rows_of[node]:
                if stored[row, feature]:
                    value = table[row, feature]
                    bin_ = n_bins - 1 if np.isnan(value) else int((own[:-1] <= value).sum())
                    grad, hess = found.get((feature, bin_), (0, 0))
                    found[feature, bin_] = grad + int(packed[row] >> 32), hess + int(units[row])
        return found

    n_dead = 0
    parents, built = [0], [0]
    for level in range(int(job.parameters.max_depth)):
        pushed = [(s, r, m) for s, r, m in sent if type(m) is PushHistograms and m.level == level]
        if not pushed:
            break
        sums = [{} for _ in built]
        for sender, receiver, message in pushed:
            assert message.codec == codec
            deal, s, c = deals[sender], int(receiver.split()[1]), int(sender.split(",")[1])
            i = job.servers_of_ranges(c).index(s)
            features = numbers_in(deal)[deal.range_offsets[i] : deal.range_offsets[i + 1]]
            offsets = np.cumsum([0, *(cuts[f][1] for f in features)])
            histograms = decode_histograms(codec, message.arrays, offsets.astype(np.int32))
            for i in range(len(built)):
                for bin_, grad, hess in zip(*(array.tolist() for array in histograms.node(i)), strict=True):
                    f = int(np.searchsorted(offsets, bin_, side="right")) - 1
                    key = features[f], bin_ - int(offsets[f])
                    before = sums[i].get(key, (0, 0))
                    sums[i][key] = before[0] + grad, before[1] + hess
        for node, parent, found in zip(built, parents, sums, strict=True):
            assert found == histogram(node, parent)
            n_dead += len(histogram(node, node).keys() - found.keys())
        totals = sum(m.totals for s, r, m in pushed if s.endswith(",0") and r == "server 0")
        for node, total in zip(built, totals.tolist(), strict=True):
            grads = packed[rows_of[node]] >> 32
            assert total == [int(grads.sum()), int(units[rows_of[node]].sum()), int(np.abs(grads).sum())]
        applied = [m for _, r, m in sent if type(m) is ApplySplits and r == "worker 0,0"]
        apply = applied[level]
        parents, build_left = apply.fields[:, [NODE, BUILD_LEFT]].T.tolist()
        built = [
            int(tree.left[node] if left else tree.right[node])
            for node, left in zip(parents, build_left, strict=True)
        ]
        for node, left in zip(parents, build_left, strict=True):
            sizes = [units[rows_of[child]].sum() for child in (tree.left[node], tree.right[node])]
            assert sizes[0] <= sizes[1] if left else sizes[1] < sizes[0]  # the smaller one is built
    assert n_dead > 0


def test_features_stored_in_too_few_rows_get_no_number():
    job, sent, forest, _ = record((2, 2), 2, n_rounds=1, min_child_weight=1.0)
    dealt = [numbers_in(m) for _, _, m in sent if type(m) is DealFeatures]
    assert dealt[:2] == dealt[2:]  # the same in both row shards, and each feature in one feature shard
    assert sorted(dealt[0] + dealt[1]) == [0, 1, 2, 5, 6, 7, 8]  # 3 is all missing, 4 is stored once
    ranges = [numbers_in(m) for _, _, m in sent if type(m) is DealRanges]
    assert sorted(sum(ranges, [])) == [0, 1, 2, 5, 6, 7, 8]
    described = [m for _, _, m in sent if type(m) is DescribeRows]
    found = np.concatenate([unpack_ascending(m.features, m.n_distinct) for m in described])
    assert 3 not in found and 4 in found


def test_each_row_is_described_once():
    _, sent, _, (X, y) = record((2, 3), 1)
    described = [m for _, _, m in sent if type(m) is DescribeRows]
    assert sum(m.n_rows for m in described) == len(y)
    assert sum(m.eval_rows[0] for m in described) == len(y)
    counts = np.zeros(9, np.int64)
    for m in described:
        counts[unpack_ascending(m.features, m.n_distinct)] += unpack_integers(m.counts, m.n_distinct)
    table = np.nan_to_num(X.toarray())
    np.testing.assert_array_equal(counts, (table != 0).sum(axis=0))
    assert sum(m.n_values for m in described) == counts.sum()


# --- one role at a time, fed by hand


def deal_features(features, range_offsets, cut_points=(), **how):
    shared = {"row_offset": 0, "n_rows": 4, "rows_of_shard": (4,), "max_weight": 1.0, "max_label": 1.0}
    shared |= {"zero_rule": "true", "grad_bits": 16, "n_threads": 1}
    return DealFeatures(
        features=pack_integers(np.array(features, np.int64)),
        range_offsets=np.array(range_offsets, np.int64),
        cut_points=cut_points,
        **shared | how,
    )


def points(*cuts, has_missing=None):
    return CutPoints(
        np.cumsum([0, *map(len, cuts)]),
        np.array([cut for own in cuts for cut in own], np.float32),
        np.array(has_missing or [0] * len(cuts), np.uint8),
    )


def apply_splits(level, nodes, bins, default_left, last, shards=None, locals_=None, tree=0, living=()):
    n = len(nodes)
    columns = [nodes, shards or [0] * n, locals_ or [0] * n, bins, default_left, default_left, [1] * n]
    fields = np.array(columns, np.int32).T.reshape(n, N_SPLIT).copy()
    return ApplySplits(tree=tree, level=level, fields=fields, last=last, living=living)


TINY = np.array([[1, 0], [2, 5], [0, 5], [2, 0]], np.float32)  # zeros are not stored


def test_a_worker_alone():
    """1 x 1: it finds and chooses splits itself, routes its rows itself, and sends no histograms and no bitvectors."""
    params = {"max_depth": 2, "min_child_weight": 0, "base_score": 0.5, "grad_bits": 16}
    job = runs.make_job((1, 1), n_rounds=1, eval_names=("e",), **params)
    source = runs.make_source(job, TINY, column(0, 1, 0, 1))
    other = runs.make_source(job, TINY[:2] + 9, column(1, -1))
    worker = BlockWorker(job, 0, 0, source, (other,))
    [(receiver, described)] = worker.start()
    assert receiver == "coordinator"
    assert (described.n_rows, described.n_values, described.n_features) == (4, 5, 2)
    assert unpack_ascending(described.features, 2).tolist() == [0, 1]
    assert unpack_integers(described.counts, 2).tolist() == [3, 2]
    assert (described.label_range, described.eval_rows) == ((0.0, 1.0), (2,))
    assert (described.max_weight, described.max_label) == (1.0, 1.0)

    sent = worker.handle("coordinator", deal_features([1, 0], [0, 2], rows_of_shard=(4, 2)))
    assert kinds(sent) == [("coordinator", "ShareCutPoints")]  # base_score is given: no sums for it
    cuts = CutPoints.from_arrays(sent[0][1].cut_points, 2)
    assert cuts.offsets.tolist() == [0, 1, 3] and cuts.cuts.tolist() == [FLOAT_MAX, 2, FLOAT_MAX]
    sent = start_margins(worker, job)
    assert kinds(sent) == [("coordinator", "PushSplits"), ("coordinator", "PushLeafSums")]
    told, sums = sent[0][1], sent[1][1].sums
    # Feature 0, shard 0, number 1 in it, bin 0, missing left: rows 1 and 3 (feature 0 is 2) against 0 and 2 (1, missing).
    assert told.fields[0].tolist() == [0, 0, 1, 0, 1, 1, 2**15, 2 * 2**15, 0, 4 * 2**15]
    assert told.gains[0] > 0 and told.gains[1:].tolist() == [-np.inf, -np.inf]  # then pure nodes
    assert told.fields[1:, NODE_GRAD:].tolist() == [[2**15, 2 * 2**15], [-(2**15), 2 * 2**15]]
    assert sums.shape == (2, 2) and (sums[:, 0] == [-sums[1, 0], sums[1, 0]]).all()
    sent = worker.handle("coordinator", CloseTree(tree=0, values=np.array([-0.5, 0.5], np.float32)))
    assert kinds(sent) == [("coordinator", "PushEvaluation")]
    assert sent[0][1].margins.tolist() == [0.5, 0.5] and sent[0][1].labels.tolist() == [1, 0]
    assert worker.done


@pytest.mark.parametrize("n_values", [0, 1, 3])
def test_values_of_other_leaves_are_refused(n_values):
    job = runs.make_job((1, 1), n_rounds=1, max_depth=1, base_score=0.5, grad_bits=16, min_child_weight=0)
    worker = BlockWorker(job, 0, 0, runs.make_source(job, TINY, column(0, 1, 0, 1)))
    worker.start()
    worker.handle("coordinator", deal_features([0, 1], [0, 2]))
    if n_values != 1:
        with pytest.raises(ProtocolError, match=f"from coordinator: {n_values} leaf values, expected 1"):
            worker.handle("coordinator", CloseTree(values=np.zeros(n_values, np.float32)))
        return
    start_margins(worker, job)
    with pytest.raises(ProtocolError, match=f"from coordinator: {n_values} leaf values, expected 2"):
        worker.handle("coordinator", CloseTree(tree=0, values=np.zeros(n_values, np.float32)))


@pytest.mark.parametrize("wrong", ["margins", "labels"])
def test_values_of_other_evaluation_rows_are_refused(wrong):
    job = runs.make_job((2, 1), n_rounds=1, eval_names=("e",))
    source = runs.make_source(job, *runs.sparse_data(61, 9, 1))
    *others, worker = runs.make_roles(job, source, (source,))
    handle = worker.handle

    def handle_and_lose_a_row(*args):
        for receiver, message in handle(*args):
            if type(message) is PushEvaluation:
                message = PushEvaluation(**vars(message) | {wrong: getattr(message, wrong)[1:]})
            yield receiver, message

    worker.handle = handle_and_lose_a_row
    with pytest.raises(ProtocolError, match="worker 1,0: 2. margins or labels of evaluation rows, expected [23]."):
        runs.run([*others, worker])


@pytest.mark.parametrize("X", [TINY, np.arange(4, dtype=np.float32)[:, None] + 1])
@pytest.mark.parametrize("bin_", [-1, 4, 10**9])
def test_splits_by_bins_that_are_not_there_are_refused(X, bin_):
    job = runs.make_job((1, 2), n_rounds=1, max_depth=2, base_score=0.5, grad_bits=16)
    worker = BlockWorker(job, 0, 1, runs.make_source(job, X, column(0, 1, 0, 1)))
    worker.start()
    worker.handle("coordinator", deal_features([0], [0, 1]))
    start_margins(worker, job)
    with pytest.raises(ProtocolError, match="splits by bins that their features do not have"):
        worker.handle("worker 0,0", apply_splits(0, [0], [bin_], [1], last=True, shards=[1]))


def test_a_worker_of_a_block():
    """Worker 0,1 of 2 x 2 with 4 servers: sketches and histograms for two of them, bits for its peer."""
    job = runs.make_job((2, 2), 4, n_rounds=1, max_depth=2, min_child_weight=0, grad_bits=16)
    source = runs.make_source(job, np.repeat(TINY, 2, axis=0), np.repeat(column(0, 1, 0, 1), 2))
    worker = BlockWorker(job, 0, 1, source)
    [(_, described)] = worker.start()
    assert described.n_rows == 2  # the second half of row shard 0
    sent = worker.handle("coordinator", deal_features([0], [0, 1, 1], n_rows=8))
    assert kinds(sent) == [("server 1", "PushSketches"), ("server 3", "PushSketches")]
    for (_, pushed), n_features in zip(sent, (1, 0), strict=True):
        assert Sketches.from_arrays(pushed.sketches, n_features).n_features == n_features
    empty = ShareCutPoints(cut_points=points().to_arrays())
    assert worker.handle("server 3", empty) == []
    # The other worker of the row shard sends the sums for base_score.
    assert worker.handle("server 1", ShareCutPoints(cut_points=points([2.0, FLOAT_MAX]).to_arrays())) == []
    sent = start_margins(worker, job)
    assert kinds(sent) == [("server 1", "PushHistograms"), ("server 3", "PushHistograms")]
    mine = decode_histograms("packed", sent[0][1].arrays, np.array([0, 2], np.int32))
    assert (mine.bins.tolist(), mine.grads.tolist()) == ([0, 1], [2**15, -(2**15)])
    assert decode_histograms("packed", sent[1][1].arrays, np.array([0], np.int32)).n_nodes == 1
    assert all(m.totals.tolist() == [[0, 4 * 2**15, 4 * 2**14]] for _, m in sent)

    # A split of the other feature shard: this one has no bits to send, but is told where its rows go.
    living = pack_living(np.array([1], np.uint64), 1), pack_living(np.array([], np.uint64), 0)
    assert worker.handle("server 0", apply_splits(0, [0], [0], [1], last=False, living=living)) == []
    assert worker.waits_for == "PushBitvectors (tree 0, level 0) from worker 0,0"
    form, bits = pack_bitvector(np.array([0b0111], np.uint64), 4)  # row 3 leaves its default side, the left one
    sent = worker.handle("worker 0,0", PushBitvectors(tree=0, level=0, form=form, bits=bits))
    assert kinds(sent) == [("server 1", "PushHistograms"), ("server 3", "PushHistograms")]
    assert sent[0][1].totals.tolist() == [[2**14, 3 * 2**15, 3 * 2**14]]

    # Its own split of the left child: values of 2 go right. Nobody else has one, so it waits for nobody's bits.
    sent = worker.handle("server 0", apply_splits(1, [1], [0], [1], last=True, shards=[1], locals_=[0]))
    assert kinds(sent) == [("worker 0,0", "PushBitvectors")]
    pushed = sent[0][1]
    assert unpack_bitvector(pushed.form, pushed.bits, 4)[0] & np.uint64(15) == 0b1011  # row 3 is elsewhere
    assert worker.waits_for == "CloseTree (tree 0, level -1) from coordinator"
    assert worker.handle("coordinator", CloseTree(tree=0, values=np.zeros(3, np.float32))) == []
    assert worker.done


def test_a_worker_stops_when_it_is_told():
    job = runs.make_job((1, 1))
    worker = BlockWorker(job, 0, 0, runs.make_source(job, TINY, column(0, 1, 0, 1)))
    worker.start()
    assert worker.handle("coordinator", StopTraining()) == [] and worker.done


def test_a_worker_whose_threads_share_out_a_servers_features():
    """Worker 0,1 of 2 x 2 with 2 servers and 2 threads: one server, which gets what is of either range."""
    job = replace(runs.make_job((2, 2), 2, n_rounds=1, max_depth=2, min_child_weight=0, grad_bits=16), n_threads=2)
    worker = BlockWorker(job, 0, 1, runs.make_source(job, np.repeat(TINY, 2, axis=0), np.repeat(column(0, 1, 0, 1), 2)))
    worker.start()
    [(name, pushed)] = worker.handle("coordinator", deal_features([0, 5], [0, 1, 2], n_rows=8, n_threads=2))
    assert name == "server 1"
    for arrays in split_by_range(pushed.sketches, 2):
        assert Sketches.from_arrays(arrays, 1).n_features == 1
    cut_points = points([2.0, FLOAT_MAX], [3.0, FLOAT_MAX])
    assert worker.handle("server 1", ShareCutPoints(cut_points=cut_points.to_arrays())) == []
    [(name, pushed)] = start_margins(worker, job)
    assert name == "server 1"
    first, second = (
        decode_histograms("packed", arrays, np.array([0, 2], np.int32)) for arrays in split_by_range(pushed.arrays, 2)
    )
    assert (first.bins.tolist(), first.grads.tolist()) == ([0, 1], [2**15, -(2**15)])
    assert second.bins.tolist() == []  # no row stores feature 5
    with pytest.raises(ProtocolError, match="2 arrays for 3 ranges"):
        split_by_range(pushed.arrays, 3)


def server_2x2():
    """Server 0 of 2 x 2 with 1 server, dealt feature 7 of shard 0 and feature 3 of shard 1, two bins each."""
    job = runs.make_job((2, 2), 1, n_rounds=1, max_depth=2, min_child_weight=0, grad_bits=8)
    server = Server(job, 0)
    assert server.start() == []
    both = points([2.0, FLOAT_MAX], [5.0, FLOAT_MAX])
    deal = DealRanges(
        features=pack_integers(np.array([7, 3])), range_offsets=np.array([0, 1, 2]), range_begins=np.array([0, 0]),
        n_rows=8, max_weight=1.0, max_label=1.0, zero_rule="true", grad_bits=8, n_threads=1,
        cut_points=both.to_arrays(),
    )  # fmt: skip
    assert server.handle("coordinator", deal) == [] and start_tree(server, job) == []
    return server


def push(level, totals, *nodes):
    """PushHistograms with the nodes {bin: (grad, hess)} of one feature of two bins."""
    flat = np.array([sums for node in nodes for sums in node.values()], np.int64).reshape(-1, 2)
    histograms = Histograms(
        np.cumsum([0, *map(len, nodes)]), np.array([b for node in nodes for b in node], np.int32),
        flat[:, 0].copy(), flat[:, 1].copy(),
    )  # fmt: skip
    arrays = encode_histograms("packed", histograms, np.array([0, 2], np.int32))
    return PushHistograms(tree=0, level=level, totals=np.array(totals), codec="packed", arrays=arrays)


def test_a_server_merges_searches_and_chooses():
    server = server_2x2()
    assert server.handle("worker 0,0", push(0, [[-10, 40, 100]], {0: (-30, 10), 1: (20, 10)})) == []
    assert server.handle("worker 0,1", push(0, [[-10, 40, 100]], {0: (-1, 5)})) == []
    assert server.handle("worker 1,1", push(0, [[10, 40, 100]], {1: (1, 5)})) == []
    sent = server.handle("worker 1,0", push(0, [[10, 40, 100]], {0: (-30, 10), 1: (20, 10)}))
    workers = [f"worker {r},{c}" for c in range(2) for r in range(2)]
    assert kinds(sent) == [(worker, "ApplySplits") for worker in workers]
    for _, splits in sent:
        # The root, shard 0, number 0 in it, bin 0, missing right; the left child is built.
        assert (splits.fields.tolist(), splits.last) == ([[0, 0, 0, 0, 0, 0, 1]], False)
        [living] = splits.living  # of the one range of its shard
        assert unpack_living(living, 1)[0] & np.uint64(1) == 1

    # The right child is the parent less the left one; then the tree is grown.
    for name in ("worker 0,0", "worker 1,0"):
        assert server.handle(name, push(1, [[-30, 10, 100]], {0: (-30, 10)})) == []
    assert server.handle("worker 0,1", push(1, [[-30, 10, 100]], {})) == []
    sent = server.handle("worker 1,1", push(1, [[-30, 10, 100]], {1: (1, 5)}))
    assert kinds(sent) == [*((worker, "ApplySplits") for worker in workers), ("coordinator", "PushSplits")]
    assert all(m.last and m.living == () for _, m in sent[:-1])  # nothing will be built below
    told = sent[-1][1]
    assert told.fields[0].tolist() == [7, 0, 0, 0, 0, 0, -60, 20, 0, 80]
    assert told.fields[1:, NODE_GRAD:].tolist() == [[-60, 20], [60, 60]]
    assert server.done


def server_2x1(number):
    """A server of 2 x 1 with 2 servers, of which the first is dealt feature 7 and the second feature 3, two bins each."""
    job = runs.make_job((2, 1), 2, n_rounds=1, max_depth=2, min_child_weight=0, grad_bits=8)
    server = Server(job, number)
    assert server.start() == []
    deal = DealRanges(
        features=pack_integers(np.array([[7, 3][number]])), range_offsets=np.array([0, 1]), range_begins=np.array([number]),
        n_rows=8, max_weight=1.0, max_label=1.0, zero_rule="true", grad_bits=8, n_threads=1,
        cut_points=points([2.0, FLOAT_MAX]).to_arrays(),
    )  # fmt: skip
    assert server.handle("coordinator", deal) == [] and start_tree(server, job) == []
    return server


def test_the_first_server_chooses_out_of_what_others_propose():
    first, second = server_2x1(0), server_2x1(1)
    for server in (first, second):
        sums = {0: (-30, 10), 1: (30, 10)}  # of both features: which gain the same
        assert server.handle("worker 0,0", push(0, [[0, 20, 100]], sums)) == []
    [(name, proposed)] = second.handle("worker 1,0", push(0, [[0, 20, 100]], {0: (-30, 10), 1: (30, 10)}))
    assert name == "server 0" and type(proposed) is ProposeSplits
    # Number 1 in shard 0, bin 0, missing right.
    assert proposed.fields.tolist() == [[3, 0, 1, 0, 0, 0, -60, 20, 0, 40]] and len(proposed.living) == 1
    assert first.handle("server 1", proposed) == []  # who is quicker than the workers
    sent = first.handle("worker 1,0", push(0, [[0, 20, 100]], {0: (-30, 10), 1: (30, 10)}))
    assert kinds(sent) == [(name, "ApplySplits") for name in ("worker 0,0", "worker 1,0", "server 1")]
    for name, splits in sent:  # the lower user number
        assert splits.fields.tolist() == [[0, 0, 1, 0, 0, 0, 1]]
        assert len(splits.living) == (2 if name.startswith("worker") else 0)
    assert second.handle("server 0", sent[-1][1]) == []
    assert second.waits_for == "PushHistograms (tree 0, level 1) from worker 0,0, worker 1,0"
    for server in (first, second):
        server.handle("worker 0,0", push(1, [[-30, 10, 100]], {0: (-30, 10)}))
    [(_, proposed)] = second.handle("worker 1,0", push(1, [[-30, 10, 100]], {0: (-30, 10)}))
    assert proposed.living == () and second.done  # it hears nothing of the last level
    first.handle("server 1", proposed)
    sent = first.handle("worker 1,0", push(1, [[-30, 10, 100]], {0: (-30, 10)}))
    assert kinds(sent) == [("worker 0,0", "ApplySplits"), ("worker 1,0", "ApplySplits"), ("coordinator", "PushSplits")]
    assert len(sent[-1][1].gains) == 3 and first.done


def test_a_worker_ands_the_bits_of_all_shards():
    """Worker 0,0 of 1 x 3, who chooses: the root's split is its own, those of the level below are the other two's."""
    params = {"max_depth": 2, "min_child_weight": 0, "base_score": 0.5, "grad_bits": 16}
    job = runs.make_job((1, 3), n_rounds=1, **params)
    worker = BlockWorker(job, 0, 0, runs.make_source(job, TINY, column(0, 1, 0, 1)))
    worker.start()
    worker.handle("coordinator", deal_features([0], [0, 1], n_rows=4))
    assert start_margins(worker, job) == []

    def propose(c, level, gains):
        """Splits by a feature of shard c, its first, that nothing unstored leaves to the right."""
        fields = np.zeros((len(gains), N_PROPOSED), np.int64)
        fields[:, FEATURE : LEFT_GRAD] = [c, c, 0, 0, 1, 1]
        fields[:, NODE_GRAD + 1] = 1
        return ProposeSplits(tree=0, level=level, gains=np.array(gains), fields=fields, living=())

    assert worker.handle("worker 0,2", propose(2, 0, [-np.inf])) == []
    sent = worker.handle("worker 0,1", propose(1, 0, [-np.inf]))
    others = [f"worker 0,{c}" for c in (1, 2)]
    assert kinds(sent) == [(name, kind) for kind in ("ApplySplits", "PushBitvectors") for name in others]
    assert sent[0][1].fields.tolist() == [[0, 0, 0, 0, 1, 1, 1]] and not sent[0][1].last
    assert sent[2][1] is sent[3][1]
    assert unpack_bitvector(sent[2][1].form, sent[2][1].bits, 4)[0] & np.uint64(15) == 0b0101  # values of 2 go right

    def bits_of(word):
        form, bits = pack_bitvector(np.array([word], np.uint64), 4)
        return PushBitvectors(tree=0, level=1, form=form, bits=bits)

    assert worker.handle("worker 0,2", propose(2, 1, [-np.inf, 9.0])) == []
    sent = worker.handle("worker 0,1", propose(1, 1, [9.0, -np.inf]))
    assert kinds(sent) == [(name, "ApplySplits") for name in others]
    assert sent[0][1].fields.tolist() == [[1, 1, 0, 0, 1, 1, 1], [2, 2, 0, 0, 1, 1, 1]] and sent[0][1].last
    assert worker.handle("worker 0,2", bits_of(0b0111)) == []
    assert worker.waits_for == "PushBitvectors (tree 0, level 1) from worker 0,1"
    sent = worker.handle("worker 0,1", bits_of(0b1011))
    assert kinds(sent) == [("coordinator", "PushSplits"), ("coordinator", "PushLeafSums")]
    assert sent[0][1].fields[:, FEATURE].tolist() == [0, 1, 2]
    grads, hesses = sent[1][1].sums.T  # of leaves 3 to 6, which hold rows 0, 2, 1, 3
    assert np.sign(grads).tolist() == [1, 1, -1, -1] and len(set(hesses.tolist())) == 1 and hesses[0] > 0


def test_a_worker_proposes_to_the_first_one():
    job = runs.make_job((1, 3), n_rounds=1, max_depth=2, min_child_weight=0, base_score=0.5, grad_bits=16)
    worker = BlockWorker(job, 0, 1, runs.make_source(job, TINY, column(0, 1, 0, 1)))
    worker.start()
    worker.handle("coordinator", deal_features([0], [0, 1], n_rows=4))
    assert kinds(start_margins(worker, job)) == [("worker 0,0", "ProposeSplits")]
    sent = worker.handle("worker 0,0", apply_splits(0, [0], [0], [1], last=False, shards=[1]))
    assert kinds(sent) == [(f"worker 0,{c}", "PushBitvectors") for c in (0, 2)] + [("worker 0,0", "ProposeSplits")]
    assert unpack_bitvector(sent[0][1].form, sent[0][1].bits, 4)[0] & np.uint64(15) == 0b0101  # values of 2 go right


def test_there_are_no_servers_where_nothing_is_merged():
    assert runs.make_job((1, 1)).servers == runs.make_job((1, 2), 2).servers == []
    assert runs.make_job((2, 1), 2).servers == ["server 0", "server 1"]


def test_a_server_refuses_a_child_larger_than_its_parent():
    server = server_2x2()
    for r in range(2):
        server.handle(f"worker {r},0", push(0, [[0, 40, 100]], {0: (-30, 10), 1: (30, 10)}))
        server.handle(f"worker {r},1", push(0, [[0, 40, 100]], {}))
    with pytest.raises(ProtocolError, match="not part of its parent"):
        for r in range(2):
            server.handle(f"worker {r},0", push(1, [[-30, 10, 100]], {0: (-40, 11)}))
            server.handle(f"worker {r},1", push(1, [[-30, 10, 100]], {}))


@pytest.mark.parametrize(
    "wrong",
    [
        push(0, [[0, 40, 100]] * 2, {0: (-30, 10)}), push(0, [[0, 40, 100]], {0: (-30, 10)}, {}),
        push(0, [[0, 40, 100]] * 2, {0: (-30, 10)}, {}),
    ],
)  # fmt: skip
def test_a_server_refuses_other_nodes_than_are_built(wrong):
    with pytest.raises(ProtocolError, match="server 0, from worker 1,0: "):
        server_2x2().handle("worker 1,0", wrong)


def describe(features=(), counts=(), n_rows=2, labels=(0.0, 1.0), **how):
    fields = {"n_values": sum(counts), "n_features": 9, "max_weight": 1.0, "min_weight": 1.0, "max_label": 1.0}
    return DescribeRows(
        n_rows=n_rows,
        features=pack_ascending(np.array(features, np.int64)),
        counts=pack_integers(np.array(counts, np.int64)),
        n_distinct=len(features),
        label_range=labels,
        **fields | {"stores_zeros": False, "sizes": (100,)} | how,
    )


@pytest.mark.parametrize(
    ("begin", "bins", "parts"),
    [
        (0, [1, 1, 1, 1], [4]), (0, [1, 1, 1, 1, 1], [4, 1]), (2, [3, 3], [1, 1]), (1, [1, 2, 2, 1], [2, 2]),
        (0, [2] * 4, [2, 2]), (0, [1] * 9, [9]), (1, [1, 2, 2, 3], [4]), (0, [5, 1], [2]), (0, [1, 5], [2]), (3, [], [0]),
    ],
)  # fmt: skip
def test_features_are_cut_in_two_where_that_makes_their_rows_narrow(begin, bins, parts, monkeypatch):
    monkeypatch.setattr(block_worker, "NARROW_BINS", 4)
    offsets, edges = np.cumsum([0, *[7] * begin, *bins]).astype(np.int32), np.cumsum([begin, *parts]).tolist()
    parts = block_worker._narrow_parts(begin, begin + len(bins), offsets, n_stored=lambda first, last: last - first)
    assert parts == list(pairwise(edges))


@pytest.mark.parametrize(
    ("bins", "stored", "edges"),
    [
        ([3, 1, 1, 3, 2], [13, 8, 1, 1, 1], [2, 4, 5]), ([3, 1, 1, 3, 2], [13, 7, 1, 1, 1], [5]),
        ([4] * 16, [105, *[1] * 15], [*range(1, 17)]), ([4] * 17, [999, *[1] * 16], [17]),
        ([2, 2, 1, 7, 1], [99, 99, 1, 1, 1], [5]),
    ],
)  # fmt: skip
def test_features_are_cut_in_more_where_nearly_all_values_are_in_the_first(bins, stored, edges, monkeypatch):
    monkeypatch.setattr(block_worker, "NARROW_BINS", 4)
    offsets = np.cumsum([0, *bins]).astype(np.int32)
    parts = block_worker._narrow_parts(0, len(bins), offsets, n_stored=lambda begin, end: sum(stored[begin:end]))
    assert parts == list(pairwise([0, *edges]))


@pytest.mark.parametrize(
    ("begin", "bins", "edges", "moved"),
    [
        (0, [1, 1, 1, 1], [2, 4], [2, 4]), (0, [2, 1, 2, 1], [3, 4], [2, 4]), (3, [1, 2, 2, 1], [1, 4], [2, 4]),
        (0, [3, 1, 1, 3], [1, 4], [2, 4]), (0, [1] * 12, [6, 10, 12], [4, 8, 12]), (0, [1] * 12, [2, 6, 12], [4, 8, 12]),
        (0, [3, 3, 2], [2, 3], []), (0, [5, 1], [1, 2], []), (0, [1, 5], [1, 2], []), (0, [1] * 9, [4, 9], []),
        (0, [2, 2], [2], [2]), (0, [2, 3], [2], []),
    ],
)  # fmt: skip
def test_borders_of_ranges_move_where_that_makes_their_rows_narrow(begin, bins, edges, moved, monkeypatch):
    monkeypatch.setattr(block_worker, "NARROW_BINS", 4)
    offsets = np.cumsum([0, *[7] * begin, *bins]).astype(np.int32)
    ranges, expected = ([(begin + b, begin + e) for b, e in pairwise([0, *of])] for of in (edges, moved))
    assert block_worker._moved_ranges(ranges, offsets) == expected


def test_a_coordinator_deals_hears_and_closes():
    params = {"max_depth": 2, "min_child_weight": 0, "base_score": 0.5, "learning_rate": 1.0}
    job = runs.make_job((2, 1), 2, n_rounds=1, **params)
    rounds = []
    coordinator = Coordinator(job, on_round=rounds.append)
    assert coordinator.start() == []
    assert coordinator.handle("worker 1,0", describe([2, 5], [1, 1], n_rows=2)) == []
    sent = coordinator.handle("worker 0,0", describe([5, 8], [3, 2], n_rows=3))
    assert kinds(sent) == [
        ("worker 0,0", "DealFeatures"), ("worker 1,0", "DealFeatures"), ("server 0", "DealRanges"),
        ("server 1", "DealRanges"),
    ]  # fmt: skip
    first, second, *ranges = [message for _, message in sent]
    assert (first.row_offset, second.row_offset, first.n_rows) == (0, 3, 5)
    # Feature 5 is stored most often, then 8, then 2: dealt to servers 0, 1, 1, side by side for each.
    assert numbers_in(first) == [5, 8, 2] and first.range_offsets.tolist() == [0, 1, 3]
    assert [numbers_in(deal) for deal in ranges] == [[5], [8, 2]]
    assert [deal.range_begins.tolist() for deal in ranges] == [[0], [1]]

    own = [points([1.0, FLOAT_MAX]), points([2.0, FLOAT_MAX], [3.0, FLOAT_MAX])]
    assert coordinator.handle("server 1", ShareCutPoints(cut_points=own[1].to_arrays())) == []
    sent = coordinator.handle("server 0", ShareCutPoints(cut_points=own[0].to_arrays()))
    everybody = (*job.workers, *job.servers)
    assert kinds(sent) == [*((name, "CloseTree") for name in job.workers), *((name, "StartTree") for name in everybody)]
    assert all(m.values.tolist() == [0.0] and m.tree == -1 for _, m in sent[:2])
    assert all((m.grad, m.hess, m.exact, m.tree) == (0.5, 0.25, True, 0) for _, m in sent[2:])

    # The root's split, by feature 2, number 2 in the shard; no split of its left child, one by feature 8 of the right one.
    features, locals_ = [2, -1, 8], [2, 0, 1]
    columns = [features, [0] * 3, locals_, [0] * 3, [1] * 3, [1] * 3, [10] * 3, [10] * 3, [100] * 3, [100] * 3]
    told = PushSplits(tree=0, gains=np.array([7.0, -np.inf, 3.0]), fields=np.array(columns).T.copy())
    assert coordinator.handle("server 0", told) == []

    sums = np.zeros((3, 2), np.int64)
    sums[0] = -(2**40), 2**41
    assert coordinator.handle("worker 1,0", PushLeafSums(tree=0, sums=sums)) == []
    sent = coordinator.handle("worker 0,0", PushLeafSums(tree=0, sums=sums))
    assert kinds(sent) == [("worker 0,0", "CloseTree"), ("worker 1,0", "CloseTree")]
    assert (np.sign(sent[0][1].values) == [1, 0, 0]).all()
    assert coordinator.done and [(r.number, r.n_leaves, r.metrics) for r in rounds] == [(0, 3, {})]
    tree = coordinator.result.forest.trees[0]
    assert tree.feature.tolist() == [2, -1, 8, -1, -1] and tree.threshold.tolist()[:3] == [3, 0, 2]
    assert tree.left.tolist() == [1, -1, 3, -1, -1]
    assert tree.value[[1, 3, 4]].tolist() == sent[0][1].values.tolist()


@pytest.fixture
def any_work_is_worth_a_thread(monkeypatch):
    monkeypatch.setattr(dealing, "WORK_OF_A_THREAD", 1)


@pytest.mark.usefixtures("any_work_is_worth_a_thread")
@pytest.mark.parametrize(("grid", "n_threads", "most"), [((1, 2), 1, 2), ((1, 1), 2, 2), ((2, 4), 1, 1), ((1, 2), 2, 1)])
def test_whole_bundles_are_dealt(grid, n_threads, most):
    """Of four categories of five columns each: a row has as many in each shard, and in what each thread holds."""
    job = replace(runs.make_job(grid, 1, n_rounds=1, min_child_weight=0, grad_bits=16), n_threads=n_threads)
    columns, borders = np.arange(20), np.array([[4, 5], [9, 10], [13, 15]])
    rng = np.random.default_rng(2)

    def deal(*borders, counts):
        described = [describe(columns, counts, n_rows=50, borders=borders) for _ in job.workers]
        dealt = Dealing.of(Stock.of(described, job), job, None)
        ids = [numbers_in(dealt.for_worker(0, c)) for c in range(grid[1])]
        assert sorted(sum(ids, [])) == columns.tolist()
        edges = dealt.range_offsets if n_threads > 1 else [[0, len(of_shard)] for of_shard in ids]
        parts = [of_shard[b:e] for of_shard, own in zip(ids, edges, strict=True) for b, e in pairwise(own)]
        return [sorted({column // 5 for column in part}) for part in parts]

    parts = deal(borders, counts=rng.integers(10, 13, 20))
    assert sorted(sum(parts, [])) == [0, 1, 2, 3] and {len(part) for part in parts} == {most}
    for given in ((), (np.stack([columns[:-1], columns[1:]], axis=1),)):  # no bundles, or one for each column
        assert any(len(part) > most for part in deal(*given, counts=rng.integers(10, 13, 20)))
    uneven = deal(borders, counts=np.repeat([50, 1, 1, 1], 5))
    assert any(len(part) > most for part in uneven)


@pytest.mark.usefixtures("any_work_is_worth_a_thread")
def test_in_a_ring_each_chunk_has_as_many_bins():
    params = {"min_child_weight": 0, "max_bin": 4, "grad_bits": 16}
    job = replace(runs.make_job((2, 1), n_rounds=1, mode="allreduce", **params), n_threads=2)
    counts = np.repeat([50, 1, 1, 1], 5)  # of each worker
    borders = (np.array([[4, 5], [9, 10], [14, 15]]),)
    described = [describe(np.arange(20), counts, n_rows=50, borders=borders) for _ in job.workers]
    dealt = Dealing.of(Stock.of(described, job), job, None)
    [features], [edges], bins = dealt.features, dealt.range_offsets, np.minimum(2 * counts, 4)
    loads = [int(bins[features[begin:end]].sum()) for begin, end in pairwise(edges)]
    assert len(loads) == 4 and max(loads) - min(loads) <= 4


@pytest.mark.parametrize(
    ("grid", "has_bundles", "work"),
    [((1, 1), False, 1640), ((1, 1), True, 1160), ((2, 1), False, 1640), ((1, 2), False, 820)],
)
@pytest.mark.parametrize("max_depth", [7, 8])
def test_how_many_threads_are_worth_it(grid, has_bundles, work, max_depth, monkeypatch):
    """Of ten features that each row shard has in 100 rows, in four bins, or in one if they are bundled."""
    params = {"min_child_weight": 0, "max_bin": 4, "grad_bits": 16, "max_depth": max_depth}
    job = replace(runs.make_job(grid, n_rounds=1, **params), n_threads=3)
    if grid == (1, 1) and max_depth == 7:  # threads stay awake
        work *= 48
    borders = (np.array([[4, 5]]),) if has_bundles else ()
    counts = np.full(10, 100 if grid[1] == 1 else 50)  # each worker counts some of its row shard's rows
    described = [describe(np.arange(10), counts, n_rows=100, borders=borders) for _ in job.workers]
    for least, n_threads in ((work // 9, 3), (work // 9 + 1, 2), (work // 4, 2), (work // 4 + 1, 1), (work + 1, 1)):
        monkeypatch.setattr(dealing, "WORK_OF_A_THREAD", least)
        dealt = Dealing.of(Stock.of(described, job), job, None)
        assert dealt.job.n_threads == dealt.for_worker(0, 0).n_threads == n_threads
        assert len(dealt.range_offsets[0]) - 1 == len(dealt.job.shares_of_ranges(0))


def test_sums_of_other_leaves_are_refused():
    coordinator = Coordinator(runs.make_job((2, 1), 1, n_rounds=1, max_depth=2))
    coordinator.start()
    for r in range(2):
        coordinator.handle(f"worker {r},0", describe([5], [2]))
    coordinator.handle("server 0", ShareCutPoints(cut_points=points([1.0, FLOAT_MAX]).to_arrays()))
    coordinator.handle("worker 0,0", PushLeafSums(sums=np.zeros((1, 2), np.int64)))
    with pytest.raises(ProtocolError, match="coordinator, from worker 1,0: 2 leaf sums, expected 1"):
        coordinator.handle("worker 1,0", PushLeafSums(sums=np.zeros((2, 2), np.int64)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_weight": 0.0}, {"max_weight": np.nan}, {"max_label": -1.0}, {"n_rows": -1}, {"eval_rows": (3,)},
        {"sizes": (100, 5)}, {"labels": (0.0,)},
    ],
)  # fmt: skip
def test_descriptions_of_no_rows_that_there_are_are_refused(wrong):
    coordinator = Coordinator(runs.make_job((1, 1), n_rounds=1))
    coordinator.start()
    with pytest.raises(ProtocolError, match="coordinator, from worker 0,0: a description "):
        coordinator.handle("worker 0,0", describe([5], [4], **wrong))


@pytest.mark.parametrize("step", [0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("name", ["grad", "hess", "leaf_grad", "leaf_hess"])
def test_steps_that_nobody_can_count_in_are_refused(name, step):
    start = StartTree(tree=0, **{"grad": 1.0, "hess": 1.0, "leaf_grad": 1.0, "leaf_hess": 1.0, "exact": False, name: step})
    with pytest.raises(ProtocolError, match="steps that nobody can count in"):
        told_steps(start)


@pytest.mark.parametrize(("grid", "owner"), [((2, 1), "server 0"), ((1, 1), "worker 0,0")])
def test_cut_points_of_other_features_are_refused(grid, owner):
    coordinator = Coordinator(runs.make_job(grid, n_rounds=1))
    coordinator.start()
    for r in range(grid[0]):
        coordinator.handle(f"worker {r},0", describe([5], [4]))
    two = points([1.0, FLOAT_MAX], [FLOAT_MAX])
    with pytest.raises(ProtocolError, match=f"coordinator, from {owner}: .* cut points of 2 and 2 features instead of 1"):
        coordinator.handle(owner, ShareCutPoints(cut_points=two.to_arrays()))


def a_server_with_proposals_of(other):
    """What the first of two servers does once all workers have sent the root, and the second one these proposals."""
    server = server_2x1(0)
    for r in range(2):
        server.handle(f"worker {r},0", push(0, [[0, 20, 100]], {0: (-30, 10), 1: (30, 10)}))
    return server.handle("server 1", other)


def a_coordinator_of_one_worker():
    coordinator = Coordinator(runs.make_job((1, 1), n_rounds=1, max_depth=2, min_child_weight=0, base_score=0.5))
    coordinator.start()
    coordinator.handle("worker 0,0", describe([5], [4]))
    coordinator.handle("worker 0,0", ShareCutPoints(cut_points=points([1.0, FLOAT_MAX]).to_arrays()))
    return coordinator


@pytest.mark.parametrize(("n_gains", "n_splits"), [(2, 2), (1, 2), (0, 0)])
def test_proposals_of_other_nodes_are_refused(n_gains, n_splits):
    fields = np.zeros((n_splits, N_PROPOSED), np.int64)
    proposal = ProposeSplits(tree=0, level=0, gains=np.zeros(n_gains), fields=fields, living=())
    with pytest.raises(ProtocolError, match=f"server 0, from server 1: proposals of {n_gains} gains and {n_splits} "):
        a_server_with_proposals_of(proposal)


def test_a_coordinator_hears_of_what_was_chosen():
    coordinator = a_coordinator_of_one_worker()
    gains = np.array([7.0, 3.0, -np.inf])
    fields = np.zeros((3, N_PROPOSED), np.int64)
    fields[:, FEATURE] = 5, 5, -1
    fields[:, LEFT_GRAD:] = [-10, 10, 0, 100], [-7, 4, -10, 10], [0, 0, 10, 90]
    assert coordinator.handle("worker 0,0", PushSplits(tree=0, gains=gains, fields=fields)) == []
    sums = np.array([[2**40, 2**41]] * 3)
    sent = coordinator.handle("worker 0,0", PushLeafSums(tree=0, sums=sums))
    assert kinds(sent) == [("worker 0,0", "CloseTree")] and coordinator.done
    tree = coordinator.result.forest.trees[0]
    assert tree.feature.tolist() == [5, 5, -1, -1, -1] and tree.left.tolist() == [1, 3, -1, -1, -1]


@pytest.mark.parametrize(
    ("gains", "n_splits", "why"),
    [
        ([], 0, "0 best splits of a tree's nodes, expected 1"),
        ([7.0], 1, "1 best splits of a tree's nodes, expected 3"),
        ([7.0, -np.inf], 2, "2 best splits of a tree's nodes, expected 3"),
        ([-np.inf, 7.0], 2, "2 best splits of a tree's nodes, expected 1"),
        ([7.0, 1.0, 1.0, 1.0], 4, "4 best splits of a tree's nodes, expected 3"),  # below the last level
        ([7.0], 2, "proposals of 1 gains and 2 splits"),
    ],
)
def test_a_tree_of_other_nodes_is_refused(gains, n_splits, why):
    told = PushSplits(tree=0, gains=np.array(gains), fields=np.zeros((n_splits, N_PROPOSED), np.int64))
    with pytest.raises(ProtocolError, match=f"coordinator, from worker 0,0: {why}"):
        a_coordinator_of_one_worker().handle("worker 0,0", told)


@pytest.mark.parametrize("where", [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, 0, 2)], ids=str)
def test_a_tree_of_bins_that_are_not_there_is_refused(where):
    fields = np.zeros((1, N_PROPOSED), np.int64)
    fields[0, SHARD : SHARD + 3] = where
    with pytest.raises(ProtocolError, match="coordinator, from worker 0,0: a split by a bin that no feature has"):
        a_coordinator_of_one_worker().handle("worker 0,0", PushSplits(tree=0, gains=np.ones(1), fields=fields))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"zero_rule": "perhaps"}, "a rule for zeros that there is not: 'perhaps'"),
        ({"n_threads": 0}, "0 threads of each worker, which has 3"),
        ({"n_threads": 4}, "4 threads of each worker, which has 3"),
        ({"n_threads": 2}, "1 ranges of features, expected 2"),
    ],
)
def test_what_the_coordinator_cannot_decide_is_refused(wrong, why):
    job = replace(runs.make_job((2, 1), 1, n_rounds=1), n_threads=3)
    deal = deal_features([0], [0, 1], **wrong)
    worker = BlockWorker(job, 0, 0, runs.make_source(job, TINY, column(0, 1, 0, 1)))
    worker.start()
    with pytest.raises(ProtocolError, match=f"worker 0,0, from coordinator: {why}"):
        worker.handle("coordinator", deal)
    server = Server(job, 0)
    server.start()
    values = {name: value for name, value in vars(deal).items() if name in DealRanges.types}
    with pytest.raises(ProtocolError, match=f"server 0, from coordinator: {why}"):
        server.handle("coordinator", DealRanges(**values, range_begins=np.array([0])))


@pytest.mark.parametrize("n_sets", [0, 1, 3])
def test_a_worker_refuses_living_sets_of_other_ranges(n_sets):
    job = runs.make_job((2, 1), 2, n_rounds=1, max_depth=2, min_child_weight=0, base_score=0.5, grad_bits=16)
    worker = BlockWorker(job, 0, 0, runs.make_source(job, np.repeat(TINY, 2, axis=0), np.repeat(column(0, 1, 0, 1), 2)))
    worker.start()
    worker.handle("coordinator", deal_features([0, 1], [0, 1, 2], n_rows=8))
    for server, cuts in (("server 0", [1.0, 2.0, FLOAT_MAX]), ("server 1", [5.0, FLOAT_MAX])):
        worker.handle(server, ShareCutPoints(cut_points=points(cuts).to_arrays()))
    start_margins(worker, job)
    living = (pack_living(np.array([1], np.uint64), 1),) * n_sets
    with pytest.raises(ProtocolError, match=f"worker 0,0, from server 0: {n_sets} living sets, expected 2"):
        worker.handle("server 0", apply_splits(0, [0], [0], [1], last=False, living=living))


def test_living_sets_of_other_ranges_are_refused():
    fields = np.array([[3, 0, 1, 0, 1, 1, 10, 10, 100, 100]])
    proposal = ProposeSplits(tree=0, level=0, gains=np.array([7.0]), fields=fields, living=())
    with pytest.raises(ProtocolError, match="server 0, from server 1: 0 living sets, expected 1"):
        a_server_with_proposals_of(proposal)


@pytest.mark.parametrize(
    ("messages", "error", "text"),
    [
        ([describe(n_rows=0, labels=())], DataError, "the training data has no rows"),
        ([describe(labels=(1.0, 1.0))], DataError, "all 2 labels are 1: a single class"),
        ([describe(max_weight=0.0)], DataError, "all rows have weight 0"),
        ([describe(max_weight=1e-250, min_weight=1e-251)], DataError, "no row has a weight above 1e-250: scale weights up"),
        ([describe(eval_rows=(0,), sizes=(100, 0))], DataError, "the evaluation data 'e' has no rows"),
    ],
)
def test_a_coordinator_refuses_what_cannot_be_learnt(messages, error, text):
    names = ("e",) if messages[0].eval_rows else ()
    coordinator = Coordinator(runs.make_job((1, 1), eval_names=names))
    coordinator.start()
    with pytest.raises(error, match=text):
        coordinator.handle("worker 0,0", messages[0])


def test_a_coordinator_refuses_data_that_differ_between_workers():
    coordinator = Coordinator(runs.make_job((2, 1), eval_names=("e",)))
    coordinator.start()
    coordinator.handle("worker 0,0", describe(eval_rows=(2,), sizes=(100, 50)))
    with pytest.raises(DataError, match="evaluation data 'e': worker 1,0 has 49 bytes or rows of it, worker 0,0 has 50"):
        coordinator.handle("worker 1,0", describe(eval_rows=(2,), sizes=(100, 49)))


@pytest.mark.parametrize("grid", [(1, 1), (1, 2)])
def test_a_worker_refuses_another_number_of_rows_than_was_counted(grid):
    job = runs.make_job(grid, eval_names=("e",))
    sources = [runs.make_source(job, X, y) for X, y in ((TINY, column(0, 1, 0, 1)), (TINY[:3], column(0, 1, 0)))]
    worker = BlockWorker(job, 0, 0, sources[0], sources[1:])
    worker.start()
    with pytest.raises(DataError, match="worker 0,0 reads 3 rows of its row shard, of which its workers counted 2 together"):
        worker.handle("coordinator", deal_features([0, 1], [0, 2], rows_of_shard=(4, 2)))


def test_a_coordinator_refuses_base_scores_without_a_margin():
    with pytest.raises(ParameterError):
        runs.make_job((1, 1), base_score=2.0)
