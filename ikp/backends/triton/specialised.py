"""Why a kernel with marks fails to compile where a loop is divided among warps.

On Hopper, Triton gives each operation of a kernel with a ``warp_specialize=True`` loop to the warps
that need its result. Nobody needs a mark's: inside the loop it is left out (``vanished`` tells),
and outside, its constants are moved away from under it, which fails.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ikp.backends.triton import foreign
from ikp.backends.triton.foreign import SCHEDULED, TRITON
from ikp.errors import KernelError

SPECIALISED = "tt.warp_specialize"

_MARK = re.compile(
    r'(?P<result> *%\S+ = )tt\.elementwise_inline_asm "// ikp\..*'
    r" -> (?P<type>i\d+)(?P<loc> loc\(.*\))?$"
)
_NAME = re.compile(r"// ikp\.store \d+ \\22((?:(?!\\22).)*)\\22")
_KERNEL = re.compile(r"tt\.func public @(\w+)")


def explain(text: str, module: Any, error: Exception, compile_: Callable[[Any], Any]) -> None:
    """Raise what says that marks are the cause, if they are.

    Args:
        text: the IR that failed; "" if it has no marks.
        module: the module that it is of.
        error: how it failed.
        compile_: the stage that failed, as a function of a module.

    Raises:
        KernelError: the same kernel without marks compiles.
    """
    if SPECIALISED not in text or not TRITON.has(SCHEDULED):
        return
    try:
        compile_(_without_marks(text, module.context))
    except Exception:  # noqa: BLE001 - whatever it is, the marks are not the cause
        return
    kernel = _KERNEL.search(text)
    names = ", ".join(f"'{name}'" for name in outside(text))
    said = str(error).strip() or type(error).__name__
    raise KernelError(
        f"Triton can't compile {kernel[1] if kernel else 'this kernel'} with ikp's marks in it; "
        f"without them it can ({said}). The kernel has a loop with warp_specialize=True, which "
        "Triton divides among warps on this GPU together with all that follows, and it has ranges "
        f"outside of that loop: {names or 'with no name'}. Take these ranges out, or "
        "warp_specialize=True; or take all marks out and have them put in after that step: "
        "ikp.instrument(kernel, level='scheduled'), ikp run --level scheduled."
    ) from error


def outside(text: str) -> list[str]:
    """Return the names of the ranges that are outside of loops that are divided among warps."""
    lines = text.split("\n")
    inside: set[int] = set()
    for at, line in enumerate(lines):
        if SPECIALISED in line and line.lstrip().startswith("}"):
            inside.update(range(_opened(lines, at), at))
    found = (_NAME.findall(line) for at, line in enumerate(lines) if at not in inside)
    return list(dict.fromkeys(name for names in found for name in names))


def _opened(lines: list[str], at: int) -> int:
    """Return the line that opens the region which line ``at`` closes."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    for first in range(at - 1, -1, -1):
        if lines[first].strip() and len(lines[first]) - len(lines[first].lstrip()) == indent:
            return first
    return at


def _without_marks(text: str, context: Any) -> Any:
    plain = "\n".join(
        _MARK.sub(r"\g<result>arith.constant 0 : \g<type>\g<loc>", line)
        for line in text.split("\n")
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plain.ttir"
        path.write_text(plain, encoding="utf-8")
        return foreign.parsed(str(path), context)
