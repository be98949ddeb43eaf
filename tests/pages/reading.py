"""Reads a page of HTML back: its tables, elements and what it would load; knows no page."""

from html.parser import HTMLParser

_VOID = {"meta", "link", "img", "br"}
_LOADING = ("src", "href", "xlink:href", "srcset", "data", "action", "poster")


class Page(HTMLParser):
    """tables: [[cell, ...], ...] each, headings first; tags: (name, attributes) of all elements; text: all of it."""

    def __init__(self, content: str):
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.captions: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.texts: list[tuple[str, str]] = []  # innermost element, text
        self._open: list[str] = []
        self.feed(content)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, name, attributes):
        self.tags.append((name, dict(attributes)))
        if name == "table":
            self.tables.append([])
            self.captions.append("")
        elif name == "tr":
            self.tables[-1].append([])
        elif name in ("td", "th"):
            self.tables[-1][-1].append("")
        if name not in _VOID:
            self._open.append(name)

    def handle_startendtag(self, name, attributes):
        self.tags.append((name, dict(attributes)))

    def handle_endtag(self, name):
        assert self._open and self._open[-1] == name, f"</{name}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_data(self, data):
        self.texts.append((self._open[-1] if self._open else "", data))
        if "td" in self._open or "th" in self._open:
            self.tables[-1][-1][-1] += data
        elif "caption" in self._open:
            self.captions[-1] += data

    def all(self, name: str) -> list[dict]:
        return [attributes for tag, attributes in self.tags if tag == name]

    def text_of(self, name: str) -> list[str]:
        return [text for tag, text in self.texts if tag == name]

    def table(self, caption: str) -> list[list[str]]:
        """The rows of the table with that caption."""
        return self.tables[self.captions.index(caption)]


def loaded(page: Page) -> list[str]:
    """Addresses outside the page that it would load or link to."""
    found = []
    for _, attributes in page.tags:
        found += [attributes[name] for name in _LOADING if attributes.get(name)]
        found += [value for value in attributes.values() if value and ("url(" in value or "@import" in value)]
    found += [text for tag, text in page.texts if tag == "style" and ("url(" in text or "@import" in text)]
    return [address for address in found if not address.startswith(("data:", "#", "url(#"))]
