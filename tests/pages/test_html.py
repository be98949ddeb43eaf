"""Knows how pages must be written: escaped, closed, loading nothing; does not know what they are about."""

from psboost.pages import html
from psboost.pages.html import Markup, tag
from tests.pages.reading import Page, loaded


def test_text_is_escaped_and_markup_is_not():
    made = tag("p", "a < b & c", Markup("<b>bold</b>"), 7, title='say "<hi>"', class_="x", stroke_width=2, id=None)
    assert made == '<p title="say &quot;&lt;hi&gt;&quot;" class="x" stroke-width="2">a &lt; b &amp; c<b>bold</b>7</p>'
    assert tag("rect", x=1) == '<rect x="1"/>' and tag("td") == "<td></td>"


def test_a_page_is_whole_and_loads_nothing():
    content = html.page("a <title>", tag("p", "text"), html.table(["a"], [["<script>"]]))
    page = Page(content)
    assert content.startswith("<!doctype html>\n") and page.text_of("title") == ["a <title>"]
    assert loaded(page) == [] and not page.all("script")
    metas = page.all("meta")
    assert {"charset": "utf-8"} in metas and any(meta.get("name") == "viewport" for meta in metas)
    policies = [meta["content"] for meta in metas if meta.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1 and "default-src 'none'" in policies[0]
    assert "@media print" in content and "prefers-color-scheme: dark" in content


def test_what_a_page_would_load_is_found():
    for line in ('<img src="https://x/y.png">', '<p style="background: url(http://x)">', "<style>@import 'x'</style>"):
        assert loaded(Page(line.replace("</p>", "") + ("</p>" if "<p" in line else ""))) != []
    assert loaded(Page('<img src="data:image/png;base64,xx"><a href="#top">top</a>')) == []


def test_tables_hold_their_cells_and_numbers_stand_to_the_right():
    rows = [("x", 1234567, 0.12345, "1e3"), ("y <&>", 2, 3.0, "")]
    page = Page(html.table(("name", "whole", "part", "text of numbers"), rows, "cap"))
    assert page.table("cap") == [
        ["name", "whole", "part", "text of numbers"], ["x", "1,234,567", "0.123", "1e3"], ["y <&>", "2", "3.000", ""]
    ]  # fmt: skip
    assert [cell.get("class") for cell in page.all("th")] == [None, "number", "number", "number"]
    assert page.all("div")[0]["class"] == "scroll" and page.all("div")[0]["aria-label"] == "cap"
    assert Page(html.table(("only headings",), [])).tables == [[["only headings"]]]


def test_seconds_are_said_as_people_say_them():
    said = [html.human_seconds(s) for s in (0.0012, 0.25, 1.5, 75, 4321)]
    assert said == ["1.2 ms", "250 ms", "1.50 s", "75.0 s", "4,321.0 s"]
