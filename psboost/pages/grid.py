"""Knows how the roles of a run stand to each other as a picture: blocks, servers, bytes along edges; nothing of time."""

from collections.abc import Iterable, Mapping

from psboost.pages.charts import drawing, line, stretched, text
from psboost.pages.html import Markup, tag
from psboost.progress import human_bytes
from psboost.roles.role import COORDINATOR

Edges = Mapping[str, Mapping[str, Mapping[str, int]]]  # {sender: {receiver: {"messages", "payload", "wire"}}}

MOST_LINES = 400
_TOP, _TOP_HEIGHT, _BETWEEN, _GAP = 34, 26, 120, 10  # pixels
_DIP = 6  # pixels below a row, where its workers' bitvectors go
_RING_GAP, _RING_WIDTH = 26, 82  # pixels between workers who pass on to each other; percent left to their blocks


def grid_picture(roles: Iterable[str], edges: Edges) -> Markup:
    """Coordinator and servers above the R x C blocks of the workers, a line for each pair that sent each other anything."""
    roles = list(roles)
    workers = {name: _shards(name) for name in roles if name.startswith("worker")}
    heads = [COORDINATOR, *(name for name in roles if name.startswith("server"))]
    n_rows, n_columns = (1 + max(shards[i] for shards in workers.values()) for i in (0, 1))
    pairs = [(a, b) for a, b in _pairs(edges) if a in roles and b in roles]  # not with those who were refused
    is_ring = n_columns == 1 and any(a in workers and b in workers for a, b in pairs)
    n_lines = 3 if n_rows <= 16 and n_columns <= 4 else 1 if n_columns <= 8 else 0  # of text in a block
    block_height, gap = (18 if n_lines < 2 else 54), (_RING_GAP if is_ring else _GAP)
    first = _TOP + _TOP_HEIGHT + _BETWEEN
    height = first + n_rows * block_height + (n_rows - 1) * gap + _DIP + 4

    boxes = {}  # left, top, width, height
    for i, name in enumerate(heads):
        width = 100 / max(len(heads), 2)
        boxes[name] = (i * width + 0.6, _TOP, width - 1.2, _TOP_HEIGHT)
    for name, (r, c) in workers.items():
        width = (_RING_WIDTH if is_ring else 100) / n_columns
        boxes[name] = (c * width + 0.6, first + r * (block_height + gap), width - 1.2, block_height)

    most = max((_sum(edges, *pair) for pair in pairs), default=1)
    drawn = sorted(pairs, key=lambda pair: _sum(edges, *pair))[-MOST_LINES:]
    lines = []
    for a, b in drawn:
        points, colour = _route(a, b, boxes, workers, n_rows)
        told = f"{_told(edges, a, b)}; {_told(edges, b, a)}"
        thickest, opacity = (8, 0.55) if len(drawn) < 60 else (3, 0.3)
        width = 1 + (thickest - 1) * _sum(edges, a, b) / most
        lines.append(tag("g", tag("title", told), line(points, colour, width, stroke_opacity=opacity)))
    shapes, words = [], []
    for name, (left, top, width, tall) in boxes.items():
        place = {"x": f"{left:.4g}", "y": f"{top:g}", "width": f"{width:.4g}", "height": f"{tall:g}"}
        shapes.append(tag("rect", **place, fill="var(--back)"))
        shapes.append(
            tag("rect", tag("title", name), **place, fill=_colour(name), fill_opacity=0.15, stroke=_colour(name),
                vector_effect="non-scaling-stroke")
        )  # fmt: skip
        words += _inside(name, boxes[name], n_lines if name in workers else 1, len(heads), edges)
    words += _between(edges, heads, workers, boxes)
    if is_ring:
        words += _around(edges, list(workers), boxes)
    description = (
        f"{n_rows} x {n_columns} workers, {len(heads) - 1} servers and the coordinator, joined by {len(pairs)} edges; "
        "the table of edges has their bytes"
    )
    made = drawing(height, "Who sent how much to whom", description, stretched(0, height, *lines, *shapes), *words)
    left_out = f" Only the {MOST_LINES} heaviest of {len(pairs)} edges are drawn." if len(pairs) > MOST_LINES else ""
    caption = f"Bytes on the wire, along each line up (↑) and down (↓). A line is as thick as both ways are heavy.{left_out}"
    return tag("figure", made, tag("figcaption", caption))


def _shards(worker: str) -> tuple[int, int]:
    r, c = worker.removeprefix("worker ").split(",")
    return int(r), int(c)


def _pairs(edges: Edges) -> list[tuple[str, str]]:
    """Who sent anything to whom, each two once."""
    both = {tuple(sorted((sender, receiver))) for sender, of in edges.items() for receiver in of if receiver != sender}
    return sorted(both)


def _wire(edges: Edges, sender: str, receiver: str) -> int:
    return edges.get(sender, {}).get(receiver, {}).get("wire", 0)


def _sum(edges: Edges, a: str, b: str) -> int:
    return _wire(edges, a, b) + _wire(edges, b, a)


def _told(edges: Edges, sender: str, receiver: str) -> str:
    sums = edges.get(sender, {}).get(receiver, {"wire": 0, "messages": 0})
    return f"{sender} to {receiver}: {human_bytes(sums['wire'])} in {sums['messages']:,} messages"


