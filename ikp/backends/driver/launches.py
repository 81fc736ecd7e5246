"""Records launches that reach the CUDA driver: what is launched instead, and where it records."""

from __future__ import annotations

import re
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from ikp.backends import loaded, patched
from ikp.backends.checked import REFUSED, Launched, checked, refused
from ikp.backends.driver import _hook as hooks
from ikp.backends.driver._fatbins import cubin
from ikp.backends.driver._hook import Hook, Kind, Known
from ikp.backends.driver._names import readable
from ikp.backends.driver._passed import shape, values
from ikp.backends.launched_grid import Grid
from ikp.core.abi import Language
from ikp.core.segment import Selection
from ikp.errors import CheckError, IkpError, IkpWarning, PatchError
from ikp.machine import cuda
from ikp.machine.cubins.attributes import Parameter
from ikp.machine.cubins.cubin import Cubin
from ikp.machine.cubins.shared import constants, shared, variables
from ikp.machine.patch import Patch
from ikp.session.current import Session
from ikp.unedited.plan import Plan

_LIBRARIES = re.compile(
    r"lib(torch|c10|cu(blas|dnn|fft|rand|solver|sparse|dss|tensor)|nccl|nvrtc|npp|nvjpeg|nvshmem)"
)
"""Whose kernels are recorded where they are named, and not among everything that is launched."""
_MANY = 4
"""How far up from a launched function its image is looked for."""


class Chooser(Protocol):
    """Says which launches are recorded, and counts them and the others."""

    plan: Plan
    kernels: re.Pattern[str] | None
    recorded: Counter[str]
    failed: dict[str, str]
    buffer: dict[str, Any]  # options of ``prof.buffer``
    aside: set[str]  # libraries whose kernels run plain

    def chosen(self, kernel: Any) -> Session | None:
        """Return the session that records this launch, or None; count the launch."""

    def tell(self, kernel: Any, reason: str) -> None:
        """Count a launch without marks."""


class _Kernel:
    """A kernel, with the names by which it is chosen and counted: those of a jitted function.

    ``holder`` is the module or library that it is of, ``handle`` that one's.
    """

    def __init__(self, symbol: str, holder: Known, handle: int, number: int) -> None:
        self.__name__ = readable(symbol)
        module = Path(holder.origin).name.partition(".")[0]
        self.fn = SimpleNamespace(__module__=module, __qualname__=self.__name__)
        self.symbol, self.holder, self.handle, self.id = symbol, holder, handle, number

    def find(self, symbol: str) -> int | None:
        """Return where the loaded plain kernel has a variable; None where it has none."""
        library = self.holder.kind is Kind.LIBRARY
        return cuda.find(self.handle, symbol, library=library)

    @property
    def full_name(self) -> str:
        """The name, with the file that it comes from."""
        return f"{self.fn.__module__}.{self.__name__}"


@dataclass(frozen=True, slots=True)
class _Memory:
    """What the file of a kernel says of the memory that it is given, and that its module has."""

    parameters: list[Parameter]
    constants: list[tuple[str, int]]
    variables: list[tuple[str, int]]

    @classmethod
    def of(cls, code: bytes, name: str) -> _Memory:
        """Read it from the cubin."""
        return cls(Cubin.read(code).kernel(name).parameters, constants(code), variables(code))


_UNKNOWN = _Kernel("unknown", Known(0, 0, "", b"", "", Kind.UNKNOWN), 0, 0)
_UNSEEN = "its machine code was not seen: the program got it from the driver in another way"


@contextmanager
def stepping_in(launcher: Chooser) -> Iterator[None]:
    """Have launches that reach the driver go through ``launcher``, until that is left.

    Raises:
        PatchError: the driver is in this process already, or there is none.
    """
    hook = hooks.install()
    hook.ask(Launches(hook, launcher).asked)
    try:
        yield
    finally:
        hook.ask(None)


