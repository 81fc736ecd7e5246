"""The documentation's site: where links lead, which pages there are, and what its check finds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.repo.tree import ROOT, files
from tools.site.check import faults
from tools.site.pages import (
    API,
    addresses,
    api_index,
    entries,
    llms,
    page_of,
    source_of,
    with_links,
)

pytestmark = pytest.mark.any_pins


@pytest.mark.parametrize(
    ("source", "link", "placed"),
    [
        ("README.md", "docs/story.md#others", "story.md#others"),
        ("README.md", "docs/images/gemm-zoom.png", "images/gemm-zoom.png"),
        ("README.md", "docs/index.md", "documents.md"),
        ("docs/verbs.md", "../README.md#two-commands", "index.md#two-commands"),
        ("docs/verbs.md", "api.md#for-plugins", "api/index.md#for-plugins"),
        ("docs/verbs.md", "#a-heading", "#a-heading"),
        ("docs/verbs.md", "../examples/gemm_triton.py", "R/blob/main/examples/gemm_triton.py"),
        ("docs/verbs.md", "../benchmarks", "R/tree/main/benchmarks"),
        ("docs/decisions/0031-rooms.md", "../abi.md", "../abi.md"),
        ("CHANGELOG.md", "docs/decisions/", "decisions/README.md"),
    ],
)
def test_a_link_leads_to_its_targets_page(source: str, link: str, placed: str) -> None:
    here = page_of(source)
    assert here is not None and source_of(here) == source
    text = f"See [it]({link}), `[code]({link})`, and\n```\n[code]({link})\n```\n"
    assert with_links(text, source, here, "R") == text.replace(f"[it]({link})", f"[it]({placed})")


def test_links_to_other_sites_stay() -> None:
    text = "[a](https://perfetto.example/x.md) [b](mailto:a@b.example)"
    assert with_links(text, "README.md", "index.md", "R") == text


def test_each_entry_of_the_reference_has_a_page_of_its_own() -> None:
    text = (ROOT / API).read_text(encoding="utf-8")
    found = [*entries()]
    assert [each.name for each in found] == re.findall(r"^### `(.+)`$", text, re.MULTILINE)
    assert len({each.page.lower() for each in found}) == len(found), "some file systems fold case"
    assert all(each.text.startswith("# `") for each in found)
    assert len("".join(each.text for each in found).split()) > 0.95 * len(text.split())
    assert {f"({each.page.removeprefix('api/')})" for each in found} == {
        *re.findall(r"\(.*?\.md\)", api_index())
    }


def test_addresses_are_in_one_place() -> None:
    """Who gives the project a home changes pyproject.toml, and nothing else."""
    hosts = {re.sub(r"https://([^/]+)/.*", r"\1", each) for each in addresses().values()}
    texts = {path for path in files() if path.suffix in {".md", ".toml", ".yml", ".yaml", ".cff"}}
    holding = {
        str(path)
        for path in texts
        if any(f"//{host}" in (ROOT / path).read_text(encoding="utf-8") for host in hosts)
    }
    assert holding == {"pyproject.toml"}


PAGE = """
<link rel="stylesheet" href="a.css"><link rel="canonical" href="https://docs.example/">
<h1 id="top">x</h1><a href="b.html#there">b</a><a href="#top">top</a><a href="https://c.example">c</a>
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "a.html").write_text(PAGE)
    (tmp_path / "b.html").write_text('<p id="there">')
    (tmp_path / "a.css").write_text("p { background: url(data:image/png;base64,AA==) }")
    return tmp_path


def test_a_whole_site_has_no_faults(site: Path) -> None:
    assert [*faults(site)] == []


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        ('<a href="c.html">', "a.html: leads nowhere: c.html"),
        ('<a href="b.html#here">', "a.html: leads nowhere: b.html#here"),
        ('<a href="#bottom">', "a.html: leads nowhere: #bottom"),
        ('<img src="c.png">', "a.html: leads nowhere: c.png"),
        ('<script src="https://cdn.example/x.js">', "a.html: fetches https://cdn.example/x.js"),
        ('<link rel="icon" href="//c.example/i">', "a.html: fetches //c.example/i"),
    ],
)
def test_a_fault_of_a_page_is_found(site: Path, part: str, fault: str) -> None:
    (site / "a.html").write_text(PAGE + part)
    assert [*faults(site)] == [fault]


def test_a_style_that_fetches_is_found(site: Path) -> None:
    (site / "a.css").write_text("@import 'https://fonts.example/roboto.css';")
    assert [*faults(site)] == ["a.css: fetches from another site"]


def test_a_site_without_pages_is_none(tmp_path: Path) -> None:
    assert len([*faults(tmp_path)]) == 1


def test_ci_builds_the_site() -> None:
    assert re.search(r"^make .* site ", (ROOT / ".ci/run").read_text("utf-8"), re.MULTILINE)


def test_the_list_for_agents_leads_to_pages_of_the_site() -> None:
    places = re.findall(r"^- \[.*?\]\(([^)]+)\): ", llms(), re.MULTILINE)
    sources = [place for place in places if "://" in place]
    assert sources == [f"{addresses()['Repository']}/blob/main/ikp/agents/skills/ikp/SKILL.md"]
    pages = {place.replace(".html", ".md") for place in places} - {*sources}
    assert {"index.md", "changelog.md", "verdict.md", "api/index.md"} <= pages
    assert all(page_of(source_of(page)) == page for page in pages)
    assert all(place.endswith(".html") for place in {*places} - {*sources})
