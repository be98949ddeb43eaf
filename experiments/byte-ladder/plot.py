"""Knows how the ladder is drawn; does not know how its steps are measured."""

import numpy as np

from experiments.common.style import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PINK,
    RED,
    SHAPE_NAMES,
    SKY,
    YELLOW,
    in_bytes,
    legend_above,
    panels,
)

COLOURS = {
    "dense": ORANGE, "csr": PINK, "packed": SKY, "without dead features": BLUE,
    "without twins": YELLOW, "8 bits": GREEN, "4 bits": RED,
}  # fmt: skip


def draw(rows: list[dict]):
    shapes = list(dict.fromkeys(row["data"] for row in rows))
    figure, axes = panels(len(shapes), 1.75, sharex=True)
    for one, shape in zip(axes, shapes, strict=True):
        of_shape = {row["step"]: row for row in rows if row["data"] == shape}
        steps = [step for step in COLOURS if step in of_shape]
        for y, step in enumerate(steps):
            row = of_shape[step]
            size = float(row["histograms_bytes"]) + float(row["flags_bytes"])
            one.barh(y, size, color=COLOURS[step], height=0.72)
            floor = float(row["entropy_bytes"] or 0)
            text = f"  {in_bytes(size)}, AUC {float(row['auc']):.4f}"
            one.annotate(text, (max(size, floor), y), va="center", fontsize=8)
            if floor:
                one.vlines(floor, y - 0.36, y + 0.36, color=BLACK, linewidth=1.8, label="order-0 entropy of what is sent")
        one.set(title=SHAPE_NAMES.get(shape, shape), xscale="log", yticks=np.arange(len(steps)), yticklabels=steps)
        one.invert_yaxis()
        one.grid(visible=False, axis="y")
    low, high = axes[0].get_xlim()
    axes[0].set_xlim(low, high * 1000)  # room for the figures beside the bars
    axes[-1].set_xlabel("bytes of histograms a tree, all workers together")
    legend_above(figure, axes)
    return figure
