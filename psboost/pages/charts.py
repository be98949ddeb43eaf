"""Knows how to draw lines and timelines as SVG; does not know what they are of.

A drawing is as wide as its place: geometry stretches with it, text does not. So x is a percentage, y is in pixels, and what
is no text stands in an inner <svg> whose width is 100 units of its own (`stretched`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from psboost.pages.html import Markup, human_seconds, tag

_DASHES = ("none", "7 3", "2 3", "9 3 2 3", "12 4", "4 4")


def drawing(height: float, title: str, description: str, *content) -> Markup:
    """An <svg> of full width; title and description are what screen readers say."""
    return tag(
        "svg", tag("title", title), tag("desc", description), *content, xmlns="http://www.w3.org/2000/svg", role="img",
        width="100%", height=f"{height:g}",
    )  # fmt: skip


def stretched(y: float, height: float, *content) -> Markup:
    """100 units wide, whatever its width in pixels; lines in it keep their width if they are of class "line"."""
    return tag(
        "svg", *content, y=f"{y:g}", width="100%", height=f"{height:g}", viewBox=f"0 0 100 {height:g}",
        preserveAspectRatio="none",
    )  # fmt: skip


def text(x: float, y: float, content: str, **attributes) -> Markup:
    """x in percent; text begins, is centred or ends there so that it never leaves the drawing."""
    attributes = {"text_anchor": "start" if x <= 3 else "end" if x >= 97 else "middle"} | attributes
    return tag("text", content, x=f"{x:.4g}%", y=f"{y:g}", **attributes)


def line(points: Iterable[tuple[float, float]], colour: str, width: float = 2, **attributes) -> Markup:
    """A line through (x, y), in a stretched drawing. A single point is a dot."""
    places = [f"{x:.4g} {y:.4g}" for x, y in points]
    path = "M" + "L".join(places) + ("h0" if len(places) == 1 else "")
    return tag(
        "path", d=path, fill="none", stroke=colour, stroke_width=f"{width:.3g}", stroke_linejoin="round",
        stroke_linecap="round", vector_effect="non-scaling-stroke", **attributes,
    )  # fmt: skip


def legend(entries: Iterable[tuple[str, Markup]]) -> Markup:
    """Names beside what stands for them, a drawing of 22 x 10 pixels."""
    items = (tag("li", tag("svg", sample, width=22, height=10, aria_hidden="true"), name) for name, sample in entries)
    return tag("ul", *items, class_="legend")


def ticks(low: float, high: float, n: int = 5) -> list[float]:
    """At most n + 1 round numbers within low .. high."""
    if high <= low:
        return [low]
    step = 10.0 ** math.floor(math.log10((high - low) / n))
    step *= next(k for k in (1, 2, 5, 10) if (high - low) / (k * step) <= n)
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


# --- lines


def line_chart(title: str, series: Mapping[str, Sequence[float]], x_name: str, from_zero: bool = False) -> Markup:
    """A figure of values by number (0, 1, ...). Lines differ in colour and in dashes; the legend has their last values."""
    height, top, bottom = 210, 14, 20
    every = [value for values in series.values() for value in values if math.isfinite(value)]
    low, high = (min(every), max(every)) if every else (0.0, 1.0)
    low = min(low, 0.0) if from_zero else low
    if high == low:
        low, high = low - abs(low) / 2 - 0.5, high + abs(high) / 2 + 0.5
    n = max(2, *(len(values) for values in series.values()))

    def place(i: int, value: float) -> tuple[float, float]:
        return 100 * i / (n - 1), (height - top - bottom) * (high - value) / (high - low)

    marks = ticks(low, high)
    rules, names = [], []
    for mark in marks:
        y = place(0, mark)[1]
        rules.append(line([(0, y), (100, y)], "var(--line)", 1))
        names.append(text(0, top + y - 3, f"{mark:.4g}", class_="soft"))
    for mark in ticks(0, n - 1, 6):
        if mark == int(mark):
            names.append(text(place(int(mark), low)[0], height - 5, f"{int(mark)}", class_="soft"))
    lines, samples = [], []
    for i, (name, values) in enumerate(series.items()):
        look = {"colour": f"var(--c{(0, 3, 2, 4, 1, 7)[i % 6]})", "stroke_dasharray": _DASHES[i % 6]}
        points = [place(k, value) for k, value in enumerate(values) if math.isfinite(value)]
        lines += [line(points, **look)] if points else []
        samples.append((f"{name}: {values[-1]:.5g} at the end", line([(1, 5), (21, 5)], **look)))
    description = "; ".join(
        f"{name}: from {values[0]:.5g} to {values[-1]:.5g} in {len(values)} steps" for name, values in series.items()
    )
    made = drawing(height, title, description, stretched(top, height - top - bottom, *rules, *lines), *names)
    return tag("figure", tag("figcaption", f"{title}, by {x_name}"), made, legend(samples))


# --- timelines

Span = tuple[str, float, float]  # what, and when it began and ended (seconds)
Look = tuple[str, float]  # colour and opacity

N_COLUMNS = 480
TRACK = 16  # pixels


def timeline(
    title: str, rows: Mapping[str, Sequence[Span]], looks: Mapping[str, Look], begin: float, end: float,
    unknown: tuple[float, float] | None = None,
) -> Markup:  # fmt: skip
    """A track for each row, cut into N_COLUMNS times: of each, how much went to what. `unknown`: a time not known of."""
    end = end if end > begin else begin + 1e-6
    row_height, bottom = TRACK + 18, 22
    height = row_height * len(rows) + bottom

    def place(when: float) -> float:
        return 100 * (when - begin) / (end - begin)

    geometry, names = [], []
    for mark in ticks(begin, end, 4):
        x = place(mark)
        geometry.append(line([(x, 0), (x, height - bottom + 4)], "var(--line)", 1))
        names.append(text(x, height - 6, human_seconds(mark) if mark else "0", class_="soft"))
    for i, (name, spans) in enumerate(rows.items()):
        y = i * row_height + 14
        names.append(text(0, y - 3, name))
        geometry.append(tag("rect", x=0, y=y, width=100, height=TRACK, fill="var(--box)"))
        geometry += [
            tag("path", d=path, fill=looks[what][0], fill_opacity=looks[what][1])
            for what, path in _tracks(spans, begin, end, y).items()
        ]
    if unknown is not None and unknown[1] > unknown[0]:
        x, width = place(unknown[0]), place(unknown[1]) - place(unknown[0])
        place_of = {"x": f"{x:.4g}", "y": 0, "width": f"{width:.4g}", "height": height - bottom}
        geometry.append(tag("rect", **place_of, fill="var(--line)", fill_opacity=0.6))
        names.append(text(x + width / 2, 11, "not kept", class_="soft"))
    description = f"{len(rows)} tracks over {human_seconds(end - begin)}; the table of seconds by role has the sums"
    shown = [what for what in looks if any(what == stage for spans in rows.values() for stage, _, _ in spans)]
    samples = (
        (what, tag("rect", width=22, height=10, fill=looks[what][0], fill_opacity=looks[what][1])) for what in shown
    )
    made = drawing(height, title, description, stretched(0, height, *geometry), *names)
    return tag("figure", tag("figcaption", title), legend(samples), made)


def _tracks(spans: Sequence[Span], begin: float, end: float, y: float) -> dict[str, str]:
    """For each kind of span the outlines of its bars; a column's bars stand on each other, full where all of it is taken."""
    names = list(dict.fromkeys(what for what, _, _ in spans))
    shares = np.zeros((len(names), N_COLUMNS))
    for what, first, last in spans:
        left, right = (min(max((when - begin) / (end - begin), 0.0), 1.0) * N_COLUMNS for when in (first, last))
        if right <= left:
            continue
        columns = np.arange(int(left), min(int(right), N_COLUMNS - 1) + 1)
        shares[names.index(what), columns] += np.minimum(columns + 1, right) - np.maximum(columns, left)
    shares /= np.maximum(shares.sum(axis=0), 1.0)  # threads side by side
    tops = np.rint(2 * TRACK * np.cumsum(shares, axis=0)).astype(int)  # half pixels from below
    paths, below = {}, np.zeros(N_COLUMNS, int)
    for what, top in zip(names, tops, strict=True):
        changes = np.flatnonzero((np.diff(top) != 0) | (np.diff(below) != 0)) + 1
        edges = [0, *changes.tolist(), N_COLUMNS]
        bars = [
            _bar(100 * left / N_COLUMNS, y + TRACK - top[left] / 2, 100 * (right - left) / N_COLUMNS, thick / 2)
            for left, right in zip(edges, edges[1:], strict=False)
            if (thick := top[left] - below[left]) > 0
        ]
        if bars:
            paths[what] = "".join(bars)
        below = top
    return paths


def _bar(x: float, y: float, width: float, height: float) -> str:
    return f"M{_short(x)} {_short(y)}h{_short(width)}v{_short(height)}h{_short(-width)}z"


def _short(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
