"""The warps of a finding on the page: each drawn box is a range of the trace, and none is missing.

Two traces are drawn on one scale; source lines are shown only of the file that was recorded.
"""

import os
import platform
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ikp
from ikp.analysis.explain.prepared import prepare
from ikp.analysis.page._finding import excerpts
from ikp.analysis.page._picture import LEVEL, picture_of
from ikp.analysis.page._warp_lanes import MOST_BOXES, MOST_WARPS, panel_of
from tests.analysis.explain.launches import START, Scene, Warp
from tests.analysis.page.test_report import Page

pytestmark = pytest.mark.any_pins

PLANTED = Path(__file__).parents[1] / "explain" / "planted"
PANEL = re.compile(
    r'<svg class="panel".*?data-begin="(-?\d+)" data-span="(\d+)".*?</svg></div>', re.DOTALL
)
RECT = re.compile(
    r'<rect class="([\w ]+)" x="([\d.]+)%" y="(\d+)" width="([\d.]+)%" height="12">'
    r"<title>warp (\d+): (.*?), [^<]*</title>"
)


def drawn(html):
    """Return begin, span, and of each panel (warp, name, opens, closes, classes) of its boxes."""
    found = []
    for panel in PANEL.finditer(html):
        begin, span = int(panel[1]), int(panel[2])
        boxes = []
        for kind, x, _, width, warp, name in RECT.findall(panel[0]):
            opens = begin + float(x) * span / 100
            closes = opens + float(width) * span / 100
            assert opens == pytest.approx(round(opens), abs=1e-3)
            bare = re.sub(r" \(\d+\)$", "", name)
            boxes.append((int(warp), bare, round(opens), round(closes), kind))
        found.append((begin, span, boxes))
    return found


def ranges_of(trace, block, begin, end):
    """Return (warp, name, opens, closes) of a block's ranges in an interval, cut to it."""
    zero, events, slots = int(trace.slots.start_ns.min()), trace.events, trace.slots
    found = []
    for slot, region, opens, closes in zip(
        *(events.slot.tolist(), events.region.tolist()),
        *((events.start_ns - zero).tolist(), (events.end_ns - zero).tolist()),
        strict=True,
    ):
        if slots.block[slot] == block and opens < end and max(closes, opens + 1) > begin:
            cut = max(opens, begin), min(closes, end)
            found.append((int(slots.warp[slot]), trace.regions[region].name, *cut))
    return found


@pytest.mark.parametrize("name", ["slow_producer", "stages", "skew", "serial_wgmma"])
def test_the_boxes_of_a_finding_are_the_ranges_of_its_block(name):
    made = ikp.load(PLANTED / f"{name}.faulty.pftrace")
    finding = made.explain().findings[0]
    block, _ = finding.where.warps[0]
    begin, span, boxes = drawn(made.report().html)[0]
    assert sorted(box[:4] for box in boxes) == sorted(ranges_of(made, block, begin, begin + span))
    named = {box[1] for box in boxes if "named" in box[4]}
    assert named and named <= set(finding.where.regions)
    low, high = finding.where.window_ns
    assert begin <= low and high <= begin + span


def test_the_example_of_a_finding_is_marked():
    made = ikp.load(PLANTED / "slow_producer.faulty.pftrace")
    html = made.report().html
    begin, span, boxes = drawn(html)[0]
    (mark,) = re.findall(r'<rect class="mark" x="([\d.]+)%" y="0" width="([\d.]+)%"', html)
    opens, wide = (float(each) * span / 100 for each in mark)
    where = made.explain().findings[0].where
    low, high = where.window_ns
    assert wide == pytest.approx((high - low) / 3, abs=1)
    marked = where.warps[0][1], "full", round(begin + opens), round(begin + opens + wide)
    assert marked in [box[:4] for box in boxes]


def uneven(long):
    """Return a launch of 8 blocks of which block 5 takes ``long`` ns, all others 1,000."""
    scene = Scene()
    for block in range(8):
        end = long if block == 5 else 1000
        scene.add(Warp(block, 0, block, 0, end, [("work", 0, end)]))
    return scene.trace()


def test_a_finding_of_blocks_shows_them_beside_one_of_median_duration():
    made = uneven(9000)
    finding = made.explain().findings[0]
    assert not finding.where.regions and finding.where.warps[0][0] == 5
    begin, span, boxes = drawn(made.report().html)[0]
    assert (begin, span) == (0, 9000)
    assert {box[3] for box in boxes} == {1000, 9000}
    assert "is of median duration" in Page(made.report().html).text


