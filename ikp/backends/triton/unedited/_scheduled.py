"""Puts marks into TritonGPU IR, after the compiler has scheduled and pipelined the kernel.

There the operations stand where they run: the asynchronous copies of a pipelined ``tl.load``, the
waits for them, the dots. A kernel to be marked here says so in a comment that ``expressions``
left in its source, and names the plan. The pass reads the IR as the compiler prints it, one
operation to a line, puts lines of inline assembly around operations, and has the result parsed
again. Each range is named after its operation and the source line that the IR gives for it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from ikp.backends.triton.unedited import _by_hand as by_hand
from ikp.backends.triton.unedited._ttgir_lines import Range, assembly
from ikp.core.segment import Spec
from ikp.errors import KernelError
from ikp.probing import Untyped
from ikp.targets import ptx
from ikp.verbs.dsl import Region, intern
from ikp.verbs.inline_ptx import comment

MARK = "// ikp.scheduled"

OPERATIONS = re.compile(
    r"tt\.(load|store|dot|dot_scaled|atomic_\w+|descriptor_(load|store|gather|scatter|reduce))"
    r"|ttg\.(async_copy_\w+|async_wait|local_(load|store|barrier)|barrier)"
    r"|gpu\.barrier"
    r"|ttng\.(warp_group_dot|warp_group_dot_wait|tc_gen5_mma\w*|tc_gen5_commit|tmem_(load|store|copy)"
    r"|wait_barrier|arrive_barrier|async_tma_\w+|tma_store_wait"
    r"|async_tma_store_wait)"
)
"""The operations of the IR that move data, multiply tiles or wait."""

_WAITS = ("async_wait", "warp_group_dot_wait")

_MARKED = re.compile(rf'"{MARK} (?P<plan>\w+)')
_SPEC = re.compile(r"// ikp\.spec (ikp [^\\\"]*)")
_LINE = re.compile(
    r"(?P<indent> +)(?P<results>%[^=]+ = )?\"?(?P<op>[a-z_]+\.[a-z_0-9]+)\"?(?P<rest>[ (].*|$)"
)
_LOC = re.compile(r" loc\((?P<loc>.*)\)$")
_ALIAS = re.compile(r"(?P<name>#loc\d*) = loc\((?P<loc>.*)\)$")
_FILE = re.compile(r'"(?P<file>(?:[^"\\]|\\.)*)":(?P<line>\d+):\d+')
_VARIABLE = re.compile(r"scf\.for (?P<variable>%[\w$.-]+) = .* : i32 {$")
_PARTITION = re.compile(r"(?P<indent> +)(?P<name>default|partition\d+)\b.*{$")
_LIBRARY = re.compile(r"/triton/(language|experimental)/")


def instrument(module: Untyped, metadata: object = None) -> Untyped:  # noqa: ARG001 - a stage's signature
    """Return a TritonGPU module with the marks that its own comment asks for."""
    text = str(module)
    asked = _MARKED.search(text)
    if asked is None or by_hand.is_unwritten(asked["plan"]):
        return module
    from ikp.backends.triton import foreign

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "marked.ttgir"
        path.write_text(rewrite(text), encoding="utf-8")
        return foreign.parsed(str(path), module.context)


def without_mark(text: str) -> str:
    """Return IR without the line that asks for marks."""
    return "\n".join(line for line in text.split("\n") if MARK not in line)


def rewrite(text: str) -> str:
    """Return the text of a TritonGPU module with marks.

    Raises:
        KernelError: the module is not of the form that this pass knows.
    """
    lines = text.split("\n")
    at = next(i for i, line in enumerate(lines) if MARK in line)
    plan, spec = _MARKED.search(lines[at]), _SPEC.search(text)
    if plan is None or spec is None:
        raise KernelError("the kernel's IR has ikp's mark but no recording: ikp.init is missing.")
    start, stop = _function(lines, at)
    places = _Places(lines)
    marker = _Marker(Spec.parse(spec[1].strip()), plan["plan"], places)
    del lines[at]
    if plan["plan"].startswith("file_"):
        return by_hand.edited("\n".join(lines), plan["plan"], marker.spec)
    place = places.of(lines[stop - 2])  # the line that closes the function
    lines[start : stop - 2] = marker.function(lines[start : stop - 2], at - start, place)
    return "\n".join(lines)


def _function(lines: list[str], at: int) -> tuple[int, int]:
    """Return the first line and the line after the last of the function that holds a line."""
    start = next(i for i in range(at, -1, -1) if lines[i].lstrip().startswith("tt.func "))
    indent = lines[start][: len(lines[start]) - len(lines[start].lstrip())]
    stop = next(i for i in range(at, len(lines)) if lines[i].startswith(indent + "}"))
    return start, stop + 1


class _Places:
    """Where in the source the IR says that an operation comes from."""

    def __init__(self, lines: list[str]) -> None:
        found = (_ALIAS.match(line) for line in lines)
        self._aliases = {alias["name"]: alias["loc"] for alias in found if alias}

    def of(self, line: str) -> str:
        """Return `` @file:line`` for an operation; nothing where it is unknown."""
        loc = _LOC.search(line)
        place = self._resolved(loc["loc"]) if loc else None
        return f" @{PurePath(place[0]).name}:{place[1]}" if place else ""

    def _resolved(self, loc: str) -> tuple[str, str] | None:
        """Return file and line; of a call, those of the callee, unless it is Triton's library."""
        loc = self._aliases.get(loc, loc)
        if found := _FILE.match(loc):
            return found["file"], found["line"]
        if loc.startswith("callsite("):
            callee, _, caller = loc[len("callsite(") : -1].partition(" at ")
            place = self._resolved(callee)
            return place if place and not _LIBRARY.search(place[0]) else self._resolved(caller)
        inner = re.match(r'(?:"(?:[^"\\]|\\.)*"|fused(?:<.*>)?)[(\[](.*)[)\]]$', loc)
        return self._resolved(inner[1].split(", ")[0]) if inner else None


