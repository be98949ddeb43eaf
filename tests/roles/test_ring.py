"""Chunks summed and shared in a ring, beside naive sums: 1 to 7 workers, chunks of any sizes, messages in any order."""

import numpy as np
import pytest

from psboost.boosting.histogram import Histograms
from psboost.boosting.split import Proposals, best_of
from psboost.cluster.memory import first_come, run_in_memory
from psboost.errors import ProtocolError
from psboost.kernels.splits import FEATURE, N_PROPOSED
from psboost.roles.ring import Ring
from psboost.roles.ring_sums import DenseSums, SparseSums
from psboost.roles.role import Role, worker_name
from psboost.wire.chunks import DenseChunk, SparseChunk, add
from psboost.wire.ledger import Ledger
from psboost.wire.messages import ReduceHistograms, ShareHistograms, ShareSplits
from tests import runs

STEPS = [(0, 0), (0, 1), (1, 0)]


class Member(Role):
    """Sums its own numbers, for each step, with the others'; its result: own chunk, totals, all chunks and best of each."""

    def __init__(self, rank, n_workers, n_bins, sums, make_chunk):
        """`sums` of each step: float64 (n_nodes, all bins, 2)."""
        super().__init__(worker_name(rank, 0))
        self._ring = Ring(self, [worker_name(r, 0) for r in range(n_workers)], n_bins)
        edges = np.cumsum([0, *n_bins]).tolist()
        self._sums, self._kept = sums, DenseSums(edges) if make_chunk is DenseChunk else SparseSums(edges)

    def run(self):
        results = []
        for (tree, level), sums in zip(STEPS, self._sums, strict=True):
            if isinstance(self._kept, DenseSums):
                self._kept.start(len(sums))
                for node, pairs in enumerate(sums.astype(np.int64)):
                    self._kept.fill(node, 0, pairs.reshape(-1), True)
            else:
                self._kept.start(histograms_of(sums), map)
            totals = sums.sum(axis=1)[: 1 if level == 0 else 0]
            own, totals = yield from self._ring.reduce_scatter(tree, level, len(sums), totals, self._kept)
            yield from self._ring.all_gather(tree, level, len(sums), own, self._kept)
            shared = [self._kept.acc(node, 0, sums.shape[1]).copy() for node in range(len(sums))]
            best = yield from self._ring.agree(tree, level, proposals_of(self._ring.rank, len(sums)))
            results.append((own, totals, shared, best))
        return results


def proposals_of(rank, n_nodes):
    """Node i's gain is greatest at worker i, and at those from 3 on, of which the last has the lowest feature."""
    proposals = Proposals(np.ones(n_nodes), np.zeros((n_nodes, N_PROPOSED), np.int64))
    proposals.gains[rank : rank + 1] = 2
    if rank > 2:
        proposals.gains[:] = 2
    proposals.fields[:, FEATURE] = 100 - rank
    return proposals


def histograms_of(sums):
    nodes, bins = np.nonzero(sums[:, :, 1])
    offsets = np.searchsorted(nodes, np.arange(len(sums) + 1)).astype(np.int64)
    values = sums[nodes, bins].astype(np.int64)
    return Histograms(offsets, bins.astype(np.int32), values[:, 0].copy(), values[:, 1].copy())


def members(n_workers, n_bins, seed=0, fill=1.0, make_chunk=DenseChunk):
    """The roles, and for each of them the sums of each step."""
    rng = np.random.default_rng(seed)
    own = []
    for _ in range(n_workers):
        shapes = [(n_nodes, sum(n_bins)) for n_nodes in (1, 3, 2)]
        present = [rng.random(shape) < fill for shape in shapes]
        own.append([rng.integers(1, 2**40, (*p.shape, 2)) * p[:, :, None].astype(np.float64) for p in present])
    return [Member(r, n_workers, n_bins, own[r], make_chunk) for r in range(n_workers)], own


def run(roles, take=first_come):
    ledgers = {role.name: Ledger() for role in roles}
    run_in_memory(roles, ledgers, take)
    total = Ledger()
    for ledger in ledgers.values():
        total.merge(ledger)
    return total


def as_dense(chunk, n_nodes):
    if isinstance(chunk, DenseChunk):
        return chunk.sums
    return add(chunk, DenseChunk(np.zeros((n_nodes, chunk.n_bins, 2)))).sums


def check(roles, sums):
    expected = [sum(of_worker[step] for of_worker in sums) for step in range(len(STEPS))]
    for rank, role in enumerate(roles):
        edges = np.cumsum([0, *role._ring.n_bins])
        for (own, totals, shared, best), whole, (_, level) in zip(role.result, expected, STEPS, strict=True):
            n_nodes = len(whole)
            assert np.array_equal(as_dense(own, n_nodes), whole[:, edges[rank] : edges[rank + 1]])
            assert np.array_equal(np.array(shared).reshape(whole.shape), whole)
            assert np.array_equal(totals, whole.sum(axis=1)[: 1 if level == 0 else 0])
            proposed = [proposals_of(r, n_nodes) for r in range(len(roles))]
            for name, column in vars(best_of(proposed)).items():
                assert np.array_equal(getattr(best, name), column), name


SIZES = [3, 0, 11, 1, 5, 2, 7]


