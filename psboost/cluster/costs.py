"""Knows what a run cost: seconds by stage and when, bytes by message kind and by edge, memory; does not know trees."""

import resource
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from psboost.cluster.timeline import EPOCH, Timeline
from psboost.wire.ledger import Ledger

Seconds = dict[str, float]  # by stage
_MOST_OVER = 1000  # stages that are not added up yet


class Stopwatch:
    """Seconds by stage of one role, in all and by tree, and when.

    Stages that are over are put down one after the other, by any thread, and only added up when somebody asks. A tree has
    hundreds of them: hence few calls for each.
    """

    def __init__(self, clock: Callable[[], float] | None = None):
        """`clock`: seconds, on the same scale for all roles of a run; by default since 1970.

        stage(label, tree=-1, share=1.0), which roles take, times what is done inside as a stage of `tree` (-1: of none);
        each second counts as `share` of one.
        """
        self.stage: Callable[..., _Stage] = partial(_Stage, self)
        self.clock, self._epoch = (time.perf_counter, EPOCH) if clock is None else (clock, 0.0)
        self._over: deque[tuple[str, int, float, float, float]] = deque()  # label, tree, share, when it began and ended
        self._seconds: Seconds = {}
        self._by_tree: dict[int, Seconds] = {}
        self._timeline = Timeline()
        self._lock = threading.Lock()

    @property
    def seconds(self) -> Seconds:
        """By stage; for whoever asks, also while the role goes on."""
        with self._lock:
            self._add_up()
            return dict(self._seconds)

    @property
    def by_tree(self) -> dict[int, Seconds]:
        """By tree and stage."""
        with self._lock:
            self._add_up()
            return {tree: dict(seconds) for tree, seconds in self._by_tree.items()}

    @property
    def timeline(self) -> Timeline:
        """When."""
        with self._lock:
            self._add_up()
            return self._timeline

    def _add_up(self) -> None:
        while self._over:
            label, tree, share, begin, end = self._over.popleft()
            self._timeline.add(tree, label, self._epoch + begin, self._epoch + end)
            for seconds in (self._seconds, self._by_tree.setdefault(tree, {})):
                seconds[label] = seconds.get(label, 0.0) + share * (end - begin)

    def state(self) -> dict:
        """What a message carries; from_state is the way back."""
        seconds = {str(tree): seconds for tree, seconds in self.by_tree.items()}
        return {"seconds": seconds, "timeline": self.timeline.state()}

    @staticmethod
    def from_state(state: dict) -> "Stopwatch":
        stopwatch = Stopwatch()
        for tree, of_tree in state["seconds"].items():
            stopwatch._by_tree[int(tree)] = dict(of_tree)
            for label, seconds in of_tree.items():
                stopwatch._seconds[label] = stopwatch._seconds.get(label, 0.0) + seconds
        stopwatch._timeline = Timeline.from_state(state["timeline"])
        return stopwatch


class _Stage:
    """A context manager in a quarter of the time that contextlib's takes."""

    __slots__ = ("_begin", "_label", "_share", "_stopwatch", "_tree")

    def __init__(self, stopwatch: Stopwatch, label: str, tree: int = -1, share: float = 1.0):
        self._stopwatch, self._label, self._tree, self._share = stopwatch, label, tree, share

    def __enter__(self) -> None:
        self._begin = self._stopwatch.clock()

    def __exit__(self, *error) -> None:
        stopwatch = self._stopwatch
        stopwatch._over.append((self._label, self._tree, self._share, self._begin, stopwatch.clock()))
        if len(stopwatch._over) >= _MOST_OVER:
            with stopwatch._lock:
                stopwatch._add_up()

    def note(self, spans: Iterable[tuple[str, float, float]]) -> None:
        """Notes stages of the same tree that are over: their labels, and when they began and ended, by the stopwatch's
        clock."""
        tree, share = self._tree, self._share
        self._stopwatch._over.extend([(label, tree, share, begin, end) for label, begin, end in spans])


@dataclass
class Costs:
    """What one role spent. peak_memory is its process's, in bytes; bytes_read those it read from files."""

    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    ledger: Ledger = field(default_factory=Ledger)
    peak_memory: int = 0
    bytes_read: int = 0

    @property
    def seconds(self) -> Seconds:
        return self.stopwatch.seconds


