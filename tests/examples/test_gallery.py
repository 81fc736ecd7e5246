"""The gallery: each trace opens, and belongs to an example that is as it was recorded."""

from __future__ import annotations

from collections import Counter

import pytest

import ikp
from tests.repo.tree import ROOT, files
from tests.trace_processor import columns, open_trace
from tests.trace_processor.found import check_import
from tools.site.pages import Shown, gallery, shown

pytestmark = pytest.mark.any_pins
FOLDER = ROOT / "docs" / "gallery"
KILOBYTES = 250
"""Of a file, at most: they are in every clone."""


@pytest.mark.tp
@pytest.mark.parametrize("name", [each.name for each in shown()])
def test_a_trace_of_the_gallery_opens(name: str) -> None:
    """An older ikp wrote it: each range is there with its times, whatever else a newer one adds."""
    path = FOLDER / f"{name}.pftrace"
    trace = ikp.load(path)
    assert trace.provenance["devices"].startswith("NVIDIA H100")
    assert trace.provenance["command"] == f"{name}.py"
    names = {each.region for each in trace.ranges()}
    with open_trace(path) as processor:
        check_import(processor)
        found = columns(processor, "select name, ts, dur from slice")
    rows = zip(found["name"], found["ts"], found["dur"], strict=True)
    assert Counter(row for row in rows if row[0] in names) == Counter(
        (each.region, each.start_ns, each.end_ns - each.start_ns) for each in trace.ranges()
    )


@pytest.mark.parametrize("each", shown(), ids=lambda each: each.name)
def test_a_trace_shows_the_regions_of_its_program(each: Shown) -> None:
    text = (ROOT / each.program).read_text(encoding="utf-8")
    names = {row.region for row in ikp.load(FOLDER / f"{each.name}.pftrace").stats().rows}
    assert names and {name for name in names if f'"{name}"' not in text} == set()


def test_the_page_has_each_example_with_picture_trace_and_source() -> None:
    page = gallery()
    names = {path.stem for path in files() if path.parent.as_posix() == "docs/gallery"}
    assert len(names) > 4 and {each.name for each in shown()} == names
    for each in shown():
        assert (FOLDER / f"{each.name}.png").is_file()
        assert all(f"(gallery/{each.name}.{kind})" in page for kind in ("png", "pftrace"))
        assert each.words in page and "Run: " not in each.words


def test_files_of_the_gallery_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert {name for name, size in sizes.items() if size > KILOBYTES << 10} == set()
