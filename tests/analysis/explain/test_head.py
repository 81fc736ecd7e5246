"""What a verdict and a table say first: what was lost, and that no GPU was there."""

from __future__ import annotations

import pytest

from ikp.analysis.counting_regions import stats
from ikp.core.trace import ClockFit
from tests.analysis.explain.launches import Scene, Warp

pytestmark = pytest.mark.any_pins


def scene() -> Scene:
    made = Scene()
    for block in range(8):
        begin = 1000 * (block // 4)
        made.add(Warp(block, 0, block % 4, begin, begin + 900, [("dot", begin, begin + 500)]))
    return made


def test_lost_records_come_first_with_their_share() -> None:
    lossy = scene().trace(attempted=1000, kept=8)
    first = str(lossy.explain()).splitlines()[0]
    assert first == "99.2 % of the records were lost (992 of 1,000): what follows is of the others."
    assert str(stats(lossy)).splitlines()[0].startswith("kernel: 99.2 % of the records were lost")
    whole = scene().trace(attempted=8, kept=8)
    assert "lost" not in str(whole.explain()).splitlines()[0] + str(stats(whole))


def test_a_few_lost_records_are_not_rounded_to_none() -> None:
    lossy = scene().trace(attempted=100_000, kept=99_999)
    assert str(lossy.explain()).startswith(
        "less than 0.1 % of the records were lost (1 of 100,000)"
    )
    nearly = scene().trace(attempted=100_000, kept=1)
    assert str(nearly.explain()).startswith("more than 99.9 % of the records were lost")


def test_warps_that_never_finished_come_first_too() -> None:
    made = scene().trace(attempted=8, kept=8, unfinished=3)
    assert str(made.explain()).startswith("3 warps never finished: how many records were lost is")


def test_of_the_interpreter_no_figure_of_a_gpu_is_told() -> None:
    made = scene().trace(clock=ClockFit("host", 1.0, "exact"), device="cpu (interpreter)")
    verdict = made.explain()
    assert verdict.lanes is None and verdict.hardware is None and not verdict.findings
    assert verdict.launch is not None and verdict.launch.sms is None
    assert verdict.launch.recording_share_at_most is None
    text = str(verdict)
    assert "SM" not in text.replace("SMs, waves", "") and "slots" not in text
    assert "lanes:" not in text and "at once" not in text
    (said,) = [one for one in verdict.unknown if "SMs, waves" in one.what]
    assert "interpreter" in said.rationale
    page = made.report().html
    assert "waves" not in page.split("Not known")[-1].split("</p>", 1)[1] and ">SMs<" not in page
