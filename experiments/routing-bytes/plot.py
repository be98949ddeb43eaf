"""Knows how the bytes of routing are drawn; does not know how they are counted."""

from experiments.common.style import BLACK, BLUE, GREEN, ORANGE, PINK, SHAPE_NAMES, legend_above, panels

CODINGS = {
    "strings": ("QuickScorer strings, a bit a leaf (the paper)", ORANGE, "s"),
    "run-length": ("the same, run-length coded (RapidScorer)", PINK, "D"),
    "bits": ("one bit a row and level", BLACK, "v"),
    "sparse": ("default-first sparse", GREEN, "^"),
    "psboost": ("psboost: the smallest for each message", BLUE, "o"),
}


def draw(rows: list[dict]):
    shapes = list(dict.fromkeys(row["data"] for row in rows))
    figure, axes = panels(len(shapes), 2.3, columns=2 if len(shapes) > 1 else 1, sharey=True, sharex=True)
    for one, shape in zip(axes, shapes, strict=True):
        for coding, (label, colour, marker) in CODINGS.items():
            points = [
                (int(row["max_depth"]), float(row["bytes_per_row_and_tree"]))
                for row in rows
                if (row["data"], row["coding"]) == (shape, coding)
            ]
            hollow = {"markersize": 8, "markerfacecolor": "none"} if coding == "sparse" else {}  # close to psboost's
            one.plot(*zip(*points, strict=True), color=colour, marker=marker, label=label, **hollow)
        one.set(title=SHAPE_NAMES.get(shape, shape), yscale="log")
    figure.supxlabel("depth of the trees", fontsize=10)
    figure.supylabel("bytes for a row and tree", fontsize=10)
    legend_above(figure, axes, columns=1)
    return figure
