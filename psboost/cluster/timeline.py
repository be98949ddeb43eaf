"""Knows when one role did what, of the first and the last trees; does not know trees, or how long all of it took."""

import time

KEPT_TREES = 8  # at the beginning of a run, and as many at its end
KEPT_SPANS = 1000  # of each tree

Span = tuple[str, float, float]  # stage, and when it began and ended (seconds)

# Of a clock that never jumps, time.perf_counter, in seconds since 1970: processes of one machine agree on it, machines as
# their clocks do.
EPOCH = time.time() - time.perf_counter()


class Timeline:
    """The spans of one role by tree (-1: of none). Of a long run the middle is left out and counted."""

    def __init__(self):
        self.spans: dict[int, list[Span]] = {}
        self.n_left_out = 0

    def add(self, tree: int, stage: str, begin: float, end: float) -> None:
        """Adds a span. Trees come in their order."""
        if tree not in self.spans:
            self.spans[tree] = []
            if tree >= 2 * KEPT_TREES:
                self.n_left_out += len(self.spans.pop(tree - KEPT_TREES, ()))
        if len(self.spans[tree]) < KEPT_SPANS:
            self.spans[tree].append((stage, begin, end))
        else:
            self.n_left_out += 1

    def state(self) -> dict:
        """What a message carries; from_state is the way back."""
        return {"left_out": self.n_left_out, "spans": {str(tree): list(spans) for tree, spans in self.spans.items()}}

    @staticmethod
    def from_state(state: dict) -> "Timeline":
        timeline = Timeline()
        timeline.n_left_out = state["left_out"]
        timeline.spans = {int(tree): [tuple(span) for span in spans] for tree, spans in state["spans"].items()}
        return timeline
