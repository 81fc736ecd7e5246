"""``Launches``: decides on each launch at the CUDA driver, plain or patched, with a buffer."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from ikp.backends import loaded, patched
from ikp.backends.checked import REFUSED
from ikp.backends.driver import _hook as hooks
from ikp.backends.driver import _taking as taking
from ikp.backends.driver._hook import DriverObject, HandleKind, Hook, NodeKind
from ikp.backends.driver._launch_recorder import LaunchRecorder, NotNow, block_of, grid_of
from ikp.backends.driver._library import install
from ikp.backends.driver._repeating import look_after
from ikp.backends.driver._seen_code import SeenCode
from ikp.backends.driver._seen_kernels import Chooser, SeenKernel
from ikp.backends.labels import Labels
from ikp.backends.launched_grid import LaunchGrid
from ikp.backends.repeats import LeftLaunch
from ikp.backends.timed import timed
from ikp.core.turns import IN_TURN
from ikp.driver import cuda, cuda_functions
from ikp.errors import CheckError, IkpError, PatchError
from ikp.session.current import Session
from ikp.session.harvest import after_reading
from ikp.session.replays import end_capture
from ikp.signals import pass_on
from ikp.warning import warn

_LIBRARIES = re.compile(
    r"lib(torch|c10|cu(blas|dnn|fft|rand|solver|sparse|dss|tensor)|nccl|nvrtc|npp|nvjpeg|nvshmem)"
)
"""Files of libraries whose kernels are recorded only where the user names kernels."""
_NOTHING = DriverObject(0, 0, 0, "", "", 0, HandleKind.UNKNOWN)
_UNKNOWN = SeenKernel("unknown", _NOTHING, _NOTHING, Labels())
_UNSEEN = "its machine code was not seen: the program got it from the driver in another way"
_NODE = "put into a CUDA graph by the program itself, and not by capturing its launch"


def _passes(kernel: SeenKernel, launch: hooks.InterposedLaunch) -> bool:
    """Whether another launcher launches a kernel that it records no more, past ``wanted``."""
    passes = patched.passing.get(kernel.symbol)
    return passes is not None and passes(int(launch.function))


@cache
def _file_of(path: str) -> str:
    return Path(path).name


@contextmanager
def stepping_in(launcher: Chooser) -> Iterator[None]:
    """Have launches that reach the driver go through ``launcher``, until the context is left.

    Raises:
        PatchError: the driver is in this process already, or there is none.
    """
    hook = install()
    look_after(hook)
    launcher.wakers.append(hook.wake)
    asked = [Launches(hook, launcher)]
    hook.ask(asked[0].asked)
    hook.watch_exit()  # a program that launches nothing has an end, too
    after_reading.append(hook.watch_exit)

    def in_child() -> None:
        if asked:
            asked[0].recorder.stocks.end_all()
            asked[0] = Launches(hook, launcher)
            hook.ask(asked[0].asked)

    os.register_at_fork(after_in_child=in_child)
    try:
        yield
    finally:
        hook.ask(None)
        after_reading.remove(hook.watch_exit)
        asked[0].recorder.stocks.end_all()
        asked.pop().count()


@dataclass(slots=True)
class Launches:
    """Decides on this process's launches at the driver, one by one."""

    hook: Hook
    launcher: Chooser
    seen: SeenCode = field(init=False)
    recorder: LaunchRecorder = field(init=False)
    _slots: dict[tuple[str, str], tuple[int, SeenKernel]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.seen = SeenCode(self.hook, self.launcher.labels)
        self.recorder = LaunchRecorder(self.hook, self.launcher, self.seen)

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
                    timed.overlap()
                self._answer(launch)
        except CheckError as error:
            launch.instead = launch.function
            kernel = self._counted_as(launch)
            self.launcher.failed[kernel.full_name] = REFUSED
            timed.keep_plain(kernel.__name__)
            self.hook.revoke()
            self.launcher.count_plain(kernel, REFUSED)
            warn(str(error), stacklevel=2)
        except NotNow as reason:
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
        kernel = self.recorder.drop_latest()
        timed.refused(int(launch.function))
        if kernel is not None and not launch.otherwise:  # else the launch was the program's mistake
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
        timed.keep_plain(kernel.__name__)
        self.hook.revoke()
        self.launcher.count_plain(kernel, reason)

    def _answer(self, launch: hooks.InterposedLaunch) -> None:
        self.recorder.forget_latest()
        if self.launcher.idle and not self.launcher.standing:
            self._pass_idle(launch)
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
            launch.instead = self.recorder.recorded(kernel, meant, launch)
        elif self._aside(kernel):
            launch.decide()
        elif _passes(kernel, launch):
            if not self._timed(launch, over=True):
                launch.decide()
        else:
            self._choose(kernel, launch)

    def _choose(self, kernel: SeenKernel, launch: hooks.InterposedLaunch) -> None:
        """Have a launch recorded, if a session records it."""
        session = self._session(kernel, launch.stream or 0)
        if session is not None:
            launch.instead = self.recorder.of_session(kernel, session, launch)
            return
        reason = self.launcher.over(kernel)
        if not self._timed(launch, over=reason is not None) and reason:
            self._decide(launch, kernel, reason)

    def _pass_idle(self, launch: hooks.InterposedLaunch) -> None:
        """Launch a function plain until a window opens; note its kernel."""
        launch.decide()
        try:
            self._note_ahead(launch)
        except Exception as error:  # noqa: BLE001 - a window patches what it needs
            pass_on(error)

    def _note_ahead(self, launch: hooks.InterposedLaunch) -> None:
        """Note a kernel that is launched plain, and may be recorded in a later window."""
        launcher, here, function = self.launcher, patched.wanted(), int(launch.function or 0)
        ahead = launcher.ahead
        if ahead is None or launch.node or here.tries or function in loaded.functions:
            return
        selection = patched.chosen(launcher.buffer)
        grid = LaunchGrid.of(grid_of(launch), selection, launcher.plan.sample, captured=False)
        if here.over:
            another = partial(launcher.to_patch, here.kernel, function, grid)
            ahead.note((function, grid), another)
        elif not here.others:
            kernel = self.seen.kernel(launch)
            if kernel is not None and not self._aside(kernel) and self._is_named(kernel):
                ahead.note(*self.recorder.to_patch(kernel, launch, grid))

    def _is_named(self, kernel: SeenKernel) -> bool:
        """Return whether the user has named a kernel, or none."""
        kernels = self.launcher.kernels
        return kernels is None or any(map(kernels.search, kernel.names))

    def _of_another(self, launch: hooks.InterposedLaunch) -> None:
        """Launch what another launcher of ikp's has decided on; its own patched code at once."""
        over = patched.wanted().over
        if launch.function in loaded.functions:
            launch.decide()
        elif not self._timed(launch, over=bool(over)) and over:
            kernel = self.seen.kernel(launch)
            if kernel is not None and kernel.symbol == over:
                launch.decide()

    def _captures(self, launch: hooks.InterposedLaunch) -> None:
        """Note that a CUDA graph's capture begins or ends; at the end, capture a node of ikp's."""
        stream = launch.stream or 0
        if launch.node == NodeKind.CAPTURE_ENDS:
            self.recorder.bodies.discard(cuda.capture_number(stream))
            self.launcher.capture_ends()
            end_capture(stream)
            return
        if launch.node == NodeKind.CAPTURE_INTO:
            self.recorder.bodies.add(cuda.capture_number(stream))
        self.launcher.capture_begins()

    def _reset(self, ordinal: int) -> None:
        """Read what is recorded on a device before its memory ends; use none of it any more."""
        from ikp.session.leaving import leave  # few programs reset a GPU

        self.hook.revoke()
        self.recorder.stocks.end_all()
        recorded = leave(ordinal)
        timed.report()
        self.recorder.forget(ordinal if recorded else None)

    def _timed(self, launch: hooks.InterposedLaunch, *, over: bool) -> bool:
        """Time a launch of a kernel that was recorded with this grid; return whether.

        Args:
            launch: it is not to be recorded.
            over: whether no later one is. Then some may have records to be timed, and not kept,
                unless the user has chosen which ones have, or opens windows.
        """
        function, grid, stream = int(launch.function), grid_of(launch), launch.stream or 0
        chosen = self.launcher.launches is not IN_TURN or self.launcher.ahead is not None
        further = over and not chosen
        if further and launch.extensible:
            take = partial(taking.take, captured=False)
            found = timed.further(function, launch.id, grid, block_of(launch), stream, take)
            if found is not None:
                known, words = found
                cuda_functions.like(known.repeat.module.function, known.plain)
                launch.append(known.argument, words, known.replaces)
                launch.instead = known.repeat.module.function
                return True
        return timed.plain(function, grid, stream, further=further)

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

    def _left(self, left: LeftLaunch, launch: hooks.InterposedLaunch) -> int:
        """Return the function to launch for a launch that its launcher left to this one.

        Where it repeats none any more, it is patched as if no launcher had seen it.
        """
        session = self._session(left.kernel, launch.stream or 0)
        if session is None:
            return int(launch.function)
        if (made := self.recorder.left(left, session, launch)) is not None:
            return made
        seen = self.seen.kernel(launch)
        if seen is None:
            raise PatchError(_UNSEEN)
        return self.recorder.recorded(seen, self.recorder.anew(left, session), launch)
