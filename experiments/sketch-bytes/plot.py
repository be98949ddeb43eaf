"""Knows how sketch bytes are drawn beside the paper's; does not know how they are counted."""

from experiments.common.style import BLUE, GREEN, ORANGE, PINK, RED, SHAPE_NAMES, log_axis, panels, paper_marks

WAYS = {
    ("allreduce", "maximum_bytes"): ("rows, room for the most there may be (XGBoost 0.72; formula)", RED),
    ("allreduce", "padded_bytes"): ("rows, padded to the largest summary", ORANGE),
    ("allreduce", "with_headers_bytes"): ("rows, a header for each feature (XGBoost since 3.3)", PINK),
    ("allreduce", "held_bytes"): ("rows, as held", GREEN),
    ("block", "held_bytes"): ("blocks, as held", BLUE),
}
MIB = 2**20
# The paper's third figure: MiB, (block, row padded). Bosch's padded bar does not fit the others, and is left out.
PAPER = {"url": (27.8, 8026), "avazu": (12.3, 2672), "rcv1": (15.2, 118.5), "bosch": (0.76, None)}


def draw(rows: list[dict]):
    shapes = list(dict.fromkeys(row["data"] for row in rows))
    figure, [axes] = panels(1, 4.2)
    for i, ((mode, column), (label, colour)) in enumerate(WAYS.items()):
        bars = [(shapes.index(row["data"]), float(row[column]) / MIB) for row in rows if row["mode"] == mode]
        axes.bar([x + (i - 2) * 0.17 for x, _ in bars], [y for _, y in bars], width=0.15, color=colour, label=label)
    marks = [
        (shapes.index(shape) + place, value)
        for shape, both in PAPER.items()
        if shape in shapes
        for value, place in zip(both, (0.34, -0.34), strict=True)
        if value is not None
    ]
    paper_marks(axes, *zip(*marks, strict=True), "the paper's: rows (left), blocks (right)")
    log_axis(axes.yaxis)
    axes.set(xticks=range(len(shapes)), xticklabels=[SHAPE_NAMES.get(shape, shape) for shape in shapes])
    axes.set(ylabel="MiB of sketches that a worker sends")
    axes.grid(visible=False, axis="x")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=1)
    return figure
