"""A warning, at load time, of ranges that a Triton or Gluon kernel opens and never closes.

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

from ikp.targets.ptx import HOST_NAMED
from ikp.verbs.dsl import never_closed
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


def check(kernel: str, files: Mapping[str, Path]) -> None:
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
