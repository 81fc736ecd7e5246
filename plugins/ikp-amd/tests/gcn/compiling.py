"""Compiles kernels for AMD GPUs that need not be there, and reads their assembly."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel

from ikp.core.segment import Spec
from tests.backends.sass import source

ARCHITECTURES = ("gfx942", "gfx950")
CLOCKS = ("s_memtime", "s_memrealtime")
SCRATCH = ("scratch_load", "scratch_store", "v_writelane", "v_readlane")
"""Spills: to memory, and of scalar registers to lanes."""
SYNCHRONISING = ("s_barrier", "buffer_wbl2", "buffer_inv", "s_dcache_wb", "atomic")
_INSTRUCTION = re.compile(r"^\s*([a-z]\w+)\b(?!:)", re.MULTILINE)


def target(arch: str) -> GPUTarget:
    """Return what Triton compiles for."""
    return GPUTarget("hip", arch, 64)


def compile_amd(
    kernel: Any,
    types: Mapping[str, str],
    prof: Spec | None = None,
    constants: Mapping[str, Any] | None = None,
    arch: str = "gfx942",
    divisible: bool = False,
    **options: Any,
) -> AmdCode:
    """Compile ``kernel`` (see ``tests.backends.sass.source``) with Triton's launch options."""
    made = source(kernel, types, prof, constants, divisible)
    return AmdCode(triton.compile(made, target=target(arch), options=options))


@dataclass(frozen=True)
class AmdCode:
    """A compiled kernel."""

    compiled: CompiledKernel

    @property
    def text(self) -> str:
        """The assembly that was assembled."""
        return str(self.compiled.asm["amdgcn"])

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The kernel's code: labels, instructions, and ikp's comments."""
        code = self.text.partition("\t.section\t.rodata")[0]
        kept = (line.strip() for line in code.split("\n"))
        return tuple(
            line
            for line in kept
            if line.startswith("; ikp.")
            or ((line and not line.startswith((".", ";"))) or line.startswith(".LBB"))
        )

    @cached_property
    def instructions(self) -> tuple[str, ...]:
        """The instructions, without comments."""
        code = (line.partition(";")[0].strip() for line in self.lines)
        return tuple(line for line in code if line and not line.endswith(":"))

    @cached_property
    def opcodes(self) -> Counter[str]:
        """How often each opcode occurs."""
        return Counter(line.split()[0] for line in self.instructions)

    def count(self, beginnings: Sequence[str]) -> int:
        """Return how many instructions begin with, or name, one of some words."""
        return sum(
            n for name, n in self.opcodes.items() if any(each in name for each in beginnings)
        )

    def fact(self, name: str) -> int:
        """Return a number that the text states of the kernel, such as ``.vgpr_count``."""
        found = re.search(rf"{re.escape(name)}:?\s+(\d+)$", self.text, re.MULTILINE)
        assert found, name
        return int(found[1])

    def between_clocks(self) -> list[tuple[str, ...]]:
        """Return the instructions between each clock read and the next."""
        at = [i for i, line in enumerate(self.instructions) if line.startswith(CLOCKS)]
        return [self.instructions[a + 1 : b] for a, b in pairwise(at)]
