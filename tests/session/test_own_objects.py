"""Objects of ikp's threads never lie where the program has freed one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_pins

PROGRAM = """
import sys, threading, types
if PACKAGE:
    sys.modules["cupy"] = types.ModuleType("cupy")
from ikp.session.service import Worker
texts = [b"%018d" % number for number in range(2000)]
freed = {id(text) for text in texts}
def taken():
    kept = [b"%018d" % number for number in range(40_000)]
    grown = {number: [number] for number in range(9_000)}
    return kept, grown
worker = Worker()
worker.call(lambda: None)
del texts
kept, grown = worker.call(taken)
print(len(freed & set(map(id, kept))), end=" ")
assert kept[7:9] == [b"%018d" % 7, b"%018d" % 8] and sum(map(len, grown.values())) == 9_000
del kept  # here, what the other thread made
grown |= {-number: list(range(number)) for number in range(500)}
worker.call(grown.clear)  # there, what was made here
worker.end("the test is over")
own = [b"%018d" % number for number in range(40_000)]
print(len(freed & set(map(id, own))) > 0)
"""


def run(*options: str, package: bool, folder: Path) -> list[str]:
    """Return what the program prints: places used again by ikp's thread, and by its own."""
    (folder / "x.py").write_text(PROGRAM.replace("PACKAGE", str(package)))
    command = [sys.executable, *options, str(folder / "x.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_beside_a_library_that_reads_freed_texts_no_place_is_used_again(tmp_path: Path) -> None:
    """The program's own threads use it as without ikp; objects are freed by either thread."""
    assert run(package=True, folder=tmp_path) == ["0", "True"]
    used, _ = run(package=False, folder=tmp_path)
    assert int(used) > 1000, "without the library before it, Python's allocator uses them"


@pytest.mark.parametrize("options", [["-X", "dev"], ["-X", "tracemalloc"]])
def test_another_allocator_is_left_alone(options: list[str], tmp_path: Path) -> None:
    """It may look at what it frees, as a debugging one does."""
    assert len(run(*options, package=True, folder=tmp_path)) == 2
