"""Children of a program under ``ikp run``: each has a trace, however it was started and ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import ikp
from ikp.cli.main import cli
from ikp.running.startup.ikp_children import Family, Passing, Starts
from tests.processes import use_slim_torch
from tests.repo.tree import ROOT

pytestmark = [
    pytest.mark.any_pins,
    pytest.mark.skipif("not __import__('importlib.util').util.find_spec('triton')"),
]
COMMAND = str(ROOT / "tests" / "cli" / "command.py")
KERNEL = """\
import os
os.environ["TRITON_INTERPRET"] = "1"
import triton

@triton.jit
def add(n):
    for i in range(n):
        n += i

def work(times):
    for _ in range(times):
        add[(2,)](4)
    return times
"""


def run(
    folder: Path,
    program: str,
    *options: str,
    words: tuple[str, ...] = ("prog.py",),
    slim: bool = True,
) -> tuple[subprocess.CompletedProcess[str], dict[str, int]]:
    """Run a program; return what it printed, and the launches in each process's trace."""
    (folder / "kern.py").write_text(KERNEL)
    (folder / "prog.py").write_text(program)
    if slim:
        use_slim_torch(folder)
    env = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(folder)}
    command = [sys.executable, COMMAND, "run", *options, *words]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=folder, env=env, timeout=300
    )
    launches = {path.name: len(ikp.load(path).launches) for path in folder.glob("*.pftrace")}
    whole = {name: launches.pop(name) for name in tuple(launches) if ".all." in name}
    for name in re.findall(r"wrote \S+/(\S+) \(.*processes on one axis", done.stderr):
        stem = name.partition(".")[0]
        assert whole[name] == sum(n for one, n in launches.items() if one.startswith(f"{stem}."))
    return done, dict(sorted(launches.items()))


WHOLE = "ikp-prog.all.pftrace"
POOLS = """\
import multiprocessing, sys
from kern import work
def other(times):
    return work(times)
if __name__ == "__main__":
    context = multiprocessing.get_context({how!r})
    with context.Pool(1) as pool:
        print(pool.map(other, [2]))
    one = context.Process(target=other, args=(3,))
    one.start(); one.join()
    print(one.exitcode)
"""


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_are_recorded(how: str, tmp_path: Path) -> None:
    """A pool's are ended by SIGTERM, others by ``os._exit`` or as Python ends.

    Where they are forked, torch is all of torch, whose threads they have lost.
    """
    done, launches = run(tmp_path, POOLS.format(how=how), slim=how != "fork")
    assert (done.returncode, done.stdout) == (0, "[2]\n0\n"), done.stderr
    assert launches == {"ikp-prog.child1.pftrace": 2, "ikp-prog.child2.pftrace": 3}
    said = re.findall(r"^ikp: process \d+ \(prog.py\): (.*) Wrote", done.stderr, re.MULTILINE)
    assert said == [f"{n} of {n} launches recorded, of 1 kernel." for n in (2, 3)]
    assert "no kernel that ikp records" not in done.stderr
    end = done.stderr.splitlines()[-12:]
    rows = [line.split()[:2] for line in end if line.startswith(("add ", "kernel "))]
    assert rows == [["kernel", "launches"], ["add", "5"]]  # one summary for all
    commands = [line.split()[1:3] for line in end if line.startswith("next: ")]
    assert commands == [["ikp", each] for each in ("explain", "view", "view")]
    assert end[-1] == "next: ikp view ikp-prog.all.pftrace    (all processes on one axis)"
    files = [str(tmp_path / name) for name in (*launches, "all.pftrace")]
    merged = CliRunner().invoke(cli, ["merge", *files])
    assert "all.pftrace: 5 launches of 2 files" in merged.output
    by_hand, whole, *parts = map(ikp.load, (files[-1], tmp_path / WHOLE, *files[:-1]))
    assert [each.label for each in whole.launches] == ["add"] * 5
    assert len(whole.events) == sum(len(each.events) for each in parts)
    assert whole.launches == by_hand.launches


