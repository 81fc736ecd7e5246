"""What a session writes, and that nothing it is told too late, or goes wrong, loses a record."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ikp
from ikp.core.trace import Trace
from ikp.errors import ExportError, IkpWarning
from ikp.session import current
from tests.host import Host
from tests.processes import slim_environment
from tests.segments import Launch, Record, Warp, nbytes

pytest.importorskip("torch")

LAUNCH = Launch({(0, 0): Warp([Record(10 * i, 10 * i + 5) for i in range(1, 6)])})


@pytest.fixture(autouse=True)
def _export_on() -> Iterator[None]:
    yield
    ikp.set_export(True)


def recording(host: Host, size: int | None = None) -> Callable[[ikp.profile], None]:
    """Return what runs one kernel, which keeps 5 records, or fewer in a smaller buffer."""

    def body(prof: ikp.profile) -> None:
        host.run(prof.buffer("k", size=size), LAUNCH)

    return body


def session(
    path: Path | str | None, body: Callable[[ikp.profile], object], **options: Any
) -> ikp.profile:
    with ikp.profile(path, **options) as prof:
        body(prof)
    return prof


@pytest.mark.parametrize("kind", [Path, str])
def test_the_trace_is_written_when_the_session_ends(
    host: Host, tmp_path: Path, kind: Callable[[Path], Path | str]
) -> None:
    path = tmp_path / "k.lines"

    def body(prof: ikp.profile) -> None:
        recording(host)(prof)
        assert prof.trace.launches
        assert not path.exists()

    session(kind(path), body)
    assert path.read_text() == "k 5\n"


def test_a_decorated_function_writes_at_each_call(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "k.lines"

    @ikp.profile(path, force=True)
    def step(label: str, prof: ikp.profile) -> None:
        host.run(prof.buffer(label), LAUNCH)

    call: Any = step
    for label in ("one", "two"):
        call(label)
        assert path.read_text() == f"{label} 5\n"


def test_a_native_trace_comes_back(host: Host, tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    path = tmp_path / "k.pftrace"
    prof = session(path, recording(host))
    assert path.stat().st_size
    loaded = ikp.load(path)
    assert loaded.launches == prof.trace.launches
    assert loaded.events.payload.tolist() == prof.trace.events.payload.tolist()


# Paths


def bad_paths(folder: Path) -> dict[str, tuple[Path, str]]:
    (folder / "there.lines").write_text("precious")
    (folder / "folder.lines").mkdir()
    return {
        "exists": (folder / "there.lines", "there.lines exists: pass force=True"),
        "is a folder": (folder / "folder.lines", "is a folder: give the name of a file in it"),
        "no folder": (folder / "no" / "k.lines", r"there is no folder .*no"),
        "folder is a file": (folder / "there.lines" / "k.lines", r"there is no folder"),
        "unknown suffix": (
            folder / "k.doc",
            r"no exporter knows the suffix of 'k.doc': use one",
        ),
        "no suffix": (folder / "trace", r"no exporter knows the suffix of 'trace'"),
    }


@pytest.mark.parametrize(
    "what",
    ["exists", "is a folder", "no folder", "folder is a file", "unknown suffix", "no suffix"],
)
def test_a_path_that_will_not_do_is_told_before_the_body_runs(
    host: Host, tmp_path: Path, what: str
) -> None:
    path, message = bad_paths(tmp_path)[what]
    ran: list[bool] = []
    for run in (session, lambda path, body: ikp.capture(body, path=path)):
        with pytest.raises(ExportError, match=message):
            run(path, lambda prof: ran.append(True))
    assert not ran
    assert (tmp_path / "there.lines").read_text() == "precious"
    assert session(None, recording(host)).trace.launches


def test_a_folder_in_which_one_may_not_write_is_told_before_the_body_runs(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    ran: list[bool] = []
    with pytest.raises(ExportError, match=f"you may not write in {tmp_path}"):
        session(tmp_path / "k.lines", lambda prof: ran.append(True))
    assert not ran


def test_force_overwrites(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "k.lines"
    path.write_text("old")
    session(path, recording(host), force=True)
    assert path.read_text() == "k 5\n"
    ikp.capture(lambda prof: host.run(prof.buffer("c"), LAUNCH), path=path, force=True)
    assert path.read_text() == "c 5\n"


def test_a_file_that_appears_meanwhile_is_not_overwritten_and_the_trace_is_kept(
    host: Host, tmp_path: Path
) -> None:
    path = tmp_path / "k.lines"
    sessions: list[ikp.profile] = []

    def body(prof: ikp.profile) -> None:
        sessions.append(prof)
        recording(host)(prof)
        path.write_text("somebody's")

    with pytest.raises(ExportError, match="appeared meanwhile"):
        session(path, body)
    assert path.read_text() == "somebody's"
    sessions[0].trace.save(path, force=True)
    assert path.read_text() == "k 5\n"


# When the body fails


class UserError(Exception):
    pass


def failing(body: Callable[[ikp.profile], object], kind: type[BaseException] = UserError) -> Any:
    def run(prof: ikp.profile) -> None:
        SESSIONS[:] = [prof]
        body(prof)
        raise kind("mine")

    return run


SESSIONS: list[ikp.profile] = []


@pytest.mark.parametrize("kind", [UserError, KeyboardInterrupt, SystemExit])
def test_what_was_recorded_before_a_failure_is_written_and_kept(
    host: Host, tmp_path: Path, kind: type[BaseException]
) -> None:
    path = tmp_path / "k.lines"

    def two(prof: ikp.profile) -> None:
        recording(host)(prof)
        prof.buffer("never ran")  # not missed: the failure kept its kernel from running

    with pytest.raises(kind, match="mine") as caught:
        session(path, failing(two, kind))
    assert not hasattr(caught.value, "__notes__")
    assert path.read_text() == "k 5\n"
    assert SESSIONS[0].trace.launches[0].kept == 5


def test_losses_are_told_though_the_body_failed(host: Host, tmp_path: Path) -> None:
    body = failing(recording(host, size=nbytes(1, 2)))
    with pytest.warns(IkpWarning, match="3 records dropped"), pytest.raises(UserError):
        session(tmp_path / "k.lines", body)


@pytest.mark.filterwarnings("error")
def test_no_warning_takes_the_place_of_the_user_s_exception(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "k.lines"

    def lossy(prof: ikp.profile) -> None:
        recording(host, size=nbytes(1, 2))(prof)
        path.write_text("in the way")

    with pytest.raises(UserError) as caught:
        session(path, failing(lossy))
    failed, lost = caught.value.__notes__
    assert failed.startswith("the session failed, and so did its trace: ")
    assert "appeared meanwhile" in failed
    assert lost.startswith("k: 3 records dropped")


@pytest.mark.filterwarnings("error")
def test_a_warning_that_is_an_error_comes_after_the_trace_is_safe(
    host: Host, tmp_path: Path
) -> None:
    path = tmp_path / "k.lines"
    with pytest.raises(IkpWarning, match="3 records dropped"):
        session(path, recording(host, size=nbytes(1, 2)))
    assert path.read_text() == "k 2\n"


def test_a_trace_that_fails_after_the_body_failed_is_told(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(trace: Trace, path: Any, *, force: bool = False) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(host.exporter, "write", write)
    with pytest.warns(IkpWarning, match="so did its trace: .*No space left"):  # noqa: SIM117
        with pytest.raises(UserError, match="mine"):
            session(tmp_path / "k.lines", failing(recording(host)))
    assert SESSIONS[0].trace.launches[0].kept == 5


# Switches


@pytest.mark.parametrize("how", ["process", "session"])
def test_with_export_off_everything_is_recorded_and_nothing_written(
    host: Host, tmp_path: Path, how: str
) -> None:
    for path, _ in [(tmp_path / "k.lines", ""), *bad_paths(tmp_path).values()]:
        prof = ikp.profile(path)
        if how == "process":
            ikp.set_export(False)
        else:
            prof.export = False
        with prof:
            recording(host)(prof)
        assert prof.trace.launches[0].kept == 5
    assert {file.name for file in tmp_path.iterdir()} == {"there.lines", "folder.lines"}
    ikp.set_export(True)
    session(tmp_path / "k.lines", recording(host))
    assert (tmp_path / "k.lines").exists()


def test_export_may_be_switched_off_while_a_session_is_open(host: Host, tmp_path: Path) -> None:
    def body(prof: ikp.profile) -> None:
        recording(host)(prof)
        ikp.set_export(False)

    assert session(tmp_path / "k.lines", body).trace.launches
    assert not (tmp_path / "k.lines").exists()


@pytest.mark.parametrize("value", ["0", "off", "FALSE", " no "])
def test_the_kill_switch_leaves_nothing_of_a_session(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(current.KILL_SWITCH, value)
    buffers: list[Any] = []
    for path, _ in [(tmp_path / "k.lines", ""), *bad_paths(tmp_path).values()]:
        prof = session(path, lambda prof: buffers.append(prof.buffer("k")))
        assert prof.trace.launches == ()
        assert ikp.capture(lambda prof: buffers.append(prof.buffer("k")), path=path).launches == ()
    assert set(buffers) == {None}
    assert not (tmp_path / "k.lines").exists()


@pytest.mark.parametrize("value", ["", "1", "on", "yes", "00"])
def test_any_other_value_records(host: Host, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(current.KILL_SWITCH, value)
    assert session(None, recording(host)).trace.launches


@pytest.mark.any_pins
def test_the_kill_switch_works_from_outside_and_loads_nothing(tmp_path: Path) -> None:
    script = (
        "import sys, ikp\n"
        "with ikp.profile('k.pftrace') as prof:\n"
        "    assert prof.buffer('k') is None\n"
        "assert not {'torch', 'triton', 'cutlass', 'perfetto'} & set(sys.modules)\n"
    )
    subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "IKP": "0"},
        cwd=tmp_path,
        check=True,
        timeout=60,
    )
    assert list(tmp_path.iterdir()) == []


def test_a_disabled_session_writes_nothing(host: Host, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(tmp_path / "k.lines", lambda prof: prof.buffer("k"), enabled=False)
    assert list(tmp_path.iterdir()) == []


LOADED = """
import os, sys
import torch  # once for all of them
import ikp

