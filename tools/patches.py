"""Print the SHA-256 of what patching makes of kernels: before and after a change, for a diff.

    python -m tools.patches FOLDER file.cubin ... --detail ops --each 2 > after

A line for each kernel: its file, its name, the detail, and the hash of the patch: cubin, ranges and
notes; or of the refusal. Triton's PTX is read where it lies beside its cubin.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from ikp.errors import IkpError
from ikp.probes.patch import DETAILS, patch
from ikp.sass.cubins.cubin import Cubin

_BLOCK = (128, 1, 1)
"""Threads of a block, where the file doesn't say."""


def hashed(cubin: bytes, name: str, detail: str, ptx: str) -> str:
    """Return the hash of a patch, or of why there is none."""
    try:
        made = patch(cubin, name, detail=detail, ptx=ptx, block=_BLOCK)
    except IkpError as error:
        return "refused " + hashlib.sha256(str(error).encode()).hexdigest()[:16]
    facts = (made.names, made.notes, made.messages, made.registers, made.most, made.ours)
    return hashlib.sha256(made.cubin + repr(facts).encode()).hexdigest()[:16]


def lines(path: Path, details: list[str], each: int) -> list[str]:
    """Return a line for each of the first kernels of a file, at each detail."""
    cubin, beside = path.read_bytes(), path.with_suffix(".ptx")
    ptx = beside.read_text() if beside.exists() else ""
    try:
        kernels = [name for name, it in Cubin.read(cubin).kernels.items() if it.entry][:each]
    except IkpError as error:
        return [f"{path.name} {error}"]
    return [
        f"{path.name} {name} {detail} {hashed(cubin, name, detail, ptx)}"
        for name in kernels
        for detail in details
    ]


def files(sources: list[Path]) -> Iterator[Path]:
    """Yield the cubins of folders and paths."""
    for source in sources:
        yield from sorted(source.rglob("*.cubin")) if source.is_dir() else [source]


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--detail", action="append", choices=[*DETAILS], help="all, unless told")
    parser.add_argument("--each", type=int, default=2, help="the most kernels of a file")
    parser.add_argument("--every", type=int, default=1, help="so many files on: the next one")
    parser.add_argument("--largest", type=int, default=2_000_000, help="in bytes; larger are left")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    found = [it for it in files(given.sources) if it.stat().st_size <= given.largest]
    made = partial(lines, details=given.detail or [*DETAILS], each=given.each)
    with ProcessPoolExecutor(given.workers) as pool:
        for some in pool.map(made, found[:: given.every]):
            print(*some, sep="\n", flush=True)


if __name__ == "__main__":
    main()
