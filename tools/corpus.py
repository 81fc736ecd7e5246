"""Collect cubins of real libraries, for the tests that read machine code from elsewhere.

    python -m tools.corpus OUT --arch sm_90=20 --arch sm_80=5 libfoo.so folder ...

Takes shared objects, or folders of cubins. Of each shared object it extracts so many cubins of an
architecture, spread evenly over what is there. Files are named by their hash: none is there twice.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ikp.sass.disassembly.tool_paths import tool


def listed(library: Path) -> list[str]:
    """Return the names of the cubins in a shared object."""
    ran = subprocess.run(
        [tool("cuobjdump"), "-lelf", library], check=False, capture_output=True, text=True
    )
    return re.findall(r"^ELF file +\d+: (\S+)$", ran.stdout, re.MULTILINE)


def chosen(names: list[str], arch: str, count: int) -> list[str]:
    """Return so many of the names that are for an architecture, spread evenly."""
    fitting = [name for name in names if name.endswith(f".{arch}.cubin")]
    return fitting[:: max(1, len(fitting) // count)][:count]


def extracted(library: Path, wanted: dict[str, int]) -> Iterator[bytes]:
    """Yield some cubins of a shared object."""
    names = listed(library)
    picked = [name for arch, count in wanted.items() for name in chosen(names, arch, count)]
    with tempfile.TemporaryDirectory() as folder:
        if picked:
            subprocess.run(
                [tool("cuobjdump"), "-xelf", ",".join(picked), library.resolve()],
                check=True,
                cwd=folder,
                capture_output=True,
            )
        for path in sorted(Path(folder).iterdir()):
            yield path.read_bytes()


def cubins(source: Path, wanted: dict[str, int]) -> Iterator[bytes]:
    """Yield the cubins of a shared object, or of a folder."""
    if source.is_dir():
        yield from (path.read_bytes() for path in sorted(source.rglob("*.cubin")))
    else:
        yield from extracted(source, wanted)


def main() -> None:
    """Fill a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--arch", action="append", default=[], help="such as sm_90=20")
    parser.add_argument("--largest", type=int, default=2_000_000, help="in bytes; larger are left")
    options = parser.parse_args()
    wanted = {name: int(count) for name, _, count in (each.partition("=") for each in options.arch)}
    options.out.mkdir(parents=True, exist_ok=True)
    for source in options.sources:
        before = len(list(options.out.iterdir()))
        for data in cubins(source, wanted):
            if len(data) <= options.largest:
                name = hashlib.sha256(data).hexdigest()[:16]
                (options.out / f"{name}.cubin").write_bytes(data)
        print(f"{source}: {len(list(options.out.iterdir())) - before} new")


if __name__ == "__main__":
    main()
