"""Kernels with records in their machine code, loaded, and told where to record.

What one is told goes with each launch, as one more argument, where ikp itself makes the launch.
Elsewhere it lies in its module's constant memory, which is written in the order of a stream before
a launch. So each thread has a module of its own for each stream: launches that overlap never share
one, and nobody tells it anything else before it is launched.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ikp.checking.comparison import Verdict
from ikp.core.abi import ALIGNMENT, DENSE_HEADER_BYTES, LAUNCH_HEADER_BYTES
from ikp.core.segment import EVERYTHING, Selection
from ikp.driver import cuda
from ikp.errors import IkpError, KernelError, PatchError
from ikp.signals import deferred
from ikp.warning import warn

if TYPE_CHECKING:
    from ikp.probes.made_patch import Patch

_TOLD = 3
"""How many notes on a kernel are told in full."""


@dataclass(slots=True)
class Module:
    """A patched kernel that the driver has loaded."""

    patch: Patch
    module: int
    function: int
    cell: int  # address in the device's memory; 0 where it is an argument
    context: tuple[int, int] = (0, 0)  # its handle, and a number that no other context has
    checked: bool = False  # it was compared with the plain kernel
    refused: Verdict | None = None  # that was found of it, and it must not run

    @classmethod
    def load(cls, patch: Patch, name: str) -> Module:
        """Load a patched kernel in the current context.

        Raises:
            PatchError: the driver refuses it, or gives it fewer registers than its code uses: warps
                would overwrite each other's.
        """
        from ikp.probes.code.entry_code import CELL

        module, function = cuda.load(patch.cubin, name)
        _, wanted = patch.registers
        if (given := cuda.registers(function)) < wanted:
            raise PatchError(
                f"the driver gives {name} {given} registers for each thread, and its code with "
                f"records uses {wanted}."
            )
        cell = cuda.address_of(module, CELL) if patch.argument is None else 0
        return cls(patch, module, function, cell, (cuda.context(), cuda.context_number()))

    def words(
        self,
        prof: Any,
        grid: tuple[int, int, int],
        warps: int,
        selection: Selection = EVERYTHING,
    ) -> tuple[int, ...]:
        """Return what tells the kernel where to record, in words of 64 bits."""
        blocks = math.prod(grid)
        headers = DENSE_HEADER_BYTES * selection.count_headers(blocks, warps)
        size = max(0, int(prof.data.numel()) - LAUNCH_HEADER_BYTES - headers)
        each = size // selection.count_slots(blocks, warps, least=1) & -ALIGNMENT
        records = prof.slots_bytes > 0 and self.patch.fits(each)
        recording = selection.count_slots(blocks, warps) if records else 0
        # A launch is told where there is a size, though nobody is chosen; else, of no size.
        told, behind = self.patch.size_for_cell(each) * records, tuple[int, ...]()
        if self.patch.select:
            from ikp.probes.code.selection_code import selection_words

            behind = selection_words(selection, warps)
        return prof.address, told | recording << 32, *behind

    def point(
        self,
        prof: Any,
        grid: tuple[int, int, int],
        warps: int,
        stream: int,
        selection: Selection = EVERYTHING,
        queue: Callable[[Callable[[], None]], None] = lambda job: job(),
    ) -> tuple[int, ...]:
        """Tell the kernel where to record, in the order of the stream.

        Args:
            prof: the launch's buffer.
            grid: its blocks.
            warps: of a block.
            stream: where it is launched.
            selection: which warps and blocks record.
            queue: how a copy is queued before the launch.

        Returns:
            What it is told, in words of 64 bits: where it has an argument for that, that is passed.

        Raises:
            PatchError: the driver refuses.
        """
        words = self.words(prof, grid, warps, selection)
        if self.patch.argument is None:
            queue(lambda: cuda.write(self.cell, words, stream))
        if (notice := getattr(prof.data, "ikp_notice", None)) is not None:
            # What the address was asked for tells is torch's own stream: it need not be this one.
            notice.launched(stream, captured=cuda.capturing(stream))
        return words


@dataclass(slots=True)
class Modules:
    """The patched kernels of this process; what could not be patched is not tried again."""

    _patches: dict[tuple[object, ...], Patch | IkpError] = field(default_factory=dict)
    _loaded: dict[tuple[object, ...], Module] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(
        self, key: tuple[object, ...], name: str, stream: int, make: Callable[[], Patch]
    ) -> Module:
        """Return a kernel's patched form for this thread's launches on one stream.

        Args:
            key: what identifies the plain kernel and its marks.
            name: as the compiler wrote it.
            stream: the driver's handle.
            make: what patches it, asked once.

        Raises:
            PatchError: it can't be patched, or loaded.
            KernelError: what was chosen has no code in it.
        """
        with deferred(), self._lock:
            if key not in self._patches:
                self._patches[key] = self._made(name, make)
            patch = self._patches[key]
            if isinstance(patch, IkpError):
                raise patch
            place = *key, cuda.context_number(), stream, threading.get_ident()
            if place not in self._loaded:
                self._loaded[place] = Module.load(patch, name)
            return self._loaded[place]

    def patched(self, plain: object) -> Patch | None:
        """Return the latest patched form of a kernel, by what its keys begin with."""
        with self._lock:
            made = [each for key, each in self._patches.items() if key[0] == plain]
        return next((each for each in made[::-1] if not isinstance(each, IkpError)), None)

    def drop(
        self, gone: Callable[[object], bool], ended: Callable[[int, int], bool]
    ) -> list[Module]:
        """Forget what was made of plain kernels that are gone, or loaded in contexts that ended.

        Args:
            gone: whether a plain kernel is, by what its keys begin with.
            ended: whether a context has, by its handle and number.

        Returns:
            What is still loaded of that, in contexts that live.
        """
        with self._lock:
            self._patches = {key: each for key, each in self._patches.items() if not gone(key[0])}
            over = {
                key: each
                for key, each in self._loaded.items()
                if gone(key[0]) or ended(*each.context)
            }
            for key in over:
                del self._loaded[key]
        return [each for each in over.values() if not ended(*each.context)]

    @staticmethod
    def _made(name: str, make: Callable[[], Patch]) -> Patch | IkpError:
        try:
            patch = make()
        except (PatchError, KernelError) as error:
            return error
        if patch.notes:
            _tell(name, patch.notes)
        return patch


modules = Modules()


def _tell(name: str, notes: tuple[str, ...]) -> None:
    """Warn, once for each compiled kernel, of what is not recorded and what the rest costs."""
    more = f" And {len(notes) - _TOLD} more." if len(notes) > _TOLD else ""
    warn(f"{name}: {' '.join(notes[:_TOLD])}{more}", stacklevel=2)
