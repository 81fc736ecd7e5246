"""GPU render stages, as the newest trace processors read them: kernels with grid and block."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from ikp.edit import concat
from ikp.exporters.perfetto import PerfettoExporter
from ikp.exporters.perfetto._schema import Interned
from ikp.trace import Trace
from tests.exporters.perfetto.examples import START, inflated, nothing, warps
from tests.trace_processor.query import columns
from tests.trace_processor.server import open_trace


def packets(trace: Trace, folder: Path) -> list[Any]:
    path = folder / "x.pftrace"
    PerfettoExporter().write(trace, path, force=True)
    return list(protos.Trace.FromString(inflated(path)).packet)


def ranks() -> Trace:
    """Return launches of two ranks on two devices, and one of an interpreter on the host."""
    first = warps([[(100, 300)], [(200, 900)]], label="gemm", kernel="void gemm<int>(int*)", rank=0)
    other = warps([[(150, 350)]], device="AMD Instinct MI300X (cuda:0)", rank=1, block=(32, 4, 2))
    host = warps([[(1, 2)]], label="relay", device="cpu (interpreter)")
    (one,) = host.launches
    clock = replace(one.clock, kind="host", rate="exact")
    return concat([first, other, replace(host, launches=(replace(one, clock=clock),)), first])


def test_each_launch_on_a_gpu_is_one(tmp_path: Path) -> None:
    trace = ranks()
    found = packets(trace, tmp_path)
    events = [
        each.gpu_render_stage_event for each in found if each.HasField("gpu_render_stage_event")
    ]
    (named,) = [each for each in found if each.HasField("gpu_info")]
    specs = {each.iid: each for each in named.interned_data.gpu_specifications}
    texts = [
        protos.InternedComputeKernel.FromString(each.data)
        for each in UnknownFieldSet(named.interned_data)
        if each.field_number == Interned.COMPUTE_KERNELS
    ]
    kernels = {each.iid: each for each in texts}
    assert [each.name for each in named.gpu_info.gpus] == [
        *("NVIDIA H200", "AMD Instinct MI300X (cuda:0)")
    ]
    assert [each.vendor for each in named.gpu_info.gpus] == ["NVIDIA", ""]
    assert [each.api for each in named.interned_data.graphics_contexts] == [4]
    compute = protos.InternedGpuRenderStageSpecification.COMPUTE
    ran = [trace.launches[number] for number in (0, 1, 3)]
    assert len(events) == len({each.event_id for each in events}) == len(ran)
    for event, one in zip(events, ran, strict=True):
        assert (specs[event.stage_iid].name, specs[event.stage_iid].category) == (
            one.label,
            compute,
        )
        kernel = kernels[event.kernel_iid]
        assert (kernel.name, kernel.demangled_name) == (one.label, one.kernel or one.label)
        grid, block = event.launch.grid_size, event.launch.workgroup_size
        assert (grid.x, grid.y, grid.z) == one.grid
        assert (block.x, block.y, block.z) == one.block
        (arg,) = event.launch.args
        assert (arg.name, arg.uint_value) == (
            "thread_count",
            8 * one.block[0] * one.block[1] * one.block[2],
        )
        assert named.gpu_info.gpus[event.gpu_id].name == one.device
        assert specs[event.hw_queue_iid].name == f"launches · rank {one.rank} · {one.device}"
    assert [each.duration for each in events] == [900, 350, 900]


def test_without_a_gpu_there_is_none(tmp_path: Path) -> None:
    (one,) = warps([[(1, 2)]]).launches
    clock = replace(one.clock, kind="host", rate="exact")
    for launches in ((), (replace(one, clock=clock),)):
        found = packets(nothing(launches=launches), tmp_path)
        assert not any(each.HasField("gpu_info") for each in found)


@pytest.mark.tp
def test_joined_files_keep_theirs(tmp_path: Path) -> None:
    """Ids are those of a file's own sequence; rows of one name are one row."""
    whole = tmp_path / "both.pftrace"
    parts = [warps([[(at, at + 50)]], label=name) for name, at in (("gemm", 100), ("norm", 400))]
    content = b""
    for number, part in enumerate(parts):
        path = tmp_path / f"{number}.pftrace"
        PerfettoExporter().write(part, path)
        content += path.read_bytes()
    whole.write_bytes(content)
    with open_trace(whole) as processor:
        found = columns(
            processor,
            "select s.name, ts, dur from slice s join track t on t.id = track_id"
            " where t.type = 'gpu_render_stage' order by ts",
        )
    rows = zip(*(found[name].tolist() for name in ("name", "ts", "dur")), strict=True)
    assert set(rows) == {("gemm", START, 150), ("norm", START, 450)}


def test_they_take_little_room(tmp_path: Path) -> None:
    """A launch takes some bytes, of 140 that it takes with one range: few of a file."""
    trace = concat([warps([[(10 * n, 10 * n + 5)]]) for n in range(200)])
    sizes = []
    for clock in (trace.launches[0].clock, replace(trace.launches[0].clock, kind="host")):
        launches = tuple(replace(each, clock=clock) for each in trace.launches)
        path = tmp_path / f"{clock.kind}.pftrace"
        PerfettoExporter().write(replace(trace, launches=launches), path)
        sizes.append(path.stat().st_size)
    assert sizes[0] - sizes[1] < 200 * 10
