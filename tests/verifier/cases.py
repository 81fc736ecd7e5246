"""Patched kernels with every way to name a place, and what a fault is made with."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

import ikp.probes.patch
from ikp.core.segment import Selection
from ikp.probes.patch import patch
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.disassembly import tools
from ikp.verifier.declared import Declared
from ikp.verifier.inserted_code import FORMS
from ikp.verifier.verify import faults
from tests.sass import module
from tests.sass.assembled import cubin
from tests.sass.compiled import code

BYTES = 16
SAMPLE = Selection(block_step=4, others=True)
_COLLECTIVES = """.visible .entry k(.param .u64 p, .param .u32 n) {{
.reg .u64 %rd<4>; .reg .u32 %r<8>; .reg .pred %p<4>;
ld.param.u64 %rd1,[p]; ld.param.u32 %r2,[n];
mov.u32 %r1,%tid.x; mov.u32 %r5,0;
L: setp.gt.u32 %p1,%r1,%r2; @%p1 bra M;
{0}
add.u32 %r1,%r1,%r5; add.u32 %r1,%r1,3;
bra L;
M: {0}
st.global.u32 [%rd1],%r1; ret; }}
"""
VOTE, BARRIER = "vote.sync.ballot.b32 %r5, %p1, 0xffffffff;", "barrier.sync 0;"


@dataclass(frozen=True)
class Case:
    """A patched kernel."""

    plain: bytes
    patched: bytes
    text: str
    declared: Declared

    @property
    def faults(self) -> list[str]:
        return faults(self.plain, self.patched, self.text, self.declared)

    @property
    def code(self) -> tuple[int, int]:
        """From which byte to which the patched code is in its file."""
        text = Cubin.read(self.patched).kernel(self.declared.kernel).text
        return text.offset, text.offset + len(text.data)

    @property
    def words(self) -> list[int]:
        data = self.patched[slice(*self.code)]
        return [int.from_bytes(data[n : n + BYTES], "little") for n in range(0, len(data), BYTES)]

    @property
    def ours(self) -> list[int]:
        """The inserted instructions."""
        beside = range(*(self.declared.beside or (0, 0)), BYTES)
        spans = self.declared.inserted
        return [n // BYTES for a, b in spans for n in range(a, b, BYTES) if n not in beside]

    @property
    def originals(self) -> list[int]:
        """The places of original instructions, in their order."""
        ours = {n // BYTES for a, b in self.declared.inserted for n in range(a, b, BYTES)}
        count = len(Cubin.read(self.plain).kernel(self.declared.kernel).words)
        return [n for n in range(len(self.words)) if n not in ours][:count]

    def having(self, *opcodes: int) -> list[int]:
        """Return the places of original instructions with one of some opcodes."""
        return [n for n in self.originals if self.words[n] & 0xFFF in opcodes]

    def with_word(self, place: int, word: int) -> Case:
        return self.with_bytes(self.code[0] + place * BYTES, word.to_bytes(BYTES, "little"))

    def with_bytes(self, at: int, data: bytes) -> Case:
        patched = self.patched[:at] + data + self.patched[at + len(data) :]
        assert patched != self.patched
        return replace(self, patched=patched)

    def declaring(self, **changed: Any) -> Case:
        return replace(self, declared=replace(self.declared, **changed))

    def section(self, name: str) -> tuple[int, bytes]:
        """Return where a section of the patched file begins in it, and its bytes."""
        found = Cubin.read(self.patched).elf.find(name)
        assert found is not None
        return found.offset, found.data

    def attribute(self, number: int) -> int:
        """Return where in the patched file an attribute of the kernel begins."""
        at, data = self.section(f".nv.info.{self.declared.kernel}")
        here = 0
        while here < len(data):
            form, found, size = struct.unpack_from("<BBH", data, here)
            if found == number:
                return at + here
            here += 4 + (size if form == 4 else 0)
        raise AssertionError(f"no attribute {number:#x}")


def made(plain: bytes, name: str, **options: Any) -> Case:
    """Patch a kernel, whatever the verifier says of that."""
    with pytest.MonkeyPatch.context() as context:
        context.setattr(ikp.probes.patch, "verify", lambda *_: None)
        found = patch(plain, name, block=(128, 1, 1), untested=True, **options)
    assert found.declared is not None
    symbols = {each: kernel.symbol for each, kernel in Cubin.read(plain).kernels.items()}
    text = tools.disassemble_function(plain, name, symbols)
    return Case(plain, found.cubin, text, found.declared)


def _of_module(name: str, **options: Any) -> Callable[[], Case]:
    return lambda: made(module.cubin(), name, **options)


def _of_triton(name: str, **options: Any) -> Callable[[], Case]:
    def make() -> Case:
        compiled = code(name).compiled
        return made(compiled.asm["cubin"], compiled.metadata.name, **options)

    return make


def _collective(text: str) -> Callable[[], Case]:
    return lambda: made(cubin(_COLLECTIVES.format(text), "sm_90a"), "k", detail="ops", argue=True)


_MAKERS: dict[str, Callable[[], Case]] = {
    "loop": _of_module("loop", detail="ops", argue=True),
    "divides": _of_module("divides", detail="loops"),
    "chooses": _of_module("chooses", detail="ops", argue=True),
    "calls": _of_module("calls", detail="kernel", blocks=SAMPLE),
    "TMA": _of_triton("matmul TMA", detail="ops", argue=True),
    "sample": _of_triton("attention", detail="waits", argue=True, blocks=SAMPLE),
    "chosen": _of_triton("rms_norm", detail="ops", select=True),
    "spare": _of_triton("flagged", detail="ops", spare=True),
    "vote": _collective(VOTE),
    "products": _of_triton("attention", detail="ops", argue=True),
}
CASES = tuple(_MAKERS)


@cache
def case(name: str) -> Case:
    """Return a case, patched once."""
    return _MAKERS[name]()


@cache
def all_collective() -> Case:
    """Return one with a collective of all, whether its patch is right or not."""
    return _collective(BARRIER)()


_FILES = {"R": (8, 0xFF), "UR": (6, 0x3F), "P": (3, 7), "UP": (3, 7)}


def flipped(one: Case, at: int) -> Iterator[Case]:
    """Yield a case with the lowest bit of a register's field flipped, for each such field that
    begins at a bit and names one.
    """
    for place in one.ours:
        word = one.words[place]
        fields = [each for part in FORMS[word & 0xFFF].split("|")[1:] for each in part.split()]
        for each in fields:
            file = each.rstrip("+*").rstrip("0123456789")
            bits, none = _FILES[file]
            if each.rstrip("+*") == f"{file}{at}" and word >> at & (1 << bits) - 1 != none:
                yield one.with_word(place, word ^ 1 << at)