def test_a_child_without_an_environment_of_its_own_gets_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``subprocess`` of Python 3.14 starts one: ``os.posix_spawn`` with None."""
    seen: list[tuple[object, bool]] = []

    def spawn(path: str, words: list[str], env: object, **options: object) -> int:
        printed = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
        seen.append((env, "IKP_TEST=1" in printed))
        return 7

    monkeypatch.setattr(os, "posix_spawn", spawn)
    passing = Passing(str(tmp_path), "IKP_OLD_PATH", {"IKP_TEST": "1"}, every=False)
    starts = Starts(Family(os.getpid(), str(tmp_path), every=False), passing, *[lambda: None] * 2)
    assert starts.posix_spawn(sys.executable, [sys.executable], None) == 7
    assert starts.posix_spawn("/bin/true", ["true"], None) == 7
    assert seen == [(None, True), (None, False)]
    assert "IKP_TEST" not in os.environ


STARTED = """\
import os, subprocess, sys
from kern import work
text = "import kern; kern.work(%d)"
work(1)
subprocess.run([sys.executable, "-c", text % 2])
subprocess.run([sys.executable, "-c", text % 3], env={**os.environ, "PYTHONPATH": os.getcwd()})
subprocess.run([sys.executable, "-c", text % 4], env={**os.environ, "IKP_FOLLOW": "0"})
os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", text % 5])
os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-c", text % 6], os.environ), 0)
if os.fork() == 0:
    work(7)
    os._exit(3)
