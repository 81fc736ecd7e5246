"""``ikp run``: programs that never heard of ikp, in Triton's interpreter, as a user starts them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from textwrap import indent

import pytest
from click.testing import CliRunner

import ikp
from ikp.cli._run import _of_rank
from ikp.cli.main import cli
from ikp.running.run_options import blocks, warps
from tests.documents import check_document
from tests.processes import use_slim_torch
from tests.repo.tree import ROOT
from tests.trace_processor import check_trace

COMMAND = ROOT / "tests" / "cli" / "command.py"
PROGRAM = """\
import os
import sys
os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported, as programs do
import torch
import triton
import triton.language as tl

@triton.jit
def add(x, y, n, BLOCK: tl.constexpr):
    for i in range(n):
        at = i * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at) + 1)

@triton.jit
def other(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 0.0)

x, y = torch.ones(64), torch.zeros(64)
for _ in range(3):
    add[(2,)](x, y, 4, BLOCK=16)
other[(1,)](y[:8], BLOCK=8)
print("sum", y.sum().item(), __name__, *sys.argv[1:])
"""
WITHOUT_TORCH = """\
import os
os.environ["TRITON_INTERPRET"] = "1"
import triton

@triton.jit
def add(n):
    for i in range(n):
        n += i

@triton.jit
def other(n, prof):
    ikp.init(prof)

add[(2,)](4)
print("done", flush=True)
"""
"""To import torch takes longer than all else: where a launch is recorded, ikp's is a slim one."""

MORE = "import sys\nadd[(2,)](4)\nadd[(2,)](4)\n"
"""Behind it: two more launches."""


