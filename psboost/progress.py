"""Knows how a run is shown to a person: live on a terminal, plain lines elsewhere; does not know how it runs."""

import sys
import time
from contextlib import suppress

from psboost.roles.coordinator import Round

_HISTOGRAMS = ("PushHistograms", "ReduceHistograms", "ShareHistograms")
_LIVE = "{desc} {n_fmt}/{total_fmt} |{bar:10}| {elapsed}<{remaining}{postfix}"


class Progress:
    """Shows joining, preparation and rounds on stderr; a context manager."""

    def __init__(self, n_rounds: int, quiet: bool = False, by_hand: bool = False):
        """`by_hand`: others start the roles, so they must learn where to join, even if all else is quiet."""
        self._quiet, self._n_rounds, self._by_hand = quiet, n_rounds, by_hand
        self._live = not quiet and sys.stderr.isatty()
        self._bar = None
        self._announced = False
        self._last = time.monotonic()
        self._n_done = 0

    def __enter__(self) -> "Progress":
        if self._live:
            from tqdm import tqdm

            self._bar = tqdm(total=self._n_rounds, bar_format=_LIVE, dynamic_ncols=True, file=sys.stderr)
            self._describe("starting")
        return self

    def __exit__(self, *exc_info) -> None:
        if self._bar is not None:
            self._bar.close()

    def joining(self, address: str, n_missing: int) -> None:
        """Called while roles are missing."""
        roles = f"{n_missing} {'role' if n_missing == 1 else 'roles'}"
        if self._by_hand and not self._announced:
            self._print(f"psboost: waiting at {address} for {roles} to join")
            self._announced = True
        if self._bar is not None:
            self._describe(f"waiting for {roles}" if self._by_hand else f"starting {roles}")

    def _describe(self, text: str) -> None:
        self._bar.set_description_str(text, refresh=False)

    def _print(self, line: str) -> None:
        """A line of its own, above the live one if there is one. Nobody may be there to read it, or the disk be full."""
        with suppress(OSError):
            if self._bar is not None:
                self._bar.write(line, file=sys.stderr)
            else:
                print(line, file=sys.stderr, flush=True)

    def waiting(self) -> None:
        """Called while nothing arrives."""
        if self._bar is not None:
            if self._n_done == 0:
                self._describe("reading, sketching, binning")
            self._bar.refresh()

    def round(self, round_: Round) -> None:
        """Called after each round."""
        now = time.monotonic()
        metrics = "  ".join(f"{name} {value:.5f}" for name, value in round_.metrics.items())
        self._n_done = round_.number + 1
        if self._bar is not None:
            first = "  ".join(f"{name} {value:.5f}" for name, value in first_metrics(round_.metrics).items())
            seconds = "  ".join(f"{stage} {s:.1f}s" for stage, s in longest(round_.seconds))
            sent = human_bytes(round_.bytes_sent) if round_.bytes_sent else ""
            self._bar.set_postfix_str("  ".join(filter(None, (first, sent, seconds))), refresh=False)
            self._describe("training")
            self._bar.update(1)
        elif not self._quiet:
            line = f"[{round_.number}]  {metrics}  {round_.n_leaves} leaves  {now - self._last:.2f} s"
            self._print(line.replace("]    ", "]  "))
        self._last = now


def first_metrics(metrics: dict[str, float]) -> dict[str, float]:
    """The first metric of each evaluation set, from those of a Round: a line has no room for all."""
    sets = [name.rpartition("-")[0] for name in metrics]
    return {name: value for i, (name, value) in enumerate(metrics.items()) if sets[i] not in sets[:i]}


def longest(seconds: dict[str, float], n: int = 3) -> list[tuple[str, float]]:
    """The stages that took longest."""
    return sorted(seconds.items(), key=lambda item: -item[1])[:n]


def human_bytes(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"


def human_ratio(ratio: float) -> str:
    """Three digits, without an exponent: "1.28", "12.8", "1,281"."""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def summary(report: dict) -> str:
    """The end of a run as text: metrics, seconds by stage, bytes by message kind beside dense histograms'."""
    seconds, dense = report["seconds"], report["dense"]
    lines = []
    if report["evaluation"]:
        lines.append("  ".join(f"{name} {log[-1]:.5f}" for name, log in report["evaluation"].items()))
    features = report["features"]
    lines += [
        f"{report['rows']:,} rows, {features['declared']:,} features declared, {features['stored']:,} stored, "
        f"{features['splittable']:,} splittable, {report['bins']:,} bins, {report['trees']} trees",
        "",
        "seconds    " + "  ".join(f"{stage} {s:.2f}" for stage, s in seconds.items()),
    ]
    for group, stages in report["stages"].items():
        if stages:
            lines.append(f"  {group:<12}" + "  ".join(f"{stage} {s:.2f}" for stage, s in stages.items()))
    lines += ["", f"{'bytes sent':<18}{'messages':>10}{'payload':>12}{'on the wire':>13}"]
    for kind, sums in sorted(report["bytes"].items(), key=lambda item: -item[1]["wire"]):
        lines.append(
            f"  {kind:<16}{sums['messages']:>10,}{human_bytes(sums['payload']):>12}{human_bytes(sums['wire']):>13}"
        )
    wire = sum(sums["wire"] for sums in report["bytes"].values())
    lines.append(f"  {'all':<16}{'':>10}{'':>12}{human_bytes(wire):>13}")
    if dense["bytes"]:
        sent = sum(report["bytes"].get(kind, {"wire": 0})["wire"] for kind in _HISTOGRAMS)
        ratio = f": {human_ratio(dense['bytes'] / sent)} times as many" if sent else "; here none are sent"
        lines.append(
            f"  dense histograms, all-reduced by {dense['workers']} row shards: {human_bytes(dense['bytes'])}{ratio}"
        )
    return "\n".join(lines) + "\n"