def _colour(name: str) -> str:
    kind = name.partition(" ")[0]
    return {"worker": "var(--c2)", "server": "var(--c0)", COORDINATOR: "var(--c3)"}[kind]


def _route(a: str, b: str, boxes: dict, workers: dict, n_rows: int) -> tuple[list[tuple[float, float]], str]:
    """A line's points and colour."""
    if a in workers and b in workers and workers[a][0] == workers[b][0]:  # side by side: below the row
        (left, top, width, height), (other, *_) = boxes[a], boxes[b]
        y, x, z = top + height, left + width / 2, other + width / 2
        return [(x, y), (x, y + _DIP), (z, y + _DIP), (z, y)], "var(--c2)"
    if a in workers and b in workers:  # stacked: straight down to the next, around the side to others
        upper, lower = sorted((a, b), key=lambda name: boxes[name][1])
        left, top, width, height = boxes[upper]
        if workers[lower][0] - workers[upper][0] == 1:
            return [(left + width / 2, top + height), (left + width / 2, boxes[lower][1])], "var(--c2)"
        out = left + width + 8 * (workers[lower][0] - workers[upper][0]) / n_rows
        y, z = top + height / 2, boxes[lower][1] + height / 2
        return [(left + width, y), (out, y), (out, z), (left + width, z)], "var(--c2)"
    if a in workers or b in workers:
        worker, head = (a, b) if a in workers else (b, a)
        left, top, width, _ = boxes[worker]
        begin = left + width * (workers[worker][0] + 1) / (n_rows + 1)  # so that those in a column part
        above = boxes[head]
        ends = [(begin, top), (above[0] + above[2] / 2, above[1] + above[3])]
        return ends, _colour(head)
    x, y = (boxes[name][0] + boxes[name][2] / 2 for name in (a, b))
    return [(x, _TOP), (x, _TOP - 10), (y, _TOP - 10), (y, _TOP)], "var(--c3)"


def _inside(name: str, box: tuple, n_lines: int, n_heads: int, edges: Edges) -> list[Markup]:
    left, top, width, height = box
    x = left + width / 2
    look = {"text_anchor": "middle"}
    short = name.partition(" ")[2] or name
    if name.startswith("worker"):
        if n_lines == 3:
            sent, received = _sent(edges, name), _received(edges, name)
            return [
                text(x, top + 16, name, **look),
                text(x, top + 31, f"sent {human_bytes(sent)}", class_="soft", **look),
                text(x, top + 46, f"got {human_bytes(received)}", class_="soft", **look),
            ]
        return [text(x, top + height - 5, short, **look)] if n_lines else []
    if n_heads > 12:
        return []
    return [text(x, top + 17, name if n_heads <= 4 else short if name != COORDINATOR else "coord.", **look)]


def _sent(edges: Edges, name: str) -> int:
    return sum(sums["wire"] for sums in edges.get(name, {}).values())


def _received(edges: Edges, name: str) -> int:
    return sum(_wire(edges, sender, name) for sender in edges)


_HALO = {"style": "paint-order: stroke; stroke: var(--back); stroke-width: 5px; stroke-linejoin: round"}


def _between(edges: Edges, heads: list[str], workers: dict, boxes: dict) -> list[Markup]:
    """What each of the upper ones exchanged with all workers, and servers and workers among themselves."""
    words = []
    if len(heads) <= 6:
        for name in heads:
            x, y = boxes[name][0] + boxes[name][2] / 2, _TOP + _TOP_HEIGHT
            up, down = sum(_wire(edges, w, name) for w in workers), sum(_wire(edges, name, w) for w in workers)
            for k, label in enumerate((f"↑ {human_bytes(up)}", f"↓ {human_bytes(down)}")):
                words.append(text(x, y + 32 + 17 * k, label, text_anchor="middle", **_HALO))
    servers, told = heads[1:], []
    if servers:
        to = sum(_wire(edges, COORDINATOR, server) for server in servers)
        back = sum(_wire(edges, server, COORDINATOR) for server in servers)
        told.append(f"servers to coordinator {human_bytes(back)}, back {human_bytes(to)}")
    for kind, names in (("servers", servers), ("workers", workers)):
        if among := sum(_wire(edges, a, b) for a in names for b in names):
            told.append(f"{kind} to {kind} {human_bytes(among)}")
    if told:
        words.append(text(0, 12, "; ".join(told), class_="soft"))
    return words


def _around(edges: Edges, workers: list[str], boxes: dict) -> list[Markup]:
    """What neighbours in a ring passed on to each other."""
    words = []
    for upper, lower in zip(workers, workers[1:], strict=False):
        left, top, width, height = boxes[upper]
        down, up = _wire(edges, upper, lower), _wire(edges, lower, upper)
        label = "   ".join(f"{arrow} {human_bytes(n)}" for arrow, n in (("↓", down), ("↑", up)) if n)
        words.append(text(left + width / 2, top + height + _RING_GAP / 2 + 4, label, text_anchor="middle", **_HALO))
    if len(workers) > 2 and (n := _wire(edges, workers[-1], workers[0])):
        middle = (boxes[workers[0]][1] + boxes[workers[-1]][1] + boxes[workers[0]][3]) / 2
        words.append(text(100, middle, f"↑ {human_bytes(n)}", text_anchor="end", **_HALO))
    return words