@pytest.mark.parametrize("n_workers", range(1, 8))
def test_sums_and_bytes(n_workers):
    n_bins = SIZES[:n_workers]
    roles, sums = members(n_workers, n_bins)
    bytes_sent = run(roles).total()
    check(roles, sums)
    if n_workers == 1:
        assert bytes_sent == {}
        return
    messages = n_workers * (n_workers - 1) * len(STEPS)
    chunks = 16 * (n_workers - 1) * sum(step.shape[0] * step.shape[1] for step in sums[0])
    totals = 16 * n_workers * (n_workers - 1) * 2  # of the two roots
    for kind, payload in (("ReduceHistograms", chunks + totals), ("ShareHistograms", chunks)):
        assert (bytes_sent[kind]["messages"], bytes_sent[kind]["payload"]) == (messages, payload)
    hops = {1: 0, 2: 1, 3: 2, 4: 2, 5: 3, 6: 3, 7: 3}[n_workers]
    assert bytes_sent["ShareSplits"]["messages"] == n_workers * hops * len(STEPS)


@pytest.mark.parametrize("fill", [0.0, 0.1, 0.3, 0.8])
@pytest.mark.parametrize("n_workers", range(1, 8))
def test_sparse_sums_and_bytes(n_workers, fill):
    n_bins = [2 * n for n in SIZES[:n_workers]]
    roles, sums = members(n_workers, n_bins, fill=fill, make_chunk=SparseChunk)
    bytes_sent = run(roles).total()
    check(roles, sums)
    if n_workers == 1:
        return

    def chunk_bytes(workers, step, chunk, was_dense):
        """Of a chunk summed over some workers; it stays dense if it was."""
        begin = sum(n_bins[:chunk])
        whole = sum(sums[worker][step] for worker in workers)[:, begin : begin + n_bins[chunk]]
        as_list = 20 * int((whole[:, :, 1] > 0).sum()) + 8 * (len(whole) + 1)
        as_dense = 16 * whole.shape[0] * whole.shape[1]
        is_dense = was_dense or as_dense < as_list
        return (as_dense if is_dense else as_list), is_dense

    reduced, shared, forms = 16 * n_workers * (n_workers - 1) * 2, 0, set()
    for step in range(len(STEPS)):
        for chunk in range(n_workers):
            path = [(chunk + 1 + k) % n_workers for k in range(n_workers)]
            raw = [chunk_bytes([worker], step, chunk, False)[1] for worker in path]
            for k in range(n_workers):
                size, is_dense = chunk_bytes(path[: k + 1], step, chunk, any(raw[: k + 1]))
                raw[k] = is_dense
                forms.add(is_dense)
                if k < n_workers - 1:
                    reduced += size
                else:
                    shared += size * (n_workers - 1)
    assert bytes_sent["ReduceHistograms"]["payload"] == reduced
    assert bytes_sent["ShareHistograms"]["payload"] == shared
    assert len(forms) == 2 or fill in (0.0, 0.8) or n_workers < 4


@pytest.mark.parametrize("seed", range(12))
def test_any_order(seed):
    n_workers = 2 + seed % 6
    roles, sums = members(n_workers, SIZES[:n_workers], seed, fill=0.2, make_chunk=(DenseChunk, SparseChunk)[seed % 2])
    chaos = runs.Chaos(seed)
    run(roles, chaos)
    check(roles, sums)
    assert chaos.n_repeated > 0


def test_what_is_no_chunk_is_refused():
    def handle(message):
        [role, _], _ = members(2, [2, 3])
        role.start()
        return role.handle("worker 1,0", message)

    none = np.zeros((1, 2))

    def reduce(sums, totals=none, form="dense"):
        return ReduceHistograms(tree=0, level=0, hop=0, totals=totals, form=form, arrays=(sums,))

    right = np.zeros((1, 2, 2))
    assert len(handle(reduce(right))) == 1
    for wrong in (
        reduce(np.zeros((1, 3, 2))), reduce(right.astype(np.int64)), reduce(right, form="round"),
        reduce(right, np.zeros((2, 2))),
        ReduceHistograms(tree=0, level=0, hop=0, totals=none, form="dense", arrays=()),
    ):  # fmt: skip
        with pytest.raises(ProtocolError, match="worker 0,0, from worker 1,0: "):
            handle(wrong)
    share = ShareHistograms(tree=0, level=0, hop=0, form="dense", arrays=(np.zeros((1, 2, 2)),))
    with pytest.raises(ProtocolError, match="not of 1 nodes and 3 bins"):
        [role, _], _ = members(2, [2, 3])
        role.start()
        role.handle("worker 1,0", reduce(right))
        role.handle("worker 1,0", share)
    right_share = ShareHistograms(tree=0, level=0, hop=0, form="dense", arrays=(np.zeros((1, 3, 2)),))
    best = ShareSplits(tree=0, level=0, hop=0, gains=np.ones(2), fields=np.zeros((2, N_PROPOSED), np.int64))
    with pytest.raises(ProtocolError, match="worker 0,0, from worker 1,0: proposals of 2 gains and 2 splits, expected 1"):
        [role, _], _ = members(2, [2, 3])
        role.start()
        for message in (reduce(right), right_share, best):
            role.handle("worker 1,0", message)


def test_who_waits_for_which_hop():
    [role, *_], _ = members(3, [1, 1, 1])
    role.start()
    assert role.waits_for == "ReduceHistograms (tree 0, level 0, hop 0) from worker 2,0"
