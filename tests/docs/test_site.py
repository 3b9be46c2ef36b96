"""The static site: every page, every link, and task pages that say what was and was not measured."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import pytest

from cudahercules.errors import MachineError, UsageError
from cudahercules.site import NAVIGATION, Page, build_site, dead_links
from cudahercules.site import families as made
from cudahercules.task.load import BUNDLED

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site") / "out"
    build_site(out, DOCS)
    return out


def test_every_page_of_the_navigation_is_there_and_complete(site):
    names = [name for _, entries in NAVIGATION for name, _ in entries]
    for name in names:
        html = (site / f"{name}.html").read_text()
        assert html.startswith("<!doctype html>") and "<h1" in html and "</html>" in html
        assert html.count('aria-current="page"') == 1
    assert (site / "index.html").read_text() == (site / f"{names[0]}.html").read_text()
    assert (site / "example-verdict.json").is_file()
    assert "prefers-color-scheme: dark" in (site / "style.css").read_text()


def test_every_markdown_page_is_in_the_navigation():
    names = {name for _, entries in NAVIGATION for name, _ in entries}
    assert {p.stem for p in DOCS.glob("*.md")} == names - {"tasks/index"}


def test_every_family_has_a_page_with_all_its_parts(site):
    folders = [p.parent for p in BUNDLED.glob("*/*/task.yaml")]
    index = (site / "tasks" / "index.html").read_text()
    for folder in folders:
        name = f"{folder.parent.name}-{folder.name}.html"
        text = re.sub(r"<[^>]+>", "", (site / "tasks" / name).read_text())  # code is full of <span>
        assert f'href="{name}"' in index
        for part in ("What is asked", "void solve(", "Workloads", "Bounds", "Opponents", "Measured"):
            assert part in text, (name, part)


def test_pages_need_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        html = page.read_text()
        assert "<script" not in html and 'src="http' not in html and 'stylesheet" href="http' not in html


def test_a_dead_link_is_named():
    pages = [
        Page(NAVIGATION[0][1][0][0], "a", "", links=["b.html", "b.html#no", "c.html", "https://x.org/"]),
        Page("b", "b", "", anchors={"yes"}, links=["#yes", "../b.html"]),
    ]
    first = pages[0].name
    assert dead_links(pages) == [f"{first} -> b.html#no", f"{first} -> c.html", "b -> ../b.html"]


def test_a_broken_page_is_never_written(tmp_path):
    for file in DOCS.glob("*.md"):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "verdicts.md").write_text("# Verdicts\n[gone](nowhere.md)\n")
    with pytest.raises(UsageError, match=r"verdicts -> nowhere\.html"):
        build_site(tmp_path / "out", tmp_path)
    (tmp_path / "verdicts.md").unlink()
    with pytest.raises(UsageError, match=r"verdicts\.md is missing"):
        build_site(tmp_path / "out", tmp_path)
    assert not (tmp_path / "out").exists()


def test_only_a_site_is_replaced(site, tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(UsageError, match="left alone"):
        build_site(tmp_path, DOCS)
    assert (tmp_path / "mine.txt").read_text() == "keep"
    (site / "old.html").write_text("old")
    build_site(site, DOCS)
    assert not (site / "old.html").exists() and (site / "index.html").is_file()


# --- what was measured -----------------------------------------------------------------------------


def test_what_was_never_measured_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(made.panels, "SHIPPED", tmp_path)
    pages = made.family_pages(results=tmp_path)
    assert all(made.NOT_MEASURED in text for name, text in pages.items() if name != "index")


def test_committed_verdicts_and_panels_are_shown(tmp_path, monkeypatch):
    example = json.loads((DOCS / "example-verdict.json").read_text())
    timing = {"kind": "timed", "outcome": "slower", "ratio": 0.25, "low": 0.24, "high": 0.26, "margin": 0.01}
    timed = {**example, "timing": {**timing, "workloads": []}}
    timed["fingerprint"] = {**example["fingerprint"], "device": "NVIDIA H200"}
    results = tmp_path / "results"
    results.mkdir()
    (results / "a.json").write_text(json.dumps({"rows": [{"verdict": timed}, {"kind": "correct"}]}))
    (results / "b.jsonl").write_text(json.dumps(example) + "\n" + json.dumps(timed) + "\n")
    (results / "c.json").write_text("not json")
    standing = {"expert": "torch_mm", "workload": "square", "outcome": "ranked", "microseconds": 100.0}
    # 2 * 4096^3 operations at 67 TFLOP/s are 2051 us
    half = {**standing, "workload": "square_4096", "microseconds": 4102.6}
    panel = {
        "task": example["task"],
        "release": "r",
        "date": "d",
        "driver": "v",
        "standings": [standing, half],
    }
    panels = tmp_path / "panels"
    panels.mkdir()
    (panels / "nvidia-h200.json").write_text(
        json.dumps({"gpu": "nvidia-h200", "panels": {example["task"]: panel}})
    )
    monkeypatch.setattr(made.panels, "SHIPPED", panels)
    text = made.family_pages(results=results)["kernel-gemm"]
    assert text.count("| NVIDIA H200 | slower | 0.250 [0.240, 0.260] |") == 2
    assert "Experts on nvidia-h200" in text
    assert "| `square` | torch_mm 100.0 |  |" in text  # a workload that the task has no more
    assert "| `square_4096` | torch_mm 4102.6 | 50% |" in text
    assert "earlier release" in text and "timed): nvidia-h200: 1 as of an earlier release of 10" in text
    assert "| `class1/general/00_basic_gemm` | `fp32@general` |" in text
    assert made.NOT_MEASURED not in text


def test_wrong_solutions_of_every_member_are_listed(tmp_path):
    page = made.family_pages(results=tmp_path)["kernel-gemm"]
    for mutant in (BUNDLED / "kernel" / "gemm" / "mutants").glob("*.cu"):
        assert page.count(f"`mutants/{mutant.name}`") == 1


def test_a_disk_that_refuses_is_no_fault(tmp_path, monkeypatch):
    def refuse(*_arguments):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("cudahercules.site._write", refuse)
    with pytest.raises(MachineError, match=r"cannot write the site to .*Read-only file system"):
        build_site(tmp_path / "site", DOCS)
