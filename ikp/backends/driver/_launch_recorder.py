"""``LaunchRecorder``: has a launch at the driver run the patched kernel, with a buffer."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ikp.backends import loaded, patched
from ikp.backends.argument import Argument
from ikp.backends.checked import PlainLaunch, add_arguments, checked, report
from ikp.backends.driver import _taking as taking
from ikp.backends.driver._hook import Hook, InterposedLaunch
from ikp.backends.driver._passed import shape, values, values_as_text
from ikp.backends.driver._repeating import KnownLaunches, Stocks
from ikp.backends.driver._seen_code import SeenCode
from ikp.backends.driver._seen_kernels import Chooser, SeenKernel, language_of, ptx_of
from ikp.backends.further_runs import run_further
from ikp.backends.launched_grid import LaunchGrid
from ikp.backends.repeats import KnownLaunch, LeftLaunch, Repeat
from ikp.backends.timed import timed
from ikp.core.segment import Selection
from ikp.driver import cuda, cuda_functions, cuda_memory
from ikp.errors import PatchError
from ikp.probes.made_patch import Patch
from ikp.sass.cubins.module_memory import shared
from ikp.session.current import Session
from ikp.session.known_launch import SlowError
from ikp.unedited.plan import Plan, at_level

if TYPE_CHECKING:
    from ikp.backends.patch_input import PatchInput

_BODY = (
    "captured into a graph that the program has made (cuStreamBeginCaptureToGraph), such as the "
    "body of a conditional node, which can't hold the write of a buffer's address"
)
_OVERLAPS = (
    "it may begin before the launch before it has ended (programmatic dependent launch), and where "
    "it records would be written between the two"
)


class NotNow(Exception):  # noqa: N818 - the program never sees it
    """The reason that one launch is not recorded; the next may be."""


def grid_of(launch: InterposedLaunch) -> tuple[int, int, int]:
    """Return a launch's blocks in each dimension."""
    return launch.grid[0], launch.grid[1], launch.grid[2]


def block_of(launch: InterposedLaunch) -> tuple[int, int, int]:
    """Return the threads of each of a launch's blocks in each dimension."""
    return launch.block[0], launch.block[1], launch.block[2]


def _drop(launcher: Chooser, session: Session, label: str, data: Any) -> None:
    patched.drop_buffer(launcher, session, label, Argument(data, 0, None))


class _Latest(threading.local):
    """This thread's latest recorded launch, until it launches again."""

    launch: tuple[Any, Callable[[], None] | None] | None = None
    """The kernel, and what forgets the launch's buffer. That holds the buffer until then."""
    holds: object = None


def _not_looked_up(symbol: str) -> int:
    raise PatchError(f"{symbol} is not looked up in a module that may be gone.")


