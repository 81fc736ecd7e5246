"""A PTX pass that passes ikp's registers as parameters to the functions that a kernel calls.

A helper marked ``noinline`` is a function of its own, and registers are a function's own. The
registers that verbs use (see ``ikp.targets.ptx``) become further parameters of each function that
records, or that calls one that does. The count of records comes back through the slot's header: a
function returns no more than one value.

Functions without verbs, and kernels that call no function with verbs, are left as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ikp.backends.triton.passes.entry import before_exits, own_line
from ikp.core import abi
from ikp.ptx.instructions import (
    PtxInstruction,
    Statement,
    StatementKind,
    joined,
    mark_of,
    parse,
    statements,
)
from ikp.targets.ptx import CLOCK_MARK, ROLE_MARK, SLOT_ADDRESS, STORE_MARK
from ikp.targets.ptx_slot import SPEC_MARK

_HEAD = re.compile(
    r"\s*(?P<kind>(?:\.\w+\s+)*\.(?:func|entry))\s+(?P<result>\(\s*\.param[^)]*\)\s*)?"
    r"(?P<name>[\w.$]+)\s*\((?P<parameters>[^()]*)\)"
)
_MARKS = (CLOCK_MARK, STORE_MARK, ROLE_MARK)
_REGISTERS = ("ikp_cur", "ikp_high", "ikp_base", "ikp_lim")
"""The registers of :mod:`ikp.targets.ptx` that a verb uses, and so a function with verbs."""
_COUNT_AT = abi.field_offsets(abi.SLOT_HEADER)["attempted"]


@dataclass(frozen=True, slots=True)
class _Function:
    """A function in PTX: its head, and its body with the braces; that of a declaration is empty."""

    head: re.Match[str]
    body: list[Statement]

    @property
    def name(self) -> str:
        return self.head["name"]

    @property
    def is_kernel(self) -> bool:
        return self.head["kind"].endswith("entry")

    @property
    def callees(self) -> set[str]:
        return {_callee(made) for part in self.body if (made := _call(part))}

    @property
    def has_verbs(self) -> bool:
        return any(mark_of(part).startswith(_MARKS) for part in self.body)


def pass_on(text: str) -> str:
    """Return the PTX, where functions with verbs in them have the registers of their caller."""
    if SPEC_MARK not in text:
        return text
    parts = statements(text)
    functions = _functions(parts)
    recording = _recording([each for each in functions.values() if not each.is_kernel])
    if not recording:
        return text
    rewriting = _Rewriting(recording)
    made, at = [], 0
    for place, each in functions.items():
        made += [joined(parts[at:place]), rewriting.function(each)]
        at = place + 1 + len(each.body)
    return "".join([*made, joined(parts[at:])])


def _functions(parts: list[Statement]) -> dict[int, _Function]:
    """Return the functions and declarations, by the index of the statement of their heads."""
    return {
        at: _Function(head, _body(parts, at + 1))
        for at, part in enumerate(parts)
        if part.kind is StatementKind.HEAD and (head := _HEAD.match(part.text))
    }


def _body(parts: list[Statement], start: int) -> list[Statement]:
    """Return the statements from a function's brace to the one that closes it; none without."""
    depth = 0
    for at in range(start, len(parts)):
        depth += {StatementKind.OPEN: 1, StatementKind.CLOSE: -1}.get(parts[at].kind, 0)
        if depth <= 0:
            return parts[start : at + 1] if at > start else []
    return parts[start:]


def _recording(helpers: list[_Function]) -> set[str]:
    """Return the names of the functions that have verbs in them, or call one that has."""
    found = {each.name for each in helpers if each.has_verbs}
    while more := {each.name for each in helpers if each.callees & found} - found:
        found |= more
    return found


def _call(part: Statement) -> PtxInstruction | None:
    """Return the instruction of a statement that calls a function; None of others."""
    made = parse(part.code) if part.kind is StatementKind.INSTRUCTION else None
    return made if made and made.name == "call" else None


def _callee(call: PtxInstruction) -> str:
    return next((each for each in call.operands if not each.startswith("(")), "")


def _is_result(part: Statement) -> bool:
    """Whether a statement may be between a call and the next instruction."""
    if part.kind is not StatementKind.INSTRUCTION:
        return part.kind in (StatementKind.SPACE, StatementKind.COMMENT, StatementKind.LOCATION)
    return part.code.startswith("ld.param")


class _Rewriting:
    """Rewrites a module's functions and calls, with ikp's registers as further parameters."""

    def __init__(self, recording: set[str]) -> None:
        self._recording = recording

    def function(self, function: _Function) -> str:
        """Return a function or a declaration, with its further parameters and rewritten calls."""
        head, body = function.head, self._with_calls(function.body)
        if function.name not in self._recording:
            return head.string + joined(body)
        given = [f".param .b32 ikp_in_{n}" for n in range(len(_REGISTERS))]
        parameters = ",\n".join(filter(None, [head["parameters"].strip(), *given]))
        start, stop = head.span("parameters")
        signature = f"{head.string[:start]}{parameters}{head.string[stop:]}"
        if not body:
            return signature
        loads = "".join(
            f".reg .b32 {name}; ld.param.b32 {name}, [ikp_in_{n}];\n"
            for n, name in enumerate(_REGISTERS)
        )
        count = own_line(body) + self._count("st.global.b32 [a+{at}], ikp_cur;")
        brace = body[0].text if body[0].text.endswith("\n") else f"{body[0].text}\n"
        return f"{signature}{brace}{loads}{before_exits(body[1:], count)}"

    def _with_calls(self, body: list[Statement]) -> list[Statement]:
        """Return a body: before each call its further arguments, behind it the count's load."""
        made: list[Statement] = []
        depth, scope = 0, -1  # the scope of the last call, until the count is read
        for part in body:
            depth += {StatementKind.OPEN: 1, StatementKind.CLOSE: -1}.get(part.kind, 0)
            # Compilers put a call and the loads of its results into a scope.
            if scope == 1 and not _is_result(part):
                made, scope = made + self._count_read(), -1
            call = _call(part)
            if call is not None and _callee(call) in self._recording:
                made += statements(self._longer_call(part, call))
                scope = depth
            else:
                made.append(part)
            if part.kind is StatementKind.CLOSE and depth < scope:
                made, scope = made + self._count_read(), -1
        return made

    def _count_read(self) -> list[Statement]:
        return statements("\n" + self._count("ld.global.b32 ikp_cur, [a+{at}];") + "\n")

    def _longer_call(self, part: Statement, call: PtxInstruction) -> str:
        """Return a call with ikp's registers as further arguments."""
        given = [f"ikp_out_{n}" for n in range(len(_REGISTERS))]
        stores = "".join(
            f".param .b32 {param}; st.param.b32 [{param}], {register};\n"
            for param, register in zip(given, _REGISTERS, strict=True)
        )
        at = call.operands.index(_callee(call))
        results = "".join(f"{each}, " for each in call.operands[:at])
        own = [each.strip("() ") for each in call.operands[at + 1 :]]
        operands = ", ".join(filter(None, [*own, *given]))
        guard = part.code.partition("call")[0]
        return f"{stores}{guard}{call.op} {results}{_callee(call)}, ({operands});\n"

    def _count(self, access: str) -> str:
        """Return code with which the recording lane loads or stores its count."""
        return f"""{{
.reg .pred p; .reg .u32 slot; .reg .u64 a;
setp.ne.u32 p, ikp_lim, 0;
{SLOT_ADDRESS}
mov.b64 a, {{slot, ikp_high}};
@p {access.format(at=_COUNT_AT)}
}}"""
