"""Records placed by hand in a kernel's IR."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import triton

from ikp.backends.triton import TritonBackend
from ikp.backends.triton._hooks import names_in_code
from ikp.backends.triton.unedited import _by_hand as by_hand
from ikp.backends.triton.unedited._clones import kernel_clone
from ikp.backends.triton.unedited._mark_nodes import PROF
from ikp.errors import KernelError, UsageError
from ikp.unedited.plan import BY_HAND, Plan
from tests.backends.sass import spec
from tests.backends.triton.unedited.compiling import FakeDriver, buffer
from tests.kernels import unedited

pytestmark = pytest.mark.compiled


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.runtime.driver, "_active", FakeDriver())
    TritonBackend()


def code(path: Path, block: int = 64) -> Any:
    import torch

    clone = kernel_clone(unedited.scaled.fn, Plan(level=BY_HAND, ttgir=str(path)))
    x = torch.zeros(64)
    return clone.warmup(x, 64, block, True, grid=(1,), **{PROF: buffer()})


def written(path: Path) -> list[str]:
    """Write the IR out, as a launch does, and return its lines."""
    by_hand.write(path, by_hand.without_mark(code(path).asm["ttgir"]))
    return path.read_text().split("\n")


def place(path: Path, lines: list[str], what: str, before: str, after: str) -> None:
    (at,) = [i for i, line in enumerate(lines) if what in line]
    lines[at : at + 1] = [before, lines[at], after]
    path.write_text("\n".join(lines))


def test_ir_is_written_edited_and_run(tmp_path: Path) -> None:
    path = tmp_path / "scaled.ttgir"
    lines = written(path)
    assert lines[0].startswith(by_hand.HEADER)
    assert names_in_code(code(path).asm["ptx"]) == {}
    place(path, lines, "scf.for", '    ikp.start "my loop"', '      ikp.instant "again"')
    lines = path.read_text().split("\n")
    (end,) = [i for i, line in enumerate(lines) if "tt.return" in line]
    lines.insert(end, '    ikp.end "my loop"')
    path.write_text("\n".join(lines))
    assert set(names_in_code(code(path).asm["ptx"]).values()) == {"my loop", "again"}
    path.write_text(path.read_text().replace("again", "once more"))
    assert set(names_in_code(code(path).asm["ptx"]).values()) == {"my loop", "once more"}


def test_another_kernel_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scaled.ttgir"
    written(path)
    with pytest.raises(KernelError, match="was made from another IR than this kernel has now"):
        code(path, block=32)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ikp.start x", 'write ikp.start "name", with the quotes'),
        ('ikp.end "x"', r'has no ikp\.start "x" above it'),
        ('ikp.stop "x"', r"or is no ikp\.start, ikp\.end or ikp\.instant"),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str) -> None:
    with pytest.raises(KernelError, match=rf"k\.ttgir:2: .*{message}"):
        by_hand.expanded(line, spec(), "k.ttgir")


def test_the_file_has_its_suffix_and_a_folder(tmp_path: Path) -> None:
    assert by_hand.checked(tmp_path / "k.ttgir") == tmp_path / "k.ttgir"
    for wrong in (tmp_path / "k.txt", tmp_path / "none" / "k.ttgir"):
        with pytest.raises(UsageError, match=r"give a file name that ends in \.ttgir, in a folder"):
            by_hand.checked(wrong)
