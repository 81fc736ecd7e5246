"""Source lines of an instruction: its own, the PTX's, or those of the instructions it awaits.

Where the machine code has wrong lines, they are taken from the kernel's PTX:

- Warpgroups' products: ptxas gives them other lines, but keeps their order.
- Inline assembly of several lines: LLVM counts the source's line on with each of them (Triton 3.9
  loads that way, CuTe waits for mbarriers). So its instructions seem to come from some lines below;
  the line before it is the right one.
- Inlined functions: Triton 3.6 names their callers in comments alone,
  ``k.py:44:26 @[ k.py:63:60 ]``. Barriers keep their order, too: so in a function with several
  calls, each barrier gets the lines of its own call.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import PurePath

from ikp.probes.points.sese_regions import Regions
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.outstanding import Issued, awaited_commits
from ikp.sass.disassembly.listing import Code, Line
from ikp.sass.disassembly.opcodes import Landmark, landmark

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LOC = re.compile(r"\s*\.loc\s+(\d+\s+\d+)(\s+\d+)?(?:.*\binlined_at\s+(\d+\s+\d+\s+\d+))?")
_INLINED = re.compile(r"^\s*\.loc\s[^\n]*?//\s*([^\n]*@\[[^\n]*)$", re.MULTILINE)
_PLACE = re.compile(r"([^\s:\[]+):(\d+)(?::\d+)?(?=\s|$)")
"""File and line; the column is absent where not known, and then the line may be 0: none."""
_FUNCTION = re.compile(r"^\s*(?:\.(?:visible|weak|extern)\s+)?\.(?:entry|func)\b", re.MULTILINE)
_BARRIER = re.compile(r"\s*(?:@!?%\w+\s+)?bar(?:rier)?(?:\.cta)?\.(?:sync|arrive|red)\b")
_PRODUCT, _LOAD, _WAIT = "wgmma.mma_async", "ld.global", "mbarrier.t"
"""Parts of operations' names; the last one begins ``mbarrier.try_wait`` and ``.test_wait``."""

_Chain = tuple[Line, ...]
"""Lines of functions that are inlined in each other, the innermost first."""
_Found = tuple[str, _Chain, _Chain]
"""An operation, its line as given, and its right line, each with the lines of the calls around."""


def product_lines(code: Code, ptx: str) -> dict[int, _Chain]:
    """Return the lines of each product, by its index; nothing where PTX and code don't match."""
    products = code.having(lambda opcode: "GMMA" in opcode.partition(".")[0])
    if not products:
        return {}
    lines = [right for op, _, right in _operations(ptx, code.name) if op == _PRODUCT]
    if len(lines) != len(products):
        return {}
    return dict(zip(products, lines, strict=True))


def load_lines(code: Code, ptx: str) -> dict[Line, Line]:
    """Return wrong lines of loads -> right ones; only where one line has one right one."""
    return _right_lines(code, ptx, _LOAD)


def wait_lines(code: Code, ptx: str) -> dict[Line, Line]:
    """Return wrong lines of mbarrier waits -> right ones: CuTe writes each in several lines."""
    return _right_lines(code, ptx, _WAIT)


def _right_lines(code: Code, ptx: str, which: str) -> dict[Line, Line]:
    found: dict[Line, set[Line]] = {}
    for op, given, right in _operations(ptx, code.name):
        if op == which and given and right:
            found.setdefault(given[0], set()).add(right[0])
    return {given: rights.pop() for given, rights in found.items() if len(rights) == 1}


def callers(code: Code, ptx: str) -> dict[Line, _Chain]:
    """Return lines of inlined functions -> those lines, and the lines of the calls they are in.

    Lines with several chains of calls are left out.
    """
    found = inlined(code, ptx).items()
    return {line: next(iter(chains)) for line, chains in found if len(chains) == 1}


def barrier_lines(code: Code, ptx: str) -> dict[int, _Chain]:
    """Return the lines of barriers and of their calls; nothing where PTX and code don't match.

    Barriers whose calls the PTX does not name are left out.
    """
    barriers = code.of("BAR")
    chains = list(_barriers(ptx, code.name)) if barriers else []
    pairs = list(zip(barriers, chains, strict=False))
    own = [code.instructions[at].lines[:1] == chain[:1] for at, chain in pairs if chain]
    if len(barriers) != len(chains) or not all(own):
        return {}
    return {at: chain for at, chain in pairs if chain}


