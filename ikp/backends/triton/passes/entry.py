"""A PTX pass that moves ``init`` to a kernel's entry and ``finish`` to each of its exits.

``ikp.init`` must run at the entry, wherever the user calls it. A warp-specialised kernel sends its
worker warps elsewhere before the code around the call: they would record with registers that are
not set. At the entry every warp of the block gets its slot. With ``finish`` at every exit, counts
are always exact and clocks have their second anchor. That holds in kernels that return early, in
worker warps, and where the user never calls ``ikp.finish``. An explicit one is taken out.

Only its clocks are read there. Which slot a warp has, and the headers, are code behind the kernel's
first loads, where the warp would wait for memory anyway (``_behind_loads``).

Totals are declared at the entry, and written at the exits: by then all regions are known.

Only kernels that ``ikp.init`` marked are touched; for functions that they call, see
``ikp.backends.triton.passes.callees``.
"""

from __future__ import annotations

import re

from ikp.core.segment import Spec
from ikp.errors import KernelError
from ikp.ptx.instructions import (
    BEGIN_ASSEMBLY,
    END_ASSEMBLY,
    PtxInstruction,
    Statement,
    StatementKind,
    in_assembly,
    joined,
    mark_of,
    names,
    parse,
    statements,
    without_counted_lines,
)
from ikp.targets.ptx import END_MARK
from ikp.targets.ptx_slot import FINISH_MARK, INIT_MARK, SLOT_MARK, SPEC_MARK, finish_block
from ikp.targets.ptx_totals import declarations, used

_MARK = re.compile(rf"{INIT_MARK} (\S+) (\S+)")
_DECLARED = (".reg", ".local", ".shared", ".pragma")
_LOADS = ("ld.global",)
_CONSTANTS = ("ld.param", "ld.const")
_ORDERED = re.compile(r"\.(?:acquire|relaxed|volatile|mmio)")
_CLOCKS = re.compile(r"%(?:clock|globaltimer)")
_BEFORE_CODE = (StatementKind.SPACE, StatementKind.LOCATION, StatementKind.LABEL)


def complete(text: str) -> str:
    """Return the PTX with init at the entry and finish at the exits of each marked kernel.

    Raises:
        KernelError: a kernel's buffer is not its own argument, so that the entry can't reach it.
    """
    if INIT_MARK not in text:
        return text
    parts = without_counted_lines(statements(text))
    made, at = [], 0
    for start, stop in _bodies(parts, ".entry"):
        body = parts[start:stop]
        if any(_MARK.fullmatch(mark_of(part)) for part in body):
            made += [joined(parts[at:start]), _completed(body)]
            at = stop
    return "".join([*made, joined(parts[at:])])


def _bodies(parts: list[Statement], kind: str) -> list[tuple[int, int]]:
    """Return the spans of the bodies, with their braces, of all functions of a kind."""
    found = []
    opened, depth, wanted = 0, 0, False
    for at, part in enumerate(parts):
        if part.kind is StatementKind.HEAD:
            wanted = kind in part.code
        before, depth = (
            depth,
            depth + {StatementKind.OPEN: 1, StatementKind.CLOSE: -1}.get(part.kind, 0),
        )
        if before == 0 and depth > 0:
            opened = at
        elif before > 0 and depth == 0 and wanted:
            found.append((opened, at + 1))
            wanted = False
    return found


def _completed(body: list[Statement]) -> str:
    init, rest = _cut(body, INIT_MARK)
    _, rest = _cut(rest, FINISH_MARK)
    mark = _MARK.fullmatch(mark_of(init[0]))
    if mark is None or sum(INIT_MARK in mark_of(part) for part in body) != 1:
        raise KernelError(
            "ikp.init is more than once in the compiled kernel: call it once, at the top of "
            "the kernel itself."
        )
    counters = used(joined(body))
    finish = own_line(body) + finish_block(_spec(init), counters)
    head = next(at for at, part in enumerate(rest) if at and not _is_head(part))
    *loads, text = _entry(init, mark[1], mark[2], body)
    clocks, _, slot = text.partition(SLOT_MARK)
    entry = _lines(joined(rest[:head]), *loads, clocks, *declarations(counters))
    behind = head + _behind_loads(rest[head:])
    kept = _lines(joined(rest[head:behind]), f"{own_line(body)}{SLOT_MARK}{slot}")
    return "".join([*entry, *kept, before_exits(rest[behind:], finish)])


def _behind_loads(code: list[Statement]) -> int:
    """Return how many statements of a kernel's code come before the code for the warp's slot.

    They are loads and arithmetic that run in a straight line, up to the last load that none of them
    needs: the warp has its loads under way, and does not wait for any yet.
    """
    loaded = set[str]()
    found = depth = 0
    passed = False  # a load since the place that was found
    targets = _targets(code)
    for at, (part, inside) in enumerate(zip(code, in_assembly(code), strict=True)):
        if part.kind is StatementKind.INSTRUCTION:
            made = parse(part.code)
            if made is None or not _may_come_first(made) or (made.reads | made.writes) & loaded:
                break
            if made.op.startswith(_LOADS):
                loaded |= made.writes
                passed = True
        elif part.kind in (StatementKind.OPEN, StatementKind.CLOSE):
            depth += 1 if part.kind is StatementKind.OPEN else -1
        elif depth < 0 or not _is_note(part, targets):
            break
        if passed and depth == 0 and (not inside or mark_of(part) == END_ASSEMBLY):
            found, passed = at + 1, False
    return found


