"""Knows what a training or prediction run is asked to do; does not know who does it, or where."""

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from psboost.boosting.fixed_point import Steps, steps_for
from psboost.boosting.losses import LOSSES, Bounds
from psboost.boosting.parameters import Parameters
from psboost.boosting.split import SplitRule
from psboost.data import zeros
from psboost.errors import ProtocolError
from psboost.roles.modes import BLOCK, check_grid
from psboost.roles.role import COORDINATOR, Role, server_name, worker_name
from psboost.wire.messages import DealFeatures, DealRanges, StartTree


def _overlap(n: int, n_others: int, k: int) -> dict[int, int]:
    """On a line where n things of length n_others lie end to end, and beside them n_others things of length n: which of the
    others the k-th thing lies beside, and how far. By number, {other: length}; either lie in the order of _in_turns."""
    own, others = _in_turns(n, n_others), _in_turns(n_others, n)
    begin = own.index(k) * n_others
    end = begin + n_others
    found = {others[i]: min((i + 1) * n, end) - max(i * n, begin) for i in range(begin // n, -(-end // n))}
    return dict(sorted(found.items()))


def _in_turns(n: int, step: int) -> list[int]:
    """0 .. n - 1 as 0, step, 2 step, ..., 1, 1 + step, ..."""
    return sorted(range(n), key=lambda i: i % step)


@dataclass(frozen=True)
class Grid:
    """R row shards x C feature shards, one worker each, and S servers: who is there, and who merges and routes for whom."""

    n_row_shards: int
    n_feature_shards: int
    n_servers: int

    @cached_property
    def workers(self) -> list[str]:
        shards = range(self.n_feature_shards)
        return [worker_name(r, c) for r in range(self.n_row_shards) for c in shards]

    @cached_property
    def servers(self) -> list[str]:
        return [server_name(s) for s in range(self.n_servers)]

    def workers_of_features(self, feature_shard: int) -> list[str]:
        return self.workers[feature_shard :: self.n_feature_shards]

    def servers_of_features(self, feature_shard: int) -> dict[int, int]:
        """The servers that own features of a shard, by number, and which part of it each is to own, in S-ths.

        The shards laid end to end are cut into one piece for each server: so a server has the fewest shards that it can, and
        as much of them as any other. Where C divides S, or S divides C, server s has features of shard s mod C, as the s-th
        worker does: if roles are dealt to machines in turn, the histograms of that worker cross no link.
        """
        return _overlap(self.n_feature_shards, self.n_servers, feature_shard)

    def shards_of_server(self, server: int) -> list[int]:
        """The feature shards of which a server owns features."""
        return list(_overlap(self.n_servers, self.n_feature_shards, server))

    def workers_of_server(self, server: int) -> list[str]:
        """The workers whose histograms a server merges, row shard by row shard."""
        shards = self.shards_of_server(server)
        return [worker_name(r, c) for r in range(self.n_row_shards) for c in shards]

    def router_of(self, row_shard: int) -> str:
        """The server that ANDs the row shard's bitvectors when a forest predicts."""
        return server_name(row_shard % self.n_servers)

    def shards_routed_by(self, server: int) -> list[int]:
        """The row shards whose bitvectors a server ANDs then."""
        return [r for r in range(self.n_row_shards) if r % self.n_servers == server]


def told_steps(start: StartTree) -> Steps:
    """The steps that the coordinator tells. ProtocolError for some that nobody can count in."""
    steps = Steps(start.grad, start.hess, start.leaf_grad, start.leaf_hess, start.exact)
    if not all(0.0 < step < math.inf for step in (steps.grad, steps.hess, steps.leaf_grad, steps.leaf_hess)):
        raise ProtocolError(f"steps that nobody can count in: {steps}")
    return steps


def steps_of_tree(role: Role, job: "Job", tree: int, usual: Steps):
    """The steps of a tree, for a role that is told them unless they are the usual ones; a generator."""
    if not job.tells_steps(tree):
        return usual
    [start] = yield from role.gather(StartTree, [COORDINATOR], tree=tree)
    return role.read(COORDINATOR, told_steps, start)


@dataclass(frozen=True)
class Job(Grid):
    """A training run, the same for every role; `to_dict` and `from_dict` carry it to other processes."""

    parameters: Parameters
    n_rounds: int
    seed: int
    zero_as_missing: zeros.Rule | None  # None: as the training data store zeros
    codec: str = "packed"
    eval_names: tuple[str, ...] = ()
    data_name: str = "the training data"  # for error messages
    n_threads: int = 1  # of each worker, at most, until the coordinator has decided
    mode: str = BLOCK  # one of MODES; in all others workers hold whole rows and sum histograms in a ring, without servers

    def __post_init__(self) -> None:
        check_grid(self.mode, (self.n_row_shards, self.n_feature_shards))
        if not self.merges:
            object.__setattr__(self, "n_servers", 0)

    @cached_property
    def is_ring(self) -> bool:
        return self.mode != BLOCK

    @property
    def loss(self):
        return LOSSES[self.parameters.objective]

    @property
    def objective_is_binary(self) -> bool:
        return self.loss.name == "binary:logistic"

    @property
    def rule(self) -> SplitRule:
        p = self.parameters
        return SplitRule(p.reg_lambda, p.reg_alpha, p.gamma, p.min_child_weight)

    def steps(self, bounds: Bounds, n_rows: int) -> Steps:
        """The fixed-point steps of a tree, from its gradients' bounds and the rows of all shards."""
        return steps_for(bounds, self.grad_bits, n_rows)

    def tells_steps(self, tree: int) -> bool:
        """Whether the coordinator tells all roles the tree's steps; else they are those of the loss's bounds."""
        return tree == 0 or not self.loss.bounded

    @property
    def grad_bits(self) -> int:
        """Bits of a row's grad and hess, once the coordinator has decided (with_rules)."""
        assert self.parameters.grad_bits is not None
        return self.parameters.grad_bits

    def renews_cut_points(self, tree: int) -> bool:
        """Whether this tree has cut points of its own. The first one's are those that were found before it: its hessians
        are as large as the rows' weights.
        """
        every = self.parameters.sketch_every
        return every > 0 and tree > 0 and tree % every == 0

    def is_last(self, level: int) -> bool:
        """Whether the children of this level's splits are leaves by max_depth."""
        return self.parameters.max_depth > 0 and level + 1 >= self.parameters.max_depth

    def with_rules(self, zero_as_missing: zeros.Rule, grad_bits: int) -> "Job":
        """This job by a rule for zeros and bits of gradients that are decided."""
        return replace(self, zero_as_missing=zero_as_missing, parameters=replace(self.parameters, grad_bits=grad_bits))

    def as_told(self, deal: DealFeatures | DealRanges) -> "Job":
        """This job by what the coordinator has decided; ProtocolError for what it cannot."""
        if deal.zero_rule not in zeros.RULES:
            raise ProtocolError(f"a rule for zeros that there is not: {deal.zero_rule!r:.40}")
        if not 1 <= deal.n_threads <= self.n_threads:
            raise ProtocolError(f"{deal.n_threads} threads of each worker, which has {self.n_threads}")
        return replace(self.with_rules(zeros.RULES[deal.zero_rule], deal.grad_bits), n_threads=deal.n_threads)

    # who does what

    @cached_property
    def merges(self) -> bool:
        """Whether servers merge histograms: with one row shard a worker holds its features' whole histograms."""
        return self.n_row_shards > 1 and not self.is_ring

    def servers_of_ranges(self, feature_shard: int) -> list[int]:
        """The server of each range that a shard's features are dealt to, where servers merge: a range for each that owns
        some, or as many for each as keep a worker's threads busy."""
        servers = self.servers_of_features(feature_shard)
        return [s for s in servers for _ in range(-(-self.n_threads // len(servers)))]

    @cached_property
    def ranges_of_servers(self) -> list[list[tuple[int, int]]]:
        """For each server, (feature shard, number in it) of each range that it owns."""
        return [
            [(c, i) for c in self.shards_of_server(s) for i, owner in enumerate(self.servers_of_ranges(c)) if owner == s]
            for s in range(self.n_servers)
        ]

    def shares_of_ranges(self, feature_shard: int) -> list[int]:
        """Which part of the shard each of its ranges is to be: of servers or, where nobody merges, of a worker's threads.

        In a ring a worker has n_threads ranges, one after another; and so has a thread one of each worker's number.
        """
        if self.merges:
            shares = self.servers_of_features(feature_shard)
            return [shares[s] for s in self.servers_of_ranges(feature_shard)]
        return [1] * (self.n_threads * (self.n_row_shards if self.is_ring else 1))

    @property
    def n_sketch_senders(self) -> int:
        """How many roles send a summary of a feature: with one row shard nobody does; in a ring its owner keeps its own."""
        return self.n_row_shards - (not self.merges)

    @property
    def owners(self) -> list[str]:
        """Who owns a range of features, and says its cut points."""
        return self.servers if self.merges else self.workers

    @property
    def is_alone(self) -> bool:
        """Whether there is one worker: it has all rows and features, and asks nobody between a tree's root and leaves."""
        return not self.is_ring and self.n_row_shards == self.n_feature_shards == 1

    @cached_property
    def chooser(self) -> str:
        """Which owner chooses a level's splits, out of all owners' best ones. In a ring all do, and this one tells of it."""
        return self.owners[0]

    def to_dict(self) -> dict:
        return asdict(self) | {"parameters": self.parameters.to_dict()}

    @staticmethod
    def from_dict(fields: dict) -> "Job":
        parameters = Parameters.from_dict(fields["parameters"])
        return Job(**fields | {"parameters": parameters, "eval_names": tuple(fields["eval_names"])})