@dataclass(slots=True)
class _Marker:
    """Writes the lines of marks; each value has a name of its own."""

    spec: Spec
    detail: str
    places: _Places
    number: int = 0
    taken: dict[str, int] = field(default_factory=dict)

    def function(self, lines: list[str], top: int, place: str) -> list[str]:
        """Return the lines of a kernel, with marks; ``top`` is the line before which it begins."""
        name = re.search(r"@(\w+)\(", lines[0])
        text = f"{name[1] if name else 'kernel'}{place}"
        body = self._block(lines[top:])
        if self.spec.totals:
            return [*lines[:top], *_until_return(self._range(text, "    "), body)]
        region = Region(*intern(text))
        return [*lines[:top], assembly("    ", "%ikp_whole", ptx.whole(comment(region))), *body]

    def _block(self, lines: list[str]) -> list[str]:
        """Return lines with marks around the loops, partitions and operations among them."""
        made: list[str] = []
        at = 0
        while at < len(lines):
            line = lines[at]
            found = _LINE.match(line)
            if found and line.rstrip().endswith("{") and found["op"] in ("scf.for", "scf.while"):
                stop = _end(lines, at, found["indent"])
                made += self._loop(lines[at : stop + 1], found)
                at = stop + 1
                continue
            if partition := _PARTITION.match(line):
                stop = _end(lines, at, partition["indent"])
                made += self._partition(lines[at : stop + 1], partition)
                at = stop + 1
                continue
            marked = self.detail == "ops" and found and OPERATIONS.fullmatch(found["op"])
            stop = at + 1
            if found and marked and not line.rstrip().endswith("{"):
                stop = _last_wait(lines, at) + 1
                name = ", ".join(dict.fromkeys(_short(each) for each in lines[at:stop]))
                range_ = self._range(self._name(name, line), found["indent"])
                made += [range_.start, *lines[at:stop], *range_.end()]
            else:
                made.append(line)
            at = stop
        return made

    def _loop(self, lines: list[str], found: re.Match[str]) -> list[str]:
        head, *inner, last = lines
        indent = found["indent"]
        if self.detail == "kernel":
            return [head, *self._block(inner), last]
        kind = found["op"].partition(".")[2]
        place = self.places.of(last)
        whole = self._range(f"{kind}{place}", indent)
        variable = _VARIABLE.search(head)
        each = self._range(
            f"{kind} iteration{place}", indent + "  ", variable["variable"] if variable else None
        )
        middle = self._each(inner, each, indent)
        return [whole.start, head, *middle, last, *whole.end()]

    def _each(self, inner: list[str], each: Range, indent: str) -> list[str]:
        """Return a loop's body with each iteration in a range."""
        first = next((i for i, line in enumerate(inner) if line.startswith(indent + "} do {")), -1)
        condition, body = inner[: first + 1], inner[first + 1 :]
        labels = 1 if body and re.match(r" *\^bb\d+\(", body[0]) else 0
        stop = len(body)
        if body and re.match(rf"{indent}  scf\.yield\b", body[-1]):
            stop -= 1
        middle = self._block(body[labels:stop])
        return [*condition, *body[:labels], each.start, *middle, *each.end(), *body[stop:]]

    def _partition(self, lines: list[str], found: re.Match[str]) -> list[str]:
        head, *inner, last = lines
        if found["name"] == "default":  # its warps run the kernel as well
            return [head, *self._block(inner), last]
        whole = self._range(found["name"], found["indent"] + "  ")
        return [head, *_until_return(whole, self._block(inner)), last]

    def _name(self, op: str, line: str) -> str:
        """Return a range's name; operations of one kind and line are told apart by a number."""
        name = op + self.places.of(line)
        self.taken[name] = self.taken.get(name, 0) + 1
        return name if self.taken[name] == 1 else f"{name} ({self.taken[name]})"

    def _range(self, name: str, indent: str, payload: str | None = None) -> Range:
        self.number += 1
        return Range(self.spec, name, indent, self.number, payload)


