"""NVIDIA's own tools, found and run: the disassembler, and the assembler for PTX alone."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ikp import children
from ikp.children import Done
from ikp.errors import InspectError
from ikp.machine.disassembly.kept_text import KeptText

_NO_LIFE_RANGES = "Cannot print life ranges"


@cache
def tool(name: str) -> Path:
    """Return the path of one of NVIDIA's tools: Triton's own, or the CUDA toolkit's.

    Raises:
        InspectError: there is none.
    """
    triton = find_spec("triton")
    folders = [Path(place) / "backends/nvidia/bin" for place in _places(triton)]
    folders += [Path(os.environ[v]) / "bin" for v in ("CUDA_HOME", "CUDA_PATH") if v in os.environ]
    found = [folder / name for folder in folders if os.access(folder / name, os.X_OK)]
    on_path = shutil.which(name)
    if found or on_path:
        return found[0] if found else Path(str(on_path))
    raise InspectError(
        f"{name} was not found: not in Triton's package, nor in $CUDA_HOME/bin, nor on PATH. It "
        "comes with Triton (pip install triton) and with the CUDA toolkit."
    )


def _places(spec: object) -> list[str]:
    return list(getattr(spec, "submodule_search_locations", None) or ())


def disassemble(cubin: bytes) -> str:
    """Return ``nvdisasm``'s text of a cubin, with words and source lines.

    Raises:
        InspectError: there is no disassembler, or it refuses the file.
    """
    return texts(cubin, life_ranges=False)[0]


def texts(
    cubin: bytes, *, life_ranges: bool = True, function: int | None = None
) -> tuple[str, str]:
    """Return what ``disassemble`` does, and the same code beside life ranges.

    Args:
        cubin: the file that the compiler wrote.
        life_ranges: whether to return the second text.
        function: the symbol of the function that is wanted alone; without it, all of them.

    They exclude each other in ``nvdisasm``, so it runs twice, at once. It prints no life ranges of
    files that are of another version than its own: then the second text is empty.

    Raises:
        InspectError: there is no disassembler, or it refuses the file.
    """
    program = tool("nvdisasm")
    alone = [] if function is None else ["-fun", str(function)]
    wanted = [["-hex", "-gi"], ["-plr", "-lrm", "narrow"]][: 1 + life_ranges]
    options = [["-c", *alone, *each] for each in wanted]
    kept = [KeptText.of(_version(program), each, cubin) for each in options]
    known = [each.read() for each in kept]
    if None in known:
        known = _printed(program, options, cubin)
        for place, text in zip(kept, known, strict=True):
            if text is not None:
                place.write(text)
    code, beside = [text or "" for text in (*known, "")[:2]]
    return code, beside


@cache
def _version(program: Path) -> str:
    """Return what a tool says of itself: the build is in it."""
    (done,) = _ran([[program, "--version"]], 0)
    return done.out


def _printed(program: Path, options: list[list[str]], cubin: bytes) -> list[str | None]:
    """Return what ``nvdisasm`` prints of a cubin with each of some options.

    "" stands for what it does not print of such files, None for what it failed to.

    Raises:
        InspectError: it failed with the first.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        results = _ran([[program, *each, path] for each in options], len(cubin))
    if results[0].code:
        raise _refused(program, "nvdisasm can't read this machine code", results[0])
    return [
        ("" if _NO_LIFE_RANGES in each.said else None) if each.code else each.out
        for each in results
    ]


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
        (done,) = _ran([command], len(ptx))
        if done.code:
            raise _refused(ptxas, f"ptxas refuses {origin}", done)
        return cubin.read_bytes()


def _assembler() -> Path:
    """Return the assembler: Triton's newer one knows every GPU and more versions of PTX."""
    try:
        return tool("ptxas-blackwell")
    except InspectError:
        return tool("ptxas")


def _ran(commands: Sequence[Sequence[str | Path]], size: int) -> list[Done]:
    """Run tools that read a file of some bytes, at once.

    Raises:
        InspectError: one can't be started, or does not end.
    """
    try:
        return children.run_all(commands, children.seconds(size))
    except (OSError, children.TooLongError) as error:
        raise InspectError(
            f"{commands[0][0]} can't be used on {size:,} bytes: {error}. Where that is no tool of "
            "NVIDIA's CUDA toolkit, correct PATH or CUDA_HOME; else report it with the kernel."
        ) from error


def _refused(program: Path, what: str, done: Done) -> InspectError:
    reason = (done.said.strip() or f"exit code {done.code}")[:2000]
    return InspectError(f"{what}. {program} said: {reason}")
