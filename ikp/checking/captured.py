"""Captures an opaque launch into a CUDA graph, to read its grid, block, attributes and arguments.

A captured graph has the launch, with a copy of its arguments, and nothing runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ikp.checking.messages import KEPT, LaunchConfiguration, attribute
from ikp.driver import cuda
from ikp.errors import PatchError

if TYPE_CHECKING:
    from ikp.sass.cubins.attributes import Parameter

_APART, _RELAXED, _KERNEL = 1, 2, 0


class _Node(ctypes.Structure):
    """``CUDA_KERNEL_NODE_PARAMS``, version 2."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("parameters", ctypes.POINTER(ctypes.c_void_p)),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


def captured(
    launch: Callable[[int], object], parameters: Sequence[Parameter]
) -> tuple[LaunchConfiguration, list[tuple[int, bytes]]]:
    """Return the shape of a launch, and the offset and bytes of each parameter.

    Args:
        launch: launches the kernel on a stream, by the driver's handle.
        parameters: the kernel's.

    Raises:
        PatchError: ``launch`` launches no kernel or several, or the driver refuses.
    """
    with _graph(launch) as graph:
        node, made = _only_node(graph), _Node()
        cuda.call(
            *("cuGraphKernelNodeGetParams_v2", node, ctypes.byref(made)),
            to="report how a kernel is launched",
        )
        if parameters and not made.parameters:
            raise PatchError("a captured launch does not show its arguments.")
        values = [
            (each.offset, ctypes.string_at(made.parameters[each.ordinal], each.size))
            for each in parameters
        ]
        shape = LaunchConfiguration(
            (made.grid[0], made.grid[1], made.grid[2]),
            (made.block[0], made.block[1], made.block[2]),
            made.shared,
            b"".join(_attributes(node)),
        )
    return shape, values


@contextmanager
def _graph(launch: Callable[[int], object]) -> Iterator[ctypes.c_void_p]:
    stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
    cuda.call("cuStreamCreate", ctypes.byref(stream), _APART, to="create a stream")
    try:
        cuda.call("cuStreamBeginCapture_v2", stream, _RELAXED, to="capture a launch")
        try:
            launch(stream.value or 0)
        finally:
            cuda.call("cuStreamEndCapture", stream, ctypes.byref(graph), to="capture a launch")
        try:
            yield graph
        finally:
            cuda.call("cuGraphDestroy", graph, to="destroy a graph")
    finally:
        cuda.call("cuStreamDestroy_v2", stream, to="destroy a stream")


def _only_node(graph: ctypes.c_void_p) -> ctypes.c_void_p:
    """Return the only kernel node of a graph.

    Raises:
        PatchError: it has none, or several.
    """
    count = ctypes.c_size_t()
    count_up = "count what was captured"
    cuda.call("cuGraphGetNodes", graph, None, ctypes.byref(count), to=count_up)
    nodes = (ctypes.c_void_p * count.value)()
    cuda.call("cuGraphGetNodes", graph, nodes, ctypes.byref(count), to=count_up)
    found = []
    for each in nodes:
        kind = ctypes.c_int()
        node = ctypes.c_void_p(each)
        cuda.call("cuGraphNodeGetType", node, ctypes.byref(kind), to="report what was captured")
        found += [node] if kind.value == _KERNEL else []
    if len(found) != 1:
        raise PatchError(f"a launch was captured that has {len(found)} kernels.")
    return found[0]


def _attributes(node: ctypes.c_void_p) -> Iterator[bytes]:
    for which in KEPT:
        value = ctypes.create_string_buffer(64)
        try:
            cuda.call("cuGraphKernelNodeGetAttribute", node, which, value, to="ask a node")
        except PatchError:
            continue  # the driver knows no such attribute
        if any(value.raw):
            yield attribute(which, value.raw)