def _until_return(whole: Range, body: list[str]) -> list[str]:
    """Return the lines of a function or partition in a range, which each exit ends."""
    made = [whole.start]
    for line in body:
        if line.lstrip().startswith(("tt.return", "ttg.warp_return")):
            made += whole.end()
        made.append(line)
    return made


def _short(line: str) -> str:
    found = _LINE.match(line)
    return found["op"].rpartition(".")[2] if found else ""


def _last_wait(lines: list[str], at: int) -> int:
    """Return the last of the waits that follow one directly; ``at`` where there is none.

    The compiler puts a barrier after each, and merges barriers that meet: nothing may come between.
    """
    while _short(lines[at]) in _WAITS and at + 1 < len(lines) and _short(lines[at + 1]) in _WAITS:
        at += 1
    return at


def _end(lines: list[str], at: int, indent: str) -> int:
    """Return the line that closes the region which line ``at`` opens."""
    for i in range(at + 1, len(lines)):
        line = lines[i]
        closes = line.startswith(indent + "}") and not line.startswith(indent + "} do {")
        if closes:
            return i
    raise KernelError(
        f"the kernel's IR can't be marked: no end of {lines[at].strip()[:60]!r}. Use "
        "level='source'."
    )


def register() -> None:
    """Have Triton's compiler run the pass; a second call changes nothing.

    Raises:
        KernelError: this Triton can't read its IR back.
    """
    from ikp.backends.triton import stages
    from ikp.backends.triton.foreign import SCHEDULED, TRITON

    if not TRITON.has(SCHEDULED):
        raise KernelError(
            "level='scheduled' has Triton read its IR back, and this Triton can't. Use "
            "level='source'."
        )

    passes: list[Callable[[Untyped, object], Untyped]] = stages.SCHEDULED_PASSES
    if instrument not in passes:
        passes.append(instrument)
