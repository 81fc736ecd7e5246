"""``Launches``: decides on each launch at the CUDA driver, plain or patched, with a buffer."""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from ikp.backends import loaded, patched
from ikp.backends.argument import Argument
from ikp.backends.checked import REFUSED, PlainLaunch, checked, report
from ikp.backends.driver import _hook as hooks
from ikp.backends.driver import _taking as taking
from ikp.backends.driver._hook import DriverObject, HandleKind, Hook, NodeKind
from ikp.backends.driver._passed import shape, values, values_as_text
from ikp.backends.driver._repeating import KnownLaunches, Stocks, look_after
from ikp.backends.driver._seen_code import SeenCode
from ikp.backends.driver._seen_kernels import (
    Chooser,
    SeenKernel,
    language_of,
    ptx_of,
)
from ikp.backends.further_runs import run_further
from ikp.backends.labels import Labels
from ikp.backends.launched_grid import LaunchGrid
from ikp.backends.repeats import KnownLaunch, LeftLaunch, Repeat
from ikp.backends.timed import timed
from ikp.core.segment import Selection
from ikp.driver import cuda, cuda_functions, cuda_memory
from ikp.errors import CheckError, IkpError, PatchError
from ikp.probes.made_patch import Patch
from ikp.sass.cubins.module_memory import shared
from ikp.session.current import Session
from ikp.session.harvest import after_reading
from ikp.session.known_launch import SlowError
from ikp.session.replays import end_capture
from ikp.signals import pass_on
from ikp.unedited.plan import Plan, at_level
from ikp.warning import warn

_LIBRARIES = re.compile(
    r"lib(torch|c10|cu(blas|dnn|fft|rand|solver|sparse|dss|tensor)|nccl|nvrtc|npp|nvjpeg|nvshmem)"
)
"""Files of libraries whose kernels are recorded only where the user names kernels."""


_NOTHING = DriverObject(0, 0, 0, "", "", 0, HandleKind.UNKNOWN)
_UNKNOWN = SeenKernel("unknown", _NOTHING, _NOTHING, Labels())
_UNSEEN = "its machine code was not seen: the program got it from the driver in another way"
_NODE = "put into a CUDA graph by the program itself, and not by capturing its launch"
_BODY = (
    "captured into a graph that the program has made (cuStreamBeginCaptureToGraph), such as the "
    "body of a conditional node, which can't hold the write of a buffer's address"
)
_OVERLAPS = (
    "it may begin before the launch before it has ended (programmatic dependent launch), and where "
    "it records would be written between the two"
)


def _passes(kernel: SeenKernel, launch: hooks.InterposedLaunch) -> bool:
    """Whether another launcher launches a kernel that it records no more, past ``wanted``."""
    passes = patched.passing.get(kernel.symbol)
    return passes is not None and passes(int(launch.function))


def _grid(launch: hooks.InterposedLaunch) -> tuple[int, int, int]:
    return launch.grid[0], launch.grid[1], launch.grid[2]


@cache
def _file_of(path: str) -> str:
    return Path(path).name


def _drop(launcher: Chooser, session: Session, label: str, data: Any) -> None:
    patched.drop_buffer(launcher, session, label, Argument(data, 0, None))


class _NotNow(Exception):  # noqa: N818 - the program never sees it
    """The reason that one launch is not recorded; the next may be."""


@contextmanager
def stepping_in(launcher: Chooser) -> Iterator[None]:
    """Have launches that reach the driver go through ``launcher``, until the context is left.

    Raises:
        PatchError: the driver is in this process already, or there is none.
    """
    hook = hooks.install()
    look_after(hook)
    launcher.wakers.append(hook.wake)
    asked = [Launches(hook, launcher)]
    hook.ask(asked[0].asked)
    hook.watch_exit()  # a program that launches nothing has an end, too
    after_reading.append(hook.watch_exit)

    def in_child() -> None:
        if asked:
            asked[0].stocks.end_all()
            asked[0] = Launches(hook, launcher)
            hook.ask(asked[0].asked)

    os.register_at_fork(after_in_child=in_child)
    try:
        yield
    finally:
        hook.ask(None)
        after_reading.remove(hook.watch_exit)
        asked[0].stocks.end_all()
        asked.pop().count()


class _Latest(threading.local):
    """This thread's latest recorded launch, until it launches again."""

    launch: tuple[Any, Callable[[], None] | None] | None = None
    """The kernel, and what forgets the launch's buffer. That holds the buffer until then."""
    holds: object = None


