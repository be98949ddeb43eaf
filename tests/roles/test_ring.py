"""Chunks summed and shared in a ring, beside naive sums: 1 to 7 workers, chunks of any sizes, messages in any order."""

import numpy as np
import pytest

from psboost.cluster.memory import first_come, run_in_memory
from psboost.errors import ProtocolError
from psboost.roles.ring import Ring
from psboost.roles.role import Role, worker_name
from psboost.wire.chunks import DenseChunk
from psboost.wire.ledger import Ledger
from psboost.wire.messages import ReduceHistograms, ShareHistograms
from tests import runs

STEPS = [(0, 0), (0, 1), (1, 0)]


class Member(Role):
    """Sums its own numbers, for each step, with the others'; its result: of each step (own chunk, totals, all chunks)."""

    def __init__(self, rank, n_workers, n_bins, sums):
        """`sums` of each step: float64 (n_nodes, all bins, 2)."""
        super().__init__(worker_name(rank, 0))
        self._ring = Ring(self, [worker_name(r, 0) for r in range(n_workers)], n_bins)
        self._sums = sums

    def run(self):
        results = []
        for (tree, level), sums in zip(STEPS, self._sums, strict=True):
            edges = np.cumsum(self._ring.n_bins)[:-1]
            chunks = [DenseChunk(np.ascontiguousarray(part)) for part in np.split(sums, edges, axis=1)]
            totals = sums.sum(axis=1)[: 1 if level == 0 else 0]
            own, totals = yield from self._ring.reduce_scatter(tree, level, len(sums), totals, chunks)
            shared = yield from self._ring.all_gather(tree, level, len(sums), own)
            results.append((own, totals, shared))
        return results


def members(n_workers, n_bins, seed=0):
    """The roles, and the sums of each step over all of them."""
    rng = np.random.default_rng(seed)
    n_nodes = [1, 3, 2]
    own = [
        [rng.integers(-(2**40), 2**40, (n, sum(n_bins), 2)).astype(np.float64) for n in n_nodes] for _ in range(n_workers)
    ]
    roles = [Member(r, n_workers, n_bins, own[r]) for r in range(n_workers)]
    return roles, [sum(of_worker[step] for of_worker in own) for step in range(len(STEPS))]


def run(roles, take=first_come):
    ledgers = {role.name: Ledger() for role in roles}
    run_in_memory(roles, ledgers, take)
    total = Ledger()
    for ledger in ledgers.values():
        total.merge(ledger)
    return total


def check(roles, expected):
    for rank, role in enumerate(roles):
        edges = np.cumsum([0, *role._ring.n_bins])
        for (own, totals, shared), whole, (_, level) in zip(role.result, expected, STEPS, strict=True):
            assert np.array_equal(own.sums, whole[:, edges[rank] : edges[rank + 1]])
            assert np.array_equal(np.concatenate([chunk.sums for chunk in shared], axis=1), whole)
            assert np.array_equal(totals, whole.sum(axis=1)[: 1 if level == 0 else 0])


SIZES = [3, 0, 11, 1, 5, 2, 7]


@pytest.mark.parametrize("n_workers", range(1, 8))
def test_sums_and_bytes(n_workers):
    n_bins = SIZES[:n_workers]
    roles, expected = members(n_workers, n_bins)
    bytes_sent = run(roles).total()
    check(roles, expected)
    if n_workers == 1:
        assert bytes_sent == {}
        return
    messages = n_workers * (n_workers - 1) * len(STEPS)
    chunks = 16 * (n_workers - 1) * sum(whole.shape[0] * whole.shape[1] for whole in expected)
    totals = 16 * n_workers * (n_workers - 1) * 2  # of the two roots
    for kind, payload in (("ReduceHistograms", chunks + totals), ("ShareHistograms", chunks)):
        assert (bytes_sent[kind]["messages"], bytes_sent[kind]["payload"]) == (messages, payload)


@pytest.mark.parametrize("seed", range(12))
def test_any_order(seed):
    n_workers = 2 + seed % 6
    roles, expected = members(n_workers, SIZES[:n_workers], seed)
    chaos = runs.Chaos(seed)
    run(roles, chaos)
    check(roles, expected)
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
        reduce(right, np.zeros((2, 2))), reduce(right, np.zeros((1, 2), np.int64)),
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


def test_who_waits_for_which_hop():
    [role, *_], _ = members(3, [1, 1, 1])
    role.start()
    assert role.waits_for == "ReduceHistograms (tree 0, level 0, hop 0) from worker 2,0"
