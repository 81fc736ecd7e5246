"""Kernels seen at the driver: names, memory, language; and ``Chooser``, which picks launches.

Kernels of one symbol are numbered by their code: a kernel loaded twice has one number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ikp.backends.driver._hook import DriverObject, HandleKind
from ikp.backends.driver._names import bare, demangled, labels, readable
from ikp.backends.labels import Labels
from ikp.backends.launched_grid import LaunchGrid
from ikp.core.abi import Language
from ikp.driver import cuda_functions
from ikp.sass.cubins.attributes import Parameter
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.cubins.module_memory import constants, variables
from ikp.session.current import Session
from ikp.unedited.plan import Plan

if TYPE_CHECKING:
    from ikp.backends.ahead import PatchesAhead
    from ikp.backends.patch_input import PatchInput

Digest = bytes | None
"""The digest of a kernel's code; None where the code can't be read."""


def digest(code: bytes, symbol: str) -> bytes:
    """Return the digest of a kernel's instructions.

    Raises:
        PatchError: the file's format is not known.
    """
    return sha256(Cubin.read(code).kernel(symbol).text.data).digest()


@dataclass(slots=True)
class _One:
    """A kernel: the function that reads its digest, the digest, and the modules that hold it."""

    read: Callable[[], Digest]
    digest: Digest = None
    holders: set[int] = field(default_factory=set)

    def known(self) -> Digest:
        """Return the digest, read once."""
        if self.digest is None:
            self.digest = self.read()
        return self.digest


@dataclass(slots=True)
class Same:
    """Numbers the kernels of each symbol, in the order in which they are launched.

    Code is read where a second module has the symbol, and where the kernel is patched. Code that
    can't be read any more is taken for the same.
    """

    _of: dict[str, list[_One]] = field(default_factory=dict)

    def number(self, symbol: str, holder: int, read: Callable[[], Digest]) -> int:
        """Return a kernel's number, from 1.

        Args:
            symbol: its name.
            holder: the id of the module or library that it is in.
            read: returns the digest of its code.
        """
        known = self._of.setdefault(symbol, [])
        for number, one in enumerate(known, 1):
            if holder in one.holders:
                return number
        new = _One(read)
        for number, one in enumerate(known, 1):
            if one.known() is None or new.known() is None or one.digest == new.digest:
                one.holders.add(holder)
                return number
        new.holders.add(holder)
        known.append(new)
        return len(known)

    def seen(self, symbol: str, number: int, read: Callable[[], Digest]) -> None:
        """Keep a kernel's digest: its module may be gone when another comes."""
        if len(self._of.get(symbol, ())) >= number and self._of[symbol][number - 1].digest is None:
            self._of[symbol][number - 1].digest = read()


class Chooser(Protocol):
    """The interface that picks the launches to record, and counts these and the others."""

    plan: Plan
    launches: Sequence[int]  # of each kernel, that are to be recorded
    kernels: re.Pattern[str] | None
    recorded: Counter[str]
    failed: dict[str, str]
    buffer: dict[str, Any]  # options of ``prof.buffer``
    aside: set[str]  # libraries whose kernels run plain
    labels: Labels
    idle: bool  # nothing is recorded now
    ahead: PatchesAhead | None  # of kernels that run plain between windows; None: no windows
    wakers: list[Callable[[], None]]  # called when it is to record again
    profiler: Callable[[bool], None]  # called at cudaProfilerStart (True) and cudaProfilerStop
    exits: Callable[[], None]  # called as the program calls C's exit()

    captures: int  # of CUDA graphs that are under way

    @property
    def standing(self) -> bool:
        """Whether captured launches get buffers though nothing is recorded."""

    def chosen(self, kernel: Any, capture: int | None = None) -> Session | None:
        """Return the session that records this launch, or None; count the launch."""

    def lasts(self, kernel: Any, session: Session) -> bool:
        """Return whether a session is to record all later launches of a kernel.

        It holds until stocks are revoked (``ikp.session.known_launch``).
        """

    def to_patch(self, kernel: Any, function: int, grid: LaunchGrid) -> PatchInput | None:
        """Return a kernel that another launcher launches, to patch ahead; None of none.

        Args:
            kernel: as that one knows it.
            function: the driver's handle that was launched.
            grid: of the launch.
        """

    def count_more(self, kernel: Any, number: int) -> None:
        """Count recorded launches of a kernel that were not asked about."""

    def capture_begins(self) -> None:
        """Decide anew on each kernel: a CUDA graph is captured from now on."""

    def capture_ends(self) -> None:
        """Note that a capture ends."""

    def count_plain(self, kernel: Any, reason: str, times: int = 1) -> None:
        """Count launches that are not recorded, by their reason."""

    def over(self, kernel: Any) -> str | None:
        """Return why no later launch of a kernel is recorded; None where one may be."""


