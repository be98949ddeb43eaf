"""Knows how long hosts of a virtual cluster communicate and compute for a tree's histograms; does not know how it is drawn.

Block mode has 9 workers (3x3) and 3 servers, the others 12 workers of rows; each role has a host of its own. The first tree,
whose gradients have two values, is left out. Seconds are the mean over the hosts:

    communication  histograms on the way while the host has nothing to compute
    computation    building, encoding, decoding, adding up; searching splits is search_seconds
    waiting        for others, in that phase

bytes_per_tree: of histograms, over all links.
"""

import statistics

from experiments.common.data import Data
from experiments.common.plan import Settings
from experiments.common.training import train

HOSTS = {"block": {"grid": "3x3", "servers": 3, "servers_apart": True}}
ROWS = {"grid": "12x1"}
KINDS = ("PushHistograms", "ReduceHistograms", "ShareHistograms")


def measure(settings: Settings, data: Data) -> list[dict]:
    forest = train(settings | HOSTS.get(settings["mode"], ROWS), data)
    report = forest.report
    trees = range(1, len(forest.trees))

    def mean(phases: tuple[str, ...], what: str) -> float:
        by_tree = report["virtual"]["phases_by_tree"]
        return statistics.mean(sum(by_tree[tree].get(phase, {}).get(what, 0.0) for phase in phases) for tree in trees)

    row = {f"{what}_seconds": mean(("histograms",), what) for what in ("communication", "computation", "waiting")}
    row["search_seconds"] = mean(("splits",), "computation")
    row["tree_seconds"] = statistics.mean(report["virtual"]["seconds_by_tree"][tree] for tree in trees)
    of_kinds = [[report["bytes_by_tree"][tree].get(kind, {"wire": 0})["wire"] for kind in KINDS] for tree in trees]
    row["bytes_per_tree"] = statistics.mean(map(sum, of_kinds))
    return [row]