def _barriers(ptx: str, kernel: str) -> Iterator[_Chain]:
    paths, text = _by_name(dict(_FILE.findall(ptx)).values()), ""
    for line in _of_kernel(ptx, kernel).split("\n"):
        if _LOC.match(line):
            text = found[1] if (found := _INLINED.match(line)) else ""
        elif _BARRIER.match(line):
            yield _chain(text, paths)


def inlined(code: Code, ptx: str) -> dict[Line, set[_Chain]]:
    """Return lines of inlined functions -> all their chains of calls, as comments have them."""
    paths = _by_name(dict(_FILE.findall(ptx)).values())
    found: dict[Line, set[_Chain]] = {}
    for text in set(_INLINED.findall(_of_kernel(ptx, code.name))):
        if chain := _chain(text, paths):
            found.setdefault(chain[0], set()).add(chain)
    return found


def _chain(text: str, paths: dict[str, str]) -> _Chain:
    """Return the lines that a comment names, the innermost first; none if one is not known."""
    places = _PLACE.findall(text)
    known = all(name in paths and int(number) for name, number in places)
    return tuple(Line(paths[name], int(number)) for name, number in places) if known else ()


def _by_name(paths: Iterable[str]) -> dict[str, str]:
    """Return the names of files -> their paths, where only one has that name."""
    paths = list(paths)
    counts = Counter(PurePath(path).name for path in paths)
    return {name: path for path in paths if counts[name := PurePath(path).name] == 1}


def _of_kernel(ptx: str, kernel: str) -> str:
    """Return the text of one kernel."""
    entry = re.search(rf"\.entry\s+{re.escape(kernel)}\b", ptx)
    rest = ptx[entry.end() if entry else 0 :]
    end = _FUNCTION.search(rest)
    return rest[: end.start()] if end else rest


@lru_cache(maxsize=1)  # products, loads and waits are asked for one after another
def _operations(ptx: str, kernel: str) -> tuple[_Found, ...]:
    return tuple(_found(ptx, kernel))


def _found(ptx: str, kernel: str) -> Iterator[_Found]:
    given: _Chain = ()
    right: _Chain = ()
    locations, inside = _Locations(ptx), False
    for line in _of_kernel(ptx, kernel).split("\n"):
        if found := _LOC.match(line):
            given = locations.chain(found)
            right = right if inside else given
        elif op := next((each for each in (_PRODUCT, _LOAD, _WAIT) if each in line), ""):
            yield op, given, right
        elif "inline asm" in line:
            inside = "begin" in line


class _Locations:
    """The source locations (``.loc``) of a PTX so far: code is inlined at one that came before."""

    def __init__(self, ptx: str) -> None:
        self._files = dict(_FILE.findall(ptx))
        self._chains: dict[str, _Chain] = {}  # by file, line and column

    def chain(self, found: re.Match[str]) -> _Chain:
        """Return the lines of one location and its calls, the innermost first."""
        at, around = (" ".join(text.split()) for text in (f"{found[1]}{found[2]}", found[3] or ""))
        outer = self._chains.get(around) or (self._line(around) if around else ())
        self._chains[at] = chain = (*self._line(at), *outer)
        return chain

    def _line(self, at: str) -> _Chain:
        file, number, *_ = at.split()
        return (Line(self._files.get(file, ""), int(number)),)


