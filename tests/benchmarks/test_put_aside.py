"""The corpus of library calls: halves, how others' sources are taken, and what is summed up."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import DeviceType

from benchmarks import put_aside, told
from benchmarks.calls import case, develop, judge, later
from benchmarks.calls.figures import spread
from benchmarks.switch import NONE, Switch
from ikp.analysis import perturbation
from ikp.backends.timed import FURTHER, QUIET
from ikp.core.turns import IN_TURN


def test_the_halves_have_no_call_in_common() -> None:
    assert len(develop.CASES) >= 20
    assert len(judge.CASES) >= 40
    assert len(later.DEVELOP) >= 10 and len(later.JUDGE) >= 10
    every = [*develop.CASES, *judge.CASES, *later.DEVELOP, *later.JUDGE]
    assert len(set(every)) == len(every)


def test_each_call_is_measured_once_and_in_its_half() -> None:
    work = list(put_aside.groups("all", None, 3))
    for half, module in (("develop", develop), ("judge", judge)):
        names = [name for of, some in work for name in some if of == half]
        assert sorted(names) == sorted(module.CASES)
    only = list(put_aside.groups("judge", "torch_sort,stencil", 3))
    assert only == [("judge", ["torch_sort"])]


def test_a_process_records_either_a_librarys_kernels_or_all_others() -> None:
    named = develop.KERNELS.keys() | judge.KERNELS.keys()
    assert named < develop.CASES.keys() | judge.CASES.keys()
    for _, names in put_aside.groups("all", None, 3):
        assert len({name in named for name in names}) == 1


def test_kernels_between_two_delimiters_are_a_calls() -> None:
    def event(name: str, start: int, us: float, kind: DeviceType = DeviceType.CUDA) -> Any:
        time_range = SimpleNamespace(start=start, elapsed_us=lambda: us)
        return SimpleNamespace(name=name, time_range=time_range, device_type=kind)

    spin = f"void {put_aside.DELIMITER}(long)"
    events = [
        event("c", 7, 3.0),
        *(event(spin, at, 1.0) for at in (1, 4, 6, 8)),
        event("before", 0, 9.0),
        event("a", 2, 1.0),
        event("cudaLaunchKernel", 2, 50.0, DeviceType.CPU),
        event("Memset (Device)", 3, 9.0),
        event("between", 5, 9.0),
    ]
    assert put_aside.durations(events, 2) == [[("a", 1.0)], [("c", 3.0)]]
    with pytest.raises(RuntimeError, match="2 calls with kernels in the profile for 3"):
        put_aside.durations(events, 3)
    with pytest.raises(RuntimeError, match="1 calls with kernels in the profile for 2"):
        put_aside.durations(events[1:], 2)


@dataclass
class Told:
    """A trace of no launch."""

    provenance: dict[str, str]


def test_what_traces_say_is_judged_of_launches_that_are_queued_behind_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The rule: no call that is to be timed meets an idle GPU, which would wait for the host."""
    made: list[str] = []
    session = SimpleNamespace(facts={}, trace=Told({}), reset=lambda: None)
    switch = SimpleNamespace(
        session=session, missing=lambda: None, choosing=lambda *_: nullcontext()
    )
    event = SimpleNamespace(record=lambda: None, elapsed_time=lambda _: 0.01)
    monkeypatch.setattr(torch.cuda, "Event", lambda **_: event)
    flush = SimpleNamespace(zero_=lambda: made.append("flush"))
    monkeypatch.setattr(torch, "empty", lambda *_, **__: flush)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: made.append("idle"))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda _: made.append("busy"))
    monkeypatch.setattr(told, "record", lambda *_: made.append("call"))
    monkeypatch.setattr(told, "launches", lambda *_: [])
    monkeypatch.setattr(told, "spans_us", lambda _: {})
    monkeypatch.setattr(told, "longer_us", lambda *_: 2.5)
    monkeypatch.setattr(told, "profiled", lambda run: run())
    monkeypatch.setattr(told, "durations", lambda _, count: [[("k", 10.0)]] * count)
    monkeypatch.setattr(perturbation, "perturbations", lambda _: {})
    said = told.judged(switch, (tuple, lambda: None), put_aside.TOLD, tmp_path)
    assert said["true"] == said["by events"] == 1.0
    assert said["measured"] == said["estimated"] == 1.25
    assert made.count("call") == IN_TURN[-1] + 1 + QUIET + FURTHER + 2 * told.BESIDE
    assert {before for before, each in pairwise(made) if each == "call"} == {"busy"}


def test_a_drift_is_in_recorded_and_plain_calls_alike() -> None:
    chosen = ["waits" if each.bit_count() % 2 else None for each in range(told.BESIDE)]
    us = [100.0 + 0.2 * at + (10 if each else 0) for at, each in enumerate(chosen)]
    ratio, error = told.paired(us, chosen, 100.0)
    assert ratio == pytest.approx(1.1, abs=0.003) and error < 0.003


