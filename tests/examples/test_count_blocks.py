"""The basic-block counter of docs/rewriting-a-cubin.md: what it counts, in the emulator."""

from __future__ import annotations

import numpy as np
import pytest

from examples.count_blocks import CELL, PTX, count_blocks
from ikp import sass
from ikp.sass.assembly.chips import HOPPER
from ikp.sass.disassembly.tools import assemble
from tests.sass.emulate import LANES, Machine, Warp

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]
BASE, TURNS = 0x7F42_1000_0000, 7


def test_each_block_is_counted_by_each_thread_and_the_result_is_the_plain_one() -> None:
    plain = assemble(PTX, "PTX")
    code, firsts = count_blocks(plain, "turns")
    results = [run(plain, 0), run(code, len(firsts))]
    assert results[0][0] == results[1][0]
    assert len(firsts) == 3
    assert results[1][1] == [LANES, TURNS * LANES, LANES]  # before the loop, in it, behind it


def run(code: bytes, counters: int) -> tuple[int, list[int]]:
    """Return a kernel's result, and its counters, after one warp."""
    text = sass.Cubin.read(code).kernel("turns").text.data
    words = [int.from_bytes(text[at : at + 16], "little") for at in range(0, len(text), 16)]
    words = [word & ~0xFFF | 0x918 if word & 0xFF0FFF == 0x10B82 else word for word in words]
    into = BASE + 4 * counters
    given = (into & 0xFFFFFFFF, into >> 32, TURNS)
    constants = {(0, HOPPER.parameters + 4 * at): each for at, each in enumerate(given)}
    constants |= {(0, 0x208): 0x1234, (0, 0x20C): 0, (0, 0x28): 0}
    constants |= {(3, 0): BASE & 0xFFFFFFFF, (3, 4): BASE >> 32}
    machine = Machine(constants, bytearray(4 * counters + 4), BASE, chip=HOPPER)
    special = {number: np.zeros(LANES, np.uint64) for number in range(256)}
    special[0x21] = special[0] = np.arange(LANES).astype(np.uint64)
    Warp(machine, special, own=frozenset(range(len(words)))).run(words)
    told = np.frombuffer(bytes(machine.memory), "<u4").tolist()
    return told[-1], told[:-1]


def test_the_door_has_few_names_and_each_can_be_had() -> None:
    assert len(sass.__all__) <= 40
    assert all(getattr(sass, each) is not None for each in sass.__all__)
    assert CELL.encode() in count_blocks(assemble(PTX, "PTX"), "turns")[0]
