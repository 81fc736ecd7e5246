"""The end of ``ikp run``: kernels by time, findings on the hottest one, the commands to type."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ikp import terminal
from ikp.analysis.kernel_times import KernelTime, kernel_times
from ikp.cli.main import cli
from ikp.running import answer as module
from ikp.running.answer import MOST, MOST_READ, Answer, answer
from ikp.running.finishing import as_lines, finish
from ikp.running.process_parts import Part, Plain, as_note, of_note
from ikp.trace import Trace
from ikp.unedited.plan import NOT_NAMED
from tests.analysis.explain.launches import Scene, Warp

pytestmark = pytest.mark.any_pins
WAIT = "barrier @kernel.py:36"


def skewed(label: str = "hot", scale: int = 1) -> Trace:
    """Return a launch of four warps that come to a barrier one after the other, 2 us apart."""
    scale *= 10
    ranges = [
        [(WAIT, scale * (1000 * k + 200 * warp), scale * (1000 * k + 620)) for k in range(8)]
        for warp in range(4)
    ]
    warps = (Warp(0, n, 0, 0, scale * 8000, each) for n, each in enumerate(ranges))
    return Scene(label=label).add(*warps).trace()


def part(trace: Trace, path: str, **changes: Any) -> Part:
    recorded = {each.label: 1 for each in trace.launches}
    return replace(
        Part(7, "prog.py", path, recorded=recorded, times=kernel_times(trace)), **changes
    )


def text(found: Answer) -> list[str]:
    return list(as_lines(found, 80))


def test_kernels_of_all_processes_are_ranked_by_what_all_their_launches_took() -> None:
    rank0 = Part(
        *(1, "a.py", "/w/0.pftrace"),
        recorded={"cold": 2, "hot": 2},
        plain=(Plain("hot", "later", 98), Plain("never", "graph", 3), Plain("no", NOT_NAMED, 9)),
        times=(KernelTime("cold", 2, 4000, 1000, 3000), KernelTime("hot", 2, 200, 50, 150)),
    )
    rank1 = replace(
        rank0, trace="/w/1.pftrace", plain=(), times=(KernelTime("hot", 2, 600, 250, 350),)
    )
    lost = replace(rank0, trace=None)
    assert of_note(as_note([rank0, lost])) == [rank0, lost]
    found = answer([rank0, rank1, lost], {}, "/w", refused="no")
    hot, cold = found.kernels
    assert (hot.label, hot.recorded, hot.launches, hot.trace) == ("hot", 4, 102, "/w/1.pftrace")
    assert (hot.mean_ns, hot.min_ns, hot.max_ns, hot.total_ns) == (200, 50, 350, 20400)
    assert (cold.label, cold.total_ns, cold.launches) == ("cold", 4000, 2)
    assert hot.share + cold.share == 1 and hot.share == 20400 / 24400
    assert found.untimed == ("never",)
    lines = text(found)
    assert lines[2].split() == ["hot", "4", "of", "102", "200", "ns", "~20.40", "us", "83.6", "%"]
    assert "no launch was recorded: never." in "\n".join(lines)
    assert "The first of them is not explained: no." in lines


def test_the_first_findings_come_with_file_and_line_and_the_command_for_all() -> None:
    trace = skewed()
    found = answer([part(trace, "/w/x y.pftrace")], {"/w/x y.pftrace": trace}, "/w")
    assert found.verdict is not None and found.explained == "/w/x y.pftrace"
    lines = text(found)
    assert any(line.startswith("1. ") for line in lines)
    assert any(line.strip().startswith("look at kernel.py:36, block 0 warp") for line in lines)
    assert lines[-2:] == [
        "next: ikp explain 'x y.pftrace'    (all of the verdict)",
        "next: ikp view --finding 1 'x y.pftrace'    (where the first finding is)",
    ]


@pytest.mark.parametrize(
    ("suffix", "commands"),
    [
        ("pftrace", ["explain", "view"]),
        ("pftrace.gz", ["explain", "view"]),
        ("json", ["view"]),
        ("json.gz", ["view"]),
        ("csv", []),
        ("parquet", []),
        ("speedscope.json", []),
    ],
)
def test_a_command_named_next_takes_the_file_that_was_written(
    suffix: str, commands: list[str], tmp_path: Path
) -> None:
    path, trace = tmp_path / f"x.{suffix}", skewed()
    trace.save(path)
    found = answer([part(trace, str(path))], {str(path): trace}, str(tmp_path))
    assert [each.words[1] for each in found.next] == commands
    for command in commands:
        options = ["--print"] if command == "view" else []
        done = CliRunner().invoke(cli, [command, *options, str(path)])
        assert done.exit_code == 0, done.output
        assert ("next: ikp stats" in done.stderr) is (
            suffix.startswith("pftrace") and bool(options)
        )
    merged = tmp_path / f"y.{suffix}"
    skewed().save(tmp_path / "z.pftrace")
    said = CliRunner().invoke(cli, ["merge", str(tmp_path / "z.pftrace"), str(merged)])
    assert said.exit_code == 0 and ("next: ikp view" in said.stderr) is ("view" in commands)


def test_the_hottest_kernel_of_the_run_is_named_where_its_trace_has_a_hotter_one(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "x.pftrace")
    both = skewed("other", 2)
    slots = replace(both.slots, launch=np.array([0, 0, 1, 1]))
    both = replace(
        both, launches=(both.launches[0], replace(both.launches[0], label="hot")), slots=slots
    )
    both.save(path)  # as another process did
    plain = (Plain("hot", "later", 999),)
    found = answer([part(both, path, plain=plain)], {}, "/")
    assert found.next[0].words == ("ikp", "explain", path[1:], "--launch", "hot")
    assert found.verdict is not None and found.verdict.launch is not None
    assert found.verdict.launch.label == "hot"


@pytest.mark.parametrize("wide", [60, 80, 100])
def test_no_line_is_wider_than_the_terminal_but_commands(wide: int) -> None:
    names = [f"void at::native::kernel_{'x' * n}<float, {n}>(int)" for n in range(40, 47)]
    names[3] = "\x1b[31m" + "漢" * 60
    trace = skewed(names[0])
    times = tuple(KernelTime(each, 1, 10**9, 10**9, 10**9) for each in names)
    parts = [part(trace, "/w/x.pftrace", times=times)]
    for refused in ("", "a reason of many words, " * 9):
        lines = list(as_lines(answer(parts, {"/w/x.pftrace": trace}, "/w", refused=refused), wide))
        texts = [line for line in lines if not line.startswith("next: ")]
        assert max(map(terminal.width, texts)) <= wide
        assert not any("\x1b" in line for line in lines)
        assert sum(line.endswith("14.3 %") for line in lines[:7]) == 5
        assert any(line.startswith("and 2 more kernels: 28.6 % of the time") for line in lines)


def test_a_launch_or_a_file_that_takes_too_long_is_left_out_and_the_line_says_so() -> None:
    trace = skewed()
    large = replace(trace, launches=(replace(trace.launches[0], kept=MOST + 1),))
    file = part(trace, "/w/x.pftrace", records=MOST_READ + 1)
    for parts, traces, why in (
        ([file], {"/w/x.pftrace": large}, f"a launch of it has {MOST + 1:,}"),
        ([file], {}, f"the trace has {MOST_READ + 1:,}"),
    ):
        found = answer(parts, traces, "/w")
        assert found.verdict is None and len(found.kernels) == 1
        told = " ".join(line.strip() for line in text(found))
        assert f"{why} records, and the end of a run explains" in told
        assert "next: ikp explain x.pftrace" in told


def test_many_launches_in_memory_keep_no_verdict_from_one_of_them() -> None:
    trace = skewed()
    parts = [part(trace, "/w/x.pftrace", records=100 * MOST)]
    assert answer(parts, {"/w/x.pftrace": trace}, "/w").verdict is not None


@pytest.mark.parametrize("error", [RuntimeError("odd"), KeyboardInterrupt()])
def test_an_error_while_explaining_is_a_line(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise error

    trace = skewed()
    monkeypatch.setattr(Trace, "explain", fails)
    options = SimpleNamespace(explain=True, folder="/w", output="text")
    parts, traces = [part(trace, "/w/x.pftrace")], {"/w/x.pftrace": trace}
    finish(options, "/w/x.pftrace", None, parts, traces)  # type: ignore[arg-type]
    said = capfd.readouterr()
    why = "RuntimeError: odd" if isinstance(error, RuntimeError) else "interrupted"
    assert (
        f"The first of them is not explained: {why}.\n" in said.err
        and "next: ikp explain" in said.err
    )
    monkeypatch.setattr(module, "kernels_of", fails)
    if isinstance(error, RuntimeError):
        finish(options, "/w/x.pftrace", None, parts, traces)  # type: ignore[arg-type]
        assert capfd.readouterr().err == (
            "ikp: what took the time is not said: RuntimeError: odd\n"
        )
    assert said.out == ""


def test_where_its_json_cannot_be_written_a_run_still_ends_with_the_answer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.run.json").mkdir()
    path = str(tmp_path / "x.pftrace")
    trace = skewed()
    options = SimpleNamespace(explain=True, folder="/w", output="json", path=path)
    finish(options, path, None, [part(trace, path)], {path: trace})  # type: ignore[arg-type]
    said = capfd.readouterr().err
    assert f"ikp: {tmp_path}/x.run.json was not written: [Errno 21] Is a directory" in said
    assert "next: ikp explain" in said and "1. " in said


def test_a_signal_leaves_no_time_to_explain(capfd: pytest.CaptureFixture[str]) -> None:
    trace = skewed()
    options = SimpleNamespace(explain=True, folder="/w", output="text")
    parts = [part(trace, "/w/x.pftrace")]
    finish(options, "/w/x.pftrace", None, parts, {"/w/x.pftrace": trace}, hasty=True)  # type: ignore[arg-type]
    said = capfd.readouterr().err
    assert "The first of them is not explained: a signal ended the program." in said


def test_the_programs_own_settings_of_warnings_and_numpy_do_not_matter() -> None:
    trace = skewed()
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        found = answer([part(trace, "/w/x.pftrace")], {"/w/x.pftrace": trace}, "/w")
    assert found.verdict is not None and json.dumps(found.verdict.to_dict())
