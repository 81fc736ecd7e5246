"""NVIDIA's command-line tools: nvdisasm on cubins, with its output kept on disk, and ptxas on PTX.

nvdisasm takes some tenths of a second to start, for any input: longer than all processing of its
text. So its texts are kept in the folder of Triton's cache. The key is the build of nvdisasm, its
options and the cubin's bytes; no part of it is ikp's. Machine code is patched by this text, so a
text that is cut, another file's or another user's is not used. Where a text can't be kept or read,
nvdisasm runs again.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ikp import caches, children
from ikp.children import Done
from ikp.errors import InspectError
from ikp.paths import triton_cache
from ikp.sass.disassembly.tool_paths import tool

_FAST = 1
"""Of zlib's levels, the one that takes milliseconds; texts become a tenth as long all the same."""


@dataclass(frozen=True, slots=True)
class KeptText:
    """One entry of the cache: its file and its key."""

    path: Path
    key: bytes

    @classmethod
    def of(cls, version: str, options: Sequence[str], digest: bytes) -> KeptText:
        """Return the entry of one disassembly.

        Args:
            version: the build of the disassembler.
            options: its command-line options, and a function's name, if it prints only one.
            digest: the SHA-256 of the cubin.
        """
        key = "\0".join([version, *options, ""]).encode() + digest
        name = hashlib.sha256(key).hexdigest()[:32]
        return cls(triton_cache() / f"ikp-text-{name}.z", key)

    def read(self) -> str | None:
        """Return the text; None where there is none, or it is damaged."""
        with suppress(zlib.error, UnicodeDecodeError):
            content = caches.kept(self.path, self.key)
            return None if content is None else zlib.decompress(content).decode()
        return None

    def write(self, text: str) -> None:
        """Keep a text; without effect where the file can't be written."""
        with suppress(OSError):
            caches.keep(self.path, self.key, zlib.compress(text.encode(), _FAST))


_OPTIONS = ("-c", "-hex", "-gi")
_NO_DATAFLOW = "-ndf"
"""Spares nvdisasm the search for the targets of indirect branches: a quarter of its time."""
_INDIRECT = re.compile(r" (BRX|JMX)U?\b")
_SECTION = re.compile(r"(?=^//-+ \.text\.\S+ +-+$)", re.MULTILINE)
_PRINTED = re.compile(r"^ +/\*([0-9a-f]+)\*/ +(.*?) *;?$", re.MULTILINE)
_WRONG = re.compile(r"at address 0x([0-9a-f]+)")
_NOP = (0x000FC000 << 96 | 0x7918).to_bytes(16, "little")
_NAME = re.compile(r"//-+ \.text\.(\S+)")


def disassemble(cubin: bytes) -> str:
    """Return ``nvdisasm``'s text of a cubin, with words and source lines.

    Raises:
        InspectError: there is no disassembler, or it refuses the file.
    """
    program = tool("nvdisasm")
    kept = KeptText.of(version_of(program), _OPTIONS, hashlib.sha256(cubin).digest())
    text = kept.read()
    if text is None:
        text = printed(program, [], cubin)
        kept.write(text)
    return text


def disassemble_function(cubin: bytes, name: str, symbols: Mapping[str, int]) -> str:
    """Return ``nvdisasm``'s text of one function of a cubin.

    ``nvdisasm`` takes as long to start as to print 12,000 instructions. So other functions can be
    printed in the same run; the text of each is kept by itself.

    Args:
        cubin: the file that the compiler wrote.
        name: the function.
        symbols: the function, and those to print with it if it was not kept: name -> symbol.

    Raises:
        InspectError: there is no disassembler, or it refuses the function.
    """
    program, digest = tool("nvdisasm"), hashlib.sha256(cubin).digest()
    version = version_of(program)
    if (kept := KeptText.of(version, [*_OPTIONS, name], digest).read()) is not None:
        return kept
    found = _functions(program, cubin, name, symbols)
    for each, text in found.items():
        KeptText.of(version, [*_OPTIONS, each], digest).write(text)
    return found.get(name, "")


