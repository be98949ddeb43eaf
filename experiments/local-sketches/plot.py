"""Knows how quality by bytes and bins is drawn; does not know how it is measured."""

from experiments.common.style import BLUE, ORANGE, SHAPE_NAMES, legend_above, log_axis, panels

WAYS = {"0": ("cut points once", BLUE, "o"), "1": ("new ones every tree, hessian-weighted", ORANGE, "s")}


def draw(rows: list[dict]):
    shapes = list(dict.fromkeys(row["data"] for row in rows))
    figure, axes = panels(2 * len(shapes), 2.5, columns=2)
    for i, shape in enumerate(shapes):
        for every, (label, colour, marker) in WAYS.items():
            of_way = [row for row in rows if (row["data"], row["sketch_every"]) == (shape, every)]
            of_way.sort(key=lambda row: int(row["max_bin"]))
            aucs = [float(row["auc"]) for row in of_way]
            by_bins, by_bytes = axes[2 * i : 2 * i + 2]
            by_bins.plot([int(row["max_bin"]) for row in of_way], aucs, color=colour, marker=marker, label=label)
            sizes = [float(row["bytes"]) / 1e6 for row in of_way]
            by_bytes.plot(sizes, aucs, color=colour, marker=marker, label=label)
            for row, size, auc in zip(of_way, sizes, aucs, strict=True):
                by_bytes.annotate(row["max_bin"], (size, auc), xytext=(3, 3), textcoords="offset points", fontsize=7)
        by_bins.set_xscale("log", base=2)
        bins = sorted({int(row["max_bin"]) for row in rows})
        by_bins.set_xticks(bins, [str(n) for n in bins])
        log_axis(by_bytes.xaxis)
        by_bins.set(xlabel="bins", ylabel="AUC")
        by_bytes.set(xlabel="MB sent (points: bins)")
        by_bins.set_title(SHAPE_NAMES.get(shape, shape), loc="left")
    legend_above(figure, axes)
    return figure
