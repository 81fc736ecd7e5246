"""Compiles kernels for a GPU that need not be there, and reads the machine code."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel

from ikp.backends.triton import TritonBackend
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.segment import Spec
from ikp.sass.cubins.cubin import Cubin
from ikp.session.wishes import revision
from tests.backends.opcodes import (
    TOOLS,
    Word,
    disassembled,
    names,
    reads_clock,
    texts,
    words_of,
)

CAPABILITIES = (80, 90, 100)
SYNCHRONISING = (
    "ATOM",
    "ATOMG",
    "ATOMS",
    "RED",
    "REDG",
    "MEMBAR",
    "FENCE",
    "BAR",
    "ERRBAR",
    "CCTL",
)
LOCAL_MEMORY = ("STL", "LDL")
_DIVISIBLE = [["tt.divisibility", 16]]


def spec(
    overflow: OverflowMode = OverflowMode.STOP,
    clock: ClockKind = ClockKind.CYCLES,
    schedule: bool = True,
) -> Spec:
    """Return the spec of a session's buffers."""
    return Spec(overflow=overflow, clock=clock, schedule=schedule, revision=revision())


def source(
    kernel: Any,
    types: Mapping[str, str],
    prof: Spec | None = None,
    constants: Mapping[str, Any] | None = None,
    divisible: bool = False,
) -> ASTSource:
    """Return what Triton compiles. ``prof`` None compiles without recording.

    Args:
        kernel: a jitted function; a parameter named ``prof`` takes the buffer.
        types: Triton's type of each parameter that is neither ``prof`` nor a constant.
        prof: the buffer's spec.
        constants: the constexpr parameters.
        divisible: pointers and integers are multiples of 16, as a launch finds them to be.
    """
    TritonBackend()  # installs the compiler hooks
    constants = constants or {}
    names: list[str] = kernel.arg_names
    signature: dict[str, Any] = {}
    values: dict[tuple[int, ...], Any] = {(names.index(k),): v for k, v in constants.items()}
    attributes = {}
    for at, name in enumerate(names):
        signature[name] = types.get(name, "constexpr")
        if name == "prof":
            signature[name] = ("*u8", "i32", "constexpr") if prof else "constexpr"
            values[(at, 2) if prof else (at,)] = str(prof) if prof else None
            places = ((at, 0), (at, 1)) if prof else ()
        else:
            places = ((at,),) if name in types and types[name] != "fp32" else ()
        attributes.update(dict.fromkeys(places, _DIVISIBLE))
    return ASTSource(kernel, signature, constexprs=values, attrs=attributes if divisible else None)


def compile_kernel(
    kernel: Any,
    types: Mapping[str, str],
    prof: Spec | None = None,
    constants: Mapping[str, Any] | None = None,
    capability: int = 90,
    divisible: bool = False,
    **options: Any,
) -> Code:
    """Compile ``kernel`` (see ``source``) with Triton's launch options."""
    target = GPUTarget("cuda", capability, 32)
    made = source(kernel, types, prof, constants, divisible)
    return Code(triton.compile(made, target=target, options=options))


def verbs_in(text: str) -> list[str]:
    """Return what ikp has put into PTX: its names and its marks.

    A ``.file`` line holds the path of the checkout, whatever that is called.
    """
    code = "\n".join(line for line in text.splitlines() if not line.strip().startswith(".file"))
    return re.findall(r"\bikp_\w+|//\s*ikp\.\w+", code)


@dataclass(frozen=True)
class Code:
    """A compiled kernel, and its machine code once it is asked for."""

    compiled: CompiledKernel

    @property
    def ptx(self) -> str:
        """The PTX that was assembled."""
        return str(self.compiled.asm["ptx"])

    @property
    def ptx_without_lines(self) -> str:
        """The PTX down to the end of the kernel, without what only says where it comes from.

        Two kernels with one such text have one machine code, but for what ptxas makes of line
        numbers: it has been seen to choose other registers.
        """
        body = self.ptx.partition("-- End function")[0]
        lines = (line.partition("//")[0].rstrip() for line in body.split("\n"))
        return "\n".join(line for line in lines if line and ".loc\t" not in line)

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        return int(self.compiled.metadata.shared)

    @cached_property
    def words(self) -> tuple[Word, ...]:
        """The instructions as 128 bits each, without the padding at the end."""
        return words_of(self.compiled.asm["cubin"])

    @property
    def size(self) -> int:
        """How many instructions there are."""
        return len(self.words)

    @property
    def clock_reads(self) -> int:
        """How many instructions read the clock."""
        return sum(map(reads_clock, self.words))

    @cached_property
    def opcodes(self) -> Counter[str]:
        """How often each opcode occurs, modifiers left out: ``STG``, ``BAR``."""
        return Counter(self.names)

    @property
    def names(self) -> list[str]:
        """The opcode of each instruction."""
        return names(self.compiled.asm["cubin"])

    @property
    def sass(self) -> str:
        """The machine code as cuobjdump prints it, with addresses."""
        return disassembled(self.compiled.asm["cubin"])

    @cached_property
    def instructions(self) -> tuple[str, ...]:
        """The text of each instruction, without the padding. Ask for ``words`` where they do."""
        return tuple(texts(self.compiled.asm["cubin"]))

    def count(self, names: Sequence[str]) -> dict[str, int]:
        """Return how often each of ``names`` occurs, where it does."""
        return {name: self.opcodes[name] for name in names if self.opcodes[name]}

    @property
    def allocated(self) -> int:
        """Registers that a launch gives to each thread."""
        (kernel,) = Cubin.read(self.compiled.asm["cubin"]).kernels.values()
        return kernel.registers

    @property
    def registers(self) -> int:
        """Registers that instructions of any role name: it may have set its own number of them."""
        used = (re.findall(r"\bR(\d+)\b", instruction) for instruction in self.instructions)
        return 1 + max(int(number) for numbers in used for number in numbers)


def assemble(ptx: str, folder: Path, arch: str = "sm_80") -> bytes:
    """Return the cubin of a text; raise CalledProcessError if ptxas refuses it."""
    path = folder / "kernel.ptx"
    path.write_text(ptx)
    subprocess.run(
        [TOOLS / "ptxas", f"-arch={arch}", path, "-o", folder / "kernel.cubin"],
        check=True,
        capture_output=True,
        text=True,
    )
    return (folder / "kernel.cubin").read_bytes()
