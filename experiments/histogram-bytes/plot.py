"""Knows how histogram bytes are drawn beside the paper's; does not know how they are counted."""

from experiments.common.style import BLUE, GREEN, ORANGE, PINK, SHAPE_NAMES, log_axis, panels, paper_marks

WAYS = {
    "dense": ("dense, all features (12 workers; by formula)", ORANGE),
    "allreduce": ("dense all-reduce (12 workers)", PINK),
    "csr": ("blocks, CSR as in the paper (9 workers, 3 servers)", GREEN),
    "packed": ("blocks, packed (9 workers, 3 servers)", BLUE),
}
MIB = 2**20
# The poster of SIGIR 2019, and for avazu's rows the blog's figure: MiB, (block, row).
PAPER = {"url": (0.000404, 53.7), "avazu": (38.2, 2440), "rcv1": (4.64, 48.5), "bosch": (0.239, 2.04)}
COLUMNS = {
    "whislo": "least_bytes", "q1": "first_quartile_bytes", "med": "median_bytes", "q3": "third_quartile_bytes",
    "whishi": "most_bytes",
}  # fmt: skip


def draw(rows: list[dict]):
    shapes = list(dict.fromkeys(row["data"] for row in rows))
    figure, [axes] = panels(1, 4.4)
    for i, (way, (label, colour)) in enumerate(WAYS.items()):
        of_way = [row for row in rows if row["way"] == way]
        positions = [shapes.index(row["data"]) + (i - 1.5) * 0.2 for row in of_way]
        stats = [{name: float(row[column]) / MIB for name, column in COLUMNS.items()} for row in of_way]
        drawn = axes.bxp(
            stats, positions=positions, widths=0.16, showfliers=False, patch_artist=True,
            boxprops={"facecolor": colour}, medianprops={"color": "black"},
        )  # fmt: skip
        drawn["boxes"][0].set_label(label)
    marks = [
        (shapes.index(shape) + place, of_paper)
        for shape, both in PAPER.items()
        if shape in shapes
        for of_paper, place in zip(both, (0.2, -0.2), strict=True)
    ]
    paper_marks(axes, *zip(*marks, strict=True), "the paper's (URL's block bar: see README.md)")
    log_axis(axes.yaxis)
    axes.set(xticks=range(len(shapes)), xticklabels=[SHAPE_NAMES.get(shape, shape) for shape in shapes])
    axes.set(ylabel="MiB a worker sends for a level of a tree")
    axes.grid(visible=False, axis="x")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=1)
    return figure
