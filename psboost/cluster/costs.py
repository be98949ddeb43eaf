"""Knows what a run cost: seconds by stage, bytes by message kind, memory; does not know trees."""

import resource
import time
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field

from psboost.wire.ledger import Ledger


class Stopwatch:
    """Seconds (wall clock) by stage of one role; an instance is what roles take as `stage`."""

    def __init__(self, seconds: dict[str, float] | None = None):
        self.seconds = {} if seconds is None else seconds

    @contextmanager
    def __call__(self, label: str):
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[label] = self.seconds.get(label, 0.0) + time.perf_counter() - begin


@dataclass
class Costs:
    """What one role spent. peak_memory is its process's, in bytes; bytes_read those it read from files."""

    seconds: dict[str, float] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    peak_memory: int = 0
    bytes_read: int = 0

    def watch(self) -> Stopwatch:
        """A stopwatch that writes here."""
        return Stopwatch(self.seconds)


def peak_memory() -> int:
    """The largest resident size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def make_report(facts: dict, costs: dict[str, Costs]) -> dict:
    """The report of a training run, from what the coordinator knows and what each role spent.

    seconds  read, sketch, bin: the slowest role's; train: all boosting rounds, wall clock at the coordinator
    stages   stages inside train: {"workers" | "servers" | "coordinator": {stage: the slowest role's seconds}}
    bytes    {message kind: {"messages", "payload", "wire"}}: payload is array bytes, wire all bytes with framing
    bytes_by_tree  the same for each tree ("-1": before the first)
    dense    what dense histograms would have cost: 16 bytes a bin of all declared features, all-reduced by a ring of
             as many row shards as there are workers
    """
    before = ("read", "sketch", "bin", "deal", "train")
    groups = {"workers": "worker", "servers": "server", "coordinator": "coordinator"}
    by_group = {
        group: slowest([c.seconds for name, c in costs.items() if name.startswith(prefix)])
        for group, prefix in groups.items()
    }
    return {
        **facts,
        "seconds": {
            "read": by_group["workers"].get("read", 0.0),
            "sketch": by_group["workers"].get("sketch", 0.0) + by_group["servers"].get("sketch", 0.0),
            "bin": by_group["workers"].get("bin", 0.0),
            "train": by_group["coordinator"].get("train", 0.0),
        },
        "stages": {
            group: {stage: s for stage, s in seconds.items() if stage not in before}
            for group, seconds in by_group.items()
        },
        **sums(costs),
    }


def sums(costs: dict[str, Costs]) -> dict:
    """What all roles sent, and what each role spent: the part of a report that any run has."""
    total = Ledger()
    for cost in costs.values():
        total.merge(cost.ledger)
    return {
        "bytes": total.total(),
        "bytes_by_tree": total.by_tree(),
        "roles": {
            name: {
                "seconds": cost.seconds,
                "bytes_sent": cost.ledger.bytes_sent,
                "bytes_read": cost.bytes_read,
                "peak_memory": cost.peak_memory,
            }
            for name, cost in costs.items()
        },
    }


def slowest(of_roles: Iterable[dict[str, float]]) -> dict[str, float]:
    """Seconds by stage of the role that spent most on it."""
    of_roles = list(of_roles)
    stages = sorted({stage for seconds in of_roles for stage in seconds})
    return {stage: max(seconds.get(stage, 0.0) for seconds in of_roles) for stage in stages}
