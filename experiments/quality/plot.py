"""Knows how quality by rounds, bytes and seconds is drawn; does not know how it is measured."""

from experiments.common.style import BLACK, BLUE, GREEN, ORANGE, PINK, RED, SHAPE_NAMES, legend_above, log_axis, panels

WHO = {
    "block": ("blocks, 4 hosts", BLUE, "o", "-"), "allreduce": ("dense all-reduce, 4 hosts", ORANGE, "s", "-"),
    "reduce-scatter": ("dense reduce-scatter, 4 hosts", PINK, "D", "-"),
    "one machine": ("psboost, one thread", GREEN, "^", "--"), "XGBoost": ("XGBoost, one thread", BLACK, "v", "--"),
    "LightGBM": ("LightGBM, one thread", RED, "P", "--"),
}  # fmt: skip
MEASURES = {"auc": "AUC", "logloss": "logloss"}
COSTS = {"round": ("rounds", 1.0), "bytes": ("MB sent", 1e6), "seconds": ("seconds", 1.0)}


def draw(rows: list[dict]):
    shapes = list(dict.fromkeys(row["data"] for row in rows))
    figure, axes = panels(len(COSTS) * 2 * len(shapes), 1.75, columns=2, sharey=False)
    axis = iter(axes)
    for shape in shapes:
        for cost, (label, unit) in COSTS.items():
            for measure, name in MEASURES.items():
                one = next(axis)
                for who, (of_whom, colour, marker, line) in WHO.items():
                    points = [
                        (float(row[cost]) / unit, float(row[measure]))
                        for row in rows
                        if (row["data"], row["who"]) == (shape, who) and float(row[cost]) > 0
                    ]
                    if points:
                        look = {"color": colour, "marker": marker, "linestyle": line, "markevery": 4, "label": of_whom}
                        one.plot(*zip(*points, strict=True), **look)
                one.set(xlabel=label, ylabel=name)
                if cost != "round":
                    log_axis(one.xaxis)
                one.set_title(SHAPE_NAMES.get(shape, shape), fontsize=9, loc="left")
    legend_above(figure, axes, columns=2)
    return figure