def ring(wait, label="kernel"):
    """Return 2 blocks whose consumer waits ``wait`` ns for a slow producer in each iteration."""
    scene = Scene(label=label)
    step = wait + 100
    for block in range(2):
        end = 20 * step
        makes = [("copy", k * step, k * step + wait, k) for k in range(20)]
        waits = [("wait full", k * step, k * step + wait, k) for k in range(20)]
        uses = [("mma", k * step + wait, (k + 1) * step, k) for k in range(20)]
        scene.add(Warp(block, 0, block, 0, end, makes, "producer"))
        scene.add(Warp(block, 1, block, 0, end, [*waits, *uses], "consumer"))
    return scene.trace()


def test_two_traces_are_drawn_on_one_scale_from_the_same_range():
    before, after = ring(900), ring(700)
    html = after.report(before).html
    first, second = drawn(html)[:2]
    assert first[1] == second[1], "as many ns wide"
    text = Page(html).text
    assert text.index("before: block") < text.index("after: block")
    turn = re.search(r"placed by the same range of the same warp \((.*?), number ([\d,]+)\)", text)
    k = int(turn[2]) - 1
    begins = {"wait full": 0, "copy": 0, "mma": 1}[turn[1]]
    old = k * 1000 + begins * 900 - first[0]
    new = k * 800 + begins * 700 - second[0]
    assert old == new, "that range is at the same place of both"
    for (begin, span, boxes), made in ((first, before), (second, after)):
        block = int(re.search(r"after: block (\d+)", text)[1])
        assert sorted(box[:4] for box in boxes) == sorted(
            ranges_of(made, block, begin, begin + span)
        )


def test_what_was_found_before_and_is_gone_is_drawn_in_step():
    before, after = uneven(9000), uneven(1000)
    kinds = [one.id for one in before.explain().findings]
    assert not set(kinds) & {one.id for one in after.explain().findings}
    html = after.report(before).html
    assert "Found before, and not any more" in html
    first, second = drawn(html)[:2]
    assert first[:2] == second[:2] == (0, 9000)
    assert max(box[3] for box in first[2]) == 9000 and max(box[3] for box in second[2]) == 1000


def test_what_was_found_before_and_still_is_says_by_how_much():
    before, after = ring(900), ring(700)
    (was,) = (one for one in before.explain().findings if one.id == "late-producer")
    text = Page(after.report(before).html).text
    assert f"before: {was.title}; {was.what_if}" in text
    assert "Found before, and not any more" not in text


def test_no_finding_is_drawn_behind_so_many_boxes(monkeypatch):
    made = ikp.load(PLANTED / "occupancy.faulty.pftrace")
    assert len(drawn(made.report().html)) == len(made.explain().every) == 2
    monkeypatch.setattr("ikp.analysis.page._story._MOST_RECTS", 1)
    page = made.report().html
    assert len(drawn(page)) == 1 and "so that the page stays small" in page


def test_a_block_that_the_other_trace_lacks_is_named():
    before, after = ring(900), ring(700)
    chosen = after.explain().findings[0].where.warps[0][0]
    slots = before.slots
    moved = replace(
        before, slots=replace(slots, block=np.where(slots.block == chosen, 7, 1 - chosen))
    )
    text = Page(after.report(moved).html).text
    assert f"before: block {chosen} did not record there." in text
    assert len(drawn(after.report(moved).html)) == len(after.explain().findings)


def test_another_kernel_before_is_not_drawn():
    html = ring(700).report(ring(900, "other")).html
    assert len(drawn(html)) == len(ring(700).explain().findings) and "before: block" not in html


def test_where_nothing_is_found_a_block_of_median_duration_is_drawn():
    scene = Scene()
    for block, end in enumerate((1000, 1010, 1020)):
        scene.add(Warp(block, 0, block, 0, end, [("math", 0, end)]))
    made = scene.trace()
    assert made.explain().findings == ()
    assert drawn(made.report().html) == [(0, 1010, [(0, "math", 0, 1010, "compute")])]