def peak_memory() -> int:
    """The largest resident size of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


_BEFORE = ("read", "sketch", "bin", "deal")
WHOLE = ("train", "tree")  # these hold other stages
_GROUPS = {"workers": "worker", "servers": "server", "coordinator": "coordinator"}


def make_report(facts: dict, costs: dict[str, Costs]) -> dict:
    """The report of a training run, from what the coordinator knows and what each role spent.

    seconds  read, bin: the slowest worker's; sketch: the slowest worker's and the slowest server's together; train: all
             boosting rounds, wall clock at the coordinator
    stages   stages inside train: {"workers" | "servers" | "coordinator": {stage: the slowest role's seconds}}
    bytes    {message kind: {"messages", "payload", "wire"}}: payload is array bytes, wire all bytes with framing
    sketches bytes of the summaries of features that were sent: held, padded, with_headers (SketchBytes.three_ways)
    dense    what dense histograms would have cost: 16 bytes a bin of all declared features, all-reduced by a ring of
             as many row shards as there are workers
    edges    {sender: {receiver: {"messages", "payload", "wire"}}}
    seconds_by_tree, stages_by_tree, bytes_by_tree: the same for each tree; bytes of tree -1 belong to none
    timeline when each role did what, of the first and last trees (cluster.timeline): {"began": Unix time, "spans": {role:
             {tree: [(stage, begin, end)]}}, "left_out": spans that were not kept}; seconds after `began`
    """
    all_stages = _by_group({name: cost.seconds for name, cost in costs.items()})
    of_roles = {name: cost.stopwatch.by_tree for name, cost in costs.items()}
    by_tree = of_roles["coordinator"]
    return {
        **facts,
        "seconds": {
            "read": all_stages["workers"].get("read", 0.0),
            "sketch": all_stages["workers"].get("sketch", 0.0) + all_stages["servers"].get("sketch", 0.0),
            "bin": all_stages["workers"].get("bin", 0.0),
            "train": all_stages["coordinator"].get("train", 0.0),
        },
        "stages": _inside(all_stages),
        **sums(costs),
        "seconds_by_tree": {tree: by_tree[tree]["tree"] for tree in sorted(by_tree) if tree >= 0},
        "stages_by_tree": {
            tree: _inside(_by_group({name: of_role.get(tree, {}) for name, of_role in of_roles.items()}), WHOLE)
            for tree in sorted(by_tree)
            if tree >= 0
        },
        "timeline": _timeline({name: cost.stopwatch.timeline for name, cost in costs.items()}),
    }


def _timeline(of_roles: dict[str, Timeline]) -> dict:
    """The timelines of all roles, from when the first of them began to do anything."""
    all_spans = [span for timeline in of_roles.values() for spans in timeline.spans.values() for span in spans]
    began = min((begin for _, begin, _ in all_spans), default=0.0)
    return {
        "began": began,
        "spans": {
            name: {
                tree: [(stage, begin - began, end - began) for stage, begin, end in spans]
                for tree, spans in sorted(timeline.spans.items())
            }
            for name, timeline in of_roles.items()
        },
        "left_out": sum(timeline.n_left_out for timeline in of_roles.values()),
    }


def _by_group(of_roles: dict[str, Seconds]) -> dict[str, Seconds]:
    """Seconds by stage of the slowest worker, the slowest server, the coordinator."""
    return {
        group: slowest(seconds for name, seconds in of_roles.items() if name.startswith(prefix))
        for group, prefix in _GROUPS.items()
    }


def _inside(groups: dict[str, Seconds], left_out: tuple[str, ...] = _BEFORE + WHOLE) -> dict[str, Seconds]:
    """The stages inside train."""
    return {group: {stage: s for stage, s in of.items() if stage not in left_out} for group, of in groups.items()}


def sums(costs: dict[str, Costs]) -> dict:
    """What all roles sent, and what each role spent: the part of a report that any run has."""
    total = Ledger()
    for cost in costs.values():
        total.merge(cost.ledger)
    return {
        "bytes": total.total(),
        "bytes_by_tree": total.by_tree(),
        "edges": {name: cost.ledger.by_receiver() for name, cost in costs.items()},
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


def slowest(of_roles: Iterable[Seconds]) -> Seconds:
    """Seconds by stage of the role that spent most on it."""
    of_roles = list(of_roles)
    stages = sorted({stage for seconds in of_roles for stage in seconds})
    return {stage: max(seconds.get(stage, 0.0) for seconds in of_roles) for stage in stages}
