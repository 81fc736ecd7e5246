"""Checks of a Triton or Gluon kernel as it loads: marks that Triton dropped, ranges that are never
closed.

A compiler may drop marks with the code around them, or because no operation needs them. It unrolls
and copies loops, so the check compares which regions are present, and not how often. Code that
passes missed is warned of, too.

Triton has no hook for the end of a kernel's function. But the compiler keeps the text of its first
IR, in which dead code is gone already. A start word whose name is in that text once, where it is
made, is recorded nowhere. The text is in the compile cache, so the check covers kernels that are
not compiled anew, too. Such a kernel may be right, where the compiler has proved that the end is
never reached: so the check warns and refuses nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ikp.backends.triton.foreign import STAGES, TRITON
from ikp.backends.triton.gpu_targets import last_text
from ikp.errors import KernelError
from ikp.targets.ptx import HOST_NAMED
from ikp.targets.ptx_slot import INIT_MARK
from ikp.verbs.dsl import known, never_closed
from ikp.warning import warn

_TEXTS = (".ttir", ".ttgir")
"""The first IR of Triton's compiler: for Triton, and for Gluon."""
_START = re.compile(
    r'^\s*(?P<word>%[\w.$-]+) = tt\.elementwise_inline_asm "(?:// ikp\.clock|; ikp\.start) '
    r"(?P<region>\S.*?)\\0A.*?(?:loc\((?P<place>#loc\d*)\))?$",
    re.MULTILINE,
)
_FUNCTION = re.compile(r"^\s*tt\.func ", re.MULTILINE)
_PLACE = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_FILE = re.compile(r'"(?P<file>[^"]+)":(?P<line>\d+):\d+')
_ESCAPED = re.compile(r"\\(?:(\\)|([0-9A-F]{2}))")
"""How MLIR writes a backslash, and other characters, in a string."""
_checked: set[Path] = set()


def unclosed(text: str) -> Iterator[str]:
    """Yield the warning of each range in a kernel's TTIR or TTGIR that no record uses."""
    if " ikp." not in text:
        return
    places = dict(_PLACE.findall(text))
    for function in _FUNCTION.split(text):
        for start in _START.finditer(function):
            word = re.escape(start["word"])
            if len(re.findall(rf"{word}(?![\w.$-])", function)) == 1:
                yield never_closed(_region(start["region"]), _place(start["place"], places))


def check_closed(kernel: str, files: Mapping[str, Path]) -> None:
    """Warn of the ranges that a kernel opens and never closes.

    Args:
        kernel: its name.
        files: the texts of the compiler's stages, by suffix.
    """
    path = next((files[suffix] for suffix in _TEXTS if suffix in files), None)
    if path is None or path in _checked or not path.is_file():
        return
    _checked.add(path)
    for message in unclosed(path.read_text()):
        warn(f"{kernel}: {message}", stacklevel=4)


def _region(comment: str) -> str:
    """Return a mark's region in the words of a message."""
    plain = _ESCAPED.sub(lambda found: found[1] or chr(int(found[2], 16)), comment)
    if plain == HOST_NAMED:
        return "that is named on the host"
    return repr(json.loads(plain.partition(" ")[2]))


def _place(name: str | None, places: dict[str, str]) -> str:
    """Return the first line of source that a location leads to; "" if there is none."""
    text = places.get(name or "", "")
    while not (found := _FILE.search(text)):
        inner = re.search(r"#loc\d*", text)
        if inner is None or inner[0] not in places:
            return ""
        text = places[inner[0]]
    return f"{found['file']}:{found['line']}"


_STAGES = (".ttir", ".ttgir", ".llir")
_REGION = re.compile(  # where marks become code later, operands are before the region until then
    r'ikp\.\w+ (?:\S+ ){0,2}?(?P<number>\d+) (?:\\22|")(?P<name>.*?)(?:\\22|")'
)
_UNPASSED = re.compile(rf"^\s*{INIT_MARK} %", re.MULTILINE)
_told: set[tuple[str, str]] = set()


def check_marks(kernel: str, files: Mapping[str, Path]) -> None:
    """Warn of marks that are not in a kernel's code.

    Args:
        kernel: its name.
        files: the texts of the compiler's stages, by suffix.

    Raises:
        KernelError: ikp's passes did not run over the code, and it would record wrongly.
    """
    last = last_text(files)
    text = _read(files[last]) if last else ""
    if not last or "ikp." not in text:
        return
    texts = {suffix: _read(files[suffix]) for suffix in _STAGES if suffix in files}
    if _UNPASSED.search(text):
        _unpassed(kernel, text, texts)
    lost = _lost_on_the_way([*texts.items(), (last, text)])
    if lost and (kernel, str(files[last])) not in _told:
        _told.add((kernel, str(files[last])))
        warn(_text(kernel, lost, texts), stacklevel=4)


def _lost_on_the_way(texts: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names of the regions that are not in the last text, by the stage that lost them.

    Args:
        texts: stage and text, in the compiler's order.
    """
    found = [(stage.lstrip("."), regions(text)) for stage, text in texts]
    lost: dict[str, list[str]] = {}
    for number in dict.fromkeys(number for _, each in found for number in each):
        if number not in found[-1][1]:
            at = max(i for i, (_, each) in enumerate(found) if number in each)
            name = known().get(number, found[at][1][number])
            lost.setdefault(found[at + 1][0], []).append(name)
    return lost


def regions(text: str) -> dict[int, str]:
    """Return the names of the regions of marks in any stage's text, by id."""
    return {int(found["number"]): found["name"] for found in _REGION.finditer(text)}


def _text(kernel: str, lost: Mapping[str, list[str]], texts: Mapping[str, str]) -> str:
    where = "; ".join(
        f"{', '.join(map(repr, lacking))} (gone in Triton's stage '{stage}')"
        for stage, lacking in lost.items()
    )
    reason = (
        "Triton divides the kernel's warp_specialize=True loop among warps, and drops what no "
        "warp's result needs: take warp_specialize=True out to see these ranges; or take all marks "
        "out and have them put into what the compiler has made: ikp.instrument(kernel), ikp run."
        if "tt.warp_specialize" in texts.get(".ttir", "")
        else "Triton drops code that it finds can't run; if this can, please report it."
    )
    return f"the code of kernel {kernel} lacks ranges, which record nothing: {where}. {reason}"


def _unpassed(kernel: str, text: str, texts: Mapping[str, str]) -> None:
    """Report code that ikp's passes have not run over.

    Raises:
        KernelError: it would record wrongly.
    """
    needs = [
        what
        for what, found in (
            ("warp-specialised partitions", "ttg.warp_specialize" in texts.get(".ttgir", "")),
            ("totals (mode='totals')", " totals=1 " in text),
            ("functions that it calls", ".func" in text),
        )
        if found
    ]
    if needs:
        raise KernelError(
            f"the code of kernel {kernel} has ikp's marks and {needs[0]}, but ikp's passes have "
            "not run over it: its registers are not set, and it would write to any memory. "
            "Another tool replaced what ikp hangs on Triton's compiler. Delete the kernel from "
            "Triton's cache (TRITON_CACHE_DIR, or ~/.triton/cache), and open the session after the "
            "tool is set up."
        )
    TRITON.lose(STAGES, f"gave code of kernel {kernel} that ikp's passes have not run over")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:  # the cache folder was emptied meanwhile
        return ""
