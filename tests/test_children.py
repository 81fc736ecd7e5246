"""Programs that ikp starts end in time, or are ended, with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ikp import children, tool_starter
from ikp.children import TooLongError, run, run_all
from ikp.signals import deferred
from tests.starters import starter

pytestmark = pytest.mark.any_pins

SPIN = "import os, sys\nopen(sys.argv[1], 'w').write(str(os.getpid()))\nwhile True: pass\n"
SLEEP = "import os, sys, time\nopen(sys.argv[1], 'w').write(str(os.getpid()))\ntime.sleep(99)\n"


@pytest.fixture(params=["as its children", "beside it"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """How this process starts programs."""
    if request.param != "beside it":
        yield request.param
        return
    with starter() as name:
        tool_starter.use(name)
        try:
            yield request.param
        finally:
            tool_starter.use("")


def python(code: str, *words: str | Path) -> list[str]:
    return [sys.executable, "-S", "-E", "-c", code, *map(str, words)]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def ended(path: Path) -> bool:
    """Return whether the process whose number is in a file is gone, soon."""
    pid = int(path.read_text())
    until = time.monotonic() + 5
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pid)


def test_what_it_says_and_how_it_ends() -> None:
    code = "import sys; print('out'); print('said', file=sys.stderr); sys.exit(3)"
    assert run(python(code), 20) == (3, "out\n", "said\n")
    assert run(python("print(input())"), 20).code == 1, "it has something to read"
    assert run(python("import os; os.write(1, b'\\xff')"), 20).out == "\\xff"
    killed, fine = run_all([python("import os; os.kill(os.getpid(), 9)"), python("")], 20)
    assert (killed.code, fine.code) == (-9, 0)


def test_whose_child_it_is(way: str) -> None:
    parent = int(run(python("import os; print(os.getppid())"), 20).out)
    assert (parent == os.getpid()) == (way == "as its children")


def test_it_has_this_process_s_folder_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OF_THE_TEST", "\udcff is no text")
    code = "import os; print(os.getcwd(), ascii(os.environ['OF_THE_TEST']))"
    assert run(python(code), 20).out == f"{tmp_path} '\\udcff is no text'\n"
    inner = tmp_path / "inner"
    inner.mkdir()
    assert run(python(code), 20, cwd=inner).out.startswith(f"{inner} ")


def test_much_output_on_both_sides_comes_whole() -> None:
    code = (
        "import sys; [(print('o' * 99999), print('e' * 99999, file=sys.stderr)) for _ in '123456']"
    )
    done = run(python(code), 20)
    assert (done.code, len(done.out), len(done.said)) == (0, 600_000, 600_000)


def test_what_it_leaves_behind_has_its_files_and_lives(tmp_path: Path) -> None:
    code = (
        "import os, sys\nif os.fork(): os._exit(3)\n"
        "open(sys.argv[1], 'w').write(str(os.getpid()))\n"
        "os.read(0, 1); os.write(int(sys.argv[2]), b'after'); os.read(0, 1)\n"
    )
    (its_end, go), (read, write) = os.pipe(), os.pipe()
    passed = {0: its_end, write: write}
    words = python(code, tmp_path / "pid", str(write))
    assert children.leave_behind(words, passed, dict(os.environ)) == 3
    os.close(write)
    os.write(go, b"1")
    assert os.read(read, 99) == b"after"
    assert alive(int((tmp_path / "pid").read_text()))
    for each in (its_end, go, read):
        os.close(each)
    assert ended(tmp_path / "pid")


def test_one_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError, match="no program nosuch"):
        run(["nosuch"], 1)


def test_one_that_spins_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own time, whatever the clock says: the kernel does it, if this process is gone."""
    monkeypatch.setattr(children, "_CLOCK", 40)
    began = time.monotonic()
    with pytest.raises(TooLongError, match="did not end within 1 s of processor time"):
        run(python(SPIN, tmp_path / "pid"), 1)
    assert time.monotonic() - began < 30 and ended(tmp_path / "pid")


def test_one_that_waits_is_ended_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "_CLOCK", 0.5)
    with pytest.raises(TooLongError):
        run(python(SLEEP, tmp_path / "pid"), 1)
    assert ended(tmp_path / "pid")


def test_its_own_children_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_CLOCK", 1)
    inner = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SLEEP!r}, sys.argv[1]])"
    )
    with pytest.raises(TooLongError):
        run(python(inner, tmp_path / "pid"), 1)
    assert ended(tmp_path / "pid")


def test_a_handler_that_raises_ends_it_at_once(tmp_path: Path) -> None:
    def over(*_: object) -> None:
        raise TimeoutError("the program's own limit")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, 1)
    began = time.monotonic()
    try:
        with (
            pytest.raises(TimeoutError, match="the program's own limit"),
            deferred(),
            suppress(Exception),  # nothing takes it for a failure of the tool
        ):
            run(python(SLEEP, tmp_path / "pid"), 20)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 10 and ended(tmp_path / "pid")


@pytest.mark.skipif(not children._mortal(), reason="setpriv is not here")
def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    words = [sys.executable, "-S", "-E", "-c", SPIN, str(pid)]
    name = tool_starter._name
    code = f"from ikp import children, tool_starter\ntool_starter.use({name!r})\n"
    parent = subprocess.Popen(
        [sys.executable, "-c", f"{code}children.run({words!r}, 60)"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    until = time.monotonic() + 20
    while not (pid.exists() and pid.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    assert ended(pid)


def test_the_limit_grows_with_the_file() -> None:
    assert children.seconds(0) == 20
    assert children.seconds(2_000_000) == 140
