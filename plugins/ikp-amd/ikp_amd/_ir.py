"""An LLVM IR pass that replaces the verbs' marks in a kernel by code for an AMD GPU.

It runs on optimised IR, before LLVM generates code. A record is then

* a clock read: an intrinsic, so that LLVM knows its latency and waits where its word is used; with
  ``barriers``, LLVM's scheduler moves nothing across it. Without, it moves all instructions but
  memory accesses, matrix instructions among them;
* a vector of four words, which LLVM moves together as it likes and with the waits that matrix
  instructions in flight need: it knows none for registers that assembly writes;
* assembly that stores the vector: one store by one lane, no branch. The cursor's registers are
  ikp's own (``_registers``), scalar, and one set per wave::

    ikp_cur        number of records attempted so far
    ikp_base       low 32 bits of the address of the slot's first record
    ikp_high       high 32 bits of every address in the segment, behind
    ikp_low        the low 32 bits of the address, computed by each store
    ikp_lim        stop: capacity of the slot; ring: capacity - 1; 0 where the wave never records
    ikp_save       the lanes that are active, while a store changes them

One compare makes the lanes of a store: lane 0, or none where the slot is full. Like ``init`` in PTX
(``ikp.backends.triton.passes.entry``), it runs at the kernel's entry, and ``finish`` at each exit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ikp.plugins import KernelError, Spec, abi
from ikp_amd import _slot as slot
from ikp_amd._llvm_lines import NONE, SAVE, Lines, masked
from ikp_amd._marks import BARRIERS, MARK, OPTIONS, SHIFT

_MARKED = re.compile(
    rf'^ *(?P<result>%[\w.]+) = (?:tail )?call i32 asm sideeffect "{re.escape(MARK)}(?P<verb>\w+) ?'
    r'(?P<words>.*?)\\0A\.error [^"]*", "[^"]*"\((?P<operands>(?:[^()]|\([^()]*\))*)\)(?P<rest>.*)$'
)
_KERNEL = re.compile(r"^define .*\bamdgpu_kernel\b.*\{$")
_EXIT = re.compile(r"^ *ret void\b")
_PARAMETER = re.compile(r"(%[\w.]+)(?=[,)])")
_FROZEN = re.compile(r"^ *(%[\w.]+) = freeze \S+ (%[\w.]+)")
_ABSENT = re.compile(r' "amdgpu-no-(?:workgroup-id-[xyz]|workitem-id-x|implicitarg-ptr)"')
_ATTRIBUTES = re.compile(r"^attributes #\d+ = \{.*", re.MULTILINE)
_CALLED = re.compile(r"call [^\n\"]*?(@llvm\.[\w.]+)\(")
_LINE = re.compile(r", !dbg !\d+")


def complete(text: str, waves: int) -> str:
    """Return LLVM IR with code for the verbs of the kernel in it, if ``ikp.init`` marked it.

    Args:
        text: the module, optimised; it has one kernel.
        waves: waves per block.

    Raises:
        KernelError: a kernel's buffer is not its own argument, or it has more than one ``init``.
    """
    if f'"{MARK}init ' not in text:
        return text
    lines = text.split("\n")
    start = next(at for at, line in enumerate(lines) if _KERNEL.match(line))
    stop = lines.index("}", start)
    body = list(_Kernel(lines[start : stop + 1], waves).completed())
    text = "\n".join([*lines[:start], *body, *lines[stop + 1 :]])
    text = _ATTRIBUTES.sub(lambda group: _ABSENT.sub("", group[0]), text)
    return text.rstrip("\n") + "\n\n" + "\n".join(_missing(text)) + "\n"


def limited(text: str, registers: int) -> str:
    """Return LLVM IR whose kernel is compiled to at most ``registers`` scalar registers."""
    group = re.search(r"^define .*\bamdgpu_kernel\b.* #(\d+)\b[^#]*\{$", text, re.MULTILINE)
    if group is None:
        return text
    head = f"attributes #{group[1]} = {{"
    return text.replace(head, f'{head} "amdgpu-num-sgpr"="{registers}"')


def _missing(text: str) -> list[str]:
    """Return declarations of the intrinsics that are called and not declared."""
    return [
        f"declare {slot.INTRINSICS[name]}"
        for name in sorted(set(_CALLED.findall(text)) & slot.INTRINSICS.keys())
        if not re.search(rf"^declare [^\n]*{re.escape(name)}\(", text, re.MULTILINE)
    ]


@dataclass(frozen=True, slots=True)
class _Mark:
    """A verb's mark in the IR, parsed."""

    result: str
    verb: str
    words: str
    operands: tuple[str, ...]  # with their types
    place: str  # debug metadata of its source line

    @property
    def values(self) -> list[str]:
        """The operands without types."""
        return [each.split()[-1] for each in self.operands]


