"""What the program for two GPUs says of two traces, and of a machine with one GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import ikp  # noqa: E402
from benchmarks import two_gpus  # noqa: E402
from tests.analysis.explain.launches import Range, Scene, Warp  # noqa: E402

pytestmark = pytest.mark.any_pins

FLIGHT = 700


def traces(offsets: tuple[int, ...], flight: int = FLIGHT) -> list[ikp.Trace]:
    """Return those of two ranks that send in turn, the second's times so far off in each launch."""
    scenes = Scene(), Scene()
    for launch, offset in enumerate(offsets):
        ranges: tuple[list[Range], list[Range]] = ([], [])
        now = 10_000 * launch
        for number in range(10 * launch, 10 * launch + 10):
            sender = number % 2
            off = (0, offset)
            put = now + off[sender], now + 100 + off[sender]
            ranges[sender].append(("put", *put, number))
            waits = now + 50 + off[1 - sender], now + 100 + flight + off[1 - sender]
            ranges[1 - sender].append(("wait", *waits, number))
            now += 100 + flight
        for scene, each in zip(scenes, ranges, strict=True):
            scene.add(Warp(0, 0, 0, 10_000 * launch - 500, now + 500, each, launch=launch))
    return [each.trace() for each in scenes]


def told(made: list[ikp.Trace], monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(ikp, "load", lambda path: made[int(Path(path).name.split(".")[1])])
    return two_gpus.check_clocks(Path())


def test_the_clocks_difference_is_half_of_that_of_the_flights(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(traces((100, 200, 300)), monkeypatch)
    said = capsys.readouterr().out
    assert "in 3 launches" in said and "mean 200 ns, sd 82 ns" in said and "most 300 ns" in said
    assert "0 of 30 messages received before they were sent" in said
    assert not told(traces((-600, 600)), monkeypatch), "its sd is more than is asked for"


def test_messages_before_they_were_sent_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not told(traces((-750, 0)), monkeypatch)
    said = capsys.readouterr().out
    assert "5 of 20 messages received before they were sent" in said
    assert "0 of them before their put began" in said


@pytest.mark.parametrize(("there", "options"), [(0, []), (1, []), (0, ["--one-gpu"])])
def test_a_machine_with_fewer_gpus_is_refused_in_one_line(
    there: int, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    monkeypatch.setattr(sys, "argv", ["two_gpus", *options])
    with pytest.raises(SystemExit, match=r"^this needs two GPUs in one host, .*there are \d\.$"):
        two_gpus.main()
