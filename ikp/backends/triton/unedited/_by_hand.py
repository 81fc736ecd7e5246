"""Has a kernel's TTGIR written to a file, and compiled from it with ``ikp.start "x"`` as PTX.

In the file, a line of its own begins or ends a range, or records an instant::

    ikp.start "copies"
    %a = ttg.async_copy_global_to_local ...
    ikp.end "copies"

Each such line becomes inline PTX assembly, in the syntax in which the compiler prints IR.

The first line of the file says which IR it was made from. A kernel whose source, options or
argument types have changed since has another IR, and is refused. A kernel to be recorded so has a
comment in its IR, left by ``_expressions.by_hand``, with the file's token.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ikp.core.abi import Kind, PayloadType
from ikp.core.segment import Spec
from ikp.errors import KernelError, UsageError
from ikp.probing import Untyped
from ikp.targets import ptx, ptx_totals
from ikp.verbs.dsl import Place, Region, intern
from ikp.verbs.inline_ptx import comment, counter, record


@dataclass(slots=True)
class TtgirRange:
    """The lines that begin and end one range."""

    spec: Spec
    name: str
    indent: str
    number: int
    ends: int = 0

    @property
    def start(self) -> str:
        """The line that reads the clock."""
        tag = Region(*intern(self.name)).fixed_tag(Kind.RANGE, PayloadType.NONE)
        asm = ptx.start(self.spec, tag=tag)
        return _assembly(self.indent, f"%ikp_start_{self.number}", asm)

    def end(self) -> list[str]:
        """Return the lines that store the record; each exit of a function needs its own."""
        self.ends += 1
        start = f"%ikp_start_{self.number}"
        value = f"%ikp_end_{self.number}_{self.ends}"
        region = Region(*intern(self.name))
        if self.spec.totals:
            asm = ptx_totals.end(self.spec, counter(region, Kind.RANGE), comment(region))
            return [_assembly(self.indent, value, asm, start)]
        made = record(region, Kind.RANGE, PayloadType.NONE, Place())
        none = f"{self.indent}{value}_none = arith.constant 0 : i32"
        end = ptx.end(self.spec, made)
        return [none, _assembly(self.indent, value, end, start, f"{value}_none")]


def _assembly(indent: str, value: str, asm: ptx.Asm, *operands: str) -> str:
    """Return one operation of inline assembly, as the IR writes it."""
    code = "".join(_escaped(asm.code))
    result, *given = (f"i{bits}" for bits in asm.bits)
    types = f" : {', '.join(given)}" if operands else ""
    return (
        f'{indent}{value} = tt.elementwise_inline_asm "{code}" {{constraints = '
        f'"{asm.constraints}", packed_element = 1 : i32, pure = false}}'
        f"{' ' if operands else ''}{', '.join(operands)}{types} -> {result}"
    )


def _escaped(text: str) -> Iterator[str]:
    for character in text:
        plain = character.isascii() and character.isprintable() and character not in '"\\'
        yield character if plain else f"\\{ord(character):02X}"


def instant(spec: Spec, name: str, indent: str, number: int) -> list[str]:
    """Return the lines that record a point in time."""
    value, region = f"%ikp_instant_{number}", Region(*intern(name))
    if spec.totals:
        asm = ptx_totals.instant(counter(region, Kind.INSTANT), comment(region))
        return [_assembly(indent, value, asm)]
    made = record(region, Kind.INSTANT, PayloadType.NONE, Place())
    none = f"{indent}{value}_none = arith.constant 0 : i32"
    return [none, _assembly(indent, value, ptx.instant(spec, made), f"{value}_none")]


MARK = "// ikp.by_hand"
HEADER = "// ikp: made from the IR "
_HELP = (
    '// A line ikp.start "name" begins a range, ikp.end "name" ends it; ikp.instant "name" is a '
    "point in time."
)
_RECORD = re.compile(r"(?P<indent>\s*)ikp\.(?P<verb>\w+)\s+(?P<name>\".*\")\s*$")

_MARKED = re.compile(rf'"{MARK} (?P<file>\w+)')
_SPEC = re.compile(r"// ikp\.spec (ikp [^\\\"]*)")

_files: dict[str, Path] = {}


def register() -> None:
    """Have Triton's compiler take the IR of edited files; a second call changes nothing.

    Raises:
        KernelError: this Triton can't read its IR back.
    """
    from ikp.backends.triton import stages
    from ikp.backends.triton.foreign import READS_BACK, TRITON

    if not TRITON.has(READS_BACK):
        raise KernelError(
            "ttgir= has Triton read its IR back, and this Triton can't. Leave it out: the kernel's "
            "machine code is marked then."
        )
    passes: list[Callable[[Untyped, object], Untyped]] = stages.TTGIR_PASSES
    if replaced not in passes:
        passes.append(replaced)


def replaced(module: Untyped, metadata: object = None) -> Untyped:  # noqa: ARG001 - a stage's signature
    """Return the TritonGPU module of the file in its comment; the same one where there is none."""
    text = str(module)
    asked = _MARKED.search(text)
    if asked is None or is_unwritten(asked["file"]):
        return module
    spec = _SPEC.search(text)
    if spec is None:
        raise KernelError("the kernel's IR has ikp's mark but no recording: ikp.init is missing.")
    from ikp.backends.triton import foreign

    made = edited(without_mark(text), asked["file"], Spec.parse(spec[1].strip()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edited.ttgir"
        path.write_text(made, encoding="utf-8")
        return foreign.parsed(str(path), module.context)


def without_mark(text: str) -> str:
    """Return IR without the line that names the file."""
    return "\n".join(line for line in text.split("\n") if MARK not in line)


def token(path: Path) -> str:
    """Return a file's token in a kernel's source, and so in its cache key: a digest of it."""
    content = path.read_bytes() if path.exists() else b""
    digest = hashlib.sha256(str(path).encode() + b"\0" + content).hexdigest()[:16]
    _files[digest] = path
    return f"file_{digest}"


def is_unwritten(found: str) -> bool:
    """Return whether a token is of a file that is still to be written."""
    return found.startswith("file_") and not _files[found.removeprefix("file_")].exists()


def edited(text: str, found: str, spec: Spec) -> str:
    """Return the IR to compile: that of a token's file.

    Args:
        text: the compiler's IR, without the line that asks for marks.
        found: the token, from ``token``.
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
    """Return the hash by which two IRs are compared."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def expanded(text: str, spec: Spec, path: str) -> str:
    """Return IR with each record that was placed by hand replaced by its assembly.

    Raises:
        KernelError: a line is no record, or a range ends that was not begun.
    """
    made: list[str] = []
    open_: dict[str, TtgirRange] = {}
    for number, line in enumerate(text.split("\n"), 2):
        found = _RECORD.match(line)
        if found is None:
            if line.lstrip().startswith("ikp."):
                raise KernelError(f'{path}:{number}: write ikp.start "name", with the quotes.')
            made.append(line)
            continue
        name, indent = json.loads(found["name"]), found["indent"]
        if found["verb"] == "start":
            open_[name] = TtgirRange(spec, name, indent, number)
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
