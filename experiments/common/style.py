"""Knows how figures look: colours, sizes, files that are the same each time; does not know what they show.

A figure is as wide as a phone shows it without shrinking the letters much; panels stand one above another.
"""

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

matplotlib.use("Agg")
# Okabe and Ito (2008): told apart with any colour vision.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
COLOURS = (BLUE, ORANGE, GREEN, RED, PINK, SKY, BLACK, YELLOW)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
WIDTH = 5.4  # inches
SHAPE_NAMES = {"url": "URL", "avazu": "avazu", "rcv1": "RCV1", "bosch": "Bosch"}

plt.rcParams.update(
    {
        "font.size": 10, "axes.titlesize": 10.5, "axes.labelsize": 10, "legend.fontsize": 8.5, "legend.frameon": False,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#DDDDDD",
        "grid.linewidth": 0.6, "axes.axisbelow": True, "lines.linewidth": 1.6, "lines.markersize": 4.5,
        "figure.dpi": 160, "svg.hashsalt": "psboost", "svg.fonttype": "path",
    }
)  # fmt: skip


def panels(n: int, height: float, columns: int = 1, **more):
    """A figure of n panels, each `height` inches high, and a flat list of their axes; no axes where there is no panel."""
    n_rows = -(-n // columns)
    figure, axes = plt.subplots(
        n_rows, columns, figsize=(WIDTH, height * n_rows), layout="constrained", squeeze=False, **more
    )
    flat = list(axes.flat)
    for unused in flat[n:]:
        unused.remove()
    return figure, flat[:n]


def paper_marks(axes, x, y, label: str | None = "the paper's (SIGIR 2019)"):
    """Reference marks: what the paper's figures show."""
    axes.plot(x, y, linestyle="none", marker="_", markersize=15, markeredgewidth=2, color=BLACK, label=label, zorder=5)


def log_axis(axis) -> None:
    """A log scale for one axis, with ticks at 1, 2 and 5 in plain numbers if there are few, else at the powers of ten."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    low, high = axis.get_view_interval()
    few = high / low < 300
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axis.set_minor_formatter(NullFormatter())
    if few:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def in_bytes(size: float) -> str:
    """A number of bytes with three digits and its unit."""
    power = min(3, max(0, (len(str(int(size))) - 1) // 3))
    return f"{size / 1000**power:.3g} {('B', 'kB', 'MB', 'GB')[power]}"


def legend_above(figure: Figure, axes, columns: int = 2) -> None:
    """One legend for the figure, above its panels."""
    handles: dict = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=columns)


def save(figure: Figure, folder: Path) -> None:
    """figure.png and figure.svg, the same bytes for the same figure."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "figure.png", metadata={"Software": None})
    figure.savefig(folder / "figure.svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