def start(
    folder: Path, *words: str, program: str = PROGRAM, path: str = "/usr/bin:/bin", **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of ikp on a program in ``folder``."""
    (folder / "prog.py").write_text(program)
    if program != PROGRAM:
        use_slim_torch(folder)
    command = [sys.executable, str(COMMAND), *words]
    env = {"PYTHONPATH": str(ROOT), "PATH": path, "HOME": str(folder), **more}
    return subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=folder, env=env, timeout=300
    )


def plainly(folder: Path, *words: str, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "prog.py").write_text(program)
    return subprocess.run(
        [sys.executable, *words], check=False, capture_output=True, text=True, cwd=folder
    )


def counts(path: Path) -> Counter[str]:
    frame = ikp.load(path).to_pandas()
    return Counter(name.partition(" @")[0] for name in frame.region)


pytestmark = pytest.mark.skipif("not __import__('importlib.util').util.find_spec('triton')")


@pytest.mark.tp
def test_a_program_runs_as_it_would_and_leaves_a_trace(tmp_path: Path) -> None:
    done = start(tmp_path, "run", "prog.py", "--its", "own")
    assert done.returncode == 0
    assert done.stdout == "sum 112.0 __main__ --its own\n"
    path = tmp_path / "ikp-prog.pftrace"
    assert counts(path) == {"add": 6, "for i": 6, "for i iteration": 24, "other": 1}
    assert "ikp: add: 3 of 3 launches recorded\n" in done.stderr
    assert "for i iteration @prog.py:10" in done.stderr
    assert "ikp: 37 records, none dropped" in done.stderr
    assert done.stderr.endswith(
        "next: ikp explain ikp-prog.pftrace    (all of the verdict)\n"
        "next: ikp view ikp-prog.pftrace    (the timeline, in your browser)\n"
    )
    after = done.stderr.partition("KiB).\n")[2].splitlines()
    assert [line.split()[:2] for line in after[1:4]] == [
        *(["kernel", "launches"], ["add", "3"], ["other", "1"])
    ]
    assert "add: " in after[5] and " on CPU (launch " in after[5]
    assert max(map(len, after)) <= 80
    trace = ikp.load(path)
    assert trace.provenance["marks in add"] == "level=source detail=loops"
    check_trace(path, trace)


@pytest.mark.any_pins
def test_a_module_runs_like_python_m_and_what_to_record_can_be_chosen(tmp_path: Path) -> None:
    """Totals in place of a timeline, and of kernels, launches and lines some."""
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").touch()
    program = f"{WITHOUT_TORCH}{MORE}print(__name__, *sys.argv[1:])\n"
    body = "        n += i\n"
    (package / "__main__.py").write_text(program.replace(body, 2 * body))
    done = start(
        *(tmp_path, "run", "--no-explain", "--mode", "totals", "--format", "json"),
        *("--kernel", "__main__.add", "--launch", "1:2"),
        *("--lines", "__main__.py:8-9", "-m", "pack", "-q"),
        program="",
    )
    assert done.returncode == 0
    assert done.stdout == "done\n__main__ -q\n"
    trace = ikp.load(tmp_path / "ikp-pack.pftrace")
    assert not len(trace.events)
    found = {row.region.partition(" @")[0]: row.count for row in trace.stats()}
    assert found == {"add": 2, "__main__.py:8-9": 8}
    assert "ikp: 4 totals, none dropped, of 10 ranges and instants." in done.stderr
    assert "add: 1 of 3 launches recorded; 2 not among the chosen launches" in done.stderr
    assert "other:" not in done.stderr
    assert "\n  __main__.py:8-9 " in done.stderr  # the table of ranges
    found = json.loads((tmp_path / "ikp-pack.run.json").read_text())
    check_document(found, "run")
    assert [each["label"] for each in found["kernels"]] == ["add"]
    assert found["processes"][0]["recorded"] == {"add": 1}
    assert "kernel  launches" not in done.stderr and "next: ikp explain ikp-pack" in done.stderr


@pytest.mark.any_pins
def test_sigterm_leaves_the_trace_and_ends_the_program_as_it_would(tmp_path: Path) -> None:
    waits = "print('ready', flush=True)\nsys.stdin.read()\nprint('not this')\n"
    (tmp_path / "prog.py").write_text(WITHOUT_TORCH + MORE + waits)
    use_slim_torch(tmp_path)
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, str(COMMAND), "run", "prog.py"]
    with subprocess.Popen(command, text=True, cwd=tmp_path, env=env, **pipes) as program:
        assert program.stdout is not None
        assert [program.stdout.readline() for _ in range(2)][1] == "ready\n"
        program.terminate()
        assert program.wait(120) == -signal.SIGTERM
        out, told = program.communicate()
    assert counts(tmp_path / "ikp-prog.pftrace")["add"] == 6
    assert "ikp: add: 3 of 3 launches recorded\n" in told and told.count("wrote") == 1
    assert not out


AFTER_MAIN = """\
import atexit, signal, threading
def launch():
    add[(2,)](4)
def late():
    threading.main_thread().join()
    launch()
atexit.register(launch)
threading.Thread(target=late).start()
os.kill(os.getpid(), signal.SIGINT)
for _ in range(1000): print(end="")
"""


@pytest.mark.any_pins
def test_what_outlives_main_is_recorded_and_what_is_forked_runs_plain_if_asked(
    tmp_path: Path,
) -> None:
    program = (
        f"{WITHOUT_TORCH}{MORE}"
        "if (child := os.fork()) == 0:\n    for _ in range(2): add[(2,)](4)\n"
        "    print('child', flush=True)\n    sys.exit(0)\nos.wait()\nprint(child)\n"
    )
    done = start(tmp_path, "run", "--follow", "none", "prog.py", program=program + AFTER_MAIN)
    assert done.returncode == -signal.SIGINT  # as Python ends after Ctrl-C
    assert "ikp: add: 5 of 5 launches recorded\n" in done.stderr
    assert counts(tmp_path / "ikp-prog.pftrace")["add"] == 10
    assert "KeyboardInterrupt\nikp: " in done.stderr  # and no word of what marks may break
    assert "child\n" in done.stdout
    child = done.stdout.split()[-1]
    text = f"ikp: process {child} was forked by the program: its kernels run plain, and are in no"
    assert done.stderr.count("was forked") == done.stderr.count(text) == 1
    assert done.stderr.count("wrote") == 1


@pytest.mark.any_pins
def test_a_crash_keeps_the_traceback_and_the_trace_so_far(tmp_path: Path) -> None:
    program = WITHOUT_TORCH + "add[(1,)](4)\n\ndef fail():\n    add[(2,)](None)\n\nfail()\n"
    plain = plainly(tmp_path, "prog.py", program=program)
    done = start(tmp_path, "run", "--blocks", "1:2", "prog.py", program=program)
    assert done.returncode == plain.returncode == 1
    assert done.stderr.startswith(f"{plain.stderr}ikp: ")
    assert counts(tmp_path / "ikp-prog.pftrace")["add"] == 1
    assert done.stderr.count("ikp: add: --blocks 1:2 names no block: its grid has 1 block") == 1


@pytest.mark.any_pins
def test_a_name_that_is_no_utf_8_and_what_is_said_of_the_program(tmp_path: Path) -> None:
    """And `ikp run python FILE`, as with other profilers; an option that went to the program."""
    script = tmp_path / "pr\udcffog.py"
    script.write_text(WITHOUT_TORCH)
    words = [Path(sys.executable).name, "-u", script.name, "--token", "hf_secret", "--level=x"]
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = start(tmp_path, "run", *words, path=path)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "ikp: --level is behind the program and goes to it" in done.stderr
    written = tmp_path / "ikp-pr_og.pftrace"
    assert ikp.load(written).provenance["command"] == r"pr\xffog.py"
    assert b"hf_secret" not in written.read_bytes()
    assert r"for i @pr\xffog.py:7" in ikp.load(written).to_pandas().region.unique()


@pytest.mark.any_pins
def test_no_cache_and_no_compiler_cost_speed_alone(tmp_path: Path) -> None:
    (tmp_path / ".cache").write_text("no folder")
    for compiler in ("cc", '"'):
        program = f"import os\nos.environ['CC'] = {compiler!r}\n{WITHOUT_TORCH}"
        done = start(tmp_path, "run", "prog.py", program=program)
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
        assert "1 of 1 launches recorded" in done.stderr and "wrote" in done.stderr


LIMITED = """\
import ast, os, signal, sys
os.environ["TRITON_INTERPRET"] = "1"

def over(*_):
    raise TimeoutError("limit")

signal.signal(signal.SIGALRM, over)

class Strikes:
    def find_spec(self, name, *_):
        if name == "ikp.profiling.profile":
            signal.raise_signal(signal.SIGALRM)

sys.meta_path.insert(0, Strikes())
try:
    import triton
    print("imported", flush=True)
except TimeoutError as error:
    import triton
    print("while ikp was imported:", error, flush=True)

@triton.jit
def add(n):
    for i in range(n):
        n += i

def parse(*args, **kwargs):
    ast.parse = real
    signal.raise_signal(signal.SIGALRM)

ast.parse, real = parse, ast.parse
for _ in range(2):
    try:
        add[(2,)](4)
        print("ran", flush=True)
    except TimeoutError as error:
        print("while a kernel was marked:", error, flush=True)
"""


def test_a_programs_time_limit_strikes_whatever_ikp_was_doing(tmp_path: Path) -> None:
    done = start(tmp_path, "run", "prog.py", program=LIMITED)
    marked = "while a kernel was marked: limit\nran\n"
    assert (done.returncode, done.stdout) == (0, f"while ikp was imported: limit\n{marked}")
    assert "add: 1 of 1 launches recorded" in done.stderr


@pytest.mark.any_pins
def test_a_program_that_launches_nothing_is_told(tmp_path: Path) -> None:
    done = start(tmp_path, "run", "prog.py", program="print('hello')\n")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert "no kernel that ikp records was launched in this process, nor in a Py" in done.stderr
    assert "libraries are recorded where they are named: --kernel '*'" in done.stderr
    assert not list(tmp_path.glob("*.pftrace"))


@pytest.mark.any_pins
def test_children_forked_before_triton_is_imported_say_so_too(tmp_path: Path) -> None:
    program = f"import os\nif os.fork():\n    os.wait()\nelse:\n{indent(WITHOUT_TORCH, '    ')}"
    done = start(tmp_path, "run", "--follow", "none", "prog.py", program=program)
    assert done.stdout == "done\n"
    assert done.stderr.count("was forked by the program") == 1
    assert done.stderr.count("With --follow none, kernels of child processes are not seen.") == 1
    assert not list(tmp_path.glob("*.pftrace"))


@pytest.mark.any_pins
def test_a_pattern_that_fits_no_kernel_is_told_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "ikp-prog.pftrace").write_text("of yesterday")
    program = WITHOUT_TORCH + "other[(1,)](1, None)\n"
    program = program.replace("    ikp.init(prof)", "    n += 1")
    done = start(tmp_path, "run", "--kernel", "nope", "prog.py", program=program)
    assert done.returncode == 0  # the program's own
    assert done.stderr == (
        "ikp: --kernel 'nope' fits none of the kernels launched: __main__.add, __main__.other.\n"
        f"ikp: nothing was written: {tmp_path}/ikp-prog.pftrace is of an earlier run.\n"
    )
    assert (tmp_path / "ikp-prog.pftrace").read_text() == "of yesterday"


@pytest.mark.any_pins
def test_a_surprise_is_told_and_the_program_runs_plain(tmp_path: Path) -> None:
    (tmp_path / "triton.py").write_text("print('imported')")
    taken = "open('x.pftrace', 'w').close()\nimport triton\n"
    done = start(tmp_path, "run", "--out", "x.pftrace", "prog.py", program=taken)
    assert (done.returncode, done.stdout) == (0, "imported\n")
    assert "ikp: nothing is recorded: ExportError: " in done.stderr
    (tmp_path / "ikp.py").touch()
    done = start(tmp_path, "run", "prog.py", program="import ikp\nimport triton\n")
    assert (done.returncode, done.stdout) == (0, "imported\n")
    told = f"ImportError: the program has a module of its own that is called ikp, {tmp_path}/ikp.py"
    assert told in done.stderr
    done = start(tmp_path, "run", "prog.py", program="import triton\nimport ikp\n")
    assert (done.returncode, done.stdout) == (0, "imported\n")
    assert told in done.stderr, "the program would find another ikp than under python"


@pytest.mark.any_pins
def test_files_of_the_program_may_be_called_as_packages_that_ikp_needs(tmp_path: Path) -> None:
    names = ("isal", "perfetto", "stevedore")
    for name in names:
        (tmp_path / f"{name}.py").write_text("MINE = True\n")
    program = f"import {names[0]}\n{WITHOUT_TORCH}import {', '.join(names)}\n"
    shown = ", ".join(f"{name}.MINE" for name in names)
    done = start(tmp_path, "run", "prog.py", program=f"{program}print({shown}, flush=True)\n")
    assert (done.returncode, done.stdout) == (0, "done\nTrue True True\n"), done.stderr
    assert "add: 1 of 1 launches recorded" in done.stderr and "wrote" in done.stderr
    assert counts(tmp_path / "ikp-prog.pftrace")["add"] == 2


@pytest.mark.any_pins
def test_kernels_that_record_themselves_are_left_alone(tmp_path: Path) -> None:
    program = f"import ikp\n{WITHOUT_TORCH}other[(1,)](1, None)\n"
    done = start(tmp_path, "run", "--kernel", "other", "prog.py", program=program)
    assert done.returncode == 0, done.stderr
    assert "other: 0 of 1 launches recorded; 1 could not be marked: other calls ikp.init" in (
        done.stderr
    )


@pytest.mark.any_pins
def test_an_existing_file_is_kept_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "x.pftrace").write_text("precious")
    done = start(tmp_path, "run", "--out", "x.pftrace", "prog.py")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "x.pftrace exists" in done.stderr


def test_ranks_write_traces_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _of_rank(tmp_path / "x.pftrace") == tmp_path / "x.pftrace"
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert _of_rank(tmp_path / "x.pftrace") == tmp_path / "x.rank1.pftrace"
    assert _of_rank(tmp_path / "{rank}-x.pftrace") == tmp_path / "1-x.pftrace"
    monkeypatch.setenv("RANK", "../../elsewhere")
    assert _of_rank(tmp_path / "x.pftrace") == tmp_path / "x.pftrace"


@pytest.mark.parametrize("level", ["ptx", pytest.param("machine", marks=pytest.mark.any_pins)])
def test_the_interpreter_has_no_other_level(tmp_path: Path, level: str) -> None:
    done = start(tmp_path, "run", "--level", level, "prog.py", program=WITHOUT_TORCH)
    assert done.returncode == 0
    assert done.stdout == "done\n"
    assert f"add: 0 of 1 launches recorded; 1 could not be marked: level='{level}' " in done.stderr


def test_bad_input_is_refused_in_words(tmp_path: Path) -> None:
    script = tmp_path / "prog.py"
    script.touch()
    (tmp_path / "x.pftrace").mkdir()
    for words, message in (
        (["--launch", "2:1", str(script)], "names no launches"),
        (["--lines", "x", str(script)], "names no lines"),
        (["--level", "source", "--function", "f", str(script)], "functions are chosen with level="),
        (["--level", "source", "--max-overhead", "2", str(script)], "max_overhead needs level="),
        (["--max-overhead", "0.9", str(script)], "no ratio above 1"),
        (["--level", "source", "--check", str(script)], "check needs level='machine'"),
        (["--warps", "a", str(script)], "names no warps"),
        (["--blocks", "a", str(script)], "names no blocks"),
        (["--warps", "0-99999999999", str(script)], "A block has at most 32, counted from 0"),
        (["--blocks", "0:9:0", str(script)], "names no blocks"),
        (["--blocks", "9:5", str(script)], "names no blocks"),
        (["--blocks", "9" * 20, str(script)], "names no blocks"),
        (["--out", str(tmp_path / "x.pftrace"), str(script)], "is a folder"),
        (["--out", "x.nope", str(script)], "no exporter knows the suffix"),
        (["--mode", "totals", "--clock", "cycles64", str(script)], "leave mode out"),
        (["-m", "-c", str(script)], "say two things of TARGET"),
    ):
        done = CliRunner().invoke(cli, ["run", *words])
        assert done.exit_code == 1
        assert message in done.output


def test_blocks_andwarps() -> None:
    assert blocks("7") == range(7, 8)
    assert blocks("0:1024:8") == range(0, 1024, 8)
    assert blocks(":4") == range(4)
    assert warps("0,4-6") == [0, 4, 5, 6]


@pytest.mark.any_pins
def test_what_ncu_measures_runs_plain(tmp_path: Path) -> None:
    done = start(
        *(tmp_path, "run", "prog.py"),
        program="import sys\nprint('ikp' in sys.modules)\n",
        NV_NSIGHT_INJECTION_PORT_BASE="49152",
    )
    assert (done.returncode, done.stdout) == (0, "False\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("ikp: ncu measures this program") and "they run plain" in line
    assert {one.name for one in tmp_path.iterdir()} == {"prog.py", "torch"}, "nothing is written"
