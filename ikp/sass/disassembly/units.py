"""``unit_of``: the unit of an SM that executes an instruction, and what an access moves.

A unit is a short text, which is a key of an instruction mix. Accesses to memory have three parts:
what they do, the memory space, and the bytes of each lane, as in ``"load.global.16"``. The others:

- ``"tensor.2"`` and ``"tensor.group.2"``: products of a warp, and of a warpgroup, of numbers of so
  many bytes;
- ``"fma"`` (FP32), ``"half"`` (two numbers of 16 bits), ``"fp64"``, ``"xu"`` (transcendental
  functions), ``"convert"``, ``"convert.64"``, ``"integer"``, ``"product"`` (of integers);
- ``"divide"`` and ``"call"``, which mark divisions and calls of functions;
- ``"shuffle"``, ``"branch"``, ``"barrier"``, ``"wait"``, ``"fence"``, ``"uniform"``.
"""

from __future__ import annotations

import re
from functools import cache

from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import Work, work_of

_WIDTH = re.compile(r"\.(128|64|U16|S16|16|U8|S8|8)(?=\.|$)")
_BYTES = {"128": 16, "64": 8, "U16": 2, "S16": 2, "16": 2, "U8": 1, "S8": 1, "8": 1}
_SPACES = {
    Work.LOAD: "global",
    Work.STORE: "global",
    Work.ATOMIC: "global",
    Work.LOCAL: "local",
    Work.SHARED: "shared",
}
_BY_WORK = {
    Work.SIGNAL: "fence",
    Work.FENCE: "fence",
    Work.WAIT: "wait",
    Work.BARRIER: "barrier",
    Work.SHUFFLE: "shuffle",
    Work.CONTROL: "branch",
    Work.TMEM: "tensor memory",
}
_OPS = {
    "divide": "FCHK",
    "fp64": "DADD DFMA DMUL DSETP DMNMX",
    "xu": "MUFU",
    "fma": "FADD FADD2 FADD32I FFMA FFMA2 FFMA32I FMUL FMUL2 FMUL32I FHADD FHFMA",
    "half": "HADD2 HADD2_32I HFMA2 HFMA2_32I HMUL2 HMUL2_32I",
}
_BY_OP = {op: unit for unit, ops in _OPS.items() for op in ops.split()}
_PRODUCTS = frozenset(("IMAD", "IMUL", "IMAD32I", "IDP", "IDP4A", "IMADSP"))
_CONVERTS = frozenset(("F2F", "F2I", "I2F", "FRND", "I2I"))
_SMALL = re.compile(r"^[IQ]G?MMA|E4M3|E5M2|^UTC[IQ]MMA")
_MATRIX_BYTES = 4
"""Bytes that each lane gets of one 8 x 8 matrix of LDSM and STSM."""


def unit_of(instruction: Instruction) -> str:
    """Return the unit that executes an instruction; empty for one that never runs."""
    work = work_of(instruction)
    if work is Work.NOTHING:
        return ""
    return _unit(instruction.opcode, work)


@cache
def _unit(opcode: str, work: Work) -> str:
    op, size = opcode.partition(".")[0], _lane_bytes(opcode)
    if work is Work.COPY:
        return f"copy.global.{size}" if op == "LDGSTS" else "copy.bulk"
    if work is Work.TENSOR:
        kind = "tensor.group" if "GMMA" in op or op.startswith("UTC") else "tensor"
        return f"{kind}.{_operand_bytes(opcode)}"
    if work in _SPACES:
        loads = "load" if op.startswith("LD") else "store"
        return f"{'atomic' if work is Work.ATOMIC else loads}.{_space(op, work)}.{size}"
    return "call" if op == "CALL" else _BY_WORK.get(work) or _arithmetic(op, opcode)


def _operand_bytes(opcode: str) -> int:
    """Return the bytes of the numbers that a product multiplies."""
    if opcode.startswith("DMMA"):
        return 8
    if ".TF32" in opcode:
        return 4
    return 1 if _SMALL.search(opcode) else 2


def _space(op: str, work: Work) -> str:
    return "shared" if op == "ATOMS" else _SPACES[work]


def _arithmetic(op: str, opcode: str) -> str:
    if op in _CONVERTS:
        return "convert.64" if "64" in opcode else "convert"
    if op in _PRODUCTS:
        moves = opcode.startswith(("IMAD.MOV", "IMAD.SHL", "IMAD.IADD"))
        return "fma" if moves else "product"
    uniform = op.startswith("U") or op in ("R2UR", "S2UR", "CS2UR", "LDC", "LDCU")
    return _BY_OP.get(op, "uniform" if uniform else "integer")


def _lane_bytes(opcode: str) -> int:
    """Return how many bytes of each lane an access is."""
    if opcode.startswith(("LDSM", "STSM")):
        found = re.search(r"\.([24])\b", opcode)
        return _MATRIX_BYTES * (int(found[1]) if found else 1)
    found = _WIDTH.search(opcode)
    return _BYTES[found[1]] if found else 4
