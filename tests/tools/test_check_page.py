"""A page of ``ikp report`` in a browser: boxes are where the trace says, and zoom moves them."""

import re

import numpy as np
import pytest

from tests.analysis.page.test_warps import drawn, ring
from tests.tools.test_screenshot import obstacle
from tools.screenshot.check_page import check

pytestmark = [
    *(pytest.mark.any_pins, pytest.mark.tp),
    pytest.mark.skipif(bool(obstacle(ui=False)), reason=str(obstacle(ui=False))),
]

BACK = {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 22, 28)"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The page of two traces, and what a browser saw of it."""
    path = tmp_path_factory.mktemp("page") / "x.html"
    page = ring(700).report(ring(900))
    page.save(path)
    return page.html, check(path)


def test_it_fits_is_readable_and_follows_the_browsers_scheme(shown):
    views = shown[1]["views"]
    assert [one["width"] for one in views] == [1080, 1080, 420, 420]
    assert all(one["wider_by"] <= 0 and one["smallest_text"] >= 9 for one in views)
    assert all(one["back"] == BACK[one["scheme"]] for one in views)
    assert shown[1]["complaints"] == []
    assert [one["buttons"] > 0 for one in views] == [one["script"] for one in views]


def test_boxes_are_where_the_trace_says(shown):
    html, seen = shown
    panels = drawn(html)
    assert len(panels) == len(seen["used"]["before"])
    for (begin, span, boxes), there in zip(panels, seen["used"]["before"], strict=True):
        assert len(there) == len(boxes)
        truth = [((low - begin) / span, (high - begin) / span) for _, _, low, high, _ in boxes]
        apart = np.array([one[1:] for one in there]) - np.array(truth)
        assert np.abs(apart).max() * seen["used"]["width"] < 1, "pixels"


def test_zoom_drag_and_keys_move_all_panels_of_a_figure_together(shown):
    used = shown[1]["used"]
    before, zoomed, moved, again = (
        [np.array([one[1:] for one in panel]) for panel in used[name][:2]]
        for name in ("before", "zoomed", "moved", "all")
    )
    for old, new, dragged, last in zip(before, zoomed, moved, again, strict=True):
        assert new == pytest.approx(4 * (old - 0.375), abs=1e-3), "four times as wide, the middle"
        by = 50 / used["width"]
        assert dragged == pytest.approx(new - by, abs=2e-3), "50 pixels to the left"
        assert last == pytest.approx(old, abs=1e-6)


def test_what_the_pointer_is_on_is_said(shown):
    used = shown[1]["used"]
    assert used["told"] == used["title"] and re.match(r"warp \d: ", used["told"])
