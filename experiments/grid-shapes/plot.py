"""Knows how costs by the shape of the grid are drawn; does not know how they are measured."""

from math import log

from experiments.common.style import BLUE, GREEN, ORANGE, SHAPE_NAMES, legend_above, log_axis, panels

COSTS = {
    "tree_seconds": ("seconds a tree", 1.0), "bytes_per_tree": ("MB a tree, all messages", 1e6),
    "memory_bytes": ("MB of the largest worker", 1e6),
}  # fmt: skip


def draw(rows: list[dict]):
    shapes = list(dict.fromkeys(row["data"] for row in rows))
    sizes = sorted({int(row["workers"]) for row in rows})
    figure, axes = panels(len(COSTS) * len(shapes), 2.4, columns=len(shapes), sharex=True)
    for i, (cost, (label, unit)) in enumerate(COSTS.items()):
        for j, shape in enumerate(shapes):
            one = axes[i * len(shapes) + j]
            for size, colour, marker in zip(sizes, (BLUE, ORANGE, GREEN), "os^", strict=False):
                points = sorted(
                    (share_of_columns(row["grid"]), float(row[cost]) / unit)
                    for row in rows
                    if (row["data"], int(row["workers"])) == (shape, size)
                )
                one.plot(*zip(*points, strict=True), color=colour, marker=marker, label=f"{size} workers")
            log_axis(one.yaxis)
            if i == 0:
                one.set_title(SHAPE_NAMES.get(shape, shape))
            if j == 0:
                one.set_ylabel(label)
            one.set_xticks([0, 0.5, 1], ["rows\nonly", "as many\nof both", "columns\nonly"])
    legend_above(figure, axes, columns=3)
    return figure


def share_of_columns(grid: str) -> float:
    """0 for rows only, 1 for columns only: the logarithm of C by that of R x C."""
    rows, columns = map(int, grid.split("x"))
    return log(columns) / log(rows * columns)