@dataclass(slots=True)
class Launches:
    """The recorder of this process's launches at the driver, and its tables of kernels and code."""

    hook: Hook
    launcher: Chooser
    seen: SeenCode = field(init=False)
    _primaries: set[int] = field(default_factory=set)  # numbers of contexts
    _slots: dict[tuple[str, str], tuple[int, SeenKernel]] = field(default_factory=dict)
    _known: KnownLaunches = field(default_factory=KnownLaunches)
    stocks: Stocks = field(init=False)
    _bodies: set[int] = field(default_factory=set)
    """Numbers of captures under way into graphs that the program has made."""
    _reset_ones: set[int] = field(
        default_factory=set
    )  # numbers of devices that the program has reset
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _latest: _Latest = field(default_factory=_Latest)

    def __post_init__(self) -> None:
        self.seen = SeenCode(self.hook, self.launcher.labels)
        self.stocks = Stocks(self.hook, self.launcher)

    def asked(self, launch: hooks.InterposedLaunch) -> None:
        """Choose the function to launch. The program never sees an error of it.

        Exceptions of signal handlers meanwhile are the program's, and are passed on.
        """
        try:
            if launch.refused:
                self._not_launched(launch)
            elif launch.node == NodeKind.RESET:
                self._reset(launch.grid[0])
            elif launch.node == NodeKind.EXIT:
                self.launcher.exits()
            elif launch.node >= NodeKind.PROFILER_STARTS:
                self.launcher.profiler(launch.node == NodeKind.PROFILER_STARTS)
            elif launch.node >= NodeKind.CAPTURE_BEGINS:
                self._captures(launch)
            else:
                if launch.overlaps:
                    timed.stop()
                self._answer(launch)
        except CheckError as error:
            launch.instead = launch.function
            kernel = self._counted_as(launch)
            self.launcher.failed[kernel.full_name] = REFUSED
            self.hook.revoke()
            self.launcher.count_plain(kernel, REFUSED)
            warn(str(error), stacklevel=2)
        except _NotNow as reason:
            launch.instead = launch.function
            self.launcher.count_plain(self._counted_as(launch), str(reason))
        except Exception as error:  # noqa: BLE001 - at any error, the plain kernel is launched
            launch.instead = launch.function
            pass_on(error)
            self._fail(self._counted_as(launch), error)

    def _counted_as(self, launch: hooks.InterposedLaunch) -> Any:
        """Return the launched kernel, as its launcher counts it."""
        left: LeftLaunch | None = patched.wanted().left
        if left is not None and left.is_of(int(launch.function or 0)):
            return left.kernel
        return self.seen.known(launch.id) or _UNKNOWN

    def _not_launched(self, launch: hooks.InterposedLaunch) -> None:
        """Forget the latest launch, which the driver has refused: the plain kernel has run."""
        latest, self._latest.launch = self._latest.launch, None
        if latest is None:
            return
        kernel, drop = latest
        if drop is not None:
            drop()
        if not launch.otherwise:  # else the launch was the program's mistake
            name = cuda.error_name(launch.refused)
            self._fail(kernel, PatchError(f"the driver does not launch it with records: {name}."))

    def count(self) -> None:
        """Count the launches of functions that were decided, which the library counted itself.

        The launches that were timed are over then, too.
        """
        timed.report()
        for (_, reason), (slot, kernel) in self._slots.items():
            if times := self.hook.passed[slot]:
                self.launcher.count_plain(kernel, reason, times)
                self.hook.passed[slot] = 0

    def _fail(self, kernel: Any, error: Exception) -> None:
        text = str(error) if isinstance(error, IkpError) else f"{type(error).__name__}: {error}"
        reason = f"could not be marked: {' '.join(text.split())[:300]}"
        self.launcher.failed[kernel.full_name] = reason
        self.hook.revoke()
        self.launcher.count_plain(kernel, reason)

    def _answer(self, launch: hooks.InterposedLaunch) -> None:
        self._latest.launch = self._latest.holds = None
        if self.launcher.idle and not self.launcher.standing:
            launch.decide()
            return
        if launch.node:
            self._decide(launch, self.seen.kernel(launch) or _UNKNOWN, _NODE, count=True)
            return
        left, function = patched.wanted().left, int(launch.function)
        if left is not None and left.is_of(function):
            launch.instead = self._left(left, launch)
            return
        meant = patched.take()
        if meant is None and patched.wanted().others:
            self._of_another(launch)
            return
        kernel = self.seen.kernel(launch)
        if kernel is None:
            self._decide(launch, _UNKNOWN, _UNSEEN, count=True)
        elif meant is not None:
            launch.instead = self._recorded(kernel, meant, launch)
        elif self._aside(kernel) or _passes(kernel, launch):
            launch.decide()
        elif (session := self._session(kernel, launch.stream or 0)) is not None:
            launch.instead = self._repeated(kernel, session, launch) or self._recorded(
                kernel, self._wanted(kernel, session), launch
            )
        elif not self._timed(launch) and (reason := self.launcher.over(kernel)):
            self._decide(launch, kernel, reason)

    def _of_another(self, launch: hooks.InterposedLaunch) -> None:
        """Launch what another launcher of ikp's has decided on; its own patched code at once."""
        over = patched.wanted().over
        if launch.function in loaded.functions:
            launch.decide()
        elif not self._timed(launch) and over:
            kernel = self.seen.kernel(launch)
            if kernel is not None and kernel.symbol == over:
                launch.decide()

    def _captures(self, launch: hooks.InterposedLaunch) -> None:
        """Note that a CUDA graph's capture begins or ends; at the end, capture a node of ikp's."""
        stream = launch.stream or 0
        if launch.node == NodeKind.CAPTURE_ENDS:
            self._bodies.discard(cuda.capture_number(stream))
            self.launcher.capture_ends()
            end_capture(stream)
            return
        if launch.node == NodeKind.CAPTURE_INTO:
            self._bodies.add(cuda.capture_number(stream))
        self.launcher.capture_begins()

    def _reset(self, ordinal: int) -> None:
        """Read what is recorded on a device before its memory ends; use none of it any more."""
        from ikp.session.leaving import leave  # few programs reset a GPU

        self.hook.revoke()
        self.stocks.end_all()
        if leave(ordinal):
            self._reset_ones.add(ordinal)
        timed.report()
        self._known = KnownLaunches()
        self._latest.launch = self._latest.holds = None

    @staticmethod
    def _timed(launch: hooks.InterposedLaunch) -> bool:
        """Time a plain launch of a kernel that was recorded with this grid; return whether."""
        return timed.plain(int(launch.function), _grid(launch), launch.stream or 0)

    def _decide(
        self,
        launch: hooks.InterposedLaunch,
        kernel: SeenKernel,
        reason: str,
        *,
        count: bool = False,
    ) -> None:
        """Launch a function plain from now on; with ``count``, count this launch, too."""
        if count:
            self.launcher.count_plain(kernel, reason)
        key = kernel.full_name, reason
        with self._lock:
            if key not in self._slots and (slot := self.hook.slot()):
                self._slots[key] = slot, kernel
            if key in self._slots:
                launch.decide(self._slots[key][0])

    def _aside(self, kernel: SeenKernel) -> bool:
        """Return whether a kernel is a library's, and the user has named no kernels."""
        if self.launcher.kernels is not None:
            return False
        library = _file_of(kernel.holder.origin)
        if _LIBRARIES.match(library) is None:
            return False
        self.launcher.aside.add(library)
        return True

    def _session(self, kernel: SeenKernel, stream: int) -> Session | None:
        """Return the session that records a launch; None where none does."""
        capture = cuda.capture_number(stream) if self.launcher.captures else 0
        return self.launcher.chosen(kernel, capture)

    def _repeated(
        self, kernel: SeenKernel, session: Session, launch: hooks.InterposedLaunch
    ) -> int:
        """Return what ``_recorded`` does, where the launch repeats an earlier one; else 0."""
        known = self._known.find(launch, session)
        if known is None or cuda.capturing(launch.stream or 0):
            return 0
        try:
            return self._again(kernel, session, launch, known)
        except SlowError:
            return 0

    def _again(
        self, kernel: Any, session: Session, launch: hooks.InterposedLaunch, known: KnownLaunch
    ) -> int:
        """Return what ``_recorded`` does for a launch that repeats another; it takes a buffer.

        Raises:
            SlowError: its buffer is to be taken as the first one's was.
        """
        stream = launch.stream or 0
        repeat = known.repeat
        cuda_functions.like(repeat.module.function, known.plain)
        taken = repeat.take(stream)
        if taken is None:
            return int(launch.function)
        function, grid = int(launch.function), _grid(launch)
        if not timed.recorded(function, grid, known.label, session.facts):
            self.stocks.renew(launch, kernel, session, known)  # later ones come without a question
        data, words = taken
        self.launcher.recorded[known.label] += 1
        drop = partial(_drop, self.launcher, session, known.label, data)
        self._latest.launch = kernel, drop
        launch.append(known.argument, words, known.replaces)
        return repeat.module.function

    def _left(self, left: LeftLaunch, launch: hooks.InterposedLaunch) -> int:
        """Return what ``_recorded`` does for a launch that its launcher left to this one.

        Where it repeats none any more, it is patched as if no launcher had seen it.
        """
        kernel, known, stream = left.kernel, left.known, launch.stream or 0
        session = self._session(kernel, stream)
        if session is None:
            return int(launch.function)
        alike = known.session() is session and left.context == cuda.context_number()
        if alike and launch.extensible and not cuda.capturing(stream):
            try:
                return self._again(kernel, session, launch, known)
            except SlowError:
                return self._with_new_buffer(left, session, launch)
        seen = self.seen.kernel(launch)
        if seen is None:
            raise PatchError(_UNSEEN)
        return self._recorded(seen, self._anew(left, session), launch)

    def _with_new_buffer(
        self, left: LeftLaunch, session: Session, launch: hooks.InterposedLaunch
    ) -> int:
        """Return what ``_again`` does, with a buffer that is taken as the first one's was."""
        known, stream = left.known, launch.stream or 0
        module, (grid, warps, chosen) = known.repeat.module, known.repeat.shape
        buffer = partial(left.anew().buffer, left.plan, grid, warps, module.patch.most, chosen)
        prof = taking.take(buffer, stream, captured=False)
        if prof is None:
            return int(launch.function)
        words = module.point(prof, grid, warps, stream, chosen, captured=False)
        drop = partial(_drop, self.launcher, session, known.label, prof.data)
        self._latest.launch = left.kernel, drop
        launch.append(known.argument, words, known.replaces)
        return module.function

    def _anew(self, left: LeftLaunch, session: Session) -> patched.RecordedLaunch:
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

    def _recorded(
        self, kernel: SeenKernel, meant: patched.RecordedLaunch, launch: hooks.InterposedLaunch
    ) -> int:
        """Return the patched function, with its buffer passed; the plain one if it gets none."""
        self.seen.let_go(launch)
        self._check_context()
        self._check_capture(launch.stream or 0)
        stream, block = launch.stream or 0, (launch.block[0], launch.block[1], launch.block[2])
        grid = launch.grid[0], launch.grid[1], launch.grid[2]
        captured = cuda.capturing(stream)
        # A graph's nodes keep arguments, and a program that changes a node passes the plain count.
        argue = bool(launch.extensible) and not captured
        if launch.overlaps and not argue:
            raise _NotNow(_OVERLAPS)
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
            raise _NotNow(_OVERLAPS)
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
        patched.add_arguments(meant, read, kernel.function())
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
        self._latest.launch, self._latest.holds = (kernel, meant.drop), meant
        if not captured:
            self._time(
                kernel, meant, launch, Repeat(made, prof, (grid, warps, chosen), cuda.device())
            )
        return made.function

    def _time(
        self,
        kernel: SeenKernel,
        meant: patched.RecordedLaunch,
        launch: hooks.InterposedLaunch,
        repeat: Repeat,
    ) -> None:
        """Time a recorded launch, if it is one of the first; have later ones repeat it."""
        timed.recorded(int(launch.function), _grid(launch), meant.label, meant.facts)
        if not self.seen.memory(kernel).constants:
            self._known.keep(launch, meant, kernel.function(), repeat)

    def _check_context(self) -> None:
        """Refuse a context in which ikp's memory can't be used.

        Raises:
            PatchError: it is another one than the CUDA runtime's.
            _NotNow: the device was reset.
        """
        if self._reset_ones and cuda.device() in self._reset_ones:
            from ikp.session.leaving import RESET

            raise _NotNow(RESET)
        context = cuda.context_number()
        if context not in self._primaries and cuda.context() != cuda.primary():
            raise PatchError(
                "it runs in a CUDA context of its own, where ikp's memory can't be used."
            )
        self._primaries.add(context)

    def _check_capture(self, stream: int) -> None:
        """Refuse a launch that a graph of the program's own captures.

        Raises:
            _NotNow: it is one.
        """
        if self._bodies and cuda.capture_number(stream) in self._bodies:
            raise _NotNow(_BODY)

    def _launched(self, kernel: SeenKernel, launch: hooks.InterposedLaunch) -> PlainLaunch:
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
        launch: hooks.InterposedLaunch,
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
            block=(launch.block[0], launch.block[1], launch.block[2]),
            argue=argue,
            grid=grid,
        )

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
