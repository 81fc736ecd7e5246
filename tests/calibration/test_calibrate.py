"""``ikp.calibrate``: its options, its file, and its kernels, which compile and are interpreted."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import ikp
from ikp.calibration import calibrate as it
from ikp.calibration.calibrate import INSTANTS, PROGRAMS, cost_figures
from ikp.cli.main import cli
from ikp.errors import BufferError, UsageError
from tests.calibration.recorded import recorded

OPTIONS: dict[str, Any] = {
    "clock": "cycles", "overflow": "stop", "schedule": True
}  # fmt: skip


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Pretend that there is a GPU on which the kernels ran; return the options of each run."""
    made: list[dict[str, Any]] = []

    def run(options: dict[str, Any], blocks: int, warps: int) -> tuple[ikp.Trace, str]:
        made.append({**options, "blocks": blocks, "warps": warps})
        return recorded(), "a spec"

    monkeypatch.setattr(it, "run", run)
    monkeypatch.setattr(it, "_cuda", lambda _: "cuda:0")
    monkeypatch.setattr(it, "_key", lambda options, blocks, warps: f"{options} {blocks} {warps}")
    return made


def test_without_a_gpu_it_says_so() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(BufferError, match="takes a CUDA device, and torch sees none"):
        ikp.calibrate()
    done = CliRunner().invoke(cli, ["calibrate"])
    assert done.exit_code == 1
    assert "can't be measured" in done.output


def test_it_measures_each_time_without_a_file_and_once_with_one(
    runs: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert ikp.calibrate(blocks=3) == ikp.calibrate(blocks=3)
    assert len(runs) == 2 and runs[0]["blocks"] == 3
    path = tmp_path / "overhead.json"
    first = ikp.calibrate(cache=path)
    assert (
        ikp.calibrate(cache=path)
        == first
        == cost_figures(recorded(), clock="cycles", settings="a spec", versions=first.versions)
    )
    assert len(runs) == 3
    ikp.calibrate(clock="cycles64", cache=path)
    assert len(runs) == 4 and len(json.loads(path.read_text())) == 2
    assert "triton=" in first.versions and "ikp=" in first.versions


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 3}', '{"a": {"device": "x"}}'])
def test_another_file_is_not_overwritten(
    runs: list[dict[str, Any]], tmp_path: Path, text: str
) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"does not hold what ikp\.calibrate measured"):
        ikp.calibrate(cache=path)
    assert path.read_text() == text
    assert not runs


def test_the_command_prints_the_figures(runs: list[dict[str, Any]]) -> None:
    done = CliRunner().invoke(cli, ["calibrate", "--clock", "cycles", "--warps", "8"])
    assert done.exit_code == 0
    rows = [line.rsplit("  ", 1) for line in done.output.splitlines()]
    assert ["an empty range shows", "11.0 (11.0 to 11.0)"] in [
        [name.strip(), value.strip()] for name, value in rows
    ]
    assert runs[0]["warps"] == 8
    done = CliRunner().invoke(cli, ["calibrate", "--format", "json"])
    head = {"schema": "ikp/calibrate", "version": 1}
    assert json.loads(done.output) == {**head, **asdict(ikp.calibrate())}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"clock": "sundial"}, "clock='sundial' is unknown"),
        ({"overflow": "drop"}, "overflow='drop' is unknown"),
    ],
)
def test_options_that_can_not_be_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        it.run({**OPTIONS, **options, "device": "cpu"})


def test_with_ikp_off_nothing_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IKP", "0")
    with pytest.raises(UsageError, match="IKP=0 is set"):
        it.run({**OPTIONS, "device": "cpu"})


@pytest.mark.interp
@pytest.mark.parametrize(
    ("clock", "overflow"),
    [
        ("cycles", "stop"),
        pytest.param("cycles64", "wrap", marks=pytest.mark.any_pins),
        pytest.param("globaltimer64", "stop", marks=pytest.mark.any_pins),
    ],
)
def test_the_kernels_record_what_is_measured(
    clock: str, overflow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(it, "_RANGES", 4)
    options = {**OPTIONS, "clock": clock, "overflow": overflow, "device": "cpu"}
    for _ in range(_TIMES):
        trace, settings = it.run(options, blocks=2)
        assert f"clock={clock} overflow={overflow}" in settings
        assert trace.dropped == 0
        assert [launch.label for launch in trace.launches] == [
            program.label for program in PROGRAMS * it._LAUNCHES
        ]
        found = cost_figures(trace, clock=clock)
        costs = [figure.ticks for figure in (found.empty_range, found.range_alone)]
        if all(0 < each < 1e9 for each in costs):
            return
    pytest.fail(f"a range takes {costs} ns in each of {_TIMES} runs")


_TIMES = 4
"""Runs of which one has costs of ranges that can be: they are differences of times, in Python, and
what else the machine does in one of the two is as long as many ranges."""


@pytest.mark.compiled
@pytest.mark.parametrize("clock", ["CYCLES", pytest.param("CYCLES64", marks=pytest.mark.any_pins)])
def test_the_kernels_hold_their_records_and_the_same_work(clock: str) -> None:
    from ikp.calibration._kernels import records
    from ikp.calibration.calibrate import ALONE, MANY, ROOTS
    from ikp.core.abi import ClockKind
    from ikp.targets.ptx import CLOCK_MARK, STORE_MARK
    from tests.backends.sass import LOCAL_MEMORY, compile_kernel, spec

    for each in PROGRAMS:
        code = compile_kernel(
            records,
            {"out": "*fp32", "n": "i32"},
            spec(clock=ClockKind[clock]),
            each.constants,
            num_warps=1,
        )
        assert code.ptx.count(STORE_MARK) == each.count + 1
        reads = 1 if each.kind == INSTANTS else 2
        assert code.ptx.count(CLOCK_MARK) == 2 + reads * each.count
        assert code.count(LOCAL_MEMORY) == {}
        assert code.ptx.count("sqrt.approx") == (0 if each.kind == ALONE else 2 * MANY * ROOTS)