@dataclass(slots=True)
class LaunchRecorder:
    """The recorded launches of this process, and what launches that repeat them use again."""

    hook: Hook
    launcher: Chooser
    seen: SeenCode
    stocks: Stocks = field(init=False)
    known: KnownLaunches = field(default_factory=KnownLaunches)
    bodies: set[int] = field(default_factory=set)
    """Numbers of captures under way into graphs that the program has made."""
    reset_ones: set[int] = field(default_factory=set)
    """Numbers of devices that the program has reset."""
    latest: _Latest = field(default_factory=_Latest)
    _primaries: set[int] = field(default_factory=set)  # numbers of contexts

    def __post_init__(self) -> None:
        self.stocks = Stocks(self.hook, self.launcher)

    def forget_latest(self) -> None:
        """Let go of this thread's latest launch: it launches again."""
        self.latest.launch = self.latest.holds = None

    def drop_latest(self) -> Any:
        """Drop the buffer of this thread's latest launch; return its kernel, None of no launch."""
        latest, self.latest.launch = self.latest.launch, None
        if latest is None:
            return None
        kernel, drop = latest
        if drop is not None:
            drop()
        return kernel

    def forget(self, reset: int | None) -> None:
        """Repeat no earlier launch any more, and record none on a device that was reset.

        Args:
            reset: its number; None where nothing was recorded there.
        """
        if reset is not None:
            self.reset_ones.add(reset)
        self.known = KnownLaunches()
        self.forget_latest()

    def of_session(self, kernel: SeenKernel, session: Session, launch: InterposedLaunch) -> int:
        """Return the function to launch for a launch that a session records.

        One that repeats an earlier one gets a buffer at once; of any other, see ``recorded``.

        Raises:
            PatchError: the kernel can't be recorded.
            NotNow: this launch can't be.
        """
        known = self.known.find(launch, session)
        if known is not None and not cuda.capturing(launch.stream or 0):
            with suppress(SlowError):
                return self._again(kernel, session, launch, known)
        return self.recorded(kernel, self._wanted(kernel, session), launch)

    def _again(
        self, kernel: Any, session: Session, launch: InterposedLaunch, known: KnownLaunch
    ) -> int:
        """Return what ``recorded`` does for a launch that repeats another; it takes a buffer.

        Raises:
            SlowError: its buffer is to be taken as the first one's was.
        """
        stream = launch.stream or 0
        repeat = known.repeat
        cuda_functions.like(repeat.module.function, known.plain)
        taken = repeat.take(stream)
        if taken is None:
            return int(launch.function)
        function, grid = int(launch.function), grid_of(launch)
        if timed.recorded(function, grid, known.label, session.facts):
            timed.repeats(function, grid, known, launch.id, block_of(launch))
        else:
            self.stocks.renew(launch, kernel, session, known)  # later ones come without a question
        data, words = taken
        self.launcher.recorded[known.label] += 1
        drop = partial(_drop, self.launcher, session, known.label, data)
        self.latest.launch = kernel, drop
        launch.append(known.argument, words, known.replaces)
        return repeat.module.function

    def left(self, left: LeftLaunch, session: Session, launch: InterposedLaunch) -> int | None:
        """Return the function to launch for one that its launcher left, and that repeats another.

        None where it repeats none any more.
        """
        known, stream = left.known, launch.stream or 0
        alike = known.session() is session and left.context == cuda.context_number()
        if not alike or not launch.extensible or cuda.capturing(stream):
            return None
        try:
            return self._again(left.kernel, session, launch, known)
        except SlowError:
            return self._with_new_buffer(left, session, launch)

    def _with_new_buffer(self, left: LeftLaunch, session: Session, launch: InterposedLaunch) -> int:
        """Return what ``_again`` does, with a buffer that is taken as the first one's was."""
        known, stream = left.known, launch.stream or 0
        module, (grid, warps, chosen) = known.repeat.module, known.repeat.shape
        buffer = partial(left.anew().buffer, left.plan, grid, warps, module.patch.most, chosen)
        prof = taking.take(buffer, stream, captured=False)
        if prof is None:
            return int(launch.function)
        words = module.point(prof, grid, warps, stream, chosen, captured=False)
        drop = partial(_drop, self.launcher, session, known.label, prof.data)
        self.latest.launch = left.kernel, drop
        launch.append(known.argument, words, known.replaces)
        return module.function

    def anew(self, left: LeftLaunch, session: Session) -> patched.RecordedLaunch:
        """Return a launch that its launcher left to this one, and that repeats none."""
        meant = left.anew()
        meant.report = partial(report, self.launcher, session, left.known.label)
        return meant

    def _wanted(self, kernel: SeenKernel, session: Session) -> patched.RecordedLaunch:
        """Return a launch that ``session`` is to record."""
        label, full = kernel.__name__, kernel.demangled
        plan = at_level(self.launcher.plan, "machine")

        def buffer(
            how: Plan, grid: tuple[int, int, int], warps: int, most: int | None, heeded: Selection
        ) -> Any:
            options = {**patched.shape(grid, warps, most, heeded), **self.launcher.buffer}
            options |= {"backend": "driver", "kernel": full}
            taken.append(patched.take_buffer(self.launcher, session, label, how, options))
            return taken[0]

        def drop() -> None:
            patched.drop_buffer(self.launcher, session, label, taken[0])

        taken: list[Any] = []
        selection = patched.chosen(self.launcher.buffer)
        return patched.RecordedLaunch(
            *(plan, language_of(kernel), buffer, selection),
            taken=taken,
            report=partial(report, self.launcher, session, label),
            drop=drop,
            label=label,
            facts=session.facts,
            session=weakref.ref(session),
        )

    def recorded(
        self, kernel: SeenKernel, meant: patched.RecordedLaunch, launch: InterposedLaunch
    ) -> int:
        """Return the patched function, with its buffer passed; the plain one if it gets none.

        Raises:
            PatchError: the kernel can't be recorded.
            NotNow: this launch can't be.
        """
        self.seen.let_go(launch)
        self._check_context()
        self._check_capture(launch.stream or 0)
        stream, grid, block = launch.stream or 0, grid_of(launch), block_of(launch)
        captured = cuda.capturing(stream)
        # A graph's nodes keep arguments, and a program that changes a node passes the plain count.
        argue = bool(launch.extensible) and not captured
        if launch.overlaps and not argue:
            raise NotNow(_OVERLAPS)
        blocks = LaunchGrid.of(grid, meant.selection, meant.plan.sample, captured=captured)
        key = (
            kernel.id,
            str(meant.plan),
            block,
            argue,
            blocks,
        )
        with cuda.relaxed() if captured else nullcontext():
            made = loaded.modules.get(
                key,
                kernel.symbol,
                stream,
                partial(self._patch, kernel, meant, launch, argue, blocks),
                kernel.shown,
            )
        if launch.cooperative and made.patch.fewer_blocks:
            raise PatchError(
                "all its blocks must run at once, and records take registers: an SM would have "
                "room for fewer."
            )
        if launch.overlaps and (made.patch.argument is None or self.seen.memory(kernel).constants):
            raise NotNow(_OVERLAPS)
        cuda_functions.like(made.function, kernel.function())
        warps = made.patch.warps  # a tile kernel is launched by blocks of one thread
        chosen = meant.heeded(made.patch)
        buffer = partial(meant.buffer, meant.plan, grid, warps, made.patch.most, chosen)
        prof = taking.take(buffer, stream, captured=captured)
        if prof is None:
            return int(launch.function)
        self.hook.watch_exit()
        meant.patch = made.patch
        parameters = self.seen.memory(kernel).parameters
        read = partial(values_as_text, launch, parameters)
        add_arguments(meant, read, kernel.function())
        queue = patched.beside(prof, stream, captured=captured)
        self._copy_constants(kernel, made, stream, queue)

        how = partial(self._launched, kernel, launch)
        if meant.plan.check:
            words = made.words(prof, grid, warps, chosen)
            meant.verdict = checked(made, stream, prof, words, how, meant.session)
        run_further(made, stream, prof, meant, partial(ptx_of, kernel), kernel.shown, how)
        if meant.report is not None:
            meant.report(meant)
        if meant.verdict is not None and meant.verdict.refused:
            return int(launch.function)  # its own launcher reports the verdict
        words = made.point(prof, grid, warps, stream, chosen, queue, captured=captured)
        if made.patch.argument is not None:
            launch.append(made.patch.argument, words)
        self.latest.launch, self.latest.holds = (kernel, meant.drop), meant
        if not captured:
            self._time(
                kernel, meant, launch, Repeat(made, prof, (grid, warps, chosen), cuda.device())
            )
        return made.function

    def _time(
        self,
        kernel: SeenKernel,
        meant: patched.RecordedLaunch,
        launch: InterposedLaunch,
        repeat: Repeat,
    ) -> None:
        """Time a recorded launch, if it is one of the first; have later ones repeat it."""
        timed.recorded(int(launch.function), grid_of(launch), meant.label, meant.facts)
        if not self.seen.memory(kernel).constants:
            known = self.known.keep(launch, meant, kernel.function(), repeat)
            if known is not None:
                function, block = int(launch.function), block_of(launch)
                timed.repeats(function, grid_of(launch), known, launch.id, block)

    def _check_context(self) -> None:
        """Refuse a context in which ikp's memory can't be used.

        Raises:
            PatchError: it is another one than the CUDA runtime's.
            NotNow: the device was reset.
        """
        if self.reset_ones and cuda.device() in self.reset_ones:
            from ikp.session.leaving import RESET

            raise NotNow(RESET)
        context = cuda.context_number()
        if context not in self._primaries and cuda.context() != cuda.primary():
            raise PatchError(
                "it runs in a CUDA context of its own, where ikp's memory can't be used."
            )
        self._primaries.add(context)

    def _check_capture(self, stream: int) -> None:
        """Refuse a launch that a graph of the program's own captures.

        Raises:
            NotNow: it is one.
        """
        if self.bodies and cuda.capture_number(stream) in self.bodies:
            raise NotNow(_BODY)

    def _launched(self, kernel: SeenKernel, launch: InterposedLaunch) -> PlainLaunch:
        """Return a launch of the plain kernel with its memory, for another process to repeat."""
        memory, find = self.seen.memory(kernel), kernel.find
        code = self.seen.code(kernel)
        return PlainLaunch(
            kernel.symbol,
            shared(code, kernel.symbol, find),
            shape(launch, kernel.function()),
            values(launch, memory.parameters),
            [(name, at, size) for name, size in memory.variables if (at := find(name))],
            {
                name: cuda_memory.read(at, size)
                for name, size in memory.constants
                if (at := find(name))
            },
        )

    def _patch(
        self,
        kernel: SeenKernel,
        meant: patched.RecordedLaunch,
        launch: InterposedLaunch,
        argue: bool,
        grid: LaunchGrid,
    ) -> Patch:
        code = self.seen.to_patch(kernel)
        return patched.made(
            shared(code, kernel.symbol, kernel.find),
            kernel.symbol,
            ptx_of(kernel),
            meant,
            shown=kernel.shown,
            shared=launch.shared,
            block=block_of(launch),
            argue=argue,
            grid=grid,
        )

    def to_patch(
        self, kernel: SeenKernel, launch: InterposedLaunch, grid: LaunchGrid
    ) -> tuple[Hashable, Callable[[], PatchInput | None]]:
        """Return a kernel as a recorded launch like this one has it: its key, and what makes it.

        Any thread may make it, also when the kernel is gone. That returns None of a kernel whose
        code the driver compiles, and raises ``PatchError`` where it refers to variables of its
        module: they would have to be looked up in that.
        """
        plan, chip = at_level(self.launcher.plan, "machine"), cuda.chip()
        block, nbytes, argue = block_of(launch), launch.shared, bool(launch.extensible)

        def made() -> PatchInput | None:
            from ikp.backends.patch_input import PatchInput

            code = self.seen.own_code(kernel, chip)
            if code is None:
                return None
            return PatchInput.of(
                *(shared(code, kernel.symbol, _not_looked_up), kernel.symbol, ptx_of(kernel)),
                *(plan, language_of(kernel)),
                shared=nbytes,
                block=block,
                argue=argue,
                grid=grid,
            )

        return (kernel.id, nbytes, block, argue, grid), made

    def _copy_constants(
        self,
        kernel: SeenKernel,
        made: loaded.Module,
        stream: int,
        queue: Callable[[Callable[[], None]], None],
    ) -> None:
        """Copy the constants that the program has written to the patched kernel's module."""

        def copy() -> None:
            for name, size in written:
                if (source := kernel.find(name)) is not None:
                    cuda_memory.copy_within(
                        cuda_functions.address_of(made.module, name), source, size, stream
                    )

        if written := self.seen.memory(kernel).constants:
            queue(copy)
