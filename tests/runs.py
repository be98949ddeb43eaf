"""Small data sets, and roles that train on them in memory; knows no test."""

import contextlib

import numpy as np
from scipy import sparse

from psboost.boosting.xgboost_json import dumps
from psboost.cluster.memory import first_come, run_in_memory
from psboost.config import Parameters
from psboost.data.source import open_source
from psboost.roles.cast import make_role
from psboost.roles.coordinator import Coordinator
from psboost.roles.job import Job
from psboost.wire.ledger import Ledger


def dense_data(n_rows=90, n_features=8, seed=0, n_values=9):
    """(X, y in 0..1): few distinct values, negative ones, zeros and NaN; a constant, an all-missing and a
    nearly empty feature; rows without values."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, n_values - 2, (n_rows, n_features)).astype(np.float32) / 2
    X[rng.random(X.shape) < 0.3] = 0
    X[rng.random(X.shape) < 0.1] = np.nan
    if n_features > 4:
        X[:, 2], X[:, 3] = 1.5, np.nan
        X[:, 4] = 0
        X[1 % n_rows, 4] = 1
    X[3::13] = 0
    signal = np.nan_to_num(X[:, 0]) * 2 + np.nan_to_num(X[:, -1]) * np.nan_to_num(X[:, 1])
    y = (signal + rng.normal(0, 0.5, n_rows) > np.median(signal)).astype(np.float64)
    y[: min(2, n_rows)] = [0, 1][: min(2, n_rows)]
    return X, y


def sparse_data(n_rows=90, n_features=8, seed=0, n_values=9):
    """The same as a CSR matrix that stores some of its zeros, and NaN."""
    X, y = dense_data(n_rows, n_features, seed, n_values)
    rng = np.random.default_rng(seed + 1)
    rows, columns = np.nonzero((X != 0) | (rng.random(X.shape) < 0.1))
    return sparse.csr_matrix((X[rows, columns], (rows, columns)), shape=X.shape), y


def make_job(
    grid=(1, 1), servers=1, n_rounds=2, seed=0, codec="packed", eval_names=(), zeros=True, mode="block", **params
):
    return Job(
        parameters=Parameters.from_dict(params),
        n_row_shards=grid[0],
        n_feature_shards=grid[1],
        n_servers=servers,
        n_rounds=n_rounds,
        seed=seed,
        zero_as_missing=zeros,
        codec=codec,
        eval_names=tuple(eval_names),
        mode=mode,
    )


def make_source(job, X, y, weights=None):
    return open_source(X, y, weights=weights, zero_as_missing=job.zero_as_missing)


def make_roles(job, source, eval_sources=(), on_round=None, bin_mapper=None):
    """The coordinator, the servers, the workers."""
    others = [make_role(name, job, source, eval_sources) for name in (*job.servers, *job.workers)]
    return [Coordinator(job, None, on_round, bin_mapper), *others]


def run(roles, take=first_come):
    """The Training that the roles come to."""
    run_in_memory(roles, {role.name: Ledger() for role in roles}, take)
    return roles[0].result


def recorded(roles):
    """A list of all (sender, receiver, message) that are sent from now on."""
    sent = []

    def record(role, method):
        def call(*args):
            outbox = method(*args)
            sent.extend((role.name, receiver, message) for receiver, message in outbox)
            return outbox

        return call

    for role in roles:
        role.start, role.handle = record(role, role.start), record(role, role.handle)
    return sent


def model_text(forest):
    """What save_model writes."""
    return dumps(forest)


class Chaos:
    """Delivers messages in any order, some of them late and some of them again."""

    def __init__(self, seed, repeat=0.2, delay=0.3):
        self._rng = np.random.default_rng(seed)
        self._repeat, self._delay = repeat, delay
        self._spare = 500  # deliveries that may be repeated
        self.n_repeated = 0

    def __call__(self, mail):
        # Mostly any message; at times one of the latest, so that the old ones come later still.
        low = max(0, len(mail) - 3) if self._rng.random() < self._delay else 0
        at = int(self._rng.integers(low, len(mail)))
        if self._spare and self._rng.random() < self._repeat:
            self._spare -= 1
            self.n_repeated += 1
            return mail[at]
        return mail.pop(at)


@contextlib.contextmanager
def no_threads_left():
    """Fails if the block leaves a thread of a role running."""
    import threading

    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before
