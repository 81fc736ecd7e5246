"""Launches found by marks and CUPTI's correlation ids, where grid, name and time can't tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ikp
from ikp.core.host_trace import LAUNCH, HostTrace
from ikp.errors import UsageError
from ikp.exporters.perfetto import PerfettoExporter
from ikp.host_traces import kineto
from ikp.host_traces.kineto import NAMED
from ikp.host_traces.placing import place
from ikp.session import launch_marks
from ikp.trace import Trace
from tests.analysis.example import START
from tests.host_traces.simulated import launches, records

pytestmark = pytest.mark.any_pins

RECORDED = Path(__file__).parent / "recorded"


class Program:
    """What torch.profiler sees of launches: marks, calls and kernels, in microseconds."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.ids = 0

    def slice(self, name: str, category: str, thread: int, at: float, to: float, **of: Any) -> None:
        args = {**of, "device": 0}
        where = {"pid": 5, "tid": thread, "ts": at, "dur": to - at}
        self.events.append({"ph": "X", "name": name, "cat": category, "args": args, **where})

    def mark(self, number: int, thread: int, at: float) -> None:
        self.slice(f"{NAMED}{number}", "cpu_op", thread, at, at + 0.5)

    def call(self, name: str, thread: int, at: float, to: float) -> int:
        self.ids += 1
        kind = "cuda_runtime" if name.startswith("cuda") else "cuda_driver"
        self.slice(name, kind, thread, at, to, correlation=self.ids)
        return self.ids

    def kernel(self, correlation: int, at: float, name: str = "gemm", **more: Any) -> None:
        of = {"grid": [2, 2, 1], "block": [32, 1, 1], "correlation": correlation, **more}
        self.slice(name, "kernel", 7 + correlation % 2, at - 0.3, at + 2.3, **of)

    def trace(self) -> HostTrace:
        made = {"traceEvents": self.events, "baseTimeNanoseconds": START}
        return kineto.parse(json.dumps(made).encode(), "host.json")

    def found(self) -> dict[int, int | None]:
        """Return by the number of a launch the correlation id of its record."""
        return {each.launch: each.correlation for each in self.trace().slices if each.launch}


def test_the_call_behind_a_mark_or_around_it_is_the_launchs() -> None:
    host = Program()
    host.mark(1, 1, 10)
    driver = host.call("cuLaunchKernelEx", 1, 12, 15)
    host.mark(2, 1, 32)  # within the CUDA runtime's call, which has ended after it
    runtime = host.call("cudaLaunchKernel", 1, 30, 40)
    other = host.call("cudaLaunchKernelExC", 1, 50, 60)  # is not recorded
    for each in (other, runtime, driver):  # kernels may run in any order
        host.kernel(each, 100 - each)
    assert host.found() == {1: driver, 2: runtime}
    assert not any(each.name.startswith(NAMED) for each in host.trace().slices)


def test_each_thread_has_its_own_calls() -> None:
    host = Program()
    host.mark(1, 1, 10)
    host.mark(2, 2, 10.1)
    second = host.call("cuLaunchKernel", 2, 11, 13)
    first = host.call("cuLaunchKernel", 1, 12, 14)
    for each in (first, second):
        host.kernel(each, 20)
    assert host.found() == {1: first, 2: second}


def test_what_launches_no_kernel_is_passed_over() -> None:
    host = Program()
    host.mark(1, 1, 10)
    host.call("cudaStreamIsCapturing", 1, 12, 13)
    captured = host.call("cuLaunchKernelEx", 1, 14, 15)  # into a graph: it has no record
    graph = host.call("cudaGraphLaunch", 1, 20, 30)
    host.kernel(graph, 40)
    assert host.found() == {}
    host.kernel(captured, 50)
    assert host.found() == {1: captured}
    host.kernel(captured, 60)  # two records of one id say nothing
    assert host.found() == {}


def test_of_several_marks_and_calls_the_last_counts() -> None:
    host = Program()
    host.mark(1, 1, 10)  # was not launched
    host.mark(2, 1, 11)
    first = host.call("cuLaunchKernel", 1, 12, 13)
    host.mark(2, 1, 20)  # the same buffer again
    again = host.call("cuLaunchKernel", 1, 21, 22)
    host.mark(3, 1, 30)  # the profiler ended before the call
    for each in (first, again):
        host.kernel(each, 40 + each)
    assert host.found() == {2: again}


def two_at_once(**more: Any) -> tuple[Trace, Program]:
    """Return launches of one kernel in turn on two streams: of each pair the later one is first.

    They overlap so closely that by time each of a pair would get the other's record.
    """
    host, begins = Program(), list[int]()
    for pair in range(20):
        at = 100.0 * pair
        ids = []
        for number in (2 * pair + 1, 2 * pair + 2):
            host.mark(number, 1, at + 10 * number)
            ids.append(host.call("cuLaunchKernel", 1, at + 10 * number + 1, at + 10 * number + 4))
        runs = at + 20.0 * pair + 50
        host.kernel(ids[0], runs + 0.2, **more)
        host.kernel(ids[1], runs, **more)
        begins += [round(1000 * runs), round(1000 * runs) + 100]
    trace = launches(begins)
    alike = enumerate(trace.launches, 1)
    numbered = tuple(replace(each, label="gemm", number=number) for number, each in alike)
    return replace(trace, launches=numbered), host


