"""Compiles kernels for a GPU that need not be there, and reads the machine code."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel

from ikp.backends.triton import TritonBackend
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.segment import Spec
from ikp.session.wishes import revision

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
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
CLOCKS = re.compile(r"SR_(CLOCKLO|GLOBALTIMERLO)\b")
NOP = 0x918
"""The opcode that fills machine code up to its alignment, in the low bits of an instruction."""
LOCAL = {0x387, 0x983}
"""The opcodes of STL and LDL, in the low bits of an instruction."""
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,5}\*/\s+(.*?)\s*;")
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
    def machine_code(self) -> bytes:
        """The machine code as it is loaded."""
        return text_of(self.compiled.asm["cubin"])

    @property
    def size(self) -> int:
        """How many ``instructions`` there are, counted without the disassembler."""
        words = struct.iter_unpack("<QQ", self.machine_code)
        return sum(low & 0xFFF != NOP for low, _ in words)

    @property
    def local(self) -> int:
        """How many instructions use local memory, counted without the disassembler."""
        words = struct.iter_unpack("<QQ", self.machine_code)
        return sum(low & 0xFFF in LOCAL for low, _ in words)

    @cached_property
    def sass(self) -> str:
        """The machine code as cuobjdump prints it, with addresses."""
        return disassembled(self.compiled.asm["cubin"])

    @cached_property
    def instructions(self) -> tuple[str, ...]:
        """The SASS instructions, without the padding at the end."""
        return tuple(i for i in _INSTRUCTION.findall(self.sass) if opcode(i) != "NOP")

    @cached_property
    def opcodes(self) -> Counter[str]:
        """How often each opcode occurs, modifiers left out: ``STG``, ``BAR``."""
        return Counter(opcode(instruction) for instruction in self.instructions)

    def count(self, names: Sequence[str]) -> dict[str, int]:
        """Return how often each of ``names`` occurs, where it does."""
        return {name: self.opcodes[name] for name in names if self.opcodes[name]}

    @property
    def registers(self) -> int:
        """Registers per thread."""
        used = (re.findall(r"\bR(\d+)\b", instruction) for instruction in self.instructions)
        return 1 + max(int(number) for numbers in used for number in numbers)

    def between_clocks(self) -> list[tuple[str, ...]]:
        """Return the instructions between each clock read of a record and the next."""
        places = [i for i, text in enumerate(self.instructions) if CLOCKS.search(text)]
        return [self.instructions[a + 1 : b] for a, b in pairwise(places)]


@cache
def disassembled(cubin: bytes) -> str:
    """Return what cuobjdump prints of machine code.

    Once for kernels that are the same: to start it takes longer than to compile most of them.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [TOOLS / "cuobjdump", "-sass", path]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def text_of(cubin: bytes) -> bytes:
    """Return what the sections ``.text`` of a cubin hold: 16 bytes for each instruction."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<3H", cubin, 58)
    headers = [struct.unpack_from("<2I4Q", cubin, table + at * size) for at in range(count)]
    (*_, strings, _) = headers[names]
    return b"".join(
        cubin[offset : offset + length]
        for name, *_, offset, length in headers
        if cubin.startswith(b".text.", strings + name)
    )


def opcode(instruction: str) -> str:
    """Return the opcode of a SASS instruction, without its guard and modifiers."""
    words = instruction.split()
    return words[1 if words[0].startswith("@") else 0].split(".")[0]


def assemble(ptx: str, folder: Path) -> None:
    """Raise CalledProcessError if ptxas refuses a text for sm_80."""
    path = folder / "kernel.ptx"
    path.write_text(ptx)
    subprocess.run(
        [TOOLS / "ptxas", "-arch=sm_80", path, "-o", folder / "kernel.cubin"],
        check=True,
        capture_output=True,
        text=True,
    )
