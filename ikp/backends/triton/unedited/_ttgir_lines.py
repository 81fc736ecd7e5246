"""Records as lines of TritonGPU IR: inline PTX assembly, in the syntax that the compiler prints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ikp.core.abi import Kind, PayloadType
from ikp.core.segment import Spec
from ikp.targets import ptx, ptx_totals
from ikp.verbs.dsl import Place, Region, intern
from ikp.verbs.inline_ptx import comment, counter, record


@dataclass(slots=True)
class Range:
    """The lines that begin and end one range."""

    spec: Spec
    name: str
    indent: str
    number: int
    ends: int = 0

    @property
    def start(self) -> str:
        """The line that reads the clock."""
        return _assembly(self.indent, f"%ikp_start_{self.number}", ptx.start(self.spec))

    def end(self) -> list[str]:
        """Return the lines that store the record; each exit of a function needs its own."""
        self.ends += 1
        start = f"%ikp_start_{self.number}"
        value = f"%ikp_end_{self.number}_{self.ends}"
        region = Region(*intern(self.name))
        if self.spec.totals:
            asm = ptx_totals.end(self.spec, counter(region, Kind.RANGE), comment(region))
            return [_assembly(self.indent, value, asm, start)]
        made = record(region, Kind.RANGE, PayloadType.NONE, Place())
        none = f"{self.indent}{value}_none = arith.constant 0 : i32"
        end = ptx.end(self.spec, made)
        return [none, _assembly(self.indent, value, end, start, f"{value}_none")]


def _assembly(indent: str, value: str, asm: ptx.Asm, *operands: str) -> str:
    """Return one operation of inline assembly, as the IR writes it."""
    code = "".join(_escaped(asm.code))
    result, *given = (f"i{bits}" for bits in asm.bits)
    types = f" : {', '.join(given)}" if operands else ""
    return (
        f'{indent}{value} = tt.elementwise_inline_asm "{code}" {{constraints = '
        f'"{asm.constraints}", packed_element = 1 : i32, pure = false}}'
        f"{' ' if operands else ''}{', '.join(operands)}{types} -> {result}"
    )


def _escaped(text: str) -> Iterator[str]:
    for character in text:
        plain = character.isascii() and character.isprintable() and character not in '"\\'
        yield character if plain else f"\\{ord(character):02X}"


def instant(spec: Spec, name: str, indent: str, number: int) -> list[str]:
    """Return the lines that record a point in time."""
    value, region = f"%ikp_instant_{number}", Region(*intern(name))
    if spec.totals:
        asm = ptx_totals.instant(counter(region, Kind.INSTANT), comment(region))
        return [_assembly(indent, value, asm)]
    made = record(region, Kind.INSTANT, PayloadType.NONE, Place())
    none = f"{indent}{value}_none = arith.constant 0 : i32"
    return [none, _assembly(indent, value, ptx.instant(spec, made), f"{value}_none")]
