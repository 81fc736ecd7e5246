"""Deflating in threads: the same bytes, in bounded memory, and no error lost."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from ikp.errors import ExportError
from ikp.exporters.perfetto import PerfettoExporter, _writer
from ikp.exporters.perfetto._writer import Ordered, ordered
from tests.exporters.perfetto.examples import assert_same, warps

TRACE = warps([[(i, i + 1) for i in range(9)]] * 40)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_writer, "EVENTS_AT_ONCE", 9)


def with_threads(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(_writer, "spare_threads", lambda: count)


def test_the_bytes_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, contents = tmp_path / "trace.pftrace", set()
    for threads in (0, 1, 3):
        with_threads(monkeypatch, threads)
        PerfettoExporter().write(TRACE, path, force=True)
        contents.add(path.read_bytes())
    assert len(contents) == 1
    assert_same(PerfettoExporter().read(path), TRACE)
    assert not [one for one in threading.enumerate() if one.name == "ikp-writer"]


def test_a_slow_disk_does_not_fill_the_memory() -> None:
    """Jobs are not done long before their results are used."""
    done, used, most = [], [], 0
    with ordered(2) as jobs:
        for number in range(50):
            jobs.run(lambda number=number: done.append(number), used.append)  # type: ignore[misc]
            most = max(most, len(done) - len(used))
            time.sleep(0.001)
    assert len(used) == 50 and most <= 6


@pytest.mark.parametrize("threads", [0, 2])
def test_results_come_in_order_and_errors_come_out(threads: int) -> None:
    def job(number: int) -> int:
        time.sleep(0.002 * (number % 3))
        if number == 20:
            raise ValueError("twenty")
        return number

    def run() -> None:
        with ordered(threads) as jobs:
            for number in range(40):
                jobs.run(lambda number=number: job(number), used.append)  # type: ignore[misc]

    used: list[int] = []
    with pytest.raises(ValueError, match="twenty"):
        run()
    assert used == list(range(20))


@pytest.mark.parametrize("threads", [0, 2])
def test_a_disk_that_fills_up_midway_leaves_all_as_it_was(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_threads(monkeypatch, threads)
    path = tmp_path / "trace.pftrace"
    path.write_bytes(b"an older trace")
    write = _writer.write

    class Full:
        """A file on a disk that takes some bytes more."""

        def __init__(self, file: BinaryIO) -> None:
            self.file, self.left = file, 2000

        def write(self, content: bytes) -> int:
            self.left -= len(content)
            if self.left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self.file.write(content)

    def midway(trace: Any, file: BinaryIO, name: str) -> None:
        write(trace, Full(file), name)  # type: ignore[arg-type]

    monkeypatch.setattr(_writer, "write", midway)
    with pytest.raises(ExportError, match="No space left on device"):
        PerfettoExporter().write(TRACE, path, force=True)
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"an older trace"]
    assert not [one for one in threading.enumerate() if one.name == "ikp-writer"]


def test_where_no_thread_starts_any_more_the_work_is_done_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread at interpreter shutdown")

    with_threads(monkeypatch, 2)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    path = tmp_path / "trace.pftrace"
    PerfettoExporter().write(TRACE, path)
    assert_same(PerfettoExporter().read(path), TRACE)


def test_a_trace_is_written_while_python_ends(tmp_path: Path) -> None:
    path = tmp_path / "trace.pftrace"
    script = (
        "import atexit, sys\n"
        "from tests.exporters.perfetto import test_threads as t\n"
        "t._writer.EVENTS_AT_ONCE, t._writer.spare_threads = 9, lambda: 2\n"
        "atexit.register(t.PerfettoExporter().write, t.TRACE, sys.argv[1])\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    assert_same(PerfettoExporter().read(path), TRACE)


def test_a_job_that_runs_here_waits_for_those_in_front_of_it() -> None:
    jobs, used = Ordered(0), list[int]()
    jobs.run(lambda: 1, used.append)
    jobs.run(lambda: 2, used.append)
    assert used == [1, 2]
    jobs.close()
