"""The verbs for AMD GPUs as marks: lines of inline assembly that ``_ir`` replaces by code.

Triton's language has neither a value of four words nor the clock as an operation of its compiler.
So a verb is one line of assembly here, a mark with its operands, and a pass over the LLVM IR
replaces it (docs/decisions/0016). The clock becomes an intrinsic, whose wait LLVM places; a record
becomes a vector, whose moves LLVM schedules; its store becomes assembly. A mark does not assemble:
where another tool has taken the hook away, compilation stops.

``init`` leaves its results for the other verbs in scalar registers that no other code uses. There
is one set per wave, which is AMD's word for a warp. ``_registers`` finds them once the kernel is
compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

from ikp.plugins import KernelError, Spec, abi, ptx

_ARCHITECTURES = ("gfx942", "gfx950")
WARP = 64
"""Lanes of a wave."""

BARRIERS = "sched_barriers"
OPTIONS = {BARRIERS: True}
"""The options of sessions that this target has, with their defaults."""

MARK = "; ikp."
_UNPLACED = '.error "ikp.init: another tool has replaced the hook of ikp on the compiler"'


@dataclass(frozen=True, slots=True)
class _Verb:
    """A mark: the verb's name, and its words."""

    name: str
    words: tuple[str, ...]

    @property
    def line(self) -> str:
        """The mark as a line of assembly."""
        return " ".join((MARK + self.name, *self.words))


def checked(spec: Spec, arch: str) -> Spec:
    """Return the spec, if a kernel for ``arch`` can record like that.

    Raises:
        KernelError: it can't.
    """
    if arch not in _ARCHITECTURES:
        raise KernelError(
            f"ikp records on AMD GPUs of {' and '.join(_ARCHITECTURES)}, and this kernel is "
            f"compiled for {arch}. Give the kernel None for the buffer there."
        )
    if spec.totals:
        raise KernelError(
            "the session keeps totals (mode='totals'), which ikp sums up on NVIDIA GPUs and in the "
            f"interpreter only; this kernel is compiled for {arch}. Record a timeline: its stats() "
            "and .hatchet have totals, too."
        )
    if spec.overflow is abi.OverflowMode.STREAM:
        raise KernelError(
            "overflow='stream' has the host read records while the kernel runs, which ikp does on "
            f"NVIDIA GPUs and in the interpreter only; this kernel is compiled for {arch}. Use "
            "overflow='wrap': its trace has the latest records of a kernel that ends."
        )
    if spec.clock.bits > abi.WORD_BITS:
        short = spec.clock.unit.name.lower()
        raise KernelError(
            f"clock={spec.clock.name.lower()!r} records all 64 bits of the clock, which ikp does "
            f"on NVIDIA GPUs only; this kernel is compiled for {arch}. Use clock={short!r}: only a "
            "single range longer than 2**32 of its ticks is then shown short."
        )
    return spec


def init(spec: Spec, language: abi.Language) -> ptx.Asm:
    """Operands: the segment's address, bytes for slots (u32; 0 turns recording off)."""
    return _marked(_Verb("init", (str(int(language)), str(spec))), 2)


def start(comment: str) -> ptx.Asm:
    """No operands; the result is the start word. ``comment`` names the opened region."""
    return _marked(_Verb("start", (comment,) if comment else ()), 0)


def end(record: ptx.RecordCode) -> ptx.Asm:
    """Store one range. Operands: [tag], start word, payload, [where], [index]."""
    return _record("end", record, 2)


def instant(record: ptx.RecordCode) -> ptx.Asm:
    """Store one instant. Operands: [tag], payload, [where], [index]."""
    return _record("instant", record, 1)


def role(number: int, comment: str) -> ptx.Asm:
    """No operands. Writes the id of the role's name to the slot header."""
    return _marked(_Verb("role", (str(number), comment)), 0)


def whole(comment: str) -> ptx.Asm:
    """No operands. Asks ``finish`` for the record of a range that began where ``init`` did."""
    return _marked(_Verb("whole", (comment,)), 0)


def finish() -> ptx.Asm:
    """No operands. The mark is taken out: finish runs at every exit."""
    return _marked(_Verb("finish", ()), 0)


def _record(name: str, record: ptx.RecordCode, operands: int) -> ptx.Asm:
    tag = "-" if record.tag is None else f"{record.tag:#x}"
    flags = f"{int(record.where)}{int(record.index)}"
    operands += (record.tag is None) + record.where + record.index
    return _marked(_Verb(name, (tag, flags, record.comment)), operands)


def _marked(verb: _Verb, operands: int) -> ptx.Asm:
    return ptx.Asm(f"{verb.line}\n{_UNPLACED}", ",".join(["=v", *"v" * operands]))


SHIFT = abi.RECORD_BYTES.bit_length() - 1
