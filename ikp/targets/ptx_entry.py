"""Move ``init`` to a kernel's entry, and ``finish`` to each of its exits, in compiled PTX.

Where the user calls ``ikp.init`` is not where it has to run. A warp-specialised kernel sends its
worker warps elsewhere before the code around the call: they would record with registers that nobody
set. At the entry every warp of the block gets its slot. And with ``finish`` at every exit, counts
are exact and clocks have their second anchor in kernels that return early, in worker warps, and
where the user never thought of ``ikp.finish``; an explicit one is taken out.

The range of a whole kernel (``ikp.targets.ptx.whole``) is recorded there, too. Totals are declared
at the entry, and written at the exits: by then all regions are known.

Only kernels that ``ikp.init`` marked are touched; for functions that they call, see
``ikp.targets.ptx_calls``.
"""

from __future__ import annotations

import re

from ikp.core.spec import Spec
from ikp.errors import KernelError
from ikp.targets.ptx import END_MARK, WHOLE_MARK
from ikp.targets.ptx_lines import without_counted_lines
from ikp.targets.ptx_slot import FINISH_MARK, INIT_MARK, SPEC_MARK, finish_block
from ikp.targets.ptx_totals import Counter, declarations, used

_MARK = re.compile(rf"^\s*{INIT_MARK} (\S+) (\S+)$", re.MULTILINE)
# A comment before assembly is the end of the head: the assembly may open a scope of its own.
_HEAD = re.compile(
    r"\s*(\{|\.(reg|loc|local|shared|pragma)\b.*|//(?! begin inline asm).*|\$\w+:)?\s*"
)
_RETURN = re.compile(r"^\s*(?:@(?P<not>!?)(?P<guard>%\w+)\s+)?(?:ret|exit);")


def complete(text: str) -> str:
    """Return the PTX with init at the entry and finish at the exits of each marked kernel.

    Raises:
        KernelError: a kernel's buffer is not its own argument, so that the entry can't reach it.
    """
    if INIT_MARK not in text:
        return text
    lines = without_counted_lines(text.split("\n"))
    for start, stop in reversed(_kernels(lines)):
        body = lines[start:stop]
        if any(_MARK.match(line) for line in body):
            lines[start:stop] = _completed(body)
    return "\n".join(lines)


def _kernels(lines: list[str]) -> list[tuple[int, int]]:
    """Return (first line of the body, line after it) of every entry function."""
    found = []
    opened, depth, entry = 0, 0, False
    for at, line in enumerate(lines):
        code = line.partition("//")[0]
        entry = entry or ".entry" in code
        before, depth = depth, depth + code.count("{") - code.count("}")
        if before == 0 and depth > 0:
            opened = at
        elif before > 0 and depth == 0:
            if entry:
                found.append((opened, at + 1))
            entry = False
    return found


def _completed(body: list[str]) -> list[str]:
    init, rest = _cut(body, INIT_MARK)
    _, rest = _cut(rest, FINISH_MARK)
    whole, rest = _cut(rest, WHOLE_MARK)
    mark = _MARK.match(init[0])
    if mark is None or sum(INIT_MARK in line for line in body) != 1:
        raise KernelError(
            "ikp.init stands more than once in the compiled kernel: call it once, at the top of "
            "the kernel itself."
        )
    counters = used("\n".join(body))
    finish = _finish(_spec(init), counters, whole)
    head = next(i for i, line in enumerate(rest) if not _HEAD.fullmatch(line))
    loads, entry = _entry(init, mark[1], mark[2], body)
    return [
        *rest[:head], *loads, *entry, *declarations(counters), *before_exits(rest[head:], finish)
    ]  # fmt: skip


def before_exits(lines: list[str], code: str) -> list[str]:
    """Return a function's lines with ``code`` wherever it is left."""
    return [part for number, line in enumerate(lines) for part in _exit(line, code, number)]


def _finish(spec: Spec, counters: tuple[Counter, ...], whole: list[str]) -> str:
    """Return finish, with the record that a mark asks for; the mark stays, to name the region."""
    if not whole:
        return finish_block(spec, counters)
    mark = whole[0].strip()
    region = int(mark.removeprefix(WHOLE_MARK).split()[0])
    return f"{mark}\n{finish_block(spec, counters, region)}"


def _spec(init: list[str]) -> Spec:
    """Return the spec that init's second line repeats."""
    return Spec.parse(init[1].strip().removeprefix(SPEC_MARK + " "))


def _cut(body: list[str], mark: str) -> tuple[list[str], list[str]]:
    """Return the lines from the marks to their ends, and the others."""
    cut: list[str] = []
    kept: list[str] = []
    inside = False
    for line in body:
        inside = inside or line.strip().startswith(mark)
        (cut if inside else kept).append(line)
        if inside and line.strip() == END_MARK:
            inside = False
    return cut, kept


def _entry(
    init: list[str], address: str, size: str, body: list[str]
) -> tuple[list[str], list[str]]:
    """Return loads of init's two arguments, and its block with their registers in it."""
    loads = []
    text = "\n".join(init)
    for operand, kind, name in ((address, "u64", "ikp_address"), (size, "u32", "ikp_size")):
        if operand.startswith("%"):
            parameter = _parameter(operand, body)
            loads.append(f".reg .{kind} {name};\nld.param.{kind} {name}, [{parameter}];")
            text = re.sub(rf"{re.escape(operand)}\b", name, text)
    return loads, text.split("\n")


def _parameter(register: str, body: list[str]) -> str:
    """Return the kernel parameter that ``register`` holds."""
    load = re.compile(rf"^\s*ld\.param\.\w+\s+{re.escape(register)},\s*\[([^\]]+)\];")
    for line in body:
        if found := load.match(line):
            return found[1]
    raise KernelError(
        "the buffer given to ikp.init is not the kernel's own argument. Pass what "
        "prof.buffer(label) returned to the kernel as it is, and that argument to ikp.init."
    )


def _exit(line: str, code: str, number: int) -> list[str]:
    """Return a line, with code before it where the function ends there."""
    found = _RETURN.match(line)
    if found is None:
        return [line]
    if found["guard"] is None:
        return [code, line]
    stays = "" if found["not"] else "!"
    label = f"$L__ikp_stay_{number}"
    return [f"@{stays}{found['guard']} bra {label};", code, "ret;", f"{label}:"]