def _functions(
    program: Path, cubin: bytes, name: str, symbols: Mapping[str, int]
) -> dict[str, str]:
    """Return the texts of functions; of the wanted one alone, where nvdisasm refuses another."""
    try:
        text = printed(program, [*symbols.values()], cubin)
    except InspectError:
        if len(symbols) == 1:
            raise
        text = printed(program, [symbols[name]], cubin)
    head, *sections = _SECTION.split(text)
    return {found[1]: head + each for each in sections if (found := _NAME.match(each))}


@cache
def version_of(program: Path) -> str:
    """Return a tool's ``--version`` text, which has its build."""
    return _ran([program, "--version"], 0).out


def printed_code(program: Path, chip: str, code: bytes) -> dict[int, str]:
    """Return ``nvdisasm``'s text of each instruction in code of no file, by its address.

    Instructions that the chip does not have are left out. Targets of branches are addresses.

    Args:
        program: the disassembler.
        chip: "90a" of sm_90a.
        code: instructions, the first at address 0.

    Raises:
        InspectError: it failed.
    """
    done = _printed_code(program, chip, code)
    wrong = {int(each, 16) for each in _WRONG.findall(done.said)}
    if done.code and wrong:
        kept = bytearray(code)
        for at in wrong:
            kept[at : at + len(_NOP)] = _NOP
        done = _printed_code(program, chip, bytes(kept))
    if done.code:
        raise _refused(program, "nvdisasm can't print this code", done)
    found = {int(address, 16): text for address, text in _PRINTED.findall(done.out)}
    return {at: text for at, text in found.items() if at not in wrong}


def _printed_code(program: Path, chip: str, code: bytes) -> Done:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "code.bin"
        path.write_bytes(code)
        return _ran([program, "-b", f"SM{chip}", path], len(code))


def printed(program: Path, symbols: Sequence[int], cubin: bytes) -> str:
    """Return ``nvdisasm``'s output for some functions of a cubin, by symbol; for all, if none.

    Raises:
        InspectError: it failed.
    """
    some = ["-fun", ",".join(map(str, symbols))] if symbols else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = _ran([program, *_OPTIONS, _NO_DATAFLOW, *some, path], len(cubin))
        if _INDIRECT.search(done.out):
            done = _ran([program, *_OPTIONS, *some, path], len(cubin))
    if done.code:
        raise _refused(program, "nvdisasm can't read this machine code", done)
    return done.out


def assemble(ptx: str, origin: str) -> bytes:
    """Return the cubin of a PTX text, for the GPU that it names.

    Raises:
        InspectError: there is no assembler, or it refuses the text.
    """
    target = re.search(r"^\.target\s+(\w+)", ptx, re.MULTILINE)
    if target is None:
        raise InspectError(f"{origin} has no .target line: it is not PTX.")
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        ptxas = _assembler()
        command: list[str | Path] = [ptxas, "-lineinfo", f"-arch={target[1]}", source, "-o", cubin]
        done = _ran(command, len(ptx))
        if done.code:
            raise _refused(ptxas, f"ptxas refuses {origin}", done)
        return cubin.read_bytes()


def _assembler() -> Path:
    """Return the assembler: Triton's newer one knows every GPU and more versions of PTX."""
    try:
        return tool("ptxas-blackwell")
    except InspectError:
        return tool("ptxas")


def _ran(command: Sequence[str | Path], size: int) -> Done:
    """Run a tool that reads a file of some bytes.

    Raises:
        InspectError: it can't be started, or does not end.
    """
    try:
        return children.run(command, children.seconds(size))
    except (OSError, children.TooLongError) as error:
        raise InspectError(
            f"{command[0]} can't be used on {size:,} bytes: {error}. Where that is no tool of "
            "NVIDIA's CUDA toolkit, correct PATH or CUDA_HOME; else report it with the kernel."
        ) from error


def _refused(program: Path, what: str, done: Done) -> InspectError:
    reason = (done.said.strip() or f"exit code {done.code}")[:2000]
    return InspectError(f"{what}. {program} said: {reason}")
