"""Random kernels: forms of instructions in loops and branches as compilers write them.

A kernel is made of a number, always the same one. It never runs: it is read.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ikp.sass.assembly.chips import HOPPER, Chip
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.disassembly.listing import Code, parse
from tests.goldens.corpus import FOLDER, printed
from tests.goldens.views import Subject

_HEAD = """\
\t.target\tsm_90a

//--------------------- .text.k --------------------------
k:
.text.k:
"""
_JUMPING = re.compile(
    r"\b(BRA|BRX|JMP|JMX|CALL|RET|EXIT|BSSY|BSYNC|WARPSYNC|BREAK|LEPC|USETMAXREG|ENDCOLL)"
)
_JUMPS = (
    *(
        "@{p} BRA `({to})",
        "BRA `({to})",
        "@{p} EXIT",
        "BRA.U {u}, `({to})",
        "@{p} BRA {q}, `({to})",
    ),
    "BRA.DIV ~URZ, `({to})",
)
_NUMBERS, _WORK = (
    tuple(part.splitlines())
    for part in (FOLDER / "instructions.txt").read_text("utf-8").split("\n\n")
)
"""Instructions that make numbers, and others, with gaps for their operands."""
_SMALL = (
    *("0x1", "0x2", "0x4", "0x8", "0x10", "0x1f", "0x20", "0x3f", "0x40", "0x60", "0x80"),
    *("0x100", "0x400", "0xffffffe0", "-0x1", "0x1000", "0x7fffffff"),
)
_WARPS_WAIT = (
    "SYNCS.PHASECHK.TRANS64.TRYWAIT P{p}, [UR8], R{a}",
    "LDG.E.STRONG.GPU R{a}, desc[UR4][R{b}.64]",
)


@dataclass(frozen=True)
class Made(Subject):
    """A kernel that is random code, in no file."""

    cubin: bytes = b""
    name: str = "k"
    seed: int = 0

    @property
    def number(self) -> str:
        """What tells it from others of its name."""
        return str(self.seed)

    @cached_property
    def flow(self) -> Flow:
        """Its control flow."""
        return Flow(generated(self.seed))

    @cached_property
    def liveness(self) -> Liveness:
        """Its live registers."""
        return Liveness(self.flow)

    @cached_property
    def chip(self) -> Chip:
        """The one whose forms it is of."""
        return HOPPER

    @cached_property
    def registers(self) -> int:
        """How many registers its threads have."""
        return 64 if self.seed < _SPECIAL else (40, 168, 64, 255)[self.seed % 4]


class _Writer:
    """Writes one kernel."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._labels = 0
        self.lines: list[str] = []
        self._apart = False  # whether roles share no code
        self._any = seed % 3 == 2  # of all forms
        self._plain = [e for e in printed()[::2] if e and not _JUMPING.search(e) and "`" not in e]

    def label(self) -> str:
        """Return a new label."""
        self._labels += 1
        return f".L_x_{self._labels}"

    def filled(self, text: str, **given: str) -> str:
        """Return an instruction with operands."""
        draw = self._draw
        return text.format(**{
            **{each: str(2 * draw.randrange(2, 9)) for each in "abcd"},
            **{each: str(4 * draw.randrange(1, 5)) for each in "uvw"},
            "p": str(draw.randrange(4)), "q": str(draw.randrange(3)),
            "n": draw.choice(_SMALL), "k": hex(draw.choice((1, 2, 3, 4, 5, 6, 16, 31))),
            "c0": draw.choice(("0x210", "0x218", "0x220", "0x0", "0xc", "0x228")),
            "r": draw.choice(("LT", "LE", "GT", "GE", "EQ", "NE")), "g": draw.choice(("24", "40")),
            **given,
        })  # fmt: skip

    def some(self, count: int) -> None:
        """Write instructions that go on to the next one."""
        for _ in range(count):
            kind = self._draw.random()
            if self._any and kind < 0.5:
                text = self._other(self._draw.choice(self._plain))
            else:
                text = self.filled(self._draw.choice(_NUMBERS if kind < 0.6 else _WORK))
            if self._draw.random() < 0.12 and not text.startswith("@"):
                text = f"@{self._draw.choice(('', '!'))}P{self._draw.randrange(4)} {text}"
            self.lines.append(text)

    def _other(self, text: str) -> str:
        """Return an instruction with other registers: of few, so that they meet."""

        def drawn(found: re.Match[str]) -> str:
            file = found[1]
            if "P" in file:
                return f"{file}{self._draw.randrange(4)}"
            return f"{file}{4 * self._draw.randrange(1, 5)}"

        return re.sub(r"\b(U?[RP])(\d+)\b", drawn, text)

    def block(self, depth: int) -> None:
        """Write code, which may hold loops and branches."""
        ways = (self._loop, self._branch, self._joined, self._wait, self._leave, self._tested)
        for _ in range(self._draw.randrange(1, 4)):
            self.some(self._draw.randrange(1, 5))
            if depth and self._draw.random() < 0.8:
                self._draw.choice(ways)(depth - 1)

    def _loop(self, depth: int) -> None:
        top, count, p = (
            self.label(),
            str(2 * self._draw.randrange(9, 12) + 1),
            str(self._draw.randrange(4)),
        )
        step = self._draw.choice(("0x1", "0x4", "-0x1", "0x20"))
        limit = self._draw.choice(("0x8", "0x20", "R4", "c[0x0][0x218]", "UR4", "RZ"))
        begin = self._draw.choice(("RZ", "0x10", "R6", "R4"))
        how = self._draw.choice(("LT", "NE", "GE", "GT", "LT.U32", "LE"))
        if self._draw.random() < 0.7:
            self.lines.append(f"MOV R{count}, {begin}")
        self.lines.append(f"{top}:")
        self.block(depth)
        self.lines.append(f"IADD3 R{count}, R{count}, {step}, RZ")
        self.lines.append(f"ISETP.{how}.AND P{p}, PT, R{count}, {limit}, PT")
        self.lines.append(f"@{self._draw.choice(('', '!'))}P{p} BRA `({top})")

    def _tested(self, depth: int) -> None:
        """Write a loop that tests for its end first, and perhaps once more within."""
        top, out, p = self.label(), self.label(), str(self._draw.randrange(4))
        self.lines.append(f"{top}:")
        self.lines.append(self.filled("ISETP.{r}.AND P{p}, PT, R4, {n}, PT", p=p))
        self.lines.append(f"@P{p} BRA `({out})")
        self.block(depth)
        if self._draw.random() < 0.5:
            self.lines.append(self.filled("@P{p} BRA `({to})", to=out))
        self.lines.append("IADD3 R4, R4, 0x1, RZ")
        self.lines.append(f"BRA `({top})")
        self.lines.append(f"{out}:")

    def _branch(self, depth: int) -> None:
        other, end = self.label(), self.label()
        self.lines.append(self.filled("@!P{p} BRA `({to})", to=other))
        self.block(depth)
        if self._draw.random() < 0.6:
            self.lines.append(f"BRA `({end})")
            self.lines.append(f"{other}:")
            self.some(2)
            self.lines.append(f"{end}:")
        else:
            self.lines.append(f"{other}:")

    def _joined(self, depth: int) -> None:
        """Write a branch whose threads meet behind it."""
        end, barrier = self.label(), f"B{self._draw.randrange(3)}"
        self.lines.append(f"BSSY {barrier}, `({end})")
        self.lines.append(self.filled("@P{p} BRA `({to})", to=end))
        self.block(depth)
        if self._draw.random() < 0.3:
            self.lines.append(self.filled(f"@P{{p}} BREAK {barrier}"))
        self.lines.append(f"{end}:")
        self.lines.append(f"BSYNC {barrier}")

    def _wait(self, _: int) -> None:
        """Write a loop that only waits."""
        top, p = self.label(), str(self._draw.randrange(4))
        self.lines.append(f"{top}:")
        self.lines.append(self.filled(self._draw.choice(_WARPS_WAIT), p=p, a="4"))
        if self._draw.random() < 0.5:
            self.lines.append(self.filled("ISETP.{r}.AND P{p}, PT, R4, RZ, PT", p=p))
        self.lines.append(f"@!P{p} BRA `({top})")

    def take_uniform(self, left: int) -> None:
        """Write to all uniform registers but some."""
        self.lines += [f"ULDC.64 UR{at}, c[0x0][0x210]" for at in range(4, 62 - 2 * left, 2)]
        self.lines += [f"UMOV UR{62 - 2 * left}, 0x1"] * (left < 2)

    def roles(self, left: int | None) -> None:
        """Write a branch to two roles: one gives registers back, another asks for them.

        That one uses all uniform registers but some, if ``left`` says how many.
        """
        self._apart, other, rest = True, self.label(), self.label()
        self.lines += [f"@P0 BRA `({other})", "USETMAXREG.DEALLOC.CTAPOOL 0x28"]
        self.block(2)
        self.lines += ["EXIT", f"{other}:", f"@P1 BRA `({rest})", asking := f"{self.label()}:"]
        self.lines += [
            "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8",
            "PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0",
        ]
        self.lines += [f"@!P0 BRA `({asking[:-1]})", "LDS R0, [R4]", "LDS.64 R2, [R4]"]
        self.lines += [f"LDS.128 R{at}, [R4]" for at in range(4, 40, 4)]
        if left is not None:
            self.take_uniform(left)
        self.block(2)
        self.lines += ["EXIT", f"{rest}:"]

    def _leave(self, _: int) -> None:
        text = self._draw.choice(("@{q}P{p} EXIT", "@P{p} BRA `({to})", "BRA.DIV ~URZ, `({to})"))
        known = 0 if self._apart else self._labels
        to = f".L_x_{self._draw.randrange(1, known + 1)}" if known else ""
        if to or "to" not in text:
            self.lines.append(self.filled(text, to=to, q=self._draw.choice(("", "!"))))


