"""What each PTX instruction does to a thread: integers of any width, and some float32."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tests.machines.ptx_program import FaultError, Instruction, Program


class Thread(Protocol):
    """What instructions need of a thread."""

    registers: dict[str, int]

    def read_special(self, name: str) -> int:
        """Return ``%tid.x``, ``%clock``, ..."""

    def read_param(self, index: int) -> int:
        """Return a kernel parameter."""

    def load(self, address: int, nbytes: int) -> int:
        """Read memory."""

    def store(self, address: int, value: int, nbytes: int) -> None:
        """Write memory."""


Step = Callable[[Thread], int | None]  # returns where to go on, None for the next instruction
Read = Callable[[Thread], int]
Write = Callable[[Thread, int], None]
_REGISTER = re.compile(r"%(?:p|r|rs|rd|f|fd)\d+|[a-zA-Z_]\w*@\d+")


def compile_instruction(instruction: Instruction, program: Program) -> Step:
    """Return a function that runs ``instruction`` on a thread."""
    make = _MAKERS.get(instruction.name)
    if make is None:
        raise FaultError(f"this machine has no such instruction: {instruction.text}")
    step: Step = make(instruction, program)
    if instruction.guard is None:
        return step
    register, wanted = instruction.guard
    read = _register(register)

    def guarded(thread: Thread) -> int | None:
        return step(thread) if read(thread) == wanted else None

    return guarded


# What can be known of an instruction is looked at once, not for each thread that runs it.


def _register(name: str) -> Read:
    def read(thread: Thread) -> int:
        try:
            return thread.registers[name]
        except KeyError:
            raise FaultError(f"register {name} is read before it is written") from None

    return read


def _writer(register: str, bits: int) -> Write:
    if not _REGISTER.fullmatch(register):
        raise FaultError(f"{register} is not a register to write to")
    mask = _mask(bits)

    def write(thread: Thread, value: int) -> None:
        thread.registers[register] = value & mask

    return write


def _mask(bits: int) -> int:
    return (1 << bits) - 1


def _reader(operand: str) -> Read:
    if _REGISTER.fullmatch(operand):
        return _register(operand)
    if operand.startswith("%"):
        return lambda thread: thread.read_special(operand)
    is_float = operand[:2] in {"0f", "0F"}
    value = int.from_bytes(bytes.fromhex(operand[2:])) if is_float else int(operand, 0) & _mask(64)
    return lambda thread: value


def _parts(operand: str) -> list[str]:
    """Return the elements of a vector operand; a scalar is a vector of one."""
    return [part.strip() for part in operand.strip("{} ").split(",")]


def _bits(kind: str) -> int:
    return 1 if kind == "pred" else int(re.sub(r"\D", "", kind))


def _signed(value: int, bits: int) -> int:
    value &= _mask(bits)
    return value - (1 << bits) if value >> (bits - 1) else value


_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def _decode(word: int, kind: str) -> Any:
    """Return the number that a register's bits mean as ``kind``: u32, s16, f32, ..."""
    bits = _bits(kind)
    if kind in _FLOATS:
        return np.frombuffer((word & _mask(bits)).to_bytes(bits // 8, "little"), _FLOATS[kind])[0]
    return _signed(word, bits) if kind.startswith("s") else word & _mask(bits)


def _encode(value: Any, kind: str) -> int:
    """Return the bits of a number, rounded to nearest even where it is a float."""
    if kind in _FLOATS:
        return int.from_bytes(_FLOATS[kind](value).tobytes(), "little")
    return int(value) & _mask(_bits(kind))


def _make_mov(i: Instruction, program: Program) -> Step:
    bits = _bits(i.types[-1])
    targets, sources = _parts(i.operands[0]), [_reader(part) for part in _parts(i.operands[1])]
    read_bits, write_bits = bits // len(sources), bits // len(targets)
    mask = _mask(read_bits)
    writers = [(_writer(each, write_bits), write_bits * k) for k, each in enumerate(targets)]
    if len(sources) == len(targets) == 1:
        (read,), ((write, _),) = sources, writers
        return lambda thread: write(thread, read(thread))

    def mov(thread: Thread) -> None:
        words = [read(thread) & mask for read in sources]
        value = sum(word << read_bits * k for k, word in enumerate(words))
        for write, shift in writers:
            write(thread, value >> shift)

    return mov


def _arithmetic(function: Callable[..., int]) -> Callable[..., Step]:
    """Make an instruction of ``function(bits, *values)``; values are signed for .s types."""

    def make(i: Instruction, program: Program) -> Step:
        kind = i.types[-1]
        bits = _bits(kind)
        wide = "wide" in i.types
        out = 2 * bits if wide else bits
        reads = [_reader(operand) for operand in i.operands[1:]]
        # The addend of a wide multiplication is as wide as its result.
        widths = [out if wide and k == 2 else bits for k in range(len(reads))]

        masked = [(read, _mask(width)) for read, width in zip(reads, widths, strict=True)]
        signed, write = kind.startswith("s"), _writer(i.operands[0], out)

        def step(thread: Thread) -> None:
            raw = [read(thread) & mask for read, mask in masked]
            if signed:
                raw = [_signed(value, width) for value, width in zip(raw, widths, strict=True)]
            write(thread, function(bits, *raw))

        return step

    return make


def _number(function: Callable[..., Any]) -> Callable[..., Step]:
    """Make an instruction that works on integers and on floats."""

    def make(i: Instruction, program: Program) -> Step:
        kind = i.types[-1]
        if kind not in _FLOATS:
            return _arithmetic(function)(i, program)
        return _arithmetic(
            lambda bits, *words: _encode(function(bits, *(_decode(w, kind) for w in words)), kind)
        )(i, program)

    return make


def _make_mul(i: Instruction, program: Program) -> Step:
    if i.types[0] == "hi":
        return _arithmetic(lambda bits, a, b: a * b >> bits)(i, program)
    return _number(lambda bits, a, b: a * b)(i, program)


def _shl(bits: int, value: int, by: int) -> int:
    return value << min(by & _mask(32), bits)  # PTX clamps


def _shr(bits: int, value: int, by: int) -> int:
    return value >> min(by & _mask(32), bits)


def _div(bits: int, a: int, b: int) -> int:
    if b == 0:
        raise FaultError("division by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _bfind(bits: int, value: int) -> int:
    return value.bit_length() - 1 if value else _mask(32)


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_COMBINE: dict[str, Callable[[bool, bool], bool]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
}


def _make_setp(i: Instruction, program: Program) -> Step:
    kind = i.types[-1]
    bits, compare = _bits(kind), _COMPARE[i.types[0]]
    left, right = (_reader(operand) for operand in i.operands[1:3])
    combine = _COMBINE[i.types[1]] if len(i.types) == 3 else lambda a, b: a
    third = _reader(i.operands[3] if len(i.types) == 3 else "1")
    if kind.startswith("f"):
        raise FaultError("this machine compares no floating-point numbers")
    mask, signed, write = _mask(bits), kind.startswith("s"), _writer(i.operands[0], 1)

    def setp(thread: Thread) -> None:
        a, b = left(thread) & mask, right(thread) & mask
        if signed:
            a, b = _signed(a, bits), _signed(b, bits)
        write(thread, int(combine(compare(a, b), bool(third(thread)))))

    return setp


def _make_cvt(i: Instruction, program: Program) -> Step:
    target, source = i.types[-2:]
    read = _reader(i.operands[1])
    write = _writer(i.operands[0], _bits(target))
    return lambda thread: write(thread, _encode(_decode(read(thread), source), target))


def _make_selp(i: Instruction, program: Program) -> Step:
    a, b, chosen = (_reader(operand) for operand in i.operands[1:])
    write = _writer(i.operands[0], _bits(i.types[-1]))
    return lambda thread: write(thread, a(thread) if chosen(thread) else b(thread))


def _make_bra(i: Instruction, program: Program) -> Step:
    target = program.target(i)
    return lambda thread: target


def _make_ret(i: Instruction, program: Program) -> Step:
    return lambda thread: len(program.instructions)


def _address(operand: str) -> Read:
    match = re.fullmatch(r"\[\s*([^\s+]+)\s*(?:\+\s*(-?\w+)\s*)?\]", operand)
    if match is None:
        raise FaultError(f"{operand} is not an address")
    base, offset = _reader(match[1]), int(match[2] or "0", 0)
    return lambda thread: base(thread) + offset


def _vector(types: Sequence[str], operand: str) -> tuple[list[str], int]:
    """Return the elements of a loaded or stored operand, and the bytes of each."""
    parts = _parts(operand)
    wanted = int(types[1][1:]) if types[1].startswith("v") else 1
    if len(parts) != wanted:
        raise FaultError(f"{operand} is not a vector of {wanted}")
    return parts, _bits(types[-1]) // 8


def _aligned(address: int, nbytes: int) -> int:
    if address % nbytes:
        raise FaultError(f"{nbytes} bytes at {address:#x} are misaligned")
    return address


def _make_ld(i: Instruction, program: Program) -> Step:
    if i.types[0] == "param":
        index = program.params[i.operands[1].strip("[] ")]
        write = _writer(i.operands[0], _bits(i.types[-1]))
        return lambda thread: write(thread, thread.read_param(index))
    parts, size = _vector([each for each in i.types if each != "volatile"], i.operands[0])
    address = _address(i.operands[1])
    writers = [_writer(part, 8 * size) for part in parts]

    def ld(thread: Thread) -> None:
        at = _aligned(address(thread), size * len(parts))
        for k, write in enumerate(writers):
            write(thread, thread.load(at + size * k, size))

    return ld


def _make_st(i: Instruction, program: Program) -> Step:
    address = _address(i.operands[0])
    types = [each for each in i.types if each != "volatile"]
    parts, size = _vector(types, i.operands[1])
    reads = [_reader(part) for part in parts]

    def st(thread: Thread) -> None:
        at = _aligned(address(thread), size * len(parts))
        for k, read in enumerate(reads):
            thread.store(at + size * k, read(thread) & _mask(8 * size), size)

    return st


_MAKERS: dict[str, Callable[[Instruction, Program], Step]] = {
    "mov": _make_mov,
    "add": _number(lambda bits, a, b: a + b),
    "sub": _number(lambda bits, a, b: a - b),
    "mul": _make_mul,
    "mad": _arithmetic(lambda bits, a, b, c: a * b + c),
    "div": _arithmetic(_div),
    "rem": _arithmetic(lambda bits, a, b: a - b * _div(bits, a, b)),
    "min": _arithmetic(lambda bits, a, b: min(a, b)),
    "max": _arithmetic(lambda bits, a, b: max(a, b)),
    "and": _arithmetic(lambda bits, a, b: a & b),
    "or": _arithmetic(lambda bits, a, b: a | b),
    "xor": _arithmetic(lambda bits, a, b: a ^ b),
    "not": _arithmetic(lambda bits, a: ~a),
    "shl": _arithmetic(_shl),
    "shr": _arithmetic(_shr),
    "shf": _arithmetic(lambda bits, low, high, by: (high << 32 | low) >> (by & 31)),
    "bfind": _arithmetic(_bfind),
    "popc": _arithmetic(lambda bits, a: a.bit_count()),
    "setp": _make_setp,
    "selp": _make_selp,
    "cvt": _make_cvt,
    "bra": _make_bra,
    "ret": _make_ret,
    "exit": _make_ret,
    "ld": _make_ld,
    "st": _make_st,
}
