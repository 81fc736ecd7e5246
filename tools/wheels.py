"""Builds a release: sdist, a plain wheel, and one for each machine with its compiled libraries.

    .venv-dist/bin/python -m tools.wheels dist

One machine makes all of them: Zig's compiler has each target's libc. ``hatch_build.py`` takes the
libraries from a folder, and the wheel's tag, from the environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from ikp.backends.driver import _library
from ikp.compiling import prebuilt_name
from ikp.core.decoding._plain import PLAIN
from ikp.driver.handshake import ASKING
from ikp.exporters.protobuf.joining import JOIN
from ikp.session.own_objects import OWN

MACHINES: Final = ("x86_64", "aarch64")
GLIBC: Final = "2.17"
"""The oldest that a wheel is for: manylinux2014's."""


def main() -> None:
    """Build sdist and wheels into the folder that is named."""
    folder = Path(sys.argv[1]).resolve()
    build(folder, {})
    for machine in MACHINES:
        with tempfile.TemporaryDirectory() as made:
            zig = f"{sys.executable} -m ziglang cc -target {machine}-linux-gnu.{GLIBC} -s"
            compile_all(Path(made), machine, zig)
            tag = f"py3-none-manylinux_{GLIBC.replace('.', '_')}_{machine}"
            build(folder, {"IKP_PREBUILT": made, "IKP_WHEEL_TAG": tag}, "--wheel")


def build(folder: Path, environment: dict[str, str], *options: str) -> None:
    """Build a distribution."""
    command = [sys.executable, "-m", "build", "-q", *options, "--no-isolation", "-o", str(folder)]
    subprocess.run(command, env=os.environ | environment, check=True)


def compile_all(folder: Path, machine: str, compiler: str) -> None:
    """Compile each library into a folder, under the name that ``ikp.compiling`` looks for.

    Args:
        folder: for the libraries.
        machine: as ``uname`` calls it.
        compiler: its command, for this machine.
    """
    os.environ["CC"] = compiler
    with tempfile.TemporaryDirectory() as scratch:
        for file in (ASKING, JOIN, OWN, PLAIN):
            name = prebuilt_name(file.name, file.source.read_bytes(), file.options, machine)
            file.make(Path(scratch)).rename(folder / name)
        name = prebuilt_name(_library.DRIVER, _library.source(), machine=machine)
        _library.build(Path(scratch), _library.ANY_DRIVER).rename(folder / name)


if __name__ == "__main__":
    main()