def exporters():
    heavy = {"perfetto", "google", "isal", "pyarrow"}
    return {name for name in sys.modules if name.startswith("ikp.exporters.")} | (
        {name.partition(".")[0] for name in sys.modules} & heavy
    )

for path in sys.argv[1:]:
    if os.fork():
        assert os.wait()[1] == 0
        continue
    with ikp.profile(path, device="cpu"):
        before = exporters()
    print(*sorted(before), "|", *sorted(exporters() - before), flush=True)
    os._exit(0)
"""


@pytest.mark.any_pins
def test_a_session_imports_the_exporter_it_needs_and_does_so_when_it_begins(
    tmp_path: Path,
) -> None:
    pytest.importorskip("perfetto")
    others = {
        ".pftrace": "chrome csv_file hatchet parquet",
        ".csv": "chrome hatchet perfetto",
        ".json": "csv_file hatchet parquet",
    }
    run = [sys.executable, "-c", LOADED, *(str(tmp_path / f"k{suffix}") for suffix in others)]
    env = slim_environment(tmp_path)
    ran = subprocess.run(run, env=env, capture_output=True, text=True, timeout=300, check=True)
    for suffix, line in zip(others, ran.stdout.splitlines(), strict=True):
        before, after = (part.split() for part in line.split("|"))
        assert after == []
        for name in others[suffix].split():
            assert f"ikp.exporters.{name}" not in before
        assert ("google" in before) is (suffix == ".pftrace")


def none_passed(prof: ikp.profile) -> None:
    """Launch kernels with None as their buffer: none is taken."""


def never_launched(prof: ikp.profile) -> None:
    prof.buffer("k")


@pytest.mark.parametrize("body", [none_passed, never_launched])
def test_a_session_of_nothing_replaces_no_file(
    tmp_path: Path, body: Callable[[ikp.profile], None]
) -> None:
    path = tmp_path / "k.pftrace"
    path.write_bytes(b"precious")
    with pytest.warns(IkpWarning) as told:
        session(path, body, force=True)
    assert path.read_bytes() == b"precious"
    assert any(
        f"nothing was recorded, so {path} stays as it was" in str(one.message) for one in told
    )


def test_a_trace_of_nothing_is_told(tmp_path: Path) -> None:
    path = tmp_path / "k.pftrace"
    with pytest.warns(IkpWarning, match="nothing was recorded: .*k.pftrace is a trace of no warp"):
        session(path, none_passed)
    assert not len(ikp.load(path).slots)
