"""Opens a page in a headless browser, if this machine has one, and tells what is seen there; knows no page."""

import shutil
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_SEEN = """
const box = e => { const b = e.getBoundingClientRect(); return [b.width, b.height]; };
document.querySelectorAll('details').forEach(d => d.open = true);
return {
  width: document.documentElement.clientWidth, scroll: document.documentElement.scrollWidth,
  drawings: [...document.querySelectorAll('figure svg[role=img], figure > svg')].map(box),
  images: [...document.images].map(i => [i.naturalWidth, i.naturalHeight, ...box(i)]),
  tables: [...document.querySelectorAll('table')].map(t => [...t.rows].map(r => [...r.cells].map(c => c.textContent))),
  requests: performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith('data:')),
};
"""


@dataclass
class Seen:
    """width, scroll: of the window, and of what is in it; sizes in CSS pixels; console: all that was said there."""

    width: int
    scroll: int
    drawings: list[list[float]]
    images: list[list[float]]
    tables: list[list[list[str]]]
    requests: list[str]
    console: list[str]


@contextmanager
def browser(width: int, folder: Path):
    """A function that opens a file and returns what is Seen; skips the test where there is no browser."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no chromium with chromedriver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
        f"--user-data-dir={folder / 'profile'}",
    ):  # fmt: skip
        options.add_argument(flag)
    options.add_experimental_option(
        "mobileEmulation", {"deviceMetrics": {"width": width, "height": 800, "pixelRatio": 1, "touch": False}}
    )
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # selenium's own
        opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
        try:

            def look(path: Path) -> Seen:
                opened.get(path.resolve().as_uri())
                seen = opened.execute_script(_SEEN)
                return Seen(**seen, console=[entry["message"] for entry in opened.get_log("browser")])

            yield look
        finally:
            opened.quit()


def check(seen: Seen, n_figures: int) -> None:
    """What every page promises."""
    assert seen.console == [] and seen.requests == []
    assert seen.scroll <= seen.width, "the page scrolls sideways"
    assert len(seen.drawings) + len(seen.images) == n_figures
    for width, height in seen.drawings:
        assert width > 200 and height > 20
    for natural_width, natural_height, width, height in seen.images:
        assert min(natural_width, natural_height, height) > 20 and width > 200
