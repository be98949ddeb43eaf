"""Knows what a host's time is spent on, phase by phase; does not know what makes it pass.

At each moment a host is

    computing      while one of its roles runs
    communicating  else, while a message to one of its roles is under way, or one of theirs is not yet out of its link
    waiting        else: for other hosts

so that the three, over all phases, add up to the time of the run. The phase is that of what is done: each of the turns that
run, else of the messages under way, else of what the roles wait for has an equal part of the time that passes.

A message's phase follows from its kind. What is computed belongs to the phase of its stage; outside of stages, to that of
the message that is handled or, from when the role is done with that, encoded and sent. "end": a role has no more to do.
A kind or a stage that is not listed here is a phase of its own.
"""

_KINDS = {
    "dealing": ("DescribeRows", "DealFeatures", "DealRanges"),
    "sketches": ("PushSketches", "ShareCutPoints"),
    "gradients": ("PushMaxima", "StartTree"),
    "histograms": ("PushHistograms", "ReduceHistograms", "ShareHistograms"),
    "splits": ("ProposeSplits", "ApplySplits", "ShareSplits", "PushSplits"),
    "routing": ("PushBitvectors",),
    "leaves": ("PushLeafSums", "CloseTree"),
    "evaluation": ("PushEvaluation",),
    "end": ("StopTraining",),
}
_STAGES = {
    "reading": ("read",),
    "dealing": ("deal",),
    "sketches": ("sketch",),
    "binning": ("bin",),
    "gradients": ("gradients",),
    "histograms": ("build", "merge"),
    "splits": ("search", "choose"),
    "routing": ("route",),
    "leaves": ("update",),
}
OF_KIND = {kind: phase for phase, kinds in _KINDS.items() for kind in kinds}
OF_STAGE = {stage: phase for phase, stages in _STAGES.items() for stage in stages}
PHASES = tuple(dict.fromkeys(["reading", *_STAGES, *_KINDS]))
START, END = "reading", "end"
AS_BEFORE = "encode"  # a stage that belongs to the phase of the one before
NO_STAGES = ("train", "tree")  # spans of many turns, with stages in them

COMPUTATION, COMMUNICATION, WAITING = WHATS = ("computation", "communication", "waiting")


_NOTHING_TO_DO = {END: 1}


def of_kind(kind: str) -> str:
    """The phase of a message."""
    return OF_KIND.get(kind, kind)


class HostTime:
    """One host's time, by tree, phase and what it does."""

    def __init__(self) -> None:
        self.tree = -1  # that is being grown
        self.seconds: dict[int, dict[str, dict[str, float]]] = {}  # tree -> phase -> what -> seconds
        self._since = 0.0
        self._going_on: dict[str, dict[str, int]] = {what: {} for what in WHATS}  # what -> phase -> how many

    def begin(self, now: float, what: str, phase: str) -> None:
        """From now on there is one more of this: a turn that runs, a message under way, a role that waits."""
        self.pass_until(now)
        phases = self._going_on[what]
        phases[phase] = phases.get(phase, 0) + 1

    def end(self, now: float, what: str, phase: str) -> None:
        """There was, until now."""
        self.pass_until(now)
        phases = self._going_on[what]
        phases[phase] -= 1
        if not phases[phase]:
            del phases[phase]

    def start_tree(self, now: float, tree: int) -> None:
        self.pass_until(now)
        self.tree = tree

    def pass_until(self, now: float) -> None:
        """Accounts for the time until now."""
        passed, self._since = now - self._since, now
        if passed <= 0:
            return
        what = next((what for what in WHATS if self._going_on[what]), WAITING)
        phases = self._going_on[what] or _NOTHING_TO_DO
        by_phase, n_all = self.seconds.setdefault(self.tree, {}), sum(phases.values())
        for phase, n in phases.items():
            if phase not in by_phase:
                by_phase[phase] = dict.fromkeys(WHATS, 0.0)
            by_phase[phase][what] += passed * n / n_all
