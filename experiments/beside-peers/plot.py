"""Knows how programs are drawn beside each other; does not know how they are measured."""

import numpy as np

from experiments.common.style import BLACK, BLUE, GREEN, ORANGE, PINK, SHAPE_NAMES, in_bytes, panels

COLOURS = {
    "psboost": BLUE, "XGBoost, row split": BLACK, "XGBoost, column split": "#777777", "LightGBM, data": ORANGE,
    "LightGBM, data, min_data_in_leaf=1": PINK, "LightGBM, voting": GREEN,
}  # fmt: skip
NAMES = {"LightGBM, data, min_data_in_leaf=1": "LightGBM, data, min 1"}


def draw(rows: list[dict]):
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    figure, axes = panels(2 * len(shapes), 1.9, columns=2)
    for i, shape in enumerate(shapes):
        of_shape = {row["who"]: row for row in rows if row["shape"] == shape}
        who = [name for name in COLOURS if name in of_shape]
        for one, (column, text, label) in zip(
            axes[2 * i :],
            (("bytes_per_tree", in_bytes, "bytes a tree"), ("seconds_per_tree", "{:.2g} s".format, "seconds a tree")),
            strict=False,
        ):
            values = [float(of_shape[name][column]) for name in who]
            one.barh(np.arange(len(who)), values, color=[COLOURS[name] for name in who], height=0.7)
            for y, value in enumerate(values):
                one.annotate(" " + text(value), (value, y), va="center", fontsize=8)
            one.set(xscale="log", yticks=np.arange(len(who)), xlabel=label)
            one.set_yticklabels([NAMES.get(name, name) for name in who] if column == "bytes_per_tree" else [], fontsize=8)
            one.set_xlim(min(values) / 3, max(values) * 30)
            one.invert_yaxis()
            one.grid(visible=False, axis="y")
        axes[2 * i].set_title(SHAPE_NAMES.get(shape, shape), loc="left")
    return figure
