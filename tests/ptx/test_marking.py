"""Kernels marked in their PTX: what was added, whether it assembles, and what the ranges hold."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

import ikp
from ikp.backends.triton.unedited import _foreign as foreign
from ikp.errors import PatchError
from ikp.probes import kept_code
from ikp.probes.code.entry_code import CELL
from ikp.ptx.body import Body
from ikp.ptx.instructions import StatementKind, joined, statements, without_counted_lines
from ikp.ptx.marking import Footprint, mark
from ikp.ptx.record_insertion import OWN_LINE
from ikp.sass.cubins.cubin import Cubin
from tests.ptx.compiled import CASES, marked, plain

pytest.importorskip("triton")
pytestmark = pytest.mark.compiled


@pytest.mark.parametrize("name", CASES)
def test_a_kernels_ptx_comes_back_and_its_machine_code_too(name: str) -> None:
    made = plain(name)
    ptx = made.asm["ptx"]
    assert joined(statements(ptx)) == ptx
    # For sm_100, the assembler of Triton 3.6 makes one of two of the same text, by chance.
    if name in ("matmul", "attention sm_80"):
        assert foreign.assemble(made, ptx) == made.asm["cubin"]


@pytest.mark.parametrize("name", CASES)
def test_nothing_of_the_kernel_is_changed(name: str) -> None:
    """All statements of the plain kernel are there, in their order."""
    before = without_counted_lines(statements(plain(name).asm["ptx"]))
    after = iter(statements(marked(name).text))
    plainly = {
        StatementKind.INSTRUCTION,
        StatementKind.LABEL,
        StatementKind.OPEN,
        StatementKind.CLOSE,
        StatementKind.HEAD,
        StatementKind.DIRECTIVE,
    }
    for each in before:
        if each.kind in plainly:
            code = next((other.code for other in after if other.code == each.code), None)
            assert code == each.code


@pytest.fixture
def inspected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return what inspects a marked kernel as it is kept."""

    def inspect(name: str):
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / name.replace(" ", "_")))
        made = marked(name)
        (kernel,) = ikp.inspect(kept_code.keep(made.patch, plain(name).name, made.text)).kernels
        return kernel

    return inspect


def test_ranges_hold_what_they_name(inspected) -> None:
    """What stands in decision 51; at least 99 of 100."""
    told, short, lost = 0, [], []
    for name in CASES:
        kernel = inspected(name)
        told += sum(c.named is not None for each in kernel.ranges for c in each.copies)
        short += [str(each) for each in kernel.warnings]
        found = {each.name for each in kernel.ranges}
        lost += [each for each in marked(name).patch.names[1:] if each not in found]
    assert told > 150
    assert len(short) <= told / 100, short
    assert len(lost) <= 2, lost  # a start that the assembler keeps where the inspector is lost


def test_records_are_no_instructions_of_the_kernel(inspected) -> None:
    kernel = inspected("gathered")
    load = next(each for each in kernel.ranges if each.name.startswith("load @"))
    assert [i.op for i in load.copies[0].instructions].count("LDG") == 1
    assert all(line.number != OWN_LINE for i in load.copies[0].instructions for line in i.lines)


@pytest.mark.parametrize("name", CASES)
def test_nothing_spills_and_no_block_is_lost(name: str) -> None:
    made, patch = plain(name), marked(name).patch
    shared = made.metadata.shared
    before = Footprint.of(made.asm["cubin"], made.name, patch.warps, shared)
    after = Footprint.of(patch.cubin, made.name, patch.warps, shared)
    assert after.stack <= before.stack and after.blocks >= before.blocks
    assert patch.registers == (before.registers, after.registers)
    registers = f"({before.registers} registers a thread"
    registers += f" -> {after.registers})." if after.registers != before.registers else ")."
    assert patch.notes[0].endswith(f"another cubin than the plain kernel's {registers}")
    run = before.chip.name == "sm_90"
    assert run == (f"on {before.chip.name} were never run" not in " ".join(patch.notes))


@pytest.mark.parametrize("name", CASES)
def test_names_say_what_and_where(name: str) -> None:
    names = marked(name).patch.names
    assert names[0] == plain(name).name
    assert all(re.search(r" @kernels\.py:\d+", each) for each in names[1:]), names


def test_the_cell_can_be_found_and_tells_records() -> None:
    patch = marked("matmul").patch
    assert CELL in Cubin.read(patch.cubin).elf.symbol_names()
    assert patch.size_for_cell(32 + 5 * 16) == 5 and patch.size_for_cell(16) == 0


def test_details_are_those_of_machine_code() -> None:
    counts = [
        len(marked("matmul", each).patch.names) for each in ("kernel", "loops", "waits", "ops")
    ]
    assert counts == sorted(counts) and counts[0] == 1 and counts[1] == 3
    assert marked("matmul", "kernel").patch.most == 2
    assert marked("matmul", "loops").patch.most is None
    whats = Counter(each.partition(" @")[0] for each in marked("matmul").patch.names)
    assert whats["wgmma x4"] == 1 and whats["wgmma wait"] == 2


def test_where_something_would_spill_marks_are_left_out() -> None:
    """The kernel may have 20 registers more than it needs: the finest marks go first."""
    made = plain("matmul sm_80")
    limited = Body.read(made.asm["ptx"], made.name).with_head(".maxnreg 168").text
    assemble = partial(foreign.assemble, made)
    found = mark(limited, assemble(limited), made.name, assemble, detail="ops").patch
    everything = marked("matmul sm_80").patch
    assert "loop @kernels.py:16" in found.names
    assert 1 < len(found.names) < len(everything.names)
    told = " ".join(found.notes)
    assert "not recorded, since with more records" in told and "would spill" in told
    after = Footprint.of(found.cubin, made.name, found.warps, 0)
    assert after.stack == 0


def test_what_leaves_no_room_is_refused() -> None:
    """An assembler that gives every kernel with records more than the plain one has."""
    made = plain("matmul sm_100")
    cubin, ptx = made.asm["cubin"], made.asm["ptx"]

    def greedy(text: str) -> bytes:
        return plain("matmul sm_80").asm["cubin"]

    with pytest.raises(PatchError, match="none but its own range, an SM would have room for 1"):
        mark(ptx, cubin, "matmul", greedy)
    with pytest.raises(PatchError, match="loaded without its PTX"):
        mark("", cubin, "matmul", greedy)
