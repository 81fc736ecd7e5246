"""Records placed by hand in a kernel's TritonGPU IR: write the IR out, edit it, run with it.

In the file, a line of its own begins or ends a range, or records an instant::

    ikp.start "copies"
    %a = ttg.async_copy_global_to_local ...
    ikp.end "copies"

The first line of the file says which IR it was made from. A kernel whose source, options or
argument types have changed since has another IR, and is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from ikp.backends.triton.unedited._ttgir_lines import Range, instant
from ikp.core.segment import Spec
from ikp.errors import KernelError, UsageError

HEADER = "// ikp: made from the IR "
_HELP = (
    '// A line ikp.start "name" begins a range, ikp.end "name" ends it; ikp.instant "name" is a '
    "point in time."
)
_RECORD = re.compile(r"(?P<indent>\s*)ikp\.(?P<verb>\w+)\s+(?P<name>\".*\")\s*$")

_files: dict[str, Path] = {}


def token(path: Path) -> str:
    """Return what stands for a file in a kernel's source, and so in its cache key."""
    content = path.read_bytes() if path.exists() else b""
    digest = hashlib.sha256(str(path).encode() + b"\0" + content).hexdigest()[:16]
    _files[digest] = path
    return f"file_{digest}"


def is_unwritten(found: str) -> bool:
    """Return whether ``found`` stands for a file that is still to be written."""
    return found.startswith("file_") and not _files[found.removeprefix("file_")].exists()


def edited(text: str, found: str, spec: Spec) -> str:
    """Return the IR to compile: that of the file that ``found`` stands for.

    Args:
        text: the compiler's IR, without the line that asks for marks.
        found: what ``token`` returned.
        spec: how the kernel records.

    Raises:
        KernelError: the file was made from another IR, or a line in it is wrong.
    """
    path = _files[found.removeprefix("file_")]
    header, _, body = path.read_text(encoding="utf-8").partition("\n")
    if header != HEADER + fingerprint(text):
        raise KernelError(
            f"{path} was made from another IR than this kernel has now: its source, a compile "
            "option or the type of an argument has changed. Move the file away, launch once to "
            "write the new IR, and place the records again."
        )
    return expanded(body, spec, str(path))


def write(path: Path, text: str) -> None:
    """Write IR out for editing."""
    path.write_text(f"{HEADER}{fingerprint(text)}\n{_HELP}\n{text}", encoding="utf-8")


def fingerprint(text: str) -> str:
    """Return what tells one IR from another."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def expanded(text: str, spec: Spec, path: str) -> str:
    """Return IR with each record that was placed by hand as the assembly that makes it.

    Raises:
        KernelError: a line is no record, or a range ends that was not begun.
    """
    made: list[str] = []
    open_: dict[str, Range] = {}
    for number, line in enumerate(text.split("\n"), 2):
        found = _RECORD.match(line)
        if found is None:
            if line.lstrip().startswith("ikp."):
                raise KernelError(f'{path}:{number}: write ikp.start "name", with the quotes.')
            made.append(line)
            continue
        name, indent = json.loads(found["name"]), found["indent"]
        if found["verb"] == "start":
            open_[name] = Range(spec, name, indent, number, None)
            made.append(open_[name].start)
        elif found["verb"] == "end" and name in open_:
            made += open_[name].end()
        elif found["verb"] == "instant":
            made += instant(spec, name, indent, number)
        else:
            raise KernelError(
                f"{path}:{number}: {line.strip()} has no ikp.start {found['name']} above it, or "
                "is no ikp.start, ikp.end or ikp.instant."
            )
    return "\n".join(made)


def checked(path: object) -> Path:
    """Return the path of an IR file.

    Raises:
        UsageError: it can't be one.
    """
    file = Path(str(path)).absolute()
    if file.suffix != ".ttgir" or not file.parent.is_dir():
        raise UsageError(f"ttgir={str(path)!r}: give a file name that ends in .ttgir, in a folder.")
    return file
