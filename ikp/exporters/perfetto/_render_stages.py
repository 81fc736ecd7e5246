"""GPU render stages: each launch of a GPU as Perfetto has kernels, for its views of GPUs.

The UI's Compute tab lists them with grid, block and threads. Render stages are on rows of their
own, by rank and device. Trace processors that do not know kernels (before 55) take the stage's
name, which is the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.trace import Launch
from ikp.exporters.perfetto._packets import IN_SEQUENCE, Clock
from ikp.exporters.perfetto._schema import (
    ComputeArg,
    ComputeLaunch,
    Gpu,
    Interned,
    Packet,
    RenderStage,
)
from ikp.exporters.protobuf.shapes import Message, Times
from ikp.exporters.protobuf.varints import BYTES, VARINT, Numbers, encoded_varint, in_field, tag
from ikp.exporters.timeline.tracks import Layout, group_names

Ints = NDArray[np.int64]

_AT_ONCE: Final = 4096
_CONTEXT: Final = 1
_CUDA: Final = 4
"""Of the context's API; other GPUs' is left open."""
_COMPUTE: Final = 2
_GPUS: Final = 1
_VENDOR: Final = "NVIDIA"


def on_gpus(launches: Sequence[Launch]) -> list[int]:
    """Return the launches that ran on a GPU, not in an interpreter on the host."""
    return [index for index, each in enumerate(launches) if each.clock.kind != "host"]


def render_stages(
    launches: Sequence[Launch], layout: Layout, clock: Clock, first_event: int
) -> Iterator[NDArray[np.uint8]]:
    """Yield the packets of all launches on GPUs; the n-th launch has the id ``first_event + n``."""
    there = on_gpus(launches)
    if not there:
        return
    groups = group_names(tuple(launches))
    queues = {name: i for i, name in enumerate(dict.fromkeys(groups[each] for each in there))}
    kernels = dict.fromkeys((launches[each].label, launches[each].kernel) for each in there)
    stages = {kernel: 1 + len(queues) + i for i, kernel in enumerate(kernels)}
    yield np.frombuffer(_named(launches, queues, groups, stages), np.uint8)
    for low in range(0, len(there), _AT_ONCE):
        some = there[low : low + _AT_ONCE]
        part = [launches[each] for each in some]
        start, end = _bounds(layout, some)
        queue = np.array([queues[groups[each]] for each in some], np.int64)
        stage = np.array([stages[one.label, one.kernel] for one in part], np.int64)
        event = (
            *_number(RenderStage.EVENT_ID, first_event + np.array(some, np.int64)),
            *_number(RenderStage.DURATION, end - start),
            tag(RenderStage.CONTEXT, VARINT) + encoded_varint(_CONTEXT),
            *_number(RenderStage.GPU_ID, queue),
            *_number(RenderStage.HW_QUEUE_IID, 1 + queue),
            *_number(RenderStage.STAGE_IID, stage),
            *_number(RenderStage.KERNEL_IID, stage),
            Message(tag(RenderStage.LAUNCH, BYTES), tuple(_launch(part))),
        )
        parts = (
            IN_SEQUENCE,
            Message(tag(Packet.GPU_RENDER_STAGE_EVENT, BYTES), event),
            tag(Packet.TIMESTAMP, VARINT),
            Times(start),
        )
        yield clock.join((Message(tag(Packet.PACKET, BYTES), parts), np.arange(len(some))))


def _bounds(layout: Layout, some: Sequence[int]) -> tuple[Ints, Ints]:
    """Return when some launches start and end."""
    tracks = [layout.launches[each] for each in some]
    start, end = [one.start for one in tracks], [one.end for one in tracks]
    return np.array(start, np.int64), np.array(end, np.int64)


def _number(field: int, values: Ints) -> tuple[bytes, Numbers]:
    return tag(field, VARINT), Numbers.of(values)


def _launch(launches: Sequence[Launch]) -> Iterator[Message]:
    """Yield grid, block, and the threads of all blocks."""
    fields = ((ComputeLaunch.GRID_SIZE, "grid"), (ComputeLaunch.WORKGROUP_SIZE, "block"))
    for field, name in fields:
        shape = np.array([getattr(each, name) for each in launches], np.int64)
        axes = (_number(1 + axis, shape[:, axis]) for axis in range(3))
        yield Message(tag(field, BYTES), tuple(part for axis in axes for part in axis))
    threads = np.array([prod(each.grid) * prod(each.block) for each in launches], np.int64)
    named = in_field(tag(ComputeArg.NAME, BYTES), b"thread_count")
    args = (named, *_number(ComputeArg.UINT_VALUE, threads))
    yield Message(tag(ComputeLaunch.ARGS, BYTES), args)


def _named(
    launches: Sequence[Launch],
    queues: dict[str, int],
    groups: Sequence[str],
    stages: dict[tuple[str, str], int],
) -> bytes:
    """Return the packets with the names of GPUs, rows and kernels."""
    devices = [launches[groups.index(name)].device for name in queues]
    api = [(3, _CUDA)] if any(each.startswith(_VENDOR) for each in devices) else []
    made = [_field(Interned.GRAPHICS_CONTEXTS, (1, _CONTEXT), *api)]
    made += [
        _field(Interned.GPU_SPECIFICATIONS, (1, 1 + i), (2, name)) for name, i in queues.items()
    ]
    made += [
        _field(Interned.GPU_SPECIFICATIONS, (1, i), (2, label), (4, _COMPUTE))
        for (label, _), i in stages.items()
    ]
    made += [
        _field(Interned.COMPUTE_KERNELS, (1, i), (2, label), (3, kernel or label))
        for (label, kernel), i in stages.items()
    ]
    interned = in_field(tag(Packet.INTERNED_DATA, BYTES), b"".join(made))
    gpus = in_field(tag(Packet.GPU_INFO, BYTES), b"".join(map(_gpu, devices)))
    return in_field(tag(Packet.PACKET, BYTES), IN_SEQUENCE + interned + gpus)


def _gpu(device: str) -> bytes:
    vendor = [(Gpu.VENDOR, _VENDOR)] if device.startswith(_VENDOR) else []
    return _field(_GPUS, (Gpu.NAME, device), *vendor)


def _field(field: int, *values: tuple[int, int | str]) -> bytes:
    """Return a submessage of numbers and texts."""
    content = b""
    for number, value in values:
        if isinstance(value, str):
            content += in_field(tag(number, BYTES), value.encode(errors="replace"))
        else:
            content += tag(number, VARINT) + encoded_varint(value)
    return in_field(tag(field, BYTES), content)
