from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ikp.errors import ExportError
from ikp.exporters.perfetto import PerfettoExporter
from ikp.exporters.perfetto import _writer as writer
from ikp.exporters.perfetto._events import Encoder
from ikp.exporters.timeline.batches import Batch
from ikp.paths import replacing
from tests.exporters.perfetto.examples import assert_same, warp, warps

OLD = b"an older trace"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.pftrace"


def write(path: Path | str, *, force: bool = False) -> None:
    PerfettoExporter().write(warp((0, 1)), path, force=force)


def test_an_existing_file_is_kept_unless_forced(path: Path) -> None:
    path.write_bytes(OLD)
    with pytest.raises(ExportError, match=r"exists.*force=True.*--force"):
        write(path)
    assert path.read_bytes() == OLD
    write(path, force=True)
    assert_same(PerfettoExporter().read(path), warp((0, 1)))


def test_a_path_may_be_a_string(path: Path) -> None:
    write(str(path))
    assert path.exists()


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_is_no_file(tmp_path: Path, force: bool) -> None:
    with pytest.raises(ExportError, match=r"is a folder: give the name of a file"):
        write(tmp_path, force=force)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"there is no folder .*missing"):
        write(tmp_path / "missing" / "trace.pftrace")


def test_a_file_is_no_folder(path: Path) -> None:
    path.write_bytes(OLD)
    with pytest.raises(ExportError, match="there is no folder"):
        write(path / "trace.pftrace")


def test_a_folder_that_may_not_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(ExportError, match="you may not write in"):
        write(path)


@pytest.mark.parametrize("force", [False, True])
def test_a_full_disk_leaves_all_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    if force:
        path.write_bytes(OLD)

    def fail(*_: object) -> bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Encoder, "encode", fail)
    with pytest.raises(ExportError, match=r"can't be written: No space left on device"):
        write(path, force=force)
    assert [one.read_bytes() for one in path.parent.iterdir()] == [OLD] * force


def test_any_failure_leaves_all_as_it_was(path: Path) -> None:
    path.write_bytes(OLD)

    def broken() -> Iterator[bytes]:
        yield b"half a trace"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), replacing(path, force=True) as file:
        file.writelines(broken())
    assert [one.read_bytes() for one in path.parent.iterdir()] == [OLD]


def test_who_has_the_old_file_open_keeps_it(path: Path) -> None:
    """The new one takes its place; the old one is never half overwritten."""
    path.write_bytes(OLD)
    with path.open("rb") as old:
        write(path, force=True)
        assert old.read() == OLD


def test_a_link_is_written_through(tmp_path: Path) -> None:
    target, link = tmp_path / "target.pftrace", tmp_path / "link.pftrace"
    target.write_bytes(OLD)
    link.symlink_to(target)
    write(link, force=True)
    assert link.is_symlink()
    assert_same(PerfettoExporter().read(target), warp((0, 1)))


def test_others_may_read_the_file_as_any_new_one(path: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    write(path)
    assert path.stat().st_mode == plain.stat().st_mode


def test_long_names(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 240 + ".pftrace")
    write(path)
    assert path.exists()


def test_events_are_written_part_by_part(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that ten million of them need little more memory than their columns take."""
    sizes = []
    encode = Encoder.encode

    def spy(self: Encoder, batch: Batch, before: int) -> np.ndarray:
        sizes.append(len(batch.rows))
        return encode(self, batch, before)

    monkeypatch.setattr(Encoder, "encode", spy)
    monkeypatch.setattr(writer, "EVENTS_AT_ONCE", 4)
    PerfettoExporter().write(warps([[(i, i + 1) for i in range(3)]] * 5), path)
    assert sizes == [3] * 5