def _mark(line: str) -> _Mark | None:
    found = _MARKED.match(line)
    if found is None:
        return None
    operands = tuple(filter(None, found["operands"].split(", ")))
    place = _LINE.search(found["rest"])
    return _Mark(
        found["result"], found["verb"], found["words"], operands, place[0] if place else ""
    )


class _Kernel:
    """A kernel's lines of IR, rewritten with code in the place of its marks."""

    def __init__(self, body: list[str], waves: int) -> None:
        self._body, self._waves = body, waves
        marks = [mark for mark in map(_mark, body) if mark is not None]
        inits = [mark for mark in marks if mark.verb == "init"]
        if len(inits) != 1:
            raise KernelError(
                "ikp.init is more than once in the compiled kernel: call it once, at the top "
                "of the kernel itself."
            )
        self._whole = next((mark.words for mark in marks if mark.verb == "whole"), "")
        language, _, spec = inits[0].words.partition(" ")
        self._init, self._language, self._spec = (
            inits[0],
            abi.Language(int(language)),
            Spec.parse(spec),
        )

    def completed(self) -> Iterator[str]:
        """Yield the kernel's lines."""
        head, *rest = self._body
        yield head
        address, size = (self._argument(value) for value in self._init.values)
        lines = Lines("ikp")
        self._entered = slot.anchor(lines)  # first of all: the code behind it takes time
        slot.init(lines, self._entered, self._spec, self._language, self._waves, address, size)
        yield from lines.text
        for number, line in enumerate(rest):
            mark = _mark(line)
            if mark is not None:
                yield from self._code(mark, f"ikp{number}")
            elif _EXIT.match(line):
                yield from self._exit(Lines(f"ikp{number}"))
                yield line
            elif f'"{MARK}' in line:
                raise KernelError(f"ikp can't read what LLVM made of a verb: {line.strip()!r}.")
            else:
                yield line

    def _exit(self, lines: Lines) -> list[str]:
        """Return finish, with the record of the whole kernel where a mark asks for it."""
        clocks = slot.anchor(lines)
        if self._whole:
            word = 0 if self._spec.clock is abi.ClockKind.GLOBALTIMER else 2  # low halves
            tag = abi.tag(abi.Kind.RANGE, abi.PayloadType.NONE, int(self._whole.split()[0]))
            record = lines.vector(str(tag), self._entered[word], clocks[word], "0")
            code = [f"; ikp.whole {self._whole}", *_store(self._spec, False, False)]
            lines.assembly(code, [NONE, f"<4 x i32> {record}"])
        slot.finish(lines, clocks)
        return lines.text

    def _argument(self, value: str) -> str:
        """Return the kernel's parameter that ``value`` is, or the constant."""
        frozen = {found[1]: found[2] for found in map(_FROZEN.match, self._body) if found}
        value = frozen.get(value, value)
        if value.startswith("%") and value not in _PARAMETER.findall(self._body[0]):
            raise KernelError(
                "the buffer given to ikp.init is not the kernel's own argument. Pass what "
                "prof.buffer(label) returned to the kernel as it is, and that argument to ikp.init."
            )
        return value

    def _code(self, mark: _Mark, prefix: str) -> Iterator[str]:
        lines = Lines(prefix, mark.place)
        if mark.verb == "start":
            self._clock(lines, mark.result)
        elif mark.verb in ("end", "instant"):
            self._record(lines, mark)
        elif mark.verb == "role":
            number, _, comment = mark.words.partition(" ")
            slot.role(lines, int(number), comment)
        yield from lines.text

    def _clock(self, lines: Lines, into: str = "") -> str:
        """Read the clock; return its low 32 bits."""
        barrier = "call void @llvm.amdgcn.sched.barrier(i32 0)"
        barriers = self._spec.option(BARRIERS, OPTIONS[BARRIERS])
        if barriers:
            lines.do(barrier)
        if self._spec.clock is abi.ClockKind.GLOBALTIMER:
            read = slot.read_timer(lines)
        else:
            read = slot.read_cycles(lines)
        if barriers:
            lines.do(barrier)
        if self._spec.clock is abi.ClockKind.GLOBALTIMER:
            read = slot.nanoseconds(lines, read)
        if into:
            return lines.let_as(into, f"trunc i64 {read} to i32")
        return lines.let("word", f"trunc i64 {read} to i32")

    def _record(self, lines: Lines, mark: _Mark) -> None:
        tag, flags, comment = mark.words.split(" ", 2)
        values = mark.values
        tag = values.pop(0) if tag == "-" else str(int(tag, 16))
        word = self._clock(lines)
        opened = values.pop(0) if mark.verb == "end" else word
        record = lines.vector(tag, opened, word, values.pop(0))
        where, index = (bool(int(flag)) for flag in flags)
        lines.assembly(
            [f"; ikp.store {comment}", *_store(self._spec, where, index)],
            [NONE, f"<4 x i32> {record}", *(f"i32 {value}" for value in values)],
        )


