"""What two processes, a kill in the middle, or another file system make of a file."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ikp.errors import ExportError
from ikp.paths import DRAFT, draft_prefix, replacing
from tests.exporters.perfetto.examples import assert_same, warp

TRACE = warp((0, 1))
SUFFIXES = (
    ".pftrace",
    ".json",
    ".json.gz",
    ".csv",
    ".parquet",
    ".hatchet",
    ".folded",
    ".speedscope.json",
)

WRITER = """
import sys
from ikp.errors import ExportError
from ikp.paths import replacing
path, text, force = sys.argv[1], sys.argv[2], sys.argv[3] == "force"
try:
    with replacing(path, force=force) as file:
        file.write(text.encode())
        file.flush()
        print("written", flush=True)
        sys.stdin.readline()
except ExportError as error:
    print(error, flush=True)
    raise SystemExit(3)
"""


def writer(path: Path, text: str, force: str = "") -> subprocess.Popen[str]:
    """Start a process that is about to put a file in place, and waits for a line to do so."""
    started = subprocess.Popen(
        [sys.executable, "-c", WRITER, path, text, force],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None and started.stdout.readline() == "written\n"
    return started


def drafts(folder: Path) -> list[Path]:
    return list(folder.glob(f".*{DRAFT}"))


def test_of_two_processes_that_may_not_overwrite_one_writes(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    both = [writer(path, text) for text in ("one", "two")]
    assert not path.exists() and len(drafts(tmp_path)) == 2
    both[0].communicate("\n", timeout=60)
    second, _ = both[1].communicate("\n", timeout=60)
    assert [one.returncode for one in both] == [0, 3]
    assert "x.pftrace appeared while it was being written" in second
    assert path.read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]


def test_with_force_the_last_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    both = [writer(path, text, "force") for text in ("one", "two")]
    for one in both:
        one.communicate("\n", timeout=60)
    assert [one.returncode for one in both] == [0, 0]
    assert path.read_text() == "two"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("force", ["", "force"])
def test_a_kill_leaves_the_old_file_and_a_draft_that_the_next_save_removes(
    tmp_path: Path, force: str
) -> None:
    path = tmp_path / "x.pftrace"
    if force:
        path.write_text("old")
    killed, alive = writer(path, "half", force), writer(tmp_path / "y.pftrace", "whole")
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=60)
    assert path.exists() == bool(force) and len(drafts(tmp_path)) == 2
    TRACE.save(path, force=bool(force))
    assert len(drafts(tmp_path)) == 1, "that of a writer that lives stays"
    alive.communicate("\n", timeout=60)
    assert (tmp_path / "y.pftrace").read_text() == "whole"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["x.pftrace", "y.pftrace"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_appears_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    path = tmp_path / f"x{suffix}"
    sync = os.fsync

    def appears(handle: int) -> None:
        path.write_text("somebody's")
        sync(handle)

    monkeypatch.setattr(os, "fsync", appears)
    with pytest.raises(ExportError, match="appeared while it was being written"):
        TRACE.save(path)
    assert path.read_text() == "somebody's"
    assert list(tmp_path.iterdir()) == [path]


def test_the_content_is_on_the_disk_before_the_name_and_then_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    synced = []

    def spy(handle: int) -> None:
        place = str(Path(f"/proc/self/fd/{handle}").readlink())
        synced.append((place.endswith(DRAFT) or place, path.exists(), os.fstat(handle).st_size))

    monkeypatch.setattr(os, "fsync", spy)
    with replacing(path, force=False) as file:
        file.write(b"content")
    assert synced[0] == (True, False, 7)
    assert synced[1][:2] == (str(tmp_path), True)


@pytest.mark.parametrize("there", [False, True])
def test_where_there_are_no_links_the_name_is_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    path = tmp_path / "x.pftrace"

    def refuse(*_: object) -> None:
        if there:
            path.write_text("somebody's")
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    if there:
        with pytest.raises(ExportError, match="appeared while it was being written"):
            TRACE.save(path)
        assert path.read_text() == "somebody's"
    else:
        from ikp.trace import load

        TRACE.save(path)
        assert_same(load(path), TRACE)
    assert list(tmp_path.iterdir()) == [path]


def test_where_there_are_no_locks_no_draft_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{draft_prefix()}1{DRAFT}"
    (tmp_path / name).write_text("of some writer")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    TRACE.save(tmp_path / "x.csv")
    assert [one.name for one in drafts(tmp_path)] == [name]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_another_hosts_draft_is_left_alone_for_a_day(tmp_path: Path, suffix: str) -> None:
    """It is locked there, which a file system of several hosts may not show here."""
    draft = tmp_path / f".another-1{DRAFT}"
    draft.write_text("of a rank that writes now")
    TRACE.save(tmp_path / f"x{suffix}")
    assert drafts(tmp_path) == [draft]
    os.utime(draft, (0, time.time() - 100_000))
    TRACE.save(tmp_path / f"y{suffix}")
    assert drafts(tmp_path) == []