def test_two_kernels_of_one_name_at_once_have_their_own_records() -> None:
    trace, program = two_at_once()
    host = program.trace()
    for way in ("clocks", "launches"):
        placed = place(trace, host, way)
        found = {launch: host.slices[index].launch for launch, index in placed.record.items()}
        assert found == {number: number + 1 for number in range(40)}, way
        assert "40 are matched by correlation id." in placed.report
    plain = replace(trace, launches=tuple(replace(each, number=0) for each in trace.launches))
    swapped = place(plain, host)
    assert [host.slices[swapped.record[each]].launch for each in (0, 1)] == [2, 1]
    assert "correlation" not in swapped.report


def test_launches_of_an_h200_on_two_streams() -> None:
    """One thread launched a kernel of one grid 12 times, by a driver's call each."""
    host, trace = kineto.read(RECORDED / "streams.json"), ikp.load(RECORDED / "streams.pftrace")
    placed = place(trace, host)
    assert "12 of 12 launches are within 1 us of their kernel record" in placed.report
    assert placed.report.endswith("; 12 are matched by correlation id.")
    calls = [each for each in host.slices if each.category == "cuda_driver"]
    calls.sort(key=lambda each: each.start_ns)
    order = sorted(range(12), key=lambda each: trace.launches[each].number)
    found = [host.slices[placed.record[each]].correlation for each in order]
    assert found == [each.correlation for each in calls]
    streams = {host.tracks[host.slices[each].track].name for each in placed.record.values()}
    assert streams == {"stream 13", "stream 17"}


def test_what_has_no_number_is_matched_by_time() -> None:
    trace, program = two_at_once()
    some = tuple(replace(each, number=each.number * (each.number > 1)) for each in trace.launches)
    placed = place(replace(trace, launches=some), program.trace())
    assert "39 are matched by correlation id, 1 by grid, block, name and time" in placed.report
    assert "40 of 40 launches are within 1 us" in placed.report
    assert len(set(placed.record.values())) == 40


def test_numbers_place_launches_that_come_too_regularly_for_their_order() -> None:
    begins = range(0, 6_000_000, 50_000)
    host, trace = records(begins), launches(begins[:60], None, lambda now: now - 2_123_456)
    plain = trace.launches
    with pytest.raises(UsageError, match="several orders fit"):
        place(trace, host)
    numbered = tuple(replace(each, number=n) for n, each in enumerate(plain, 1))
    seen = tuple(
        replace(each, args={**each.args, LAUNCH: each.correlation - 30})
        if each.is_kernel and each.correlation is not None and each.correlation > 30
        else each
        for each in host.slices
    )
    placed = place(replace(trace, launches=numbered), replace(host, slices=seen))
    found = [placed.host.slices[placed.record[each]].correlation for each in range(60)]
    assert found == [each + 31 for each in range(60)]


@pytest.mark.parametrize("more", [{"grid": [2, 2, 2]}, {"name": "norm"}])
def test_numbers_that_lead_to_other_kernels_are_refused(more: dict[str, Any]) -> None:
    trace, program = two_at_once()
    odd = program.events[-1]
    odd["name"] = more.get("name", odd["name"])
    odd["args"] |= more
    words = "1 of 40 launches have another grid or name than the kernel records in host.json"
    with pytest.raises(UsageError, match=words):
        place(trace, program.trace())


def test_labels_of_the_users_own_contradict_no_record() -> None:
    trace, program = two_at_once()
    named = tuple(replace(each, label="mine") for each in trace.launches)
    assert len(place(replace(trace, launches=named), program.trace()).record) == 40


def test_marks_are_made_while_a_recording_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    assert launch_marks.mark(0) == 0
    launch_marks.begin(said.append)
    monkeypatch.setattr("os.getpid", lambda: 77)
    first, second = launch_marks.mark(0), launch_marks.mark(0)
    assert first >> 31 == second >> 31 == 77 and second == first + 1
    assert launch_marks.mark(first) == first, "the same buffer"
    launch_marks.end()
    assert launch_marks.mark(5) == 5
    assert said == [f"{NAMED}{number}" for number in (first, second, first)]


def test_a_file_keeps_which_record_is_whose(tmp_path: Path) -> None:
    """``ikp merge`` matches launches again, with what it reads back."""
    trace, program = two_at_once()
    placed = place(trace, program.trace())
    path = tmp_path / "x.pftrace"
    PerfettoExporter().write_beside(placed.trace, path, [placed.host], [placed.record])
    (back,) = PerfettoExporter().read_beside(path)
    again = place(ikp.load(path), back, "clocks")
    found = {launch: back.slices[index].launch for launch, index in again.record.items()}
    assert found == {number: number + 1 for number in range(40)}