@dataclass(frozen=True)
class AboutLines:
    """The source lines of one kernel's instructions.

    Args:
        flow: the kernel.
        ptx: its PTX; lines of a warpgroup's products, and of some loads, are right only with it.
        regions: its regions, for the loop around an instruction.
    """

    flow: Flow
    ptx: str
    regions: Regions

    def own(self, at: int) -> _Chain:
        """Return an instruction's lines, a load's as the PTX has them."""
        lines = self.flow.code.instructions[at].lines
        called = self.with_calls(lines)
        lines = self._barriers.get(at, lines) if called is lines and len(lines) == 1 else called
        if not lines:
            return lines
        if landmark(self.flow.code.instructions[at].opcode) is Landmark.LOAD:
            return (self._loads.get(lines[0], lines[0]), *lines[1:])
        return self._waits.get(at, lines)

    def with_calls(self, lines: _Chain) -> _Chain:
        """Return lines with those of the calls that they are in, where only one chain is known."""
        # Where the machine code names callers, it names all of them.
        return self._callers.get(lines[0], lines) if len(lines) == 1 else lines

    def about(self, at: int) -> list[_Chain]:
        """Return the lines that an instruction works for: of a wait, those of what it awaits."""
        awaits = self.awaited.get(at)
        if awaits:
            found = [chain for each in awaits for chain in self.about(each)]
            return list(dict.fromkeys(found)) or [self.own(at)]
        if at in self.products:
            return [self.products[at]]
        return [self.own(at)]

    def chains(self, members: Iterable[int]) -> tuple[list[_Chain], str]:
        """Return the lines of instructions, and a note where these are not their own."""
        members = list(members)
        instructions = self.flow.code.instructions
        if not any("GMMA" in instructions[at].opcode for at in members):
            return [chain for at in members for chain in self.about(at)], ""
        known = [self.products.get(at, ()) for at in members]
        if all(known):
            return known, ""
        wait = next((i for i in instructions[members[-1] :] if _awaits_product(i.opcode)), None)
        return ([wait.lines], "line of its wait") if wait else ([], "line not known")

    @cached_property
    def awaited(self) -> dict[int, tuple[int, ...]]:
        """Waits -> the instructions they await, where known: of counting waits, and of a loop's
        only wait for an mbarrier.
        """
        instructions = self.flow.code.instructions
        found = {at: tuple(each.at for each in of) for at, of in self.counted.items()}
        if not self.products:  # the lines of products are not known
            found = {
                at: members
                for at, members in found.items()
                if landmark(instructions[at].opcode) is not Landmark.PRODUCT_WAIT
            }
        return {**self._arrivals(), **found}

    @cached_property
    def counted(self) -> dict[int, tuple[Issued, ...]]:
        """Waits that count commits -> the instructions they await."""
        return awaited_commits(self.flow.code.instructions, self._region)

    def _arrivals(self) -> dict[int, tuple[int, ...]]:
        """Return a loop's only wait for an mbarrier -> the TMA loads in that loop."""
        waits: dict[int, list[int]] = {}
        loads: dict[int, list[int]] = {}
        kinds: dict[Landmark | None, dict[int, list[int]]]
        kinds = {Landmark.MBARRIER_WAIT: waits, Landmark.TMA_LOAD: loads}
        code = self.flow.code
        for at in code.having(lambda opcode: landmark(opcode) in kinds):
            found = kinds[landmark(code.instructions[at].opcode)]
            if code.instructions[at].never_runs:
                continue
            if (loop := self._region(at)) is not None:
                found.setdefault(loop, []).append(at)
        return {
            each[0]: tuple(loads[loop])
            for loop, each in waits.items()
            if len(each) == 1 and loop in loads
        }

    def _region(self, at: int) -> int | None:
        return self.regions.loop(self.flow.graph.block(at))

    @cached_property
    def products(self) -> dict[int, _Chain]:
        """The lines of warpgroups' products; nothing where they are not known."""
        return product_lines(self.flow.code, self.ptx)

    @cached_property
    def _callers(self) -> dict[Line, _Chain]:
        return callers(self.flow.code, self.ptx)

    @cached_property
    def _barriers(self) -> dict[int, _Chain]:
        return barrier_lines(self.flow.code, self.ptx)

    @cached_property
    def _waits(self) -> dict[int, _Chain]:
        """The lines of waits for mbarriers, and of the instructions in their blocks that retry."""
        flow, instructions = self.flow, self.flow.code.instructions
        waits = flow.code.having(lambda opcode: landmark(opcode) is Landmark.MBARRIER_WAIT)
        known, found = wait_lines(flow.code, self.ptx) if waits else {}, dict[int, _Chain]()
        for at in waits:
            lines, block = instructions[at].lines, flow.graph.blocks[flow.graph.block(at)]
            if lines and lines[0] in known:
                inside = range(block.first, block.end)
                asks = [n for n in inside if instructions[n].lines[:1] == lines[:1]]
                found |= {n: (known[lines[0]], *instructions[n].lines[1:]) for n in asks}
        self._once(waits, {*known, *known.values()}, found)
        return found

    def _once(self, waits: list[int], right: set[Line], found: dict[int, _Chain]) -> None:
        """Add the waits that test once: ptxas gives some the line of the code before them.

        Args:
            waits: all waits for mbarriers.
            right: the lines of such waits.
            found: lines by instruction: those of a wait that tests again are those of the first.
        """
        for at in waits:
            after = self._next(at)
            again = [n for n in waits if self.flow.graph.block(n) in after and n in found]
            if again and right.isdisjoint(self.flow.code.instructions[at].lines[:1]):
                found[at] = found[again[0]]

    def _next(self, at: int) -> list[int]:
        return self.flow.graph.after[self.flow.graph.block(at)]

    @cached_property
    def _loads(self) -> dict[Line, Line]:
        return load_lines(self.flow.code, self.ptx)


def _awaits_product(opcode: str) -> bool:
    return opcode.startswith("WARPGROUP.DEPBAR")
