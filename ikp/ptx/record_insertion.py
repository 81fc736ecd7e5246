"""Inserts record code into the PTX text of a kernel: at its entry, its ranges, its exits; waits
behind barriers.

A barrier blocks a warp where the warp next reaches memory: a clock read behind it would show the
time before the wait. The instruction that ``bar.warp.sync`` becomes is held back by it, too, if the
barrier has issued seven cycles before. The assembler lets six pass (see
``ikp.sass.dataflow.free_registers``). So waits are inserted there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ikp.core.abi import Language
from ikp.core.regions import region_id
from ikp.probes.points.probe_points import ProbeRegion, marks
from ikp.probes.points.sese_regions import Point
from ikp.ptx.body import ENDS, Body
from ikp.ptx.instructions import Statement, StatementKind, parse, statements
from ikp.ptx.record_text import BlockShape, declaration, ends, entry, leave, registers, starts

_ALIGNED = re.compile(
    r"bar(?:\.cta)?\.(?:sync|red)\b|barrier(?:\.cta)?\.(?:sync|red)\.aligned"
    r"|barrier\.cluster\.wait(?:\.acquire)?\.aligned"
)
"""Barriers that all threads of a warp reach together: at others, some threads may be elsewhere."""
_REACHES_MEMORY = re.compile(r"(?:ld|st)(?!\.(?:param|const))\.|atom\.|red\.|(?:ld|st)matrix\.")
_CLOCK = re.compile(r"%(?:clock|globaltimer)")
_LEAVES = ("bra", "brx", "call", "ret", "exit")
_HELD = "bar.warp.sync 0xffffffff;"
_TIMES = 3


def held_back(text: str) -> str:
    """Return PTX in which no clock is read between a barrier and its wait.

    Barriers stay as they are where memory is reached before a clock, a label or a branch.
    """
    if _CLOCK.search(text) is None:
        return text
    parts = statements(text)
    made: list[str] = []
    for at, part in enumerate(parts):
        made.append(part.text)
        if _is_barrier(part) and not _reaches_memory(parts, at + 1):
            guard = part.code.split()[0] + " " if part.code.startswith("@") else ""
            joint = "" if part.text.endswith("\n") else "\n"
            made.append(f"{joint}{f'{guard}{_HELD} ' * _TIMES}\n")
    return "".join(made)


def _is_barrier(part: Statement) -> bool:
    made = parse(part.code) if part.kind is StatementKind.INSTRUCTION else None
    return made is not None and _ALIGNED.match(made.op) is not None


def _reaches_memory(parts: Sequence[Statement], first: int) -> bool:
    """Return whether code reaches memory before a label, a branch or a clock read."""
    for at in range(first, len(parts)):
        part = parts[at]
        if part.kind in (StatementKind.LABEL, StatementKind.CLOSE, StatementKind.HEAD):
            return False
        made = parse(part.code) if part.kind is StatementKind.INSTRUCTION else None
        if made is None:
            continue
        if _REACHES_MEMORY.match(made.op) and not made.guard:
            return True
        if made.name in _LEAVES or _CLOCK.search(part.code):
            return False
    return False


OWN_LINE = 0xFFFFFF
"""The source line of record code in line info: no file has so many, so it is none of the kernel's.
A file of its own would be clearer, but the assembler then mixes up the files of inlined functions.
"""


@dataclass
class PtxInsertion:
    """Inserts records around the probe regions of one kernel.

    Args:
        body: the kernel.
        shape: the size of its blocks, and whether sessions select.
        language: the kernel language that it was written in.
    """

    body: Body
    shape: BlockShape
    language: Language = Language.OTHER
    _before: dict[int, list[str]] = field(init=False, default_factory=lambda: defaultdict(list))
    _after: dict[int, list[str]] = field(init=False, default_factory=lambda: defaultdict(list))

    def text(self, places: Sequence[ProbeRegion]) -> str:
        """Return the module with records around the regions; the kernel itself is always one."""
        self._before.clear()
        self._after.clear()
        ranges = [place for place in places if place.end is not None]
        name = self.body.code.name
        first = registers(len(ranges)) + entry(self.shape, region_id(name), self.language)
        self._put(Point(0), first)
        self._ranges(ranges)
        for number, (at, guard) in enumerate(self._exits()):
            self._put(at, leave(self.shape, number, guard))
        return held_back("".join(self._pieces()))

    def _ranges(self, ranges: Sequence[ProbeRegion]) -> None:
        numbers = {id(place): number for number, place in enumerate(ranges)}
        sites: dict[tuple[Point, int], list[ProbeRegion]] = {}
        read, last = 0, (Point(-1), True)
        for point, place, opens in marks(ranges):
            read += (point, opens) != last  # of one kind in a row: one clock read for all
            last = point, opens
            sites.setdefault((point, read), []).append(place)
            if len(sites[point, read]) == 1:
                self._put(point, "")
            side = self._after if point.after else self._before
            side[self.body.at[point.index]][-1] = self._made(sites[point, read], numbers, opens)

    def _made(self, places: Sequence[ProbeRegion], numbers: dict[int, int], opens: bool) -> str:
        if opens:
            return starts([numbers[id(each)] for each in places])
        return ends(self.shape, [(numbers[id(each)], region_id(each.name)) for each in places])

    def _put(self, point: Point, code: str) -> None:
        side = self._after if point.after else self._before
        side[self.body.at[point.index]].append(code)

    def _exits(self) -> Iterator[tuple[Point, str]]:
        """Yield the points where threads end, and the guards of the instructions that end them."""
        code = self.body.code.instructions
        for at, each in enumerate(code):
            if each.op in ENDS:
                yield Point(at), each.guard
        if code[-1].guard or code[-1].op not in (*ENDS, "bra", "trap"):
            yield Point(len(code) - 1, after=True), ""

    def _pieces(self) -> Iterator[str]:
        """Yield the text: record code has a line of its own, and the kernel's line is set again."""
        first = next(
            at for at, part in enumerate(self.body.parts) if part.kind is StatementKind.HEAD
        )
        for at, part in enumerate(self.body.parts):
            yield declaration(self.shape) if at == first else ""
            yield from self._tagged(at, self._before.get(at, ()))
            yield part.text
            yield from self._tagged(at, self._after.get(at, ()))

    def _tagged(self, at: int, codes: Sequence[str]) -> Iterator[str]:
        if not codes:
            return
        location = self.body.location(at)
        yield "\n"
        if location is not None:
            yield f".loc {location.code.split()[1]} {OWN_LINE} 0\n"
        yield from codes
        if location is not None:
            yield f"{location.text.strip()}\n"