@dataclass(slots=True)
class Launches:
    """The launches of this process, as the driver sees them."""

    hook: Hook
    launcher: Chooser
    _kernels: dict[int, _Kernel] = field(default_factory=dict)  # by the function's id
    _memory: dict[int, _Memory] = field(default_factory=dict)
    _holders: dict[int, Known] = field(default_factory=dict)  # their images may have many MB
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def asked(self, launch: hooks.Launch) -> None:
        """Say what is launched. The program never sees an error of this."""
        try:
            self._answer(launch)
        except CheckError as error:
            launch.instead = launch.function
            kernel = self._kernels[launch.id]
            self.launcher.failed[kernel.full_name] = REFUSED
            self.launcher.tell(kernel, REFUSED)
            warnings.warn(str(error), IkpWarning, stacklevel=2)
        except Exception as error:  # noqa: BLE001 - whatever it is, the plain kernel is launched
            launch.instead = launch.function
            self._fail(self._kernels.get(launch.id, _UNKNOWN), error)

    def _fail(self, kernel: _Kernel, error: Exception) -> None:
        text = str(error) if isinstance(error, IkpError) else f"{type(error).__name__}: {error}"
        reason = f"could not be marked: {' '.join(text.split())[:300]}"
        self.launcher.failed[kernel.full_name] = reason
        self.launcher.tell(kernel, reason)

    def _answer(self, launch: hooks.Launch) -> None:
        meant = patched.take()
        if meant is None and patched.wanted.others:
            return  # it is somebody else's, who has decided
        kernel = self._kernel(launch)
        if kernel is None:
            self.launcher.tell(_UNKNOWN, _UNSEEN)
        if kernel is None or (meant is None and self._aside(kernel)):
            launch.decided = 1
            return
        if meant is None:
            meant = self._chosen(kernel)
        if meant is not None:
            launch.instead = self._recorded(kernel, meant, launch)

    def _kernel(self, launch: hooks.Launch) -> _Kernel | None:
        """Return what is launched; None where its image was not seen."""
        with self._lock:
            if launch.id in self._kernels:
                return self._kernels[launch.id]
            above: list[tuple[int, Known]] = []
            handle = int(launch.function)
            while handle and len(above) < _MANY and (known := self.hook.about(handle)):
                above.append((handle, known))
                handle = known.parent
            symbol = next((each.name for _, each in above if each.name), "")
            if not (symbol and above[-1][1].image):
                return None
            handle, holder = above[-1]
            holder = self._holders.setdefault(holder.id, holder)
            made = _Kernel(symbol, holder, handle, launch.id)
            self._kernels[launch.id] = made
            return made

    def _aside(self, kernel: _Kernel) -> bool:
        """Return whether a kernel is a library's that nobody has named."""
        library = _LIBRARIES.match(Path(kernel.holder.origin).name)
        if library is None or self.launcher.kernels is not None:
            return False
        self.launcher.aside.add(Path(kernel.holder.origin).name)
        return True

    def _chosen(self, kernel: _Kernel) -> patched.Launch | None:
        session = self.launcher.chosen(kernel)
        if session is None:
            return None
        label, plan = kernel.__name__, replace(self.launcher.plan, level="machine")

        def buffer(
            grid: tuple[int, int, int], warps: int, most: int | None, heeded: Selection
        ) -> Any:
            options = {**patched.shape(grid, warps, most, heeded), **self.launcher.buffer}
            options["backend"] = "driver"
            taken.append(patched.take_buffer(self.launcher, session, label, plan, options))
            return taken[0]

        def tell() -> None:
            patched.tell(session, label, made)
            if made.verdict is not None and made.verdict.refused:
                raise refused(self.launcher, session, label, taken[0], made.verdict)

        taken: list[Any] = []
        selection = patched.chosen(self.launcher.buffer)
        made = patched.Launch(plan, _language(kernel), buffer, selection)
        made.tell = tell
        return made

    def _recorded(self, kernel: _Kernel, meant: patched.Launch, launch: hooks.Launch) -> int:
        """Return the patched function, told where to record."""
        if cuda.context() != cuda.primary():
            raise PatchError(
                "it runs in a CUDA context of its own, where torch's memory can't be used."
            )
        stream, block = launch.stream or 0, (launch.block[0], launch.block[1], launch.block[2])
        grid = launch.grid[0], launch.grid[1], launch.grid[2]
        # A graph's nodes keep arguments, and whoever changes a node passes as many as ever.
        argue = bool(launch.extensible) and not cuda.capturing(stream)
        blocks = Grid.of(grid, stream, meant.selection, meant.plan.sample)
        key = (
            kernel.id,
            str(meant.plan),
            block,
            cuda.context(),
            argue,
            blocks,
        )
        with patched.apart(stream):
            made = loaded.modules.get(
                key,
                kernel.symbol,
                stream,
                partial(self._patch, kernel, meant, launch, argue, blocks),
            )
        if launch.cooperative and made.patch.fewer_blocks:
            raise PatchError(
                "all its blocks must run at once, and records take registers: an SM would have "
                "room for fewer."
            )
        plain = int(launch.function)
        known = self.hook.about(plain)
        if known is not None and known.kind is Kind.KERNEL:
            plain = cuda.function_of(plain)
        cuda.like(made.function, plain)
        warps = made.patch.warps  # a tile kernel is launched by blocks of one thread
        with patched.apart(stream):
            chosen = meant.heeded(made.patch)
            prof = meant.buffer(grid, warps, made.patch.most, chosen)
        if prof is None:
            return int(launch.function)
        meant.patch = made.patch
        queue = patched.beside(prof, stream)
        self._copy_constants(kernel, made, stream, queue)

        if meant.plan.check:
            words = made.words(prof, grid, warps, chosen)
            how = partial(self._launched, kernel, launch, plain)
            meant.verdict = checked(made, stream, prof, words, how)
        if meant.tell is not None:
            meant.tell()
        if meant.verdict is not None and meant.verdict.refused:
            return int(launch.function)  # whoever means it says so
        words = made.point(prof, grid, warps, stream, chosen, queue)
        if made.patch.argument is not None:
            launch.append(made.patch.argument, words)
        return made.function

    def _launched(self, kernel: _Kernel, launch: hooks.Launch, plain: int) -> Launched:
        """Return how a kernel is launched, for another process to do the same."""
        memory, find = self._memory[kernel.id], kernel.find
        code = cubin(kernel.holder.image, kernel.symbol, cuda.chip())
        return Launched(
            kernel.symbol,
            shared(code, kernel.symbol, find),
            shape(launch, plain),
            values(launch, memory.parameters),
            [(name, at, size) for name, size in memory.variables if (at := find(name))],
            {name: cuda.read(at, size) for name, size in memory.constants if (at := find(name))},
        )

    def _patch(
        self,
        kernel: _Kernel,
        meant: patched.Launch,
        launch: hooks.Launch,
        argue: bool,
        grid: Grid,
    ) -> Patch:
        code = cubin(kernel.holder.image, kernel.symbol, cuda.chip())
        self._memory[kernel.id] = _Memory.of(code, kernel.symbol)
        return patched.made(
            shared(code, kernel.symbol, kernel.find),
            kernel.symbol,
            _ptx(kernel),
            meant,
            shown=kernel.__name__,
            shared=launch.shared,
            block=(launch.block[0], launch.block[1], launch.block[2]),
            argue=argue,
            grid=grid,
        )

    def _copy_constants(
        self,
        kernel: _Kernel,
        made: loaded.Module,
        stream: int,
        queue: Callable[[Callable[[], None]], None],
    ) -> None:
        """Give the patched kernel the constants that the program has written."""

        def copy() -> None:
            for name, size in written:
                if (source := kernel.find(name)) is not None:
                    cuda.copy_within(cuda.address_of(made.module, name), source, size, stream)

        if written := self._memory[kernel.id].constants:
            queue(copy)


def _ptx(kernel: _Kernel) -> str:
    """Return the PTX beside a file that was loaded: Triton's cache keeps both."""
    beside = Path(kernel.holder.origin).with_suffix(".ptx")
    if kernel.holder.origin.endswith(".cubin") and beside.is_file():
        return beside.read_text(encoding="utf-8", errors="replace")
    return ""


def _language(kernel: _Kernel) -> Language:
    return Language.CUTE if kernel.symbol.startswith("kernel_cutlass_") else Language.OTHER