def test_what_holds_others_is_pale_and_boxes_name_what_they_are_without_the_line():
    scene = Scene()
    inner = [("wait for q @x.py:3", 100 * k, 100 * k + 60) for k in range(10)]
    scene.add(Warp(0, 0, 0, 0, 1000, [("math", 0, 1000), *inner]))
    html = scene.trace().report().html
    ((_, _, boxes),) = drawn(html)
    found = {box[1]: box[4].split()[0] for box in boxes}
    assert found == {"math": "around", "wait for q @x.py:3": "wait"}
    assert set(re.findall(r'<text x="3" y="9">(.*?)</text>', html)) == {"math", "wait for q"}


def test_roles_are_named_and_have_their_shares():
    text = Page(ring(900).report().html).text
    for role in ("consumer", "producer"):
        assert re.search(rf"block \d on SM \d: {role}", text)
    (waiting,) = (one for one in ring(900).explain().groups if one.name == "consumer")
    assert f"{100 * waiting.waiting_share:.0f} %" in text


def test_kernels_are_ranked_by_the_time_of_all_their_launches():
    scene = Scene()
    for launch in range(3):
        begin, end = 10_000 * launch, 10_000 * launch + (900, 700, 500)[launch]
        scene.add(Warp(0, 0, 0, begin, end, [("x", begin, end)], launch=launch))
    made = scene.trace()
    labels = ("one", "two", "two")
    named = tuple(
        replace(one, label=label) for one, label in zip(made.launches, labels, strict=True)
    )
    html = replace(made, launches=named).report().html
    table = html[html.index("Kernels by time") : html.index("Findings")]
    rows = re.findall(r'href="#(kernel-\d)">(\w+)</a>.*?</td>(.*?)</tr>', table)
    assert [(place, name, re.findall("<td>(.*?)</td>", cells)) for place, name, cells in rows] == [
        ("kernel-1", "two", ["1.20 us", "57.1 %", "2", "500 ns", "700 ns"]),
        ("kernel-2", "one", ["900 ns", "42.9 %", "1", "900 ns", "900 ns"]),
    ]
    assert [Page(html).every("h2")[i]["id"] for i in (-3, -2)] == ["kernel-1", "kernel-2"]


RANGES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 400), st.integers(0, 90)), max_size=60
)


@given(RANGES, st.integers(0, 200), st.integers(1, 300))
def test_no_range_is_lost_and_none_overlaps_on_its_level(ranges, begin, long):
    scene = Scene()
    for warp in range(3):
        mine = [("x", at, at + took) for w, at, took in ranges if w == warp]
        scene.add(Warp(0, warp, 0, 0, 500, mine))
    made = scene.trace()
    panel = panel_of(prepare(made, 0), [0], (begin, begin + long), [])
    boxes = [(lane.warp, box) for lane in panel.lanes for box in lane.boxes]
    there = [
        (w, at, at + took)
        for w, at, took in ranges
        if at < begin + long and max(at + took, at + 1) > begin
    ]
    assert len(boxes) + panel.deeper == len(there)
    assert {(w, box.opens, box.closes) for w, box in boxes} <= set(there)
    for lane in panel.lanes:
        for level in range(lane.levels):
            mine = sorted((b.opens, b.closes) for b in lane.boxes if b.level == level)
            assert all(a[1] <= b[0] for a, b in pairwise(mine))


def test_of_very_many_ranges_the_short_ones_are_taken_together_and_counted():
    rng = np.random.default_rng(0)
    scene, count = Scene(), 5000
    for warp in range(4):
        took = np.where(np.arange(count) % 100 == 50, 900, rng.integers(1, 20, count))
        ends = np.cumsum(took + rng.integers(1, 5, count))
        mine = [("x", int(end - t), int(end)) for end, t in zip(ends, took, strict=True)]
        scene.add(Warp(0, warp, 0, 0, int(ends[-1]), mine))
    launch = prepare(scene.trace(), 0)
    panel = panel_of(launch, [0], (0, launch.duration), [])
    boxes = [box for lane in panel.lanes for box in lane.boxes]
    assert len(boxes) <= 2 * MOST_BOXES and sum(box.count for box in boxes) == 4 * count
    own = sum(ns for box in boxes for _, ns in box.own_ns)
    assert own == int((launch.closes[:] - launch.opens[:]).sum())
    assert panel.merged == sum(box.count for box in boxes if box.count > 1)
    picture = picture_of(launch, panel, "", [], None)
    assert "short ranges are drawn as one" in picture.notes[0]
    for one in picture.rects:
        tall = [float(height) for _, _, height in one.parts]
        assert not tall or sum(tall) == pytest.approx(LEVEL - 1, abs=0.01)


