"""Knows what a grid of some shape costs on a virtual cluster; does not know which shapes are compared.

tree_seconds      virtual seconds of a tree, mean without the first; each worker has a host, servers are beside workers
histogram_bytes   sent for a tree, all workers together (with one row shard there are none)
routing_bytes     of bitvectors, likewise (with one feature shard there are none)
bytes_per_tree    of all kinds of messages
memory_bytes      of the arrays that the largest worker keeps: block, gradients, margins, nodes, histograms of open nodes
"""

import statistics

import numpy as np

from experiments.common.data import Data
from experiments.common.plan import Settings
from experiments.common.training import train
from psboost.lab import virtual

HISTOGRAMS = ("PushHistograms",)
ROUTING = ("PushBitvectors",)


def measure(settings: Settings, data: Data) -> list[dict]:
    workers, make_role = [], virtual.make_role

    def keep(name, *arguments, **more):
        role = make_role(name, *arguments, **more)
        if name.startswith("worker"):
            workers.append(role)
        return role

    virtual.make_role = keep
    try:
        report = train(settings, data, own=("workers",)).report
    finally:
        virtual.make_role = make_role
    trees = [tree for tree in report["bytes_by_tree"] if tree > 0]

    def mean_bytes(kinds: tuple[str, ...] | None) -> float:
        return statistics.mean(
            sum(sizes["wire"] for kind, sizes in report["bytes_by_tree"][tree].items() if kinds is None or kind in kinds)
            for tree in trees
        )

    return [
        {
            "tree_seconds": statistics.mean(report["virtual"]["seconds_by_tree"][tree] for tree in trees),
            "histogram_bytes": mean_bytes(HISTOGRAMS),
            "routing_bytes": mean_bytes(ROUTING),
            "bytes_per_tree": mean_bytes(None),
            "memory_bytes": max(map(held_bytes, workers)),
        }
    ]


def held_bytes(role) -> int:
    """Bytes of all arrays that can be reached from a role, each memory once; the data it read from are not its own."""
    seen: dict[int, int] = {}

    def visit(value) -> None:
        if id(value) in visited:
            return
        visited.add(id(value))
        if isinstance(value, np.ndarray):
            owner = value
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            seen[id(owner)] = owner.nbytes
        elif isinstance(value, dict):
            for held in value.values():
                visit(held)
        elif isinstance(value, list | tuple | set):
            for held in value:
                visit(held)
        elif type(value).__module__.startswith("psboost."):
            for name, held in attributes_of(value):
                if name not in ("_source", "_eval_sources"):
                    visit(held)

    visited: set[int] = set()
    visit(role)
    return sum(seen.values())


def attributes_of(value) -> list[tuple[str, object]]:
    slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ()) if hasattr(value, name)]
    return [*getattr(value, "__dict__", {}).items(), *((name, getattr(value, name)) for name in slots)]
