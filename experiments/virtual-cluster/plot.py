"""Knows how predictions are drawn beside what was measured; does not know how either came about."""

from experiments.common.style import BLACK, BLUE, GREEN, ORANGE, SHAPE_NAMES, legend_above, panels

COLOURS = {"url": BLUE, "avazu": ORANGE, "rcv1": GREEN}
MARKERS = {"1gbit": "o", "100mbit": "s"}
RATES = {"1gbit": "1 Gbit/s", "100mbit": "100 Mbit/s"}


def draw(rows: list[dict]):
    figure, [axes] = panels(1, 4.4)
    all_seconds = [float(row[name]) for row in rows for name in ("real_seconds", "predicted_seconds")]
    ends = [min(all_seconds) / 1.3, max(all_seconds) * 1.3]
    axes.plot(ends, ends, color=BLACK, linewidth=1, label="predicted = real")
    axes.fill_between(ends, [0.75 * x for x in ends], [1.25 * x for x in ends], color="#DDDDDD", label="within 25%")
    for row in rows:
        shared = row["hosts_per_core"] != "1"
        how = f"{SHAPE_NAMES.get(row['data'], row['data'])}, {RATES.get(row['rate'], row['rate'])}"
        colour = COLOURS.get(row["data"], BLACK)
        axes.plot(
            float(row["real_seconds"]), float(row["predicted_seconds"]), linestyle="none", color=colour,
            marker=MARKERS.get(row["rate"], "D"), markerfacecolor="none" if shared else colour, markersize=7, label=how,
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set(xlabel="real seconds a tree, in network namespaces", ylabel="seconds a tree by the virtual clock")
    legend_above(figure, [axes], columns=2)
    return figure