def _store(spec: Spec, where: bool, index: bool) -> list[str]:
    """Return assembly on: zero, the record, [where], [index]."""
    condition, given = "$2", f"${2 + where}"
    ring = spec.overflow is abi.OverflowMode.WRAP
    at, limit = ("s[ikp_low]" if index else "s[ikp_cur]"), "s[ikp_lim]"
    code = ["s_nop 0"] if where or index else []  # wait state before a vector register is read
    if index:
        code.append(f"v_readfirstlane_b32 s[ikp_low], {given}")
    if where:
        code += [
            f"v_readfirstlane_b32 s[ikp_save], {condition}",
            "s_cmp_lg_u32 s[ikp_save], 0",
            "s_cselect_b32 s[ikp_save], s[ikp_lim], 0",
        ]
        limit = "s[ikp_save]"
    code += [
        f"s_cmp_lg_u32 {limit}, 0" if ring else f"s_cmp_lt_u32 {at}, {limit}",
        f"s_cselect_b64 {SAVE}, 1, 0",
    ]
    if ring:
        code.append("s_and_b32 s[ikp_low], s[ikp_cur], s[ikp_lim]")
        at = "s[ikp_low]"
    return [
        *code,
        f"s_lshl{SHIFT}_add_u32 s[ikp_low], {at}, s[ikp_base]",
        *masked("global_store_dwordx4 $0, $1, s[ikp_low:ikp_high]"),
        *_count(condition if where else "", given if index else ""),
    ]


def _count(condition: str, given: str) -> list[str]:
    """Return assembly that counts the record: with an index, one more than the largest so far."""
    only = [f"v_readfirstlane_b32 s[ikp_save], {condition}", "s_cmp_lg_u32 s[ikp_save], 0"]
    if not given:
        return (
            [*only, "s_addc_u32 s[ikp_cur], s[ikp_cur], 0"]
            if condition
            else ["s_add_u32 s[ikp_cur], s[ikp_cur], 1"]
        )
    # An index of -1 counts as the largest there is, not as none.
    return [
        f"v_readfirstlane_b32 s[ikp_save], {given}",
        "s_add_u32 s[ikp_save_high], s[ikp_save], 1",
        "s_max_u32 s[ikp_save_high], s[ikp_save_high], s[ikp_save]",
        *([*only, "s_cselect_b32 s[ikp_save_high], s[ikp_save_high], 0"] if condition else []),
        "s_max_u32 s[ikp_cur], s[ikp_cur], s[ikp_save_high]",
    ]
