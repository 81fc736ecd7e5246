"""Launches a kernel's own machine code, with records put into it.

Triton launches what it compiled through ``CompiledKernel.run``. There, and only for a launch that
is to be recorded, a patched copy of the cubin takes the plain one's place: same arguments, same
grid, same stream. Nothing is compiled again, and what Triton keeps stays as it is.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ikp.backends.triton.unedited import _foreign as foreign
from ikp.core.abi import ALIGNMENT, LAUNCH_HEADER_BYTES, ClockKind, Language, OverflowMode
from ikp.core.segment import Spec, Tensor
from ikp.errors import IkpWarning, PatchError
from ikp.machine import driver
from ikp.machine.chips import untested_asked
from ikp.machine.patch import Patch, patch
from ikp.machine.sequences import CELL, CELL_BYTES
from ikp.probing import Untyped
from ikp.unedited.plan import Plan
from ikp.verbs.dsl import intern

_TOLD = 3
"""How many notes on a kernel are told in full."""
_CELLS = 4096
"""How many cells of pinned memory are taken at once."""


@dataclass(slots=True)
class Launch:
    """A launch that is to be recorded.

    ``buffer`` returns a session's buffer for a grid, the warps of a block, and the records of a
    warp where these are known; None where the session has ended.
    """

    plan: Plan
    language: Language
    buffer: Callable[[tuple[int, int, int], int, int | None], Untyped]
    reached: bool = False  # Triton's launcher has had it


class _Pending(threading.local):
    launch: Launch | None = None


_pending = _Pending()


@contextmanager
def recorded(launch: Launch) -> Iterator[None]:
    """Record the next launch that this thread makes.

    Raises:
        PatchError: Triton launches otherwise than ikp knows.
    """
    if not foreign.TRITON.has(foreign.LAUNCHES):
        raise PatchError(foreign.LAUNCHES.lost)
    install()
    _pending.launch = launch
    try:
        yield
    finally:
        _pending.launch = None


@functools.cache
def install() -> None:
    """Step into Triton's launches; they stay as they are where nothing is pending."""

    def around(compiled: Untyped, plain: Callable[..., object]) -> Untyped:
        launch, _pending.launch = _pending.launch, None
        return plain if launch is None else functools.partial(_run, compiled, plain, launch)

    foreign.step_into_launches(around)


def _run(
    compiled: Untyped,
    plain: Callable[..., object],
    launch: Launch,
    x: int,
    y: int,
    z: int,
    stream: int,
    function: int,
    *rest: object,
) -> object:
    """Launch the patched function in the place of the plain one."""
    launch.reached = True
    loaded = _loaded.get(compiled, function, launch)
    grid = (x * getattr(compiled.metadata, "num_ctas", 1), y, z)
    prof = launch.buffer(grid, loaded.patch.warps, loaded.patch.most)
    if prof is not None:
        loaded.point(prof, grid, stream)
        function = loaded.function
    return plain(x, y, z, stream, function, *rest)


def check(text: str) -> None:
    """Refuse what records in machine code can't do.

    Args:
        text: of the spec that the session asks for.

    Raises:
        PatchError: it is not what they do.
    """
    spec = Spec.parse(text)
    wrong = [
        text
        for text, asked in (
            (f"clock='{spec.clock.name.lower()}'", spec.clock is not ClockKind.CYCLES),
            ("overflow='wrap'", spec.overflow is not OverflowMode.STOP),
            ("a choice of warps or blocks", spec.select),
            ("mode='totals'", spec.totals),
        )
        if asked
    ]
    if wrong:
        raise PatchError(
            f"records in machine code have no {', '.join(wrong)}: open the session without, or "
            "mark the kernel with level='source'."
        )


@dataclass(slots=True)
class _Module:
    """A patched kernel that the driver has loaded."""

    patch: Patch
    function: int
    cell: int  # address in the device's memory

    def point(self, prof: Untyped, grid: tuple[int, int, int], stream: int) -> None:
        """Tell the kernel where to record, in the order of the stream."""
        slots = grid[0] * grid[1] * grid[2] * self.patch.warps
        size = int(prof.data.numel()) - LAUNCH_HEADER_BYTES
        each = size // max(slots, 1) & -ALIGNMENT
        enabled = prof.slots_bytes > 0
        words = (prof.address, each, slots if enabled and self.patch.fits(each) else 0)
        driver.copy(self.cell, _cells.write(*words), CELL_BYTES, stream)


class _Cells:
    """Pinned memory from which cells are copied: each is written once, for one launch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pages: list[Tensor] = []
        self._used = _CELLS

    def write(self, address: int, slot_bytes: int, slots: int) -> int:
        """Return where a cell with these words lies."""
        with self._lock:
            if self._used == _CELLS:
                self._pages.append(self._page())
                self._used = 0
            at = self._used
            self._used += 1
            row = self._pages[-1].numpy()[at]
            row[:] = (address & 0xFFFFFFFF, address >> 32, slot_bytes, slots)
            return int(row.ctypes.data)

    @staticmethod
    def _page() -> Tensor:
        import torch

        return torch.empty((_CELLS, CELL_BYTES // 4), dtype=torch.uint32, pin_memory=True)


_cells = _Cells()


@dataclass(slots=True)
class _Modules:
    """The patched kernels of this process; what could not be patched is not tried again."""

    made: dict[tuple[int, str], _Module | PatchError] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, compiled: Untyped, function: int, launch: Launch) -> _Module:
        """Return a kernel's patched form, by the handle of the plain one.

        Raises:
            PatchError: there is none.
        """
        key = function, str(launch.plan)
        with self.lock:
            if key not in self.made:
                try:
                    self.made[key] = _load(compiled, launch)
                except PatchError as error:
                    self.made[key] = PatchError(
                        f"{compiled.name} can't be recorded in its machine code: {error} Mark it "
                        "with level='source'."
                    )
            found = self.made[key]
        if isinstance(found, PatchError):
            raise found
        return found


_loaded = _Modules()


def _load(compiled: Untyped, launch: Launch) -> _Module:
    made = patch(
        bytes(compiled.asm["cubin"]),
        compiled.name,
        detail=launch.plan.detail,
        ptx=str(compiled.asm.get("ptx", "")),
        language=launch.language,
        untested=untested_asked(),
    )
    for name in made.names:
        intern(name)
    if made.notes:
        _tell(compiled.name, made.notes)
    module, function = foreign.load(compiled, made.cubin)
    return _Module(made, function, driver.address_of(module, CELL))


def _tell(name: str, notes: tuple[str, ...]) -> None:
    """Warn, once for each compiled kernel, of what is not recorded and what the rest costs."""
    more = f" And {len(notes) - _TOLD} more." if len(notes) > _TOLD else ""
    warnings.warn(f"{name}: {' '.join(notes[:_TOLD])}{more}", IkpWarning, stacklevel=2)
