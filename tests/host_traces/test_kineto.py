"""torch.profiler's JSON, as it is written, and as it may be damaged."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ikp.core.abi import LAUNCH_HEADER_BYTES
from ikp.errors import UsageError
from ikp.host_traces import kineto
from tests.host_traces.simulated import records

RECORDED = Path(__file__).parent / "recorded" / "h100.json"


def written(folder: Path, events: list[dict[str, Any]], **facts: Any) -> Path:
    path = folder / "host.json"
    path.write_text(json.dumps({"traceEvents": events, **facts}), encoding="utf-8")
    return path


def event(name: str, category: str, thread: int, **more: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": 5,
        "tid": thread,
        "ts": 1,
        "dur": 2,
        **more,
    }


def test_what_an_h100_recorded() -> None:
    host = kineto.read(RECORDED)
    assert host.base_ns == 1790857026000000000
    kernels = [each for each in host.slices if each.is_kernel]
    assert len(kernels) == 40
    assert {each.name for each in kernels} == {"copied", "scaled", "exped", "summed", "looped"}
    calls = [each for each in host.slices if each.category == "cuda_driver"]
    assert {each.correlation for each in calls} == {each.correlation for each in kernels}
    assert not any("ikp" in each.name for each in host.slices)


def test_times_are_exact(tmp_path: Path) -> None:
    """As floats, times of so many digits would be up to 512 ns off."""
    path = tmp_path / "host.json"
    content = written(tmp_path, [event("f", "cpu_op", 1)]).read_text(encoding="utf-8")
    path.write_text(content.replace('"ts": 1', '"ts": 4807571531409123.457'), encoding="utf-8")
    (one,) = kineto.read(path).slices
    assert (one.start_ns, one.end_ns) == (4807571531409123457, 4807571531409125457)


def test_ikps_own_thread_is_left_out(tmp_path: Path) -> None:
    def on_gpu(name: str, category: str, number: int) -> dict[str, Any]:
        return event(name, category, 7, args={"correlation": number, "device": 0})

    def call(thread: int, number: int) -> dict[str, Any]:
        return event("call", "cuda_driver", thread, args={"correlation": number})

    events = [
        *(call(1, 10), call(2, 11), call(2, 12), event("aten::add", "cpu_op", 1)),
        *(on_gpu("gemm", "kernel", 10), on_gpu(kineto.OWN_KERNEL, "kernel", 11)),
        on_gpu("Memcpy HtoD", "gpu_memcpy", 12),
    ]
    host = kineto.read(written(tmp_path, events))
    assert [(each.name, each.correlation) for each in host.slices] == [
        *(("call", 10), ("aten::add", None), ("gemm", 10))
    ]
    assert host.base_ns is None


def test_copies_that_ikp_makes_by_the_driver_are_left_out(tmp_path: Path) -> None:
    def copied(stream: int, number: int, size: int, kind: str = "gpu_memcpy") -> dict[str, Any]:
        return event("copy", kind, stream, args={"correlation": number, "bytes": size})

    header = LAUNCH_HEADER_BYTES
    events = [
        event("cudaMemcpyAsync", "cuda_runtime", 1, args={"correlation": 10}),
        *(copied(7, 10, header), copied(7, 11, header)),  # one of them is the program's for sure
        *(copied(13, 12, header), copied(13, 13, 1 << 16)),  # ikp's
        *(copied(14, 14, 1 << 16), copied(14, 15, 4)),  # of no header
        *(copied(15, 16, header), copied(15, 17, 0, "kernel")),  # not copies alone
    ]
    host = kineto.read(written(tmp_path, events))
    assert [each.correlation for each in host.slices] == [10, 10, 11, 14, 15, 16, 17]


def test_the_rank_is_that_of_the_process(tmp_path: Path) -> None:
    path = written(tmp_path, [], distributedInfo={"backend": "nccl", "rank": 3, "world_size": 4})
    assert kineto.read(path).rank == 3
    assert kineto.read(written(tmp_path, [])).rank is None


def test_tracks_have_the_names_of_threads_and_streams(tmp_path: Path) -> None:
    names = [
        {"ph": "M", "name": "process_name", "pid": 5, "tid": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": 5, "tid": 1, "args": {"name": "main"}},
    ]
    events = [event("f", "cpu_op", 1), event("k", "kernel", 7, args={"device": 3})]
    host = kineto.read(written(tmp_path, [*names, *events]))
    assert [(each.group, each.name) for each in host.tracks] == [
        *(("python 5", "main"), ("GPU 3", "stream 7"))
    ]


@pytest.mark.parametrize(
    "broken", [{"dur": -1}, {"dur": None}, {"ts": "x"}, {"ph": "i"}, {"ts": True}, {"cat": "Trace"}]
)
def test_events_without_times_are_left_out(tmp_path: Path, broken: dict[str, Any]) -> None:
    events = [event("f", "cpu_op", 1), {**event("g", "cpu_op", 1), **broken}]
    assert [each.name for each in kineto.read(written(tmp_path, events)).slices] == ["f"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no JSON"),
        (b"[1", "is no JSON"),
        (b"[]", "no traceEvents"),
        (b'{"traceEvents": 3}', "no traceEvents"),
        (gzip.compress(b"{}", mtime=0)[:-9], "is no JSON"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "host.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        kineto.read(path)
    with pytest.raises(UsageError, match="can't be read"):
        kineto.read(tmp_path / "none.json")


def test_what_ends_a_session_is_left_out_with_what_it_starts_on_the_gpu() -> None:
    host = records([0, 50_000, 120_000])
    calls = [each for each in host.slices if each.category == "cuda_driver"]
    queued = replace(host.slices[3], start_ns=calls[2].end_ns + 5, end_ns=calls[2].end_ns + 9)
    host = replace(host, slices=(*host.slices[:3], queued, *host.slices[4:]))
    assert host.base_ns is not None
    left = kineto.until(host, host.base_ns + calls[1].start_ns)
    assert left.slices == host.slices[:4]  # also the kernel that ran after that time
    assert kineto.until(replace(host, base_ns=None), 0).slices == host.slices
