"""Exports of Nsight Systems, in the tables that its documentation names, are joined."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ikp.cli.main import cli
from ikp.errors import UsageError
from ikp.exporters.perfetto import PerfettoExporter
from ikp.host_traces import nsight
from tests.analysis.example import START
from tests.host_traces.simulated import KERNELS, launches

pytestmark = pytest.mark.any_pins

BEGINS = [0, 50_000, 120_000, 160_000]
PROCESS, OTHER = 12 << 24, 13 << 24
TEXTS = (
    *KERNELS,
    "cuLaunchKernel",
    "cudaLaunchKernel_v7000",
    "ikp_handshake",
    "step 1",
    "cudaGraphLaunch_v10000",
)


def export(path: Path, rows: Mapping[str, list[dict[str, Any]]]) -> None:
    with sqlite3.connect(path) as base:
        for table, some in rows.items():
            names = list(dict.fromkeys(name for row in some for name in row))
            base.execute(f"create table {table} ({', '.join(f'[{name}]' for name in names)})")
            marks = ", ".join("?" * len(names))
            values = [[row.get(name) for name in names] for row in some]
            base.executemany(f"insert into {table} values ({marks})", values)


def kernel(name: int, at: int, number: int, process: int = PROCESS) -> dict[str, Any]:
    shape = {"gridX": 2, "gridY": 2, "gridZ": 1, "blockX": 32, "blockY": 1, "blockZ": 1}
    of = {"deviceId": 0, "streamId": 7, "globalPid": process, "correlationId": number}
    return {"start": at - 300, "end": at + 2300, "demangledName": name, **of, **shape}


def call(name: int, at: int, number: int, thread: int) -> dict[str, Any]:
    of = {"globalTid": thread, "correlationId": number, "nameId": name}
    return {"start": at - 9000, "end": at - 8000, **of}


def tables() -> dict[str, list[dict[str, Any]]]:
    """Return four launches, one of another process with the first one's number, and ikp's own."""
    at = [5_000_000 + begin for begin in BEGINS]
    kernels = [kernel(n % 3, at[n], n + 1) for n in range(3)] + [kernel(0, at[3], 1, OTHER)]
    calls = [call(3 + n % 2, at[n], n + 1, PROCESS + 12) for n in range(3)]
    calls += [call(7, at[2], 80, PROCESS + 12)]
    calls += [call(3, at[3], 1, OTHER + 13), call(3, 9000, 90, PROCESS + 99)]
    copy = {"deviceId": 0, "streamId": 8, "globalPid": PROCESS, "bytes": 64}
    graph = {"deviceId": 0, "streamId": 7, "globalPid": PROCESS, "graphId": 2, "graphExecId": 3}
    graph |= {"start": at[2] - 300, "end": at[2] + 2300, "correlationId": 80}
    nvtx = {"globalTid": PROCESS + 12, "start": 4_980_000, "end": 5_500_000}
    return {
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": START - 5_000_000}],
        "StringIds": [{"id": number, "value": text} for number, text in enumerate(TEXTS)],
        "CUPTI_ACTIVITY_KIND_KERNEL": [*kernels, kernel(5, 9000, 90)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [*calls, call(3, 9500, 91, PROCESS + 99)],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [{**copy, "start": 1, "end": 5, "correlationId": 91}],
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [graph],
        "NVTX_EVENTS": [
            {**nvtx, "text": None, "textId": 6},
            {**nvtx, "text": "here", "textId": None, "end": None},
        ],
    }


def test_launches_lie_within_their_records(tmp_path: Path) -> None:
    source, path, out = tmp_path / "k.pftrace", tmp_path / "x.sqlite", tmp_path / "out.pftrace"
    launches(BEGINS).save(source)
    export(path, tables())
    said = CliRunner().invoke(cli, ["join", str(source), str(path), "--out", str(out)])
    assert said.exit_code == 0, said.output
    assert (
        "4 of 4 launches are within 1 us of their kernel record, all of them inside" in said.output
    )
    (host,) = PerfettoExporter().read_beside(out)
    assert [each.name for each in host.slices if each.category == "nvtx"] == ["step 1"]
    assert not [each for each in host.slices if each.category == "gpu_memcpy"], "ikp's own"
    names = {(each.category, each.name) for each in host.slices}
    assert ("cuda_runtime", "cudaLaunchKernel") in names and (
        "kernel",
        "ikp_handshake",
    ) not in names
    groups = {each.group for each in host.tracks}
    assert groups == {"GPU 0", "process 12", "process 13"}
    of_call = {each.correlation for each in host.slices if each.category.startswith("cuda")}
    assert len(of_call) == 5, "two processes may have one number"
    (replay,) = (each for each in host.slices if each.category == "graph_replay")
    (call,) = (each for each in host.slices if each.name == "cudaGraphLaunch")
    assert replay.name == "CUDA graph 2" and replay.correlation == call.correlation


def test_other_files_are_refused(tmp_path: Path) -> None:
    path, damaged = tmp_path / "x.sqlite", tmp_path / "damaged.sqlite"
    export(path, {"StringIds": tables()["StringIds"]})
    damaged.write_bytes(path.read_bytes()[:100] + b"?" * 4000)
    assert nsight.is_nsight(str(path)) and not nsight.is_nsight(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="does not say when its session began"):
        nsight.read(str(path))
    with pytest.raises(UsageError, match="no export of Nsight Systems"):
        nsight.read(str(damaged))
    lacking = tables()
    del lacking["CUPTI_ACTIVITY_KIND_KERNEL"][:], lacking["CUPTI_ACTIVITY_KIND_MEMCPY"]
    lacking["CUPTI_ACTIVITY_KIND_KERNEL"] = [{"start": 1, "end": 2}]
    export(tmp_path / "lacking.sqlite", lacking)
    with pytest.raises(UsageError, match="no export of Nsight Systems"):
        nsight.read(str(tmp_path / "lacking.sqlite"))
