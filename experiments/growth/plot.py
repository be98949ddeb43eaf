"""Knows how growth is drawn, and how an exponent is fitted; does not know how costs are measured."""

from collections import Counter

import numpy as np

from experiments.common.style import BLACK, COLOURS, MARKERS, log_axis, panels

SIZES = {
    "rows": "rows", "features": "features", "max_bin": "bins", "max_depth": "depth", "values_per_row": "values a row",
}  # fmt: skip
COSTS = {"seconds_per_tree": ("CPU seconds", "s"), "bytes_per_tree": ("bytes", "MB")}


def draw(rows: list[dict]):
    usual = {size: Counter(row[size] for row in rows).most_common(1)[0][0] for size in SIZES}
    figure, axes = panels(len(COSTS), 3.4)
    for one, (cost, (name, unit)) in zip(axes, COSTS.items(), strict=True):
        base = 1.0
        for (size, label), colour, marker in zip(SIZES.items(), COLOURS, MARKERS, strict=False):
            points = sorted(
                (float(row[size]) / float(usual[size]), float(row[cost]))
                for row in rows
                if all(row[other] == usual[other] for other in SIZES if other != size)
            )
            x, y = np.array(points).T
            base = float(y[x == 1][0])
            exponent = np.polyfit(np.log(x), np.log(y), 1)[0]
            one.plot(x, y / base, color=colour, marker=marker, label=f"{label}: power {exponent:.2f}")
        shown = f"{base:.2g} {unit}" if unit == "s" else f"{base / 1e6:.2g} {unit}"
        log_axis(one.xaxis)
        log_axis(one.yaxis)
        one.set(ylabel=f"{name} a tree (1 = {shown})", xlabel=f"size (1 = {base_of(usual)})")
        limits = np.array(one.get_xlim())
        bottom, top = one.get_ylim()
        one.plot(limits, limits, color=BLACK, linewidth=0.8, linestyle=":", label="in proportion", zorder=1)
        one.set(xlim=limits, ylim=(bottom, top))
        one.legend(loc="upper left")
    return figure


def base_of(usual: dict[str, str]) -> str:
    words = {"rows": "rows", "features": "features", "max_bin": "bins"}
    return ", ".join(f"{int(usual[size]):,} {word}" for size, word in words.items())