print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
subprocess.run(f"{sys.executable} -c '{text % 8}'; echo $IKP_RUN", shell=True)
subprocess.run([sys.executable, "-Es", "-c", "print('isolated')"])
subprocess.run([sys.executable, "-c", "import os; print(sorted(os.environ), os.listdir())"])
print(sorted(os.environ), flush=True)
os.execv(sys.executable, [sys.executable, "-c", text % 6])
"""


def test_what_python_starts_is_recorded_and_nothing_else_sees_a_difference(tmp_path: Path) -> None:
    done, launches = run(tmp_path, STARTED)
    assert done.returncode == 0
    first, second, third, child, mine = done.stdout.splitlines()
    assert [first, second, third] == ["3", "", "isolated"]
    assert child.startswith(mine) and "IKP" not in child  # os.listdir() follows
    assert launches == {
        "ikp-prog.pftrace": 1,
        **{f"ikp-prog.child{n}.pftrace": n + 1 for n in (1, 2)},
        **{f"ikp-prog.child{n}.pftrace": n + 2 for n in (3, 4, 5)},
        "ikp-prog.child6.pftrace": 6,  # what the program became
    }
    assert done.stderr.count("its option -E keeps ikp out") == 1


def test_all_children_are_recorded_where_that_is_asked_for(tmp_path: Path) -> None:
    program = "import os, sys\nos.system(f\"{sys.executable} -c 'import kern; kern.work(2)'\")\n"
    done, launches = run(tmp_path, program, "--follow", "all")
    assert launches == {"ikp-prog.child1.pftrace": 2}, done.stderr
    done, launches = run(tmp_path, f"{program}import kern\nkern.work(1)\n")
    assert launches == {"ikp-prog.child1.pftrace": 2, "ikp-prog.pftrace": 1}
    earlier = tmp_path / "ikp-prog.child1.pftrace"
    assert f"ikp: of an earlier run, or not written yet: {earlier}.\n" in done.stderr


KILLED = """\
import os, signal, subprocess, sys
one = subprocess.Popen(
    [sys.executable, "-c", "import kern; kern.work(1); print(flush=True); input()"],
    stdout=subprocess.PIPE, stdin=subprocess.PIPE,
)
one.stdout.readline()
one.send_signal({number})
print(one.wait(), flush=True)
"""


def test_a_killed_child_is_reported_and_a_terminated_one_leaves_its_trace(tmp_path: Path) -> None:
    done, launches = run(tmp_path, KILLED.format(number=int(signal.SIGKILL)))
    assert (done.stdout, launches) == ("-9\n", {})
    assert "it was killed before its trace was written." in done.stderr
    done, launches = run(tmp_path, KILLED.format(number=int(signal.SIGTERM)))
    assert (done.stdout, launches) == ("-15\n", {"ikp-prog.child1.pftrace": 1})


def test_a_launcher_runs_under_it_and_its_ranks_have_traces(tmp_path: Path) -> None:
    launcher = tmp_path / "torchrun"
    launcher.write_text(
        f"#!{sys.executable}\nimport os, subprocess, sys\nfor rank in '01':\n"
        "    env = {**os.environ, 'RANK': rank, 'WORLD_SIZE': '2'}\n"
        "    subprocess.run([sys.executable, *sys.argv[1:]], env=env)\n"
    )
    launcher.chmod(0o755)
    (tmp_path / "rank.py").write_text(
        "import os, subprocess, sys, kern\nkern.work(1 + int(os.environ['RANK']))\n"
        "if os.environ['RANK'] == '1':\n"
        "    subprocess.run([sys.executable, '-c', 'import kern; kern.work(5)'])\n"
    )
    words = (str(launcher), "rank.py")
    done, launches = run(tmp_path, "", words=words)
    names = [f"ikp-torchrun.{name}.pftrace" for name in ("rank0", "rank1", "child1")]
    # The child of rank 1 has that rank, too, and ends first.
    assert sorted(launches.items()) == sorted(zip(names, (1, 2, 5), strict=True)), done.stderr
    done, launches = run(tmp_path, "", "--out", "x.{rank}.pftrace", words=words)
    assert {"x.0.pftrace": 1, "x.1.pftrace": 2}.items() <= launches.items(), done.stderr
    assert "wrote " + str(tmp_path / "x.all.pftrace") in done.stderr


@pytest.mark.parametrize(
    ("option", "why"),
    [("--follow=python", "launched no kernel"), ("--host", "has not initialised CUDA")],
)
def test_a_rank_that_recorded_nothing_is_named(option: str, why: str, tmp_path: Path) -> None:
    """As one without a GPU; the others' traces are what they are."""
    program = (
        "import os, subprocess, sys, torch, kern\n"
        "if 'RANK' in os.environ:\n    kern.work(2 * (os.environ['RANK'] == '0'))\nelse:\n"
        "    for rank in '01':\n        env = {**os.environ, 'RANK': rank, 'WORLD_SIZE': '2'}\n"
        "        subprocess.run([sys.executable, __file__], env=env)\n"
    )
    done, launches = run(tmp_path, program, option, slim=option != "--host")
    assert launches == {"ikp-prog.rank0.pftrace": 2}
    (line,) = (each for each in done.stderr.splitlines() if "nothing was recorded" in each)
    assert line.startswith("ikp: rank 1: nothing was recorded: ") and why in line


PAIR = """\
import subprocess, sys
from kern import work
work(1)
subprocess.run([sys.executable, "-c", "from kern import work; work(2)"])
"""


def test_one_file_of_all_is_left_out_where_it_is_told_why(tmp_path: Path) -> None:
    """Each process's trace is there whatever comes of the one of all."""
    parts = {"x.pftrace": 1, "x.child1.pftrace": 2}
    whole = tmp_path / "x.all.pftrace"
    done, launches = run(tmp_path, PAIR, "--out", "x.pftrace", "--no-merge")
    assert launches == parts and not whole.exists()
    assert "not joined into one file: --no-merge.\n" in done.stderr
    assert "next: ikp merge x.pftrace x.child1.pftrace x.all.pftrace" in done.stderr
    mine = (tmp_path / "x.pftrace").rename(whole).read_bytes()
    (tmp_path / "x.child1.pftrace").unlink()
    done, launches = run(tmp_path, PAIR, "--out", "x.pftrace")
    assert whole.read_bytes() == mine, done.stderr
    assert f"{whole} was not written: {whole} exists" in done.stderr
