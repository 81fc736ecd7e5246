"""The page of a trace: what stands in it, that it is safe to open, and that a browser shows it."""

import errno
import re
import shutil
import subprocess
import zlib
from base64 import b64decode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ikp
from ikp.analysis.page._curves import by_iteration, iterations
from ikp.analysis.page._grid import coverage, grid_of, png
from ikp.errors import ExportError
from tests.analysis.diff.noise import alternating, as_totals
from tests.analysis.example import launch, trace
from tests.analysis.explain.launches import Scene, Warp
from tests.others import without_records
from tests.strategies import traces_with_totals
from tests.totals import gemm

pytestmark = pytest.mark.any_pins

OWN_SCRIPT = (Path(ikp.__file__).parent / "analysis" / "page" / "page.js").read_text("utf-8")
PLANTED = Path(__file__).parents[1] / "explain" / "planted"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)


class Page(HTMLParser):
    """What a page holds: tags with their attributes, and text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def every(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def with_a_rate(made):
    clocks = (
        replace(each.clock, ns_per_tick=each.clock.ns_per_tick or 1) for each in made.launches
    )
    pairs = zip(made.launches, clocks, strict=True)
    return replace(made, launches=tuple(replace(one, clock=clock) for one, clock in pairs))


@pytest.fixture(scope="module")
def pair():
    return alternating(np.random.default_rng(0), 8, {"wait": 1.3})


@given(traces_with_totals().map(with_a_rate))
def test_whatever_was_recorded_there_is_a_page_and_it_is_inert(made):
    html = made.report().html
    page = Page(html)
    assert {tag for tag, _ in page.tags} & {"iframe", "object", "embed", "form"} == set()
    assert page.every("script") == [{}] and OWN_SCRIPT in html
    assert all(not name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert all("style" not in attrs for _, attrs in page.tags)
    assert all(attrs.get("href", "#").startswith("#") for _, attrs in page.tags)
    assert all(each["src"].startswith("data:image/png;base64,") for each in page.every("img"))
    assert bool(page.every("img")) == bool(len(made.slots))


@pytest.mark.parametrize("tag", ["style", "script"])
def test_the_policy_allows_its_own_style_and_script_and_nothing_else(pair, tag):
    html = pair[0].report().html
    policy = Page(html).every("meta")[1]["content"]
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy and "http" not in policy
    (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    (digest,) = re.findall(rf"{tag}-src 'sha256-([^ ]*?)'", policy)
    assert b64decode(digest) == sha256(text.encode()).digest()


def test_names_are_text_wherever_they_stand():
    evil = "</style><script>alert(1)</script>&\"'"
    made = trace([(0, 0, 0, 10), (1, 0, 5, 9)], launches=(launch(evil),), regions=(evil,))
    page = Page(ikp.Trace(*_columns(made)).report(made).html)
    assert page.every("script") == [{}] and "alert(1)" in page.text


def _columns(made):
    names = ("launches", "regions", "slots", "events", "provenance", "roles", "args", "totals")
    return [getattr(made, name) for name in names]


def test_it_shows_what_the_table_and_the_difference_say(pair):
    before, after = pair
    page = Page(after.report(before).html)
    (row,) = (row for row in after.stats() if row.region == "dot")
    assert f"{row.count:,}" in page.text and f"{100 * row.share:.1f} %" in page.text
    found = ikp.diff(before, after)
    assert found.kernels[0].duration.verdict == "longer"
    assert "alternating, compared pair by pair" in page.text and "bounds: 95 %" in page.text
    assert len(page.every("img")) == 5, "all warps, and the four regions with most time"
    assert "Difference" not in Page(after.report().html).text


def test_findings_are_shown_as_a_verdict_words_them():
    made = ikp.load(PLANTED / "slow_producer.faulty.pftrace")
    text = Page(made.report().html).text
    verdict = made.explain()
    for one in verdict.findings:
        for part in (one.title, one.what_if, f"{one.confidence}: {one.rationale}", one.suggestion):
            assert part in text
    assert f"Not known ({len(verdict.unknown)})" in text
    assert all(one.rationale in text for one in verdict.unknown)


def test_blocks_without_records_are_in_its_waves_and_in_no_share():
    scene = Scene()
    for block in range(16):
        begin = 1000 * (block // 4)
        ranges = [("dot", begin, begin + 500)]
        scene.add(Warp(block, 0, block % 4, begin, begin + 1000, ranges))
    whole = scene.trace()
    some = without_records(whole, {(0, block) for block in range(16) if block % 3})
    texts = [Page(one.report().html).text for one in (whole, some)]
    for fact in ("4.00 us", "4.00", "SM 0 to 3"):
        assert all(fact in text for text in texts), fact
    assert "6 of 16 warps" in texts[1] and "6 of 16" not in texts[0]
    assert "100 % of the warps that ran there" in texts[0]
    assert "100 % of the warps that recorded there" in texts[1]
    before, after = (grid_of(one, 0, ["dot"]) for one in (whole, some))
    assert (before.blocks == after.blocks).all() and (before.warps == after.warps).all()
    assert after.recorded.sum() == pytest.approx(before.warps.sum() * 6 / 16)


def some_blocks(*sms):
    """Return a launch of 44 blocks on 44 SMs, all at once, of which one on each SM recorded."""
    scene = Scene()
    for block, sm in enumerate(sms):
        scene.add(Warp(block, 0, sm, 0, 1000, [("dot", 0, 500)]))
    return scene


def test_waves_are_not_told_where_not_all_blocks_recorded():
    text = Page(some_blocks(7).trace(grid=(44, 1, 1)).report().html).text
    assert "44.00" not in text and "wavesnot known" in text
    assert "1 of 44 blocks" in text and "SMs of recorded blocks" in text
    assert "warps that recorded: SM 7" in text and "waves: recorded blocks that run" in text
    whole = Page(some_blocks(*range(44)).trace().report().html).text
    assert "waves1.00" in whole and "recorded" not in whole.split("What this rests on")[0]


def test_waves_are_those_of_the_verdict():
    scene = Scene()
    for block in range(6):  # never more than one in most bins, though three at the start
        scene.add(Warp(block, 0, 0, block // 3 * 1000, 1000 + block // 3 * 1000, [("dot", 0, 1)]))
    scene.add(Warp(6, 0, 0, 1000, 1000 + 1, [("dot", 1000, 1001)]))
    made = scene.trace()
    assert f"waves{made.explain().lanes.waves:.2f}" in Page(made.report().html).text


def test_rows_of_sms_are_named_by_their_numbers(monkeypatch):
    made = some_blocks(32, 40, 128).trace(grid=(44, 1, 1))
    assert "3 SMs from 32 to 128" in Page(made.report().html).text
    figure = pytest.importorskip("matplotlib.figure")
    drawn = []
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, *_, **__: drawn.append(self))
    from ikp.analysis.page.pictures import draw

    draw(made, "svg")
    heat, waves = drawn[0].axes[:2]
    assert [one.get_text() for one in heat.get_yticklabels()] == ["32", "40", "128"]
    assert heat.get_title() == "warps that recorded"
    assert waves.get_title() == "3 of 44 blocks recorded"


def test_totals_and_nothing_at_all_have_a_page(pair):
    assert "dot" in Page(as_totals(pair[0]).report().html).text
    assert "dot" in Page(gemm().report().html).text
    empty = trace([], launches=(launch(),), slots=[(0, 0)])
    nothing = {name: getattr(empty.slots, name)[:0] for name in empty.slots.__slots__}
    bare = replace(empty, slots=replace(empty.slots, **nothing))
    assert "no warp recorded" in Page(bare.report().html).text


def test_its_size_does_not_grow_with_the_ranges():
    def size(times):
        made = trace([(0, 0, 3 * i, 3 * i + 2) for i in range(times)], residence=3 * times)
        return len(made.report().html)

    assert size(30_000) < 1.5 * size(300) < 100_000


def test_of_very_many_regions_the_largest_are_shown():
    names = tuple(f"region {i}" for i in range(1000))
    made = trace([(0, i, 0, 1 + i) for i in range(1000)], regions=names)
    html = made.report().html
    assert "region 999" in html and "region 100<" not in html and len(html) < 1 << 20


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("x.html", b"<!DOCTYPE html>"),
        ("x.png", b"\x89PNG"),
        ("x.svg", b"<?xml"),
    ],
)
def test_it_is_saved_by_suffix_and_overwrites_only_if_told(pair, tmp_path, name, begins):
    page, path = pair[0].report(), tmp_path / name
    page.save(path)
    assert path.read_bytes().startswith(begins)
    with pytest.raises(ExportError, match="exists"):
        page.save(path)
    if name == "x.html":  # pictures are drawn anew each time, which takes seconds
        page.save(path, force=True)
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_another_suffix_is_refused(pair, tmp_path):
    with pytest.raises(ExportError, match=r"\.html"):
        pair[0].report().save(tmp_path / "x.doc")


def test_pictures_take_any_name():
    """Names are no formulas to matplotlib, and letters that its font lacks are no errors."""
    name = "_$a_{1$ 測量🙂 % \\frac"
    made = trace([(0, 0, 0, 10)], launches=(launch(name),), regions=(name,))
    from ikp.analysis.page.pictures import draw

    assert draw(made, "svg").startswith(b"<?xml")


def test_a_notebook_shows_it_in_a_frame_that_may_do_nothing(pair):
    shown = pair[0].report()._repr_html_()
    (frame,) = Page(shown).every("iframe")
    assert frame["srcdoc"] == pair[0].report().html and frame["sandbox"] is None


SPANS = st.lists(
    st.tuples(st.integers(0, 2), st.floats(-5, 15), st.floats(0, 12)).map(
        lambda one: (one[0], one[1], one[1] + one[2])
    ),
    min_size=1,
)


@given(SPANS)
def test_coverage_is_what_adding_up_each_bin_gives(spans):
    row, start, end = (np.array(each) for each in zip(*spans, strict=True))
    truth = np.zeros((3, 10))
    for i, low, high in spans:
        for k in range(10):
            truth[i, k] += max(0.0, min(high, k + 1) - max(low, k))
    assert coverage(row, start, end, 3, 10) == pytest.approx(truth, abs=1e-9)


def test_a_picture_holds_each_value_in_its_pixel():
    values = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
    data = png(values)
    body = zlib.decompress(data[data.index(b"IDAT") + 4 : data.index(b"IEND") - 8])
    lines = np.frombuffer(body, np.uint8).reshape(3, 5)
    assert (lines[:, 0] == 0).all() and (lines[:, 1:] == values).all()


def test_iterations_are_payloads_or_else_the_order_in_the_warp():
    made = trace([(0, 0, 20, 30), (0, 0, 40, 50), (1, 0, 0, 9), (1, 1, 2, 3), (1, 0, 10, 12)])
    rows = np.flatnonzero(made.events.region == 0)
    turn, by = iterations(made, rows)
    assert by == "order in the warp" and turn.tolist() == [0, 1, 0, 1]
    types = np.full(5, 1, np.uint8)
    payload = np.array([7, 8, 7, 0, 9], np.uint32)
    counted = replace(made, events=replace(made.events, payload_type=types, payload=payload))
    turn, by = iterations(counted, rows)
    assert by == "payload" and turn.tolist() == [7, 8, 7, 9]
    at, low, middle, high = by_iteration(turn, np.array([10.0, 10.0, 9.0, 2.0]))
    assert at.tolist() == [7, 8, 9] and middle.tolist() == [9, 10, 2]
    assert (low <= middle).all() and (middle <= high).all()


@pytest.mark.filterwarnings("ignore")  # matplotlib's own, which reads the picture
def test_it_is_written_where_no_file_can_have_two_names(pair, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    page = pair[0].report()
    page.save(tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text(encoding="utf-8") == page.html
    assert [one.name for one in tmp_path.iterdir()] == ["x.html"]
    with pytest.raises(ExportError, match="exists: pass force=True"):
        page.save(tmp_path / "x.html")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
@pytest.mark.parametrize(("scheme", "back"), [(1, (255, 255, 255)), (0, (18, 22, 28))])
def test_a_browser_shows_it_light_and_dark_and_has_nothing_to_complain_of(
    pair, tmp_path, scheme, back
):
    image = pytest.importorskip("matplotlib.image")
    page, picture = tmp_path / "x.html", tmp_path / "x.png"
    pair[1].report(pair[0]).save(page)
    ran = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr"),
            *(f"--blink-settings=preferredColorScheme={scheme}", "--window-size=1000,2400"),
            *(f"--screenshot={picture}", "--hide-scrollbars", page.as_uri()),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "CONSOLE" not in ran.stderr, ran.stderr
    shown = np.rint(255 * image.imread(picture)[:, :, :3]).astype(int)
    assert tuple(shown[3, 3]) == back
    full = (np.abs(shown - (0x3B, 0x7D, 0xEE)).sum(axis=2) < 9).sum()
    assert full > 5_000, "pixels of the heat map of all warps, which ran all the time"
