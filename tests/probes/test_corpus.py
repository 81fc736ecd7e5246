"""Cubins of libraries, in a folder that IKP_CORPUS names: machine code that nobody here wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from ikp.errors import PatchError
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.cubins.elf import Elf
from ikp.sass.insertion.insert import insert
from tests.sass.module import corpus
from tests.sass.readback import assert_reads_back, everywhere

pytestmark = [
    pytest.mark.any_pins,
    pytest.mark.compiled,
    pytest.mark.skipif(not corpus(), reason="IKP_CORPUS names no folder of cubins"),
]
PATHS = corpus() or [Path("none")]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_written_back_byte_for_byte(path: Path) -> None:
    assert Elf.read(path.read_bytes()).write() == path.read_bytes()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_nop_after_every_instruction_reads_back(path: Path) -> None:
    plain = path.read_bytes()
    made, to = Cubin.read(plain), {}
    try:
        for name, kernel in made.kernels.items():
            to[name] = insert(made, name, everywhere(len(kernel.words)))
    except PatchError as refusal:
        pytest.skip(str(refusal))
    assert_reads_back(plain, made.write(), to)
