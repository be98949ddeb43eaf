"""Knows what the page of a run must say, for runs of several forms; does not know how it is drawn."""

import json

import pytest

import psboost
from psboost.cli import run as command
from psboost.cluster import timeline
from psboost.errors import ParameterError
from psboost.lab import Cluster
from psboost.pages.grid import grid_picture
from psboost.pages.run import run_page, write_report_html
from psboost.progress import human_bytes
from tests import runs
from tests.pages.browser import browser, check
from tests.pages.reading import Page, loaded

FORMS = {
    "block": {"grid": (2, 2), "servers": 2, "transport": "memory"},
    "one worker": {"transport": "inproc"},
    "columns": {"grid": (1, 3), "servers": 2, "transport": "memory"},
    "virtual": {"grid": (2, 2), "transport": "virtual", "cluster": Cluster(hosts=5, gbit=1)},
    "without limit": {"grid": (2, 1), "transport": "virtual", "cluster": Cluster(hosts=3, gbit=None)},
    "ring": {"grid": (3, 1), "mode": "allreduce", "transport": "memory"},
}


def trained(num_boost_round=3, **how):
    X, y = runs.sparse_data()
    evals = [(X, y, "train"), (X[:40], y[:40], "my <set>")]
    return psboost.train({"max_depth": 3}, X, y, num_boost_round=num_boost_round, evals=evals, **how)


@pytest.fixture(scope="module")
def reports():
    return {name: trained(**how).report for name, how in FORMS.items()}


@pytest.mark.parametrize("form", FORMS)
def test_tables_are_the_report_and_nothing_is_loaded(reports, form):
    report, page = reports[form], Page(run_page(reports[form]))
    assert loaded(page) == [] and not page.all("script")
    kinds = {row[0]: [int(cell.replace(",", "")) for cell in row[1:]] for row in page.table(
        "Payload is arrays; on the wire is all, with framing")[1:]}  # fmt: skip
    total = kinds.pop("all")
    assert kinds == {kind: list(sums.values()) for kind, sums in report["bytes"].items()}
    assert total == [sum(column) for column in zip(*kinds.values(), strict=True)]
    edges = page.table("Bytes by sender and receiver")[1:]
    assert {(row[0], row[1]): int(row[4].replace(",", "")) for row in edges} == {
        (a, b): sums["wire"] for a, to in report["edges"].items() for b, sums in to.items()
    }
    rounds = page.table("By round")
    assert rounds[0] == ["round", *report["evaluation"], "seconds", "MB on the wire"]
    for i, row in enumerate(rounds[1:]):
        values = [values[i] for values in report["evaluation"].values()]
        assert row[0] == str(i) and [float(cell) for cell in row[1:-2]] == pytest.approx(values, rel=1e-5)
    stages = page.table("Within train: the slowest role's")[1:]
    assert [row[:2] for row in stages] == [[group, stage] for group, of in report["stages"].items() for stage in of]
    drawn = set(page.text_of("text"))
    assert report["roles"].keys() <= drawn, "each role has a track"
    for drawing in page.all("svg"):
        assert drawing.get("role") == "img" or "viewbox" in drawing or drawing.get("aria-hidden") == "true"
    assert len(page.text_of("desc")) == sum(drawing.get("role") == "img" for drawing in page.all("svg")) == 8


def test_a_virtual_run_shows_its_hosts(reports):
    virtual, page = reports["virtual"]["virtual"], Page(run_page(reports["virtual"]))
    shares = ("computation", "communication", "waiting")
    rows = page.table("By phase, the mean over all hosts")
    assert rows[0] == ["phase", *(f"{share}, s" for share in shares)]
    assert rows[1:] == [[phase, *(f"{of[share]:.3f}" for share in shares)] for phase, of in virtual["phases"].items()]
    assert "1970" not in page.text_of("p")[0] and "5 virtual hosts, 1 Gbit/s, latency 0.1 ms." in page.text_of("p")