_SPECIAL = 48
"""Kernels from this number on give registers to others, or use most uniform registers, or both."""


def generated(seed: int) -> Code:
    """Return a kernel by its number."""
    writer = _Writer(seed)
    if seed >= _SPECIAL and seed % 3 == 1:
        writer.take_uniform(seed % 5)
    elif seed >= _SPECIAL:
        writer.roles(None if seed % 3 else seed % 5)
    writer.block(3)
    while len(writer.lines) < 24:
        writer.block(2)
    writer.lines.append("EXIT")
    most = 90 if seed < _SPECIAL else 160
    (code,) = parse("".join(_listed([*writer.lines[:-1][:most], "EXIT"], writer.lines, seed)))
    return code


def _listed(lines: list[str], every: list[str], seed: int) -> Iterator[str]:
    """Yield the disassembler's text of a kernel, with source lines and control bits."""
    draw, address = random.Random(seed), 0
    yield _HEAD
    known = {line for line in lines if line.endswith(":")}
    missing = [line for line in every if line.endswith(":") and line not in known]
    for line in (*lines[:-1], *missing, lines[-1]):
        if line.endswith(":"):
            yield f"{line}\n"
            continue
        if draw.random() < 0.3:
            yield f'\t//## File "made.cu", line {draw.randrange(1, 9)}\n'
        late = re.search(r"\b(LD|ST|ATOM|RED|S2|MUFU|SHFL|I2F|F2I)", line)
        write, read = (draw.choice((*range(6), 7)) if late else 7 for _ in "wr")
        wait = draw.choice((0, 0, 0, 1 << draw.randrange(6), 3, 63))
        control = wait << 11 | read << 8 | write << 5 | 1 << 4 | draw.randrange(1, 14)
        yield f"        /*{address:04x}*/                   {line} ;   /* 0x{address:016x} */\n"
        yield f"{' ' * 52}/* 0x{control << 41:016x} */\n"
        address += 16
