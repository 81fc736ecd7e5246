"""Hand ikp's registers on to functions that a kernel calls, in compiled PTX.

A helper marked ``noinline`` is a function of its own, and registers are a function's own. Those
that verbs use (see ``ikp.targets.ptx``) become further parameters of each function that records,
or that calls one that does. How many records there are then comes back through the slot's header:
a function returns no more than one value.

Functions without verbs, and kernels that call none with, are left as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ikp.core import abi
from ikp.core.spec import Spec
from ikp.targets.ptx import CLOCK_MARK, ROLE_MARK, STORE_MARK, slot_address
from ikp.targets.ptx_entry import before_exits
from ikp.targets.ptx_slot import SPEC_MARK

_HEAD = re.compile(
    r"^(?P<kind>(?:\.\w+ )*\.(?:func|entry))\s+(?P<result>\(\.param[^)]*\)\s*)?(?P<name>[\w.$]+)\s*"
    r"\((?P<parameters>[^()]*)\)(?:[^{};/]|//[^\n]*)*(?P<next>[{;])",
    re.MULTILINE,
)
_BRACE = re.compile(r"//[^\n]*|[{}]")
_CALL = re.compile(
    r"^(?P<op>\s*call(?:\.uni)?\s+(?:\([^()]*\)\s*,\s*)?(?P<name>[\w.$]+)\s*)"
    r"(?:,\s*\((?P<operands>[^()]*)\)\s*)?;(?P<rest>(?:[^{}]|\{[^{}]*\})*?^\s*\}[^\n]*$)",
    re.MULTILINE,
)
_SPEC = re.compile(rf"^\s*{re.escape(SPEC_MARK)} (.*)$", re.MULTILINE)
_LOCATION = re.compile(r"^\s*\.loc\s+\d+\s+\d+\s+\d+", re.MULTILINE)
_MARKS = (CLOCK_MARK, STORE_MARK, ROLE_MARK)
_COUNT_AT = abi.field_offsets(abi.SLOT_HEADER)["attempted"]


@dataclass(frozen=True, slots=True)
class _Function:
    """A function in PTX: its head, and where its body ends; that of a declaration is empty."""

    head: re.Match[str]
    stop: int

    @property
    def name(self) -> str:
        return self.head["name"]

    @property
    def is_kernel(self) -> bool:
        return self.head["kind"].endswith("entry")

    @property
    def body(self) -> str:
        return self.head.string[self.head.end() : self.stop]

    @property
    def callees(self) -> set[str]:
        return {call["name"] for call in _CALL.finditer(self.body)}


def pass_on(text: str) -> str:
    """Return the PTX, where functions with verbs in them have the registers of their caller."""
    spec = _SPEC.search(text)
    if spec is None:
        return text
    functions = [_Function(head, _stop(head)) for head in _HEAD.finditer(text)]
    recording = _recording([each for each in functions if not each.is_kernel])
    if not recording:
        return text
    rewriting = _Rewriting(Spec.parse(spec[1]), recording)
    made, at = [], 0
    for each in functions:
        made += [text[at : each.head.start()], rewriting.function(each)]
        at = each.stop
    return "".join([*made, text[at:]])


def _stop(head: re.Match[str]) -> int:
    """Return where the function with this head ends: behind its last brace, or its semicolon."""
    depth = 1
    for found in _BRACE.finditer(head.string, head.end()) if head["next"] == "{" else ():
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if not depth:
            return found.end()
    return head.end()


def _recording(helpers: list[_Function]) -> set[str]:
    """Return the functions that have verbs in them, or call one that has."""
    found = {each.name for each in helpers if any(mark in each.body for mark in _MARKS)}
    while more := {each.name for each in helpers if each.callees & found} - found:
        found |= more
    return found


def _own_line(body: str) -> str:
    """Return what says that code comes from the function's first line, if lines are told at all."""
    found = _LOCATION.search(body)
    return f"{found[0]}\n" if found else ""


class _Rewriting:
    """Gives a module's functions their registers; knows which of them take any."""

    def __init__(self, spec: Spec, recording: set[str]) -> None:
        self._spec, self._recording = spec, recording
        stage = ("ikp_slot",) if spec.stage else ()
        self._registers = ("ikp_cur", "ikp_high", "ikp_base", "ikp_lim", *stage)

    def function(self, function: _Function) -> str:
        """Return a function or a declaration of one, with what it takes and what it passes on."""
        head, body = function.head, _CALL.sub(self._call, function.body)
        if function.name not in self._recording:
            return head[0] + body
        given = [f".param .b32 ikp_in_{n}" for n in range(len(self._registers))]
        parameters = ",\n".join(filter(None, [head["parameters"].strip(), *given]))
        start, stop = (at - head.start() for at in head.span("parameters"))
        signature = f"{head[0][:start]}{parameters}{head[0][stop:]}"
        if not body:
            return signature
        loads = "".join(
            f"\n.reg .b32 {name}; ld.param.b32 {name}, [ikp_in_{n}];"
            for n, name in enumerate(self._registers)
        )
        count = _own_line(body) + self._count("st.global.b32 [a+{at}], ikp_cur;")
        left = before_exits(body.split("\n"), count)
        return signature + loads + "\n".join(left)

    def _call(self, found: re.Match[str]) -> str:
        if found["name"] not in self._recording:
            return found[0]
        given = [f"ikp_out_{n}" for n in range(len(self._registers))]
        stores = "".join(
            f"\n.param .b32 {param}; st.param.b32 [{param}], {register};"
            for param, register in zip(given, self._registers, strict=True)
        )
        operands = ", ".join(filter(None, [(found["operands"] or "").strip(), *given]))
        back = self._count("ld.global.b32 ikp_cur, [a+{at}];")
        return f"{stores}\n{found['op']}, ({operands});{found['rest']}\n{back}"

    def _count(self, access: str) -> str:
        """Return code with which the recording lane loads or stores its count."""
        return f"""{{
.reg .pred p; .reg .u32 slot; .reg .u64 a;
setp.ne.u32 p, ikp_lim, 0;
{slot_address(self._spec)}
mov.b64 a, {{slot, ikp_high}};
@p {access.format(at=_COUNT_AT)}
}}"""