def test_what_a_call_took_is_the_sum_of_what_is_said_of_its_launches() -> None:
    """The rule: a launch counts as often as the call makes it, with its own grid's time."""
    in_call = [{"label": "a", "grid": [n, 1, 1], "span_ns": 4000} for n in (1, 2, 2)]
    in_call.append({"label": "unknown", "grid": [1, 1, 1], "span_ns": 4000})
    spans = {("a", (1, 1, 1)): 10.0, ("a", (2, 1, 1)): 20.0}
    found = {"a": SimpleNamespace(ratio=1.25)}
    assert told.longer_us(in_call, spans, found) == pytest.approx(50 * 0.2)
    assert told.longer_us(in_call, {}, found) == pytest.approx(12 * 0.2)


SCRIPT = '''
"""A tutorial, which says torch.rand."""
import os

WIDE = 4

def double(x):
    return x * WIDE

@perf_report(1)
def benchmark(x):
    return x

x = str("torch.rand")
y = double(x)
LATER = 1

def triple(x):
    return x * 3
'''


def test_of_a_script_nothing_runs_but_definitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.replace(", which says torch.rand", ""))
    monkeypatch.setenv(case.SOURCES, str(tmp_path))
    module = case.definitions("script.py")
    assert module.double(2) == 8
    assert module.triple(2) == 6
    assert not {"x", "y", "LATER", "benchmark"} & vars(module).keys()


def test_a_source_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(case.SOURCES, str(tmp_path))
    with pytest.raises(case.MissingError, match=r"no llm\.c/a\.cu under"):
        case.source("llm.c", "a.cu")


def test_functions_are_cut_out_of_cuda_code_whole(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text(
        "__device__ int one(int x);\n__device__ int one(int x) {\n  if (x) { x++; }\n"
        "  return x;\n}\n"
        "__global__ void __launch_bounds__(16*16) kernel(int *x) { *x = one(*x); }\nint main() {}\n"
    )
    (tmp_path / "common.h").write_text("__device__ int two() { return 2; }")
    text = case.c_functions(tmp_path / "a.cu", "one", "kernel", "two")
    assert text.count("{") == text.count("}") == 4
    assert "main" not in text
    assert text.splitlines()[-1] == "__device__ int two() { return 2; }"
    with pytest.raises(case.MissingError, match="no function three"):
        case.c_functions(tmp_path / "a.cu", "three")


def test_a_summary_leaves_out_what_failed_or_was_not_recorded() -> None:
    def result(ratio: float, missing: str = "") -> dict[str, object]:
        return {"modes": {"ops": {"ratio": ratio, "missing": missing}}}

    results = [result(1.0), result(1.1), result(1.2), result(9.0, "why"), {"failed": "why"}]
    assert put_aside.summary(results, ["ops"]) == "ops 1.100, 1.180 (3)"


def test_kernels_of_calls_that_launched_others_are_left_out() -> None:
    pairs = [
        ([("a", 10.0), ("b", 1.0)], [("a", 11.0), ("b", 1.0)]),
        ([("a", 10.0), ("b", 1.0)], [("a", 13.0), ("b", 1.0)]),
        ([("a", 10.0)], [("a", 99.0)]),
    ]
    assert put_aside.kernels(pairs) == [
        {"name": "a", "us": 10.0, "ratio": pytest.approx(1.2)},
        {"name": "b", "us": 1.0, "ratio": 1.0},
    ]


def test_blocks_that_began_first_are_apart() -> None:
    starts, durations = np.array([0, 0, 100, 100]), np.array([10, 20, 30, 40])
    assert spread(starts, durations) == [4, 25, 17.5, 25, 32.5, 15]


def test_each_way_is_the_first_of_a_turn_at_some_time() -> None:
    turns = [put_aside.turned([None, "a", "b"], number) for number in range(3)]
    assert turns == [[None, "a", "b"], ["a", "b", None], ["b", None, "a"]]


def test_a_call_has_a_process_for_each_detail() -> None:
    """The rule: a launch repeats what was recorded first, so one process has one detail."""
    found = [
        {"us": us, "bits": "=", "modes": {mode: {"ratio": ratio}}}
        for mode, us, ratio in (("loops", 10.0, 1.01), ("ops", 12.0, 1.05))
    ]
    made = put_aside.together(found)
    assert made["us"] == 11.0 and made["bits"] == "=/="
    assert {mode: each["ratio"] for mode, each in made["modes"].items()} == {
        "loops": 1.01,
        "ops": 1.05,
    }
    assert put_aside.together([*found, {"failed": "why"}]) == {"failed": "why"}


def test_a_switch_refuses_a_second_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = SimpleNamespace(
        plan=SimpleNamespace(sample=None), recorded=Counter(), plain=Counter(), launches=None
    )
    recording = SimpleNamespace(launcher=launcher, session=None)
    finder = SimpleNamespace(recording=recording, find_spec=lambda *_: None)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    made = Switch()
    made.run(lambda: None, "waits")
    made.run(lambda: None, None)
    with pytest.raises(ValueError, match=r"this process records by .*waits.*ops"):
        made.run(lambda: None, "ops")
    assert launcher.launches == NONE