def test_edges_are_labelled_and_as_thick_as_they_are_heavy(reports):
    report = reports["block"]
    page = Page(grid_picture(report["roles"], report["edges"]))
    told = page.text_of("title")
    for sender, to in report["edges"].items():
        for receiver, sums in to.items():
            said = f"{sender} to {receiver}: {human_bytes(sums['wire'])} in {sums['messages']:,} messages"
            assert any(said in text for text in told)
    workers = [name for name in report["roles"] if name.startswith("worker")]
    up = sum(report["edges"][worker]["server 1"]["wire"] for worker in workers if "server 1" in report["edges"][worker])
    assert f"↑ {human_bytes(up)}" in page.text_of("text")
    widths = [float(one["stroke-width"]) for one in page.all("path")]
    pairs = {tuple(sorted((a, b))) for a, to in report["edges"].items() for b in to}
    assert len(widths) == len(pairs) and max(widths) == 8 and min(widths) >= 1


def test_a_ring_shows_what_is_passed_on(reports):
    report = reports["ring"]
    shown = Page(grid_picture(report["roles"], report["edges"])).text_of("text")
    for sender, receiver in (("worker 0,0", "worker 1,0"), ("worker 1,0", "worker 2,0")):
        assert any(f"↓ {human_bytes(report['edges'][sender][receiver]['wire'])}" in text for text in shown)
    assert f"↑ {human_bytes(report['edges']['worker 2,0']['worker 0,0']['wire'])}" in shown


def test_large_grids_are_cut_and_say_so():
    workers = [f"worker {r},{c}" for r in range(20) for c in range(12)]
    edges = {worker: {f"server {s}": {"messages": 1, "payload": 1, "wire": s + 1} for s in range(3)} for worker in workers}
    made = grid_picture(["coordinator", "server 0", "server 1", "server 2", *workers], edges)
    assert "Only the 400 heaviest of 720 edges are drawn" in made and Page(made).all("path").__len__() == 400


def test_trees_that_were_not_kept_are_named(monkeypatch):
    monkeypatch.setattr(timeline, "KEPT_TREES", 2)
    content = run_page(trained(num_boost_round=7, transport="memory").report)
    assert "Trees 2 to 4 were not kept" in content and "Tree 6, the last one" in content and "not kept</text>" in content
    assert "were not kept" not in run_page(trained(num_boost_round=4, transport="memory").report)


def test_reports_from_json_have_pages_too(reports, tmp_path):
    report = {name: part for name, part in reports["block"].items() if name != "timeline"}
    (tmp_path / "r.json").write_text(json.dumps(report))
    write_report_html(json.loads((tmp_path / "r.json").read_text()), tmp_path / "r.html")
    page = Page((tmp_path / "r.html").read_text())
    assert page.table("By round") == Page(run_page(reports["block"])).table("By round")
    assert "This report holds no timeline: reports in JSON have none." in page.text_of("p")
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == []


def test_what_is_no_report_is_refused(tmp_path):
    forest = trained(num_boost_round=1, transport="memory")
    psboost.write_report_html(forest, tmp_path / "a.html")
    forest.save_model(tmp_path / "m.json")
    for wrong in (psboost.load_model(tmp_path / "m.json"), {}, {"bytes": {}}, 7):
        with pytest.raises(ParameterError, match="report of a training"):
            psboost.write_report_html(wrong, tmp_path / "b.html")
    assert not (tmp_path / "b.html").exists()


def test_the_command_writes_a_page(tmp_path, capsys):
    (tmp_path / "a&b.svm").write_text("".join(f"{i % 2} {i % 3 + 1}:{i}\n" for i in range(60)))
    arguments = ["train", str(tmp_path / "a&b.svm"), "--model", str(tmp_path / "m.json"), "--transport", "memory", "--quiet"]
    assert command([*arguments, "--report-html", str(tmp_path / "missing" / "r.html")]) == 2
    assert "there is no folder" in capsys.readouterr().err and not (tmp_path / "m.json").exists()
    files = ["--report-html", str(tmp_path / "r.html"), "--report", str(tmp_path / "r.json")]
    assert command([*arguments, "--num-boost-round", "2", *files]) == 0
    assert Page((tmp_path / "r.html").read_text()).text_of("h1") == ["Training on a&b.svm"]
    assert "timeline" not in json.loads((tmp_path / "r.json").read_text())


@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser(reports, tmp_path, width):
    with browser(width, tmp_path) as look:
        for form in ("block", "ring"):
            path = tmp_path / f"{form}.html"
            write_report_html(reports[form], path)
            seen = look(path)
            check(seen, n_figures=8)
            assert seen.tables == Page(path.read_text()).tables