def _targets(code: list[Statement]) -> frozenset[str]:
    """Return the names in statements that may jump, and in tables of branches."""
    kinds = (StatementKind.INSTRUCTION, StatementKind.DIRECTIVE, StatementKind.OTHER)
    return frozenset[str]().union(*(names(part.code) for part in code if part.kind in kinds))


def _is_note(part: Statement, targets: frozenset[str]) -> bool:
    """Whether a statement is no code, and none of ikp's marks; a label, if no code names it."""
    if part.kind is StatementKind.LABEL:
        return part.code.rstrip(" :") not in targets
    silent = part.kind in (StatementKind.SPACE, StatementKind.LOCATION, StatementKind.COMMENT)
    declares = part.kind is StatementKind.DIRECTIVE and part.code.startswith(".reg")
    return declares or (silent and not mark_of(part).startswith("// ikp."))


def _may_come_first(made: PtxInstruction) -> bool:
    """Whether the code for the warp's slot may come behind an instruction: a load or arithmetic.

    Loads that order others, and clocks that the kernel itself reads, keep that code before them.
    """
    if made.op.startswith("ld."):
        return made.op.startswith(_LOADS + _CONSTANTS) and not _ORDERED.search(made.op)
    return (made.is_quick or made.name in ("div", "rem")) and not _CLOCKS.search(
        ",".join(made.operands)
    )


def _is_head(part: Statement) -> bool:
    """Whether a statement may be in a function's head, before its code."""
    if part.kind is StatementKind.COMMENT:  # assembly may open a scope of its own
        return mark_of(part) != BEGIN_ASSEMBLY
    return part.kind in _BEFORE_CODE or part.code.startswith(_DECLARED)


def _lines(*texts: str) -> list[str]:
    """Return the texts, each with the end of a line."""
    return [text if text.endswith("\n") else f"{text}\n" for text in texts]


def own_line(body: list[Statement]) -> str:
    """Return the function's first ``.loc``, as a line; "" where it has none.

    Code with it is no work of the last statement's line, and so of no range on that line.
    """
    found = next((part.code for part in body if part.kind is StatementKind.LOCATION), "")
    return f"{found}\n" if found else ""


def before_exits(parts: list[Statement], code: str) -> str:
    """Return a function's text with ``code`` at each of its exits."""
    made: list[str] = []
    for number, part in enumerate(parts):
        made += _exit(part, code, number, bool(made) and not made[-1].endswith("\n"))
    return "".join(made)


def _spec(init: list[Statement]) -> Spec:
    """Return the spec that init's second line repeats."""
    return Spec.parse(mark_of(init[1]).removeprefix(SPEC_MARK + " "))


def _cut(body: list[Statement], mark: str) -> tuple[list[Statement], list[Statement]]:
    """Return the statements from the marks to their ends, and the others."""
    cut: list[Statement] = []
    kept: list[Statement] = []
    inside = False
    for part in body:
        inside = inside or mark_of(part).startswith(mark)
        (cut if inside else kept).append(part)
        if inside and mark_of(part) == END_MARK:
            inside = False
    return cut, kept


def _entry(init: list[Statement], address: str, size: str, body: list[Statement]) -> list[str]:
    """Return loads of init's two arguments, and its block with their registers in it."""
    loads = []
    text = joined(init)
    for operand, kind, name in ((address, "u64", "ikp_address"), (size, "u32", "ikp_size")):
        if operand.startswith("%"):
            parameter = _parameter(operand, body)
            loads.append(f".reg .{kind} {name};\nld.param.{kind} {name}, [{parameter}];")
            text = re.sub(rf"{re.escape(operand)}\b", name, text)
    return [*loads, text]


def _parameter(register: str, body: list[Statement]) -> str:
    """Return the kernel parameter that ``register`` holds."""
    for part in body:
        made = parse(part.code) if part.kind is StatementKind.INSTRUCTION else None
        if made and made.op.startswith("ld.param") and made.operands[0] == register:
            return made.operands[1].strip("[] ")
    raise KernelError(
        "the buffer given to ikp.init is not the kernel's own argument. Pass what "
        "prof.buffer(label) returned to the kernel as it is, and that argument to ikp.init."
    )


def _exit(part: Statement, code: str, number: int, behind: bool) -> list[str]:
    """Return a statement's text, with code before it where the function ends there."""
    made = parse(part.code) if part.kind is StatementKind.INSTRUCTION else None
    if made is None or made.name not in ("ret", "exit"):
        return [part.text]
    line = "\n" if behind else ""
    if not made.guard:
        return [f"{line}{code}\n", part.text]
    stays = "" if part.code.startswith("@!") else "!"
    label = f"$L__ikp_stay_{number}"
    return [f"{line}@{stays}{made.guard} bra {label};\n{code}\nret;\n{label}:\n"]
