"""Knows how a page is written: escaping, its frame and style, tables; does not know what it says.

A page is one file that loads nothing: its Content-Security-Policy forbids it. It has no script.
"""

import html
from collections.abc import Iterable, Sequence
from typing import Any

# Okabe and Ito (2008): told apart with any colour vision. --c7 is black, or white on a dark page.
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --back: #fff; --box: #f3f5f8;
  --c0: #0072b2; --c1: #e69f00; --c2: #009e73; --c3: #d55e00; --c4: #cc79a7; --c5: #56b4e9; --c6: #f0e442; --c7: #000; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #a2abb5; --line: #3b434c; --back: #14171a;
  --box: #20252b; --c0: #2f8fd0; --c7: #fff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 50rem; color: var(--ink); background: var(--back);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
p, ul, ol { margin: .4rem 0; }
a { color: inherit; }
code { font: .9em ui-monospace, monospace; background: var(--box); padding: .1em .3em; border-radius: 3px; }
pre { overflow-x: auto; }
.soft { color: var(--soft); }
figure { margin: .8rem 0; }
figcaption, caption { color: var(--soft); font-size: .875rem; text-align: left; }
svg { display: block; overflow: visible; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .soft { fill: var(--soft); }
img { display: block; width: 100%; max-width: 42rem; height: auto; background: #fff; }
.scroll { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .875rem; min-width: min(100%, 22rem); }
caption { padding-bottom: .3rem; }
th, td { padding: .2rem .5rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th:first-child, td:first-child { padding-left: 0; }
.scroll th, .scroll td { white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
summary { cursor: pointer; padding: .3rem 0; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; list-style: none; padding: 0; font-size: .875rem; }
.legend svg { display: inline-block; vertical-align: -.1em; margin-right: .35em; }
@media print { :root { color-scheme: light; --ink: #000; --soft: #444; --line: #bbb; --back: #fff; --box: #f3f5f8;
    --c0: #0072b2; --c7: #000; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  figure, tr { break-inside: avoid; } h2, h3, p:has(+ figure) { break-after: avoid; } .scroll { overflow: visible; }
  img { max-width: 13cm; } table { font-size: 8pt; }
  .scroll th, .scroll td { white-space: normal; padding: .1rem .25rem; overflow-wrap: anywhere; } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_EMPTY = frozenset({"meta", "img", "line", "rect", "path", "polyline", "br"})  # elements without content


class Markup(str):
    """Text that is HTML already; any other text is escaped where it is put into an element."""


def tag(name: str, /, *content: Any, **attributes: Any) -> Markup:
    """An element of HTML or SVG. `class_` is class, `stroke_width` is stroke-width; None leaves an attribute out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _EMPTY and not content:
        return Markup(f"<{name}{given}/>")
    return Markup(f"<{name}{given}>{join(content)}</{name}>")


def join(content: Iterable[Any], between: str = "") -> Markup:
    """Pieces one after another, escaped where they are no Markup."""
    return Markup(between.join(one if isinstance(one, Markup) else html.escape(str(one), quote=False) for one in content))


def page(title: str, *body: Any) -> str:
    """A whole file."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        Markup('<link rel="icon" href="data:,">'),
        tag("title", title),
        tag("style", Markup(STYLE)),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', tag('main', join(body, chr(10)))), lang='en')}\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str | None = None) -> Markup:
    """A table in a box of its own that scrolls sideways. Columns of numbers alone stand to the right."""
    rows = [list(row) for row in rows]
    numeric = [all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    classes = ["number" if one else None for one in numeric]
    head = (tag("th", name, scope="col", class_=kind) for name, kind in zip(columns, classes, strict=True))
    lines = (
        tag("tr", *(tag("td", shown(value), class_=kind) for value, kind in zip(row, classes, strict=True))) for row in rows
    )
    made = tag(
        "table", *([tag("caption", caption)] if caption else []), tag("thead", tag("tr", *head)),
        tag("tbody", join(lines, "\n")),
    )  # fmt: skip
    return tag("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption or ", ".join(columns))


def facts(pairs: Iterable[tuple[str, Any]]) -> Markup:
    """A table of names and values."""
    lines = (tag("tr", tag("th", name, scope="row"), tag("td", shown(value))) for name, value in pairs)
    return tag("table", tag("tbody", *lines))


def folded(summary: str, *content: Any, is_open: bool = False) -> Markup:
    """What a reader opens if it is wanted."""
    return tag("details", tag("summary", summary), *content, open="" if is_open else None)


def shown(value: Any) -> Any:
    """A cell's content: whole numbers in groups of three digits, others to three decimals, text as it is."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.3f}" if isinstance(value, float) else value


def _is_number(value: Any) -> bool:
    if isinstance(value, int | float) or value == "":
        return True
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def human_seconds(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds >= 10 else f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
