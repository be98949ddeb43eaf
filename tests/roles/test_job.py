"""Which server owns how much of which feature shard."""

import math
from collections import Counter
from dataclasses import replace

import pytest

from psboost.roles.job import Grid
from tests import runs

SHARDS_AND_SERVERS = [(c, s) for c in range(1, 8) for s in range(1, 8)]


@pytest.mark.parametrize(("n_shards", "n_servers"), SHARDS_AND_SERVERS)
def test_servers_own_equal_parts_of_the_fewest_shards(n_shards, n_servers):
    grid = Grid(2, n_shards, n_servers)
    owned = Counter()
    for c in range(n_shards):
        shares = grid.servers_of_features(c)
        assert sum(shares.values()) == n_servers and min(shares.values()) > 0
        owned.update(shares)
        assert [s for s in range(n_servers) if c in grid.shards_of_server(s)] == list(shares)  # by number
    assert owned == dict.fromkeys(range(n_servers), n_shards)
    n_pairs = sum(len(grid.shards_of_server(s)) for s in range(n_servers))
    assert n_pairs == n_shards + n_servers - math.gcd(n_shards, n_servers)
    if n_shards % n_servers == 0 or n_servers % n_shards == 0:
        assert all(s % n_shards in grid.shards_of_server(s) for s in range(n_servers))
    workers = [name for s in range(n_servers) for name in grid.workers_of_server(s)]
    assert len(workers) == 2 * n_pairs and set(workers) == set(grid.workers)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize(("n_shards", "n_servers"), [(1, 1), (2, 2), (3, 2), (2, 3), (1, 4)])
def test_every_range_has_a_server_and_every_thread_a_range(n_shards, n_servers, n_threads):
    job = replace(runs.make_job((2, n_shards), n_servers), n_threads=n_threads)
    ranges = {(c, i): s for c in range(n_shards) for i, s in enumerate(job.servers_of_ranges(c))}
    assert {(c, i): s for s in range(n_servers) for c, i in job.ranges_of_servers[s]} == ranges
    for c in range(n_shards):
        servers = job.servers_of_ranges(c)
        assert servers == sorted(servers) and len(servers) == len(job.shares_of_ranges(c))
        n_owners = len(job.servers_of_features(c))
        assert len(servers) == n_owners * math.ceil(n_threads / n_owners)