class SeenKernel:
    """A kernel, with the names by which it is chosen and counted.

    ``launched`` is the function that a program launches, ``holder`` its module or library.
    ``number`` distinguishes kernels of one symbol and different code.
    """

    def __init__(
        self,
        symbol: str,
        launched: DriverObject,
        holder: DriverObject,
        labels: Labels,
        number: int = 1,
    ) -> None:
        self.symbol, self.launched, self.holder = symbol, launched, holder
        self.id, self.number, self._labels = launched.id, number, labels
        self.full_name = symbol if number == 1 else f"{symbol}#{number}"
        """The unique name: the symbol, with a number where other code has the same symbol."""

    @property
    def __name__(self) -> str:
        """The label; it is assigned when first read."""
        named = labels(self.symbol)
        first = self._labels.of(self.symbol, named)
        if self.number == 1:
            return first
        return self._labels.of(self.full_name, [f"{first}#{self.number}"])

    @property
    def shown(self) -> str:
        """The name in its ranges: made of the symbol alone, as the ids of their regions are."""
        return readable(self.symbol)

    @property
    def demangled(self) -> str:
        """The name with all arguments, and the number."""
        return demangled(self.symbol) + self.full_name.removeprefix(self.symbol)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names that a pattern may match, the shortest first; each with the kernel's file."""
        module = Path(self.holder.origin).name.partition(".")[0]
        every = (bare(self.symbol), readable(self.symbol), self.__name__, self.demangled)
        return tuple(f"{module}.{each}" for each in dict.fromkeys(every))

    def find(self, symbol: str) -> int | None:
        """Return the address of a variable of the plain kernel's module; None where it has none."""
        library = self.holder.kind is HandleKind.LIBRARY
        return cuda_functions.find(self.holder.handle, symbol, library=library)

    def function(self) -> int:
        """Return the function that is launched in the current context."""
        if self.launched.kind is HandleKind.KERNEL:
            return cuda_functions.function_of(self.launched.handle)
        return self.launched.handle


@dataclass(frozen=True, slots=True)
class KernelMemory:
    """The parameters of a kernel, and the constants and variables of its module, from the cubin."""

    parameters: list[Parameter]
    constants: list[tuple[str, int]]
    variables: list[tuple[str, int]]

    @classmethod
    def of(cls, code: bytes, name: str) -> KernelMemory:
        """Read them from the cubin."""
        return cls(Cubin.read(code).kernel(name).parameters, constants(code), variables(code))


def ptx_of(kernel: SeenKernel) -> str:
    """Return the PTX beside a loaded cubin's file, "" for none: Triton's cache keeps both."""
    beside = Path(kernel.holder.origin).with_suffix(".ptx")
    if kernel.holder.origin.endswith(".cubin") and beside.is_file():
        return beside.read_text(encoding="utf-8", errors="replace")
    return ""


def language_of(kernel: SeenKernel) -> Language:
    return Language.CUTE if kernel.symbol.startswith("kernel_cutlass_") else Language.OTHER
