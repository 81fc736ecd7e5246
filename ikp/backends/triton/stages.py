"""``hook_on``: ikp's passes over TTGIR and PTX, wrapped around the stages of Triton's compiler.

A kernel may fail to compile with marks at a ``warp_specialize=True`` loop: the error says so. On
Hopper, Triton gives each operation of a kernel with such a loop to the warps that need its result.
No operation needs a mark's: inside the loop it is left out (``_load_checks`` warns). Outside, its
constants are moved to other warps, and the mark without them fails to compile. Elsewhere a loop can
be refused for the marks in it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Protocol

from ikp.backends.triton import foreign, gpu_targets
from ikp.backends.triton.foreign import READS_BACK, TRITON
from ikp.backends.triton.gpu_targets import NVIDIA
from ikp.backends.triton.passes import callees, entry, schedule
from ikp.errors import KernelError
from ikp.probing import Untyped
from ikp.ptx.record_insertion import held_back
from ikp.signals import pass_on
from ikp.targets.ptx_slot import INIT_MARK

_SPECIALISED = "tt.warp_specialize"

_MARK = re.compile(
    r'(?P<result> *%\S+ = )tt\.elementwise_inline_asm "// ikp\..*'
    r" -> (?P<type>i\d+)(?P<loc> loc\(.*\))?$"
)
_NAME = re.compile(r"// ikp\.store \d+ \\22((?:(?!\\22).)*)\\22")
_RANGE = re.compile(r"// ikp\.(clock|store)")
_KERNEL = re.compile(r"tt\.func public @(\w+)")


def explain_failure(
    text: str, module: Untyped, error: Exception, compile_: Callable[[Untyped], object]
) -> None:
    """Raise an error that names the marks as the cause, if they are.

    Args:
        text: the IR that failed; "" if it has no marks.
        module: the module of the IR.
        error: the compiler's.
        compile_: the stage that failed, as a function of a module.

    Raises:
        KernelError: the same kernel without marks compiles.
    """
    if _SPECIALISED not in text or not TRITON.has(READS_BACK):
        return
    lines = text.split("\n")
    inside = _inside(lines)
    outside = [i for i, line in enumerate(lines) if i not in inside and _RANGE.search(line)]
    for guilty, where in ((outside, "outside of"), (range(len(lines)), "in or around")):
        try:
            compile_(_parsed(_without_marks(lines, guilty), module.context))
        except Exception as refused:  # noqa: BLE001 - at any error, these marks are not the cause
            pass_on(refused)
            continue
        raise _explained(text, [lines[i] for i in guilty], where, error) from error


def _explained(text: str, guilty: list[str], where: str, error: Exception) -> KernelError:
    kernel = _KERNEL.search(text)
    names = dict.fromkeys(f"'{name}'" for line in guilty for name in _NAME.findall(line))
    said = str(error).strip() or type(error).__name__
    return KernelError(
        f"Triton can't compile {kernel[1] if kernel else 'this kernel'} with ikp's marks in it; "
        f"without them it can ({said}). The kernel has a loop with warp_specialize=True, which "
        f"Triton divides among warps, and ranges {where} that loop: "
        f"{', '.join(names) or 'without a name'}. Take these ranges out, or warp_specialize=True; "
        "or take all marks out and have them put into what the compiler has made: "
        "ikp.instrument(kernel), ikp run."
    )


def _inside(lines: list[str]) -> set[int]:
    """Return the lines of the loops that are divided among warps."""
    inside: set[int] = set()
    for at, line in enumerate(lines):
        if _SPECIALISED in line and line.lstrip().startswith("}"):
            inside.update(range(_opened(lines, at), at))
    return inside


def _opened(lines: list[str], at: int) -> int:
    """Return the line that opens the region which line ``at`` closes."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    for first in range(at - 1, -1, -1):
        if lines[first].strip() and len(lines[first]) - len(lines[first].lstrip()) == indent:
            return first
    return at


def _without_marks(lines: list[str], guilty: Iterable[int]) -> str:
    """Return a text without the marks in some of its lines."""
    kept = list(lines)
    for at in guilty:
        kept[at] = _MARK.sub(r"\g<result>arith.constant 0 : \g<type>\g<loc>", lines[at])
    return "\n".join(kept)


def _parsed(text: str, context: object) -> Untyped:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ttir"
        path.write_text(text, encoding="utf-8")
        return foreign.parsed(str(path), context)


TTGIR_PASSES: list[Callable[[Untyped, object], Untyped]] = []
"""Passes over TritonGPU IR: each takes a module and its metadata, and returns a module. They act on
kernels that ask for it in their own source, and so in their cache key."""

_Stage = Callable[..., Untyped]


class StageCompilation(Protocol):
    """The compilation that a stage is part of."""

    wrong: str
    marked: bool

    def lose(self, wrong: str) -> None:
        """Report that the passes don't run; raise KernelError for a kernel that needs them."""

    def need(self, what: str) -> None:
        """Note a feature that needs the passes; raise KernelError if they don't run."""


def hook_on(stages: object, backend: str, compilation: StageCompilation) -> str:
    """Wrap the stages of one compilation; return what is wrong with them, "" if nothing.

    Args:
        stages: the compiler's own dict.
        backend: Triton's name of the backend that compiles.
        compilation: what it is a part of.
    """
    if not isinstance(stages, MutableMapping):
        return f"hands stages over as {type(stages).__name__}"
    if "ttgir" in stages:
        stages["ttgir"] = _passed_on(stages["ttgir"], compilation)
    if backend != NVIDIA:
        return gpu_targets.hook_on(backend, stages)
    if "ptx" in stages:
        stages["ptx"] = _placed(stages["ptx"], compilation)
        return ""
    return f"has no compiler stage 'ptx' (it has: {', '.join(map(str, stages))})"


def _passed_on(make_ttgir: _Stage, compilation: StageCompilation) -> _Stage:
    def stage(source: Untyped, *args: object, **kwargs: object) -> Untyped:
        before = str(source) if compilation.marked else ""
        try:
            module = make_ttgir(source, *args, **kwargs)
        except Exception as error:
            pass_on(error)
            explain_failure(before, source, error, lambda s: make_ttgir(s, *args, **kwargs))
            raise
        for each in TTGIR_PASSES:
            module = each(module, args[0] if args else None)
        if compilation.marked and "ttg.warp_specialize" in str(module):
            compilation.need("warp-specialised partitions")
        return module

    return stage


def _placed(make_ptx: _Stage, compilation: StageCompilation) -> _Stage:
    def stage(*args: object, **kwargs: object) -> object:
        made = make_ptx(*args, **kwargs)
        if not isinstance(made, str):
            compilation.lose(f"has a compiler stage 'ptx' that returns {type(made).__name__}")
            return made
        placed = schedule.schedule(callees.pass_on(entry.complete(made)))
        return held_back(placed) if INIT_MARK in made else placed

    return stage
