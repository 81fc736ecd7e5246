"""Patched kernels that the driver has loaded, and their launch parameters: buffer and selection.

Where ikp itself makes the launch, the launch parameters are one more argument of the kernel.
Elsewhere they lie in its module's constant memory, which is written in the order of a stream before
a launch. So each thread has a module of its own for each stream. Launches that overlap never share
one, and no other thread overwrites the parameters before the launch.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ikp.checking.comparison import CheckResult
from ikp.core.abi import ALIGNMENT, DENSE_HEADER_BYTES, LAUNCH_HEADER_BYTES
from ikp.core.segment import EVERYTHING, Selection
from ikp.driver import cuda, cuda_functions, cuda_memory
from ikp.errors import IkpError, KernelError, PatchError
from ikp.signals import deferred
from ikp.warning import warn

if TYPE_CHECKING:
    from ikp.probes.made_patch import Patch
    from ikp.session.current import Session

_MOST_SHAPES = 256
"""The most grids and sizes of buffers for which launch parameters are kept."""
_MOST_NOTES = 3
"""How many notes on a kernel are in its warning in full."""


functions: set[int] = set()
"""The patched functions that are loaded: handles of the driver's."""


@dataclass(slots=True)
class Module:
    """A patched kernel that the driver has loaded."""

    patch: Patch
    module: int
    function: int
    cell: int  # the launch parameters' address in device memory; 0 where they are an argument
    context: tuple[int, int] = (0, 0)  # its handle, and a number that no other context has
    refused: CheckResult | None = None  # of the A/B check, where the kernel must not run
    further: set[tuple[str, weakref.ref[Session] | None]] = field(default_factory=set)
    """The further runs of it: the kind of each, and the session that has its result. References to
    two sessions differ, also where the second one has the first one's address."""
    launcher: Any = None  # the language's, which passes the launch parameters, where it has one
    _behind: dict[tuple[Any, ...], tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def load(cls, patch: Patch, name: str) -> Module:
        """Load a patched kernel in the current context.

        Raises:
            PatchError: the driver refuses it, or gives it fewer registers than its code uses: warps
                would overwrite each other's.
        """
        from ikp.probes.code.entry_code import CELL

        module, function = cuda_functions.load(patch.cubin, name)
        _, wanted = patch.registers
        if (given := cuda_functions.registers(function)) < wanted:
            raise PatchError(
                f"the driver gives {name} {given} registers for each thread, and its code with "
                f"records uses {wanted}."
            )
        functions.add(function)
        cell = cuda_functions.address_of(module, CELL) if patch.argument is None else 0
        return cls(patch, module, function, cell, (cuda.context(), cuda.context_number()))

    def words(
        self,
        prof: Any,
        grid: tuple[int, int, int],
        warps: int,
        selection: Selection = EVERYTHING,
    ) -> tuple[int, ...]:
        """Return the launch parameters of the kernel's records, in words of 64 bits."""
        key = int(prof.data.numel()), prof.slots_bytes > 0, grid, warps, selection
        if (behind := self._behind.get(key)) is None:
            if len(self._behind) >= _MOST_SHAPES:
                self._behind.clear()
            behind = self._behind[key] = self.words_behind(*key)
        return prof.address, *behind

    def words_behind(
        self,
        nbytes: int,
        records: bool,
        grid: tuple[int, int, int],
        warps: int,
        selection: Selection,
    ) -> tuple[int, ...]:
        """Return the launch parameters behind the address of a buffer.

        Args:
            nbytes: of the buffer.
            records: whether the launch records.
            grid: blocks.
            warps: of a block.
            selection: which of them record.
        """
        blocks = math.prod(grid)
        headers = DENSE_HEADER_BYTES * selection.count_headers(blocks, warps)
        size = max(0, nbytes - LAUNCH_HEADER_BYTES - headers)
        each = size // selection.count_slots(blocks, warps, least=1) & -ALIGNMENT
        records = records and self.patch.fits(each)
        recording = selection.count_slots(blocks, warps) if records else 0
        # The size is passed also where no warp is chosen; 0 where the buffer takes no records.
        passed, behind = self.patch.size_for_cell(each) * records, tuple[int, ...]()
        if self.patch.select:
            from ikp.probes.code.selection_code import selection_words

            behind = selection_words(selection, warps)
        return passed | recording << 32, *behind

    def point(
        self,
        prof: Any,
        grid: tuple[int, int, int],
        warps: int,
        stream: int,
        selection: Selection = EVERYTHING,
        queue: Callable[[Callable[[], None]], None] = lambda job: job(),
        *,
        captured: bool,
    ) -> tuple[int, ...]:
        """Write the kernel's launch parameters to its constant memory, in the order of the stream.

        Args:
            prof: the launch's buffer.
            grid: its blocks.
            warps: of a block.
            stream: the stream of the launch.
            selection: which warps and blocks record.
            queue: queues a copy before the launch.
            captured: whether a CUDA graph captures the launch.

        Returns:
            The launch parameters, in words of 64 bits. Where they are an argument of the kernel,
            nothing is written, and the caller passes them.

        Raises:
            PatchError: the driver refuses.
        """
        words = self.words(prof, grid, warps, selection)
        if self.patch.argument is None:
            queue(lambda: cuda_memory.write(self.cell, words, stream))
        if (notice := getattr(prof.data, "ikp_notice", None)) is not None:
            # Reading the address noted torch's current stream: the launch's may be another one.
            notice.launched(stream, captured=captured)
        return words


@dataclass(slots=True)
class Modules:
    """The patched kernels of this process; a kernel that can't be patched is tried once."""

    _patches: dict[tuple[object, ...], Patch | IkpError] = field(default_factory=dict)
    _loaded: dict[tuple[object, ...], Module] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(
        self,
        key: tuple[object, ...],
        name: str,
        stream: int,
        make: Callable[[], Patch],
        shown: str = "",
    ) -> Module:
        """Return a kernel's patched form for this thread's launches on one stream.

        Args:
            key: identifies the plain kernel and its marks.
            name: the kernel's symbol, as the compiler wrote it.
            stream: the driver's handle.
            make: patches it; called once.
            shown: the kernel's label, where that is another name.

        Raises:
            PatchError: it can't be patched, or loaded.
            KernelError: the chosen code is not in it.
        """
        place = *key, cuda.context_number(), stream, threading.get_ident()
        if (known := self._loaded.get(place)) is not None:
            return known
        with deferred(), self._lock:
            if key not in self._patches:
                self._patches[key] = self._made(shown or name, make)
            patch = self._patches[key]
            if isinstance(patch, IkpError):
                raise copy(patch)  # what is raised holds frames, and so the program's tensors
            if place not in self._loaded:
                self._loaded[place] = Module.load(patch, name)
            return self._loaded[place]

    def patched(self, plain: object) -> Patch | None:
        """Return the latest patched form of a kernel, by the first part of its keys."""
        with self._lock:
            made = [each for key, each in self._patches.items() if key[0] == plain]
        return next((each for each in made[::-1] if not isinstance(each, IkpError)), None)

    def drop(
        self, gone: Callable[[object], bool], ended: Callable[[int, int], bool]
    ) -> list[Module]:
        """Forget patches of plain kernels that are gone, and modules in contexts that ended.

        Args:
            gone: whether a plain kernel is gone, by the first part of its keys.
            ended: whether a context has ended, by its handle and number.

        Returns:
            The forgotten modules that are still loaded, in contexts that live.
        """
        with self._lock:
            self._patches = {key: each for key, each in self._patches.items() if not gone(key[0])}
            over = {
                key: each
                for key, each in self._loaded.items()
                if gone(key[0]) or ended(*each.context)
            }
            for key in over:
                functions.discard(self._loaded.pop(key).function)
        return [each for each in over.values() if not ended(*each.context)]

    @staticmethod
    def _made(name: str, make: Callable[[], Patch]) -> Patch | IkpError:
        try:
            patch = make()
        except (PatchError, KernelError) as error:
            return _without_frames(error)
        if patch.notes:
            _warn_of_notes(name, patch.notes)
        return patch


def _without_frames(error: IkpError) -> IkpError:
    """Return an error to keep: its frames' callers are the program's, with all their variables."""
    kept = copy(error)
    kept.__traceback__ = kept.__cause__ = kept.__context__ = None
    return kept


modules = Modules()


def _warn_of_notes(name: str, notes: tuple[str, ...]) -> None:
    """Warn, once for each compiled kernel, of marks without records and of the others' cost."""
    more = f" And {len(notes) - _MOST_NOTES} more." if len(notes) > _MOST_NOTES else ""
    warn(f"{name}: {' '.join(notes[:_MOST_NOTES])}{more}", stacklevel=2)
