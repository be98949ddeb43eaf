"""Knows how seconds of communication and computation are drawn; does not know how they are measured."""

import numpy as np

from experiments.common.style import BLACK, BLUE, ORANGE, SHAPE_NAMES, legend_above, panels

MODES = ("block", "allreduce", "reduce-scatter", "sparse-allreduce")
PARTS = {"computation_seconds": ("computation", BLUE), "communication_seconds": ("communication", ORANGE),
         "waiting_seconds": ("waiting for others", "#CCCCCC")}  # fmt: skip
# Seconds of the paper's second figure: (communication, computation) of blocks, and of rows.
PAPER = {
    "url": ((1.33, 5.29), (6.71, 3.64)), "avazu": ((7.84, 37.4), (15.5, 43.3)), "rcv1": ((0.54, 15.7), (0.70, 3.15)),
    "bosch": ((0.74, 62.9), (0.40, 18.0)),
}  # fmt: skip


def draw(rows: list[dict]):
    shapes = list(dict.fromkeys(row["data"] for row in rows))
    rates = sorted({float(row["gbit"]) for row in rows})
    figure, axes = panels(len(shapes), 1.9)
    for one, shape in zip(axes, shapes, strict=True):
        names, y = [], 0
        block = {float(row["gbit"]): total(row) for row in rows if (row["data"], row["mode"]) == (shape, "block")}
        for mode in MODES:
            for rate in rates:
                for row in rows:
                    if (row["data"], row["mode"], float(row["gbit"])) == (shape, mode, rate):
                        left = 0.0
                        for column, (label, colour) in PARTS.items():
                            one.barh(y, float(row[column]), left=left, color=colour, label=label, height=0.75)
                            left += float(row[column])
                        tree = float(row["tree_seconds"])
                        one.plot(tree, y, marker="|", markersize=9, color=BLACK, linestyle="none", label="a whole tree")
                        times = "" if mode == "block" else f", {float(f'{total(row) / block[rate]:.2g}'):g} x"
                        one.annotate(f"  {left:.3g} s{times}", (max(left, tree), y), va="center", fontsize=7.5)
                        names.append(f"{mode}, {rate:g} Gbit/s")
                        y += 1
        title = SHAPE_NAMES.get(shape, shape)
        if shape in PAPER:
            (block_comm, block_comp), (row_comm, row_comp) = PAPER[shape]
            ratio = (row_comm + row_comp) / (block_comm + block_comp)
            title += f" (the paper: block {block_comm + block_comp:.3g} s, rows {ratio:.2g} x)"
        one.set(title=title, yticks=np.arange(y), yticklabels=names)
        one.tick_params(axis="y", labelsize=7.5)
        one.invert_yaxis()
        one.grid(visible=False, axis="y")
        one.set_xlim(0, one.get_xlim()[1] * 1.3)  # room for the figures beside the bars
    axes[-1].set_xlabel("seconds a tree for histograms, mean of the hosts")
    legend_above(figure, axes, columns=2)
    return figure


def total(row: dict) -> float:
    return sum(float(row[column]) for column in PARTS)
