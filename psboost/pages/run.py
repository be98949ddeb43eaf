"""Knows what the page of one training run shows, from its report; does not know how to draw or how the run was done."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from psboost.cluster.costs import WHOLE
from psboost.errors import ParameterError
from psboost.files import replaced
from psboost.pages.charts import Look, Span, line_chart, timeline
from psboost.pages.grid import grid_picture
from psboost.pages.html import Markup, facts, folded, human_seconds, join, page, table, tag
from psboost.progress import human_bytes
from psboost.roles.role import COORDINATOR

MOST_TRACKS = 20  # roles in a timeline
_LOOKS: dict[str, Look] = {
    "read": ("var(--c7)", 0.35), "sketch": ("var(--c1)", 0.45), "bin": ("var(--c0)", 0.4), "deal": ("var(--c7)", 0.6),
    "gradients": ("var(--c6)", 1), "build": ("var(--c0)", 1), "encode": ("var(--c2)", 1), "merge": ("var(--c3)", 1),
    "search": ("var(--c1)", 1), "choose": ("var(--c7)", 0.8), "route": ("var(--c4)", 1), "update": ("var(--c5)", 1),
}  # fmt: skip


def write_report_html(of: Any, path: str | os.PathLike[str]) -> None:
    """Writes one HTML file that shows a training run; it opens without a network.

    of    a Forest that psboost.train returned, or its `report`. Where a report was read from JSON (--report), the page
          has no timeline, which is not in that file.

    ParameterError for what is no report of a training; OSError if the file cannot be written.
    """
    content = run_page(getattr(of, "report", of))
    with replaced(path) as file:
        file.write(content)


def run_page(report: Mapping[str, Any]) -> str:
    """The page as text; `report` as cluster.costs.make_report gives it."""
    needed = ("job", "edges", "roles", "bytes", "stages", "evaluation")
    if not isinstance(report, Mapping) or (missing := [name for name in needed if name not in report]):
        what = "that is none" if not isinstance(report, Mapping) or not report else f"this one has no {', '.join(missing)}"
        raise ParameterError(f"give the report of a training (forest.report): {what}")
    sections = (_head, _settings, _who, _when, _rounds, _bytes, _seconds, *([_hosts] if "virtual" in report else []))
    return page(f"psboost: {report['job']['data_name']}", *(section(report) for section in sections))


def _head(report: Mapping) -> Markup:
    job = report["job"]
    wire = sum(sums["wire"] for sums in report["bytes"].values())
    n_servers = sum(name.startswith("server") for name in report["roles"])
    n_workers = sum(name.startswith("worker") for name in report["roles"])
    began = report.get("timeline", {}).get("began")
    is_real = began and report["transport"] != "virtual"  # a virtual clock has no date
    when = f" on {datetime.fromtimestamp(began, UTC):%Y-%m-%d %H:%M} UTC" if is_real else ""
    last = ", ".join(f"{name} {values[-1]:.5f}" for name, values in report["evaluation"].items() if values)
    servers = f" and {_n(n_servers, 'server')}" if n_servers else ""
    done = (
        f"{_n(report['trees'], 'tree')} on {report['rows']:,} rows x {report['features']['declared']:,} features, by "
        f"{_n(n_workers, 'worker')} ({job['n_row_shards']} x {job['n_feature_shards']}){servers}{when}: "
        f"{human_seconds(report['seconds']['total'])}, {human_bytes(wire)} on the wire"
    )
    return join([tag("h1", f"Training on {Path(job['data_name']).name}"), tag("p", done + (f"; {last}." if last else "."))])


def _n(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _settings(report: Mapping) -> Markup:
    job, features = report["job"], report["features"]
    data = [
        ("data", job["data_name"]),
        ("rows", report["rows"]),
        ("stored values", report["stored_values"]),
        ("features", ", ".join(f"{n:,} {which}" for which, n in features.items())),
        ("bins", report["bins"]),
        ("zeros are missing", job["zero_as_missing"]),
    ]
    names = ("mode", "codec", "n_rounds", "seed", "n_threads")
    run = [(name.removeprefix("n_"), job[name]) for name in names if name in job]
    run += [("transport", report.get("transport", "")), *sorted(job["parameters"].items())]
    return join(
        [
            tag("h2", "What was trained"),
            facts(data),
            folded("Settings", facts((name, "by itself" if value is None else value) for name, value in run)),
        ]
    )


def _who(report: Mapping) -> Markup:
    edges, roles = report["edges"], report["roles"]
    rows = [
        (sender, receiver, sums["messages"], sums["payload"], sums["wire"])
        for sender in roles
        for receiver, sums in edges[sender].items()
    ]
    columns = ("from", "to", "messages", "payload bytes", "bytes on the wire")
    received = {name: sum(of.get(name, {}).get("wire", 0) for of in edges.values()) for name in roles}
    by_role = [
        (name, role["bytes_sent"], received[name], round(role["peak_memory"] / 1e6)) for name, role in roles.items()
    ]
    role_columns = ("role", "bytes sent", "bytes received", "peak memory of its process, MB")
    return join(
        [
            tag("h2", "Who sent how much to whom"),
            grid_picture(roles, edges),
            folded(f"Bytes by edge ({len(rows)} edges)", table(columns, rows, "Bytes by sender and receiver")),
            folded("Bytes by role", table(role_columns, by_role)),
        ]
    )


def _when(report: Mapping) -> Markup:
    heading = tag("h2", "When who did what")
    if "timeline" not in report:
        return join([heading, tag("p", "This report holds no timeline: reports in JSON have none.")])
    roles = list(report["roles"])
    kept = _kept_tracks(roles)
    spans = {role: {int(tree): of for tree, of in report["timeline"]["spans"][role].items()} for role in kept}
    rows: dict[str, list[Span]] = {
        role: [span for one in of.values() for span in one if span[0] not in WHOLE] for role, of in spans.items()
    }
    stages = dict.fromkeys(stage for of in rows.values() for stage, _, _ in of)
    looks = {stage: look for stage, look in _LOOKS.items() if stage in stages}
    for i, stage in enumerate(stage for stage in stages if stage not in _LOOKS):
        looks[stage] = (f"var(--c{i % 8})", 0.7)
    of_trees = spans[COORDINATOR].items()
    trees = {tree: (begin, end) for tree, of in of_trees for stage, begin, end in of if stage == "tree"}
    ends = [end for of in rows.values() for _, _, end in of] + [end for _, end in trees.values()]
    numbers = sorted(trees)
    hole = next(((trees[a][1], trees[b][0]) for a, b in zip(numbers, numbers[1:], strict=False) if b > a + 1), None)
    parts = [heading, tag("p", _left_out(report, numbers, len(roles) - len(kept)))]
    whole = "The whole run: each track is as full as its role was busy; empty is waiting"
    parts.append(timeline(whole, rows, looks, 0.0, max(ends, default=0.0), hole))
    if numbers:
        begin, end = trees[numbers[-1]]
        inside = {role: [(s, a - begin, b - begin) for s, a, b in of if b > begin and a < end] for role, of in rows.items()}
        parts.append(timeline(f"Tree {numbers[-1]}, the last one", inside, looks, 0.0, end - begin))
    return join(parts)


def _kept_tracks(roles: list[str]) -> list[str]:
    """The coordinator, and of servers and workers as many as there is room for."""
    servers, workers = ([name for name in roles if name.startswith(kind)] for kind in ("server", "worker"))
    room = MOST_TRACKS - 1
    n_servers = min(len(servers), max(room // 3, room - len(workers)))
    return [COORDINATOR, *servers[:n_servers], *workers[: room - n_servers]]


def _left_out(report: Mapping, numbers: list[int], n_roles: int) -> str:
    said = []
    if report["trees"] > len(numbers):
        between = [(a, b) for a, b in zip(numbers, numbers[1:], strict=False) if b > a + 1]
        said += [f"Trees {a + 1} to {b - 1} were not kept (the seconds of all trees are below)." for a, b in between]
    elif report["timeline"]["left_out"]:
        said.append(f"Of large trees {report['timeline']['left_out']:,} spans were not kept.")
    if n_roles:
        said.append(f"{n_roles:,} more roles are not drawn; the tables have them.")
    if report["transport"] == "virtual":
        said.append("Times are those of the virtual clock.")
    elif report["transport"] == "tcp":
        said.append("Processes of different machines agree as well as their machines' clocks do.")
    return " ".join(said)


def _rounds(report: Mapping) -> Markup:
    parts = [tag("h2", "Round by round")]
    by_metric: dict[str, dict[str, list[float]]] = {}
    for name, values in report["evaluation"].items():
        data, _, metric = name.rpartition("-")
        by_metric.setdefault(metric, {})[data] = values
    parts += [line_chart(metric, series, "round") for metric, series in by_metric.items()]
    if not by_metric:
        parts.append(tag("p", "No evaluation data was given."))
    by_tree = {int(tree): kinds for tree, kinds in report["bytes_by_tree"].items()}
    sent = [sum(sums["wire"] for sums in by_tree.get(tree, {}).values()) / 1e6 for tree in range(report["trees"])]
    seconds = list(report["seconds_by_tree"].values())
    parts.append(line_chart("Seconds", {"coordinator's clock": seconds}, "tree", from_zero=True))
    parts.append(line_chart("MB on the wire", {"all roles": sent}, "tree", from_zero=True))
    names = list(report["evaluation"])
    rows = [
        (tree, *(f"{report['evaluation'][name][tree]:.6g}" for name in names), f"{seconds[tree]:.4g}", f"{sent[tree]:.6g}")
        for tree in range(report["trees"])
    ]
    columns = ("round", *names, "seconds", "MB on the wire")
    return join([*parts, folded("The same in numbers", table(columns, rows, "By round"))])


def _bytes(report: Mapping) -> Markup:
    kinds = sorted(report["bytes"].items(), key=lambda item: -item[1]["wire"])
    rows = [(kind, sums["messages"], sums["payload"], sums["wire"]) for kind, sums in kinds]
    rows.append(("all", *(sum(row[i] for row in rows) for i in (1, 2, 3))))
    dense = report["dense"]
    beside = (
        f"Dense histograms, all-reduced by {dense['workers']} row shards, would have been {human_bytes(dense['bytes'])}."
        if dense["bytes"]
        else "One worker: dense histograms would not be sent either."
    )
    columns = ("message", "messages", "payload bytes", "bytes on the wire")
    listed = table(columns, rows, "Payload is arrays; on the wire is all, with framing")
    return join([tag("h2", "Bytes by message"), listed, tag("p", beside)])


def _seconds(report: Mapping) -> Markup:
    whole = [(stage, float(seconds)) for stage, seconds in report["seconds"].items()]
    stages = [(group, stage, float(seconds)) for group, of in report["stages"].items() for stage, seconds in of.items()]
    by_role = [(name, stage, float(s)) for name, role in report["roles"].items() for stage, s in role["seconds"].items()]
    return join(
        [
            tag("h2", "Seconds by stage"),
            table(("stage", "seconds"), whole, "The run: the slowest role's, train and total by the clock"),
            table(("roles", "stage", "seconds"), stages, "Within train: the slowest role's"),
            folded("Seconds by role", table(("role", "stage", "seconds"), by_role)),
        ]
    )


_SHARES = ("computation", "communication", "waiting")


def _hosts(report: Mapping) -> Markup:
    """What the hosts of a virtual cluster did."""
    virtual, cluster = report["virtual"], report["virtual"]["cluster"]
    phases = [(phase, *(float(of[share]) for share in _SHARES)) for phase, of in virtual["phases"].items()]
    hosts = [
        (i, ", ".join(host["roles"]), *(float(sum(of[share] for of in host["phases"].values())) for share in _SHARES))
        for i, host in enumerate(virtual["hosts"])
    ]
    shares = [f"{share}, s" for share in _SHARES]
    speed = "no limit of bandwidth" if cluster["gbit"] is None else f"{cluster['gbit']:g} Gbit/s"
    of = f"{_n(cluster['hosts'], 'virtual host')}, {speed}, latency {cluster['latency_ms']:g} ms"
    return join(
        [
            tag("h2", "Seconds of the virtual cluster"),
            tag("p", f"{of}."),
            table(("phase", *shares), phases, "By phase, the mean over all hosts"),
            folded("Seconds by host", table(("host", "roles", *shares), hosts)),
        ]
    )