def test_no_box_of_several_ranges_reaches_over_the_start_or_the_end_of_a_longer_one():
    outer = [("loop", 1000 * k, 1000 * k + 500) for k in range(20)]
    inner = [("x", at, at + 8) for at in range(1, 20_000, 10)]
    launch = prepare(Scene().add(Warp(0, 0, 0, 0, 20_000, [*outer, *inner])).trace(), 0)
    (lane,) = panel_of(launch, [0], (0, 20_000), []).lanes
    edges = {edge for _, *both in outer for edge in both}
    several = [box for box in lane.boxes if box.count > 1]
    assert len(several) == 40 and len(lane.boxes) == 60
    assert not [box for box in several if any(box.opens < edge < box.closes for edge in edges)]


def test_of_many_warps_the_named_ones_and_one_of_each_role_are_drawn():
    scene = Scene()
    for warp in range(40):
        role = "late" if warp == 39 else "other"
        scene.add(Warp(0, warp, 0, 0, 100, [("x", 0, 100)], role))
    launch = prepare(scene.trace(), 0)
    panel = panel_of(launch, [0], (0, 100), [(0, 31)])
    shown = [lane.warp for lane in panel.lanes]
    assert len(shown) == MOST_WARPS and {31, 39} <= set(shown) and panel.of_warps == 40
    picture = picture_of(launch, panel, "", [], None)
    assert picture.notes == ["16 of 40 warps are drawn."]
    assert picture.height >= MOST_WARPS * LEVEL


def sourced(path, **provenance):
    made = uneven(9000)
    said = {"host": platform.platform(), "recorded": "2030-01-01T00:00:00Z", **provenance}
    return replace(made, provenance=said), [f"{path}:5", f"{path}:7"]


def test_source_lines_stand_beside_what_they_are_of(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text("".join(f"line{i} <b>\n" for i in range(1, 21)))
    os.utime(path, (START / 1e9 - 100,) * 2)
    made, places = sourced(path)
    (found,) = excerpts(places, made)
    assert [one.number for one in found.lines] == list(range(2, 11)) and not found.why_not
    assert [one.text for one in found.lines if one.named] == ["line5 <b>", "line7 <b>"]
    (late,) = excerpts([f"{path}:99"], made)
    assert late.why_not == "the file has 21 lines."


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("kernel.py", {"recorded": "2020-01-01T00:00:00Z"}, "has changed since"),
        ("kernel.py", {"recorded": ""}, "does not say when"),
        ("kernel.py", {"host": "elsewhere"}, "another host"),
        ("id_rsa", {}, "no source language"),
        ("gone.py", {}, "not on this host"),
        ("folder.py", {}, "no file of at most"),
    ],
)
def test_lines_of_what_may_be_another_file_are_not_shown(tmp_path, name, changes, reason):
    for each in ("kernel.py", "id_rsa"):
        (tmp_path / each).write_text("secret\n" * 9)
        os.utime(tmp_path / each, (START / 1e9 - 100,) * 2)
    (tmp_path / "folder.py").mkdir()
    made, places = sourced(tmp_path / name, **changes)
    (found,) = excerpts(places, made)
    assert reason in found.why_not and not found.lines


def test_a_file_without_its_folder_is_not_looked_for(tmp_path, monkeypatch):
    (tmp_path / "kernel.py").write_text("x\n" * 9)
    monkeypatch.chdir(tmp_path)
    made, _ = sourced("")
    assert "folder" in excerpts(["kernel.py:3"], made)[0].why_not


def test_a_page_has_source_lines_only_if_wanted(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text("the_line = 1\n" * 9)
    os.utime(path, (START / 1e9 - 100,) * 2)
    made = ring(900)
    names = {"wait full": f"wait full @{path}:3"}
    regions = tuple(replace(one, name=names.get(one.name, one.name)) for one in made.regions)
    made = replace(made, regions=regions, provenance=sourced(path)[0].provenance)
    made.save(tmp_path / "x.pftrace")
    assert made.explain().findings[0].where.lines[0] == f"{path}:3"
    assert "the_line" in made.report().html
    assert "the_line" not in made.report(sources=False).html
