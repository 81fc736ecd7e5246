"""``Everything``: ``ikp run``'s launcher of all kernels of Triton's; it bounds records' memory."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING

from ikp.after_import import stepping_into
from ikp.backends.checked import REFUSED
from ikp.backends.launched_grid import LaunchGrid
from ikp.backends.patched import others, pass_by, wanted
from ikp.backends.timed import timed
from ikp.backends.triton.unedited import _foreign as foreign
from ikp.backends.triton.unedited import _inductor as inductor
from ikp.backends.triton.unedited._clones import is_clone
from ikp.backends.triton.unedited._foreign import JittedFunction
from ikp.backends.triton.unedited._launching import Launcher
from ikp.backends.triton.unedited._over import Over, Shortcuts
from ikp.backends.triton.unedited._reasons import tuning
from ikp.backends.triton.unedited._special import full_name, is_compiled, names
from ikp.backends.triton.unedited._steady import SteadyLaunches
from ikp.errors import CheckError, IkpError
from ikp.probing import Untyped
from ikp.session import current
from ikp.session.current import Session
from ikp.signals import pass_on
from ikp.unedited.plan import ALL, NOT_NAMED, has_no_end
from ikp.warning import warn

if TYPE_CHECKING:
    from ikp.backends.patch_input import PatchInput

__tracebackhide__ = True  # pytest shows a launch that fails as it does without ikp
NO_ROOM = "no room left for recordings (--memory)"
_UNDECIDED = "could not be decided on, which is a mistake of ikp's"
_FEW = 2
"""Launches of a kernel that may take from the second half of the room: it is for later kernels."""


@dataclass(slots=True)
class Everything(Launcher):
    """Launches a whole program's kernels; kernels that can't be marked run plain, and are reported.

    ``kernels`` is a pattern that a kernel's module and name must match. ``room`` is how many bytes
    a session may hold, in buffers of the device and in records read back. The last launch may
    exceed it. From half of it on, only kernels with few recorded launches are recorded, where the
    number of each one's launches has a bound: else all launches are asked for.
    """

    kernels: re.Pattern[str] | None = None
    room: int = 2 << 30
    failed: dict[str, str] = field(default_factory=dict)
    aside: set[str] = field(default_factory=set)  # libraries whose kernels run plain
    _named: dict[tuple[str, ...], bool] = field(default_factory=dict)  # by the names of a kernel

    def count_plain(self, kernel: JittedFunction, reason: str, times: int = 1) -> None:
        """Count launches without marks; all are reported at the end."""
        self.plain[self._counted_by(kernel, reason)] += times

    @staticmethod
    def _counted_by(kernel: JittedFunction, reason: str) -> tuple[str, str]:
        return names(kernel)[0] if reason == NOT_NAMED else kernel.__name__, reason

    def _chosen_by_name(self, kernel: JittedFunction) -> bool:
        if self.kernels is None:
            return True
        every = names(kernel)
        if (chosen := self._named.get(every)) is None:
            chosen = self._named[every] = any(map(self.kernels.search, every))
        return chosen

    def over(self, kernel: JittedFunction) -> str | None:
        """Return why no later launch of a kernel is recorded; None where one may be."""
        name = full_name(kernel)
        if not self._chosen_by_name(kernel):
            return NOT_NAMED
        if name in self.failed:
            return self.failed[name]
        return Launcher.over(self, kernel)  # room for recordings may come back

    def lasts(self, kernel: JittedFunction, session: Session) -> bool:
        """Return whether a session is to record all later launches of a kernel."""
        ends = full_name(kernel) in self.failed or session.held >= self.room // 2
        return not ends and Launcher.lasts(self, kernel, session)

    def to_patch(
        self, kernel: JittedFunction, function: int, grid: LaunchGrid
    ) -> PatchInput | None:
        """Return a kernel to patch ahead; None of one that is not chosen."""
        named = self._chosen_by_name(kernel)
        return Launcher.to_patch(self, kernel, function, grid) if named else None

    @property
    def goes_on(self) -> bool:
        """Whether any later launch, of any kernel, may be recorded."""
        every = self.kernels is None and self.launches == ALL
        return every and not self.failed and self.session() is not None

    def counted(self, kernel: JittedFunction) -> tuple[str, str] | None:
        """Return the key that counts a kernel's later launches; None while one may be recorded.

        Only while a session records: a program may open one later.
        """
        if self.session() is None or not current.enabled():
            return None
        reason = self.over(kernel)
        return None if reason is None else self._counted_by(kernel, reason)

    def reason_for_plain(
        self, kernel: JittedFunction, session: Session, capture: int = 0
    ) -> str | None:
        """Return why this launch is not recorded, or None."""
        if not self._chosen_by_name(kernel):
            return NOT_NAMED
        if self.failed and (failed := self.failed.get(full_name(kernel))):
            return failed
        reason = Launcher.reason_for_plain(self, kernel, session, capture)
        if reason is None and session.held >= self.room // 2:
            some = not has_no_end(self.launches) and self.recorded[kernel.__name__] >= _FEW
            return NO_ROOM if some or session.held >= self.room else None
        return reason

    def choose(
        self, kernel: JittedFunction, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[Session | None, JittedFunction]:
        """Do as any launcher; where ikp fails, the launch is plain: no program sees that error."""
        try:
            return Launcher.choose(self, kernel, args, kwargs)
        except Exception as error:  # noqa: BLE001 - nothing of the program's has run
            pass_on(error)
            self.count_plain(kernel, _one_line(f"{_UNDECIDED}: {type(error).__name__}: {error}"))
            return None, kernel

    def record(
        self,
        session: Session,
        kernel: JittedFunction,
        plain: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Launch a kernel with records; plain, where it can't be recorded.

        Triton compiles, and refuses, before it launches. If it refuses the kernel without marks as
        well, the program gets that error from the plain launch at the end.
        """
        try:
            return self.launch(session, kernel, plain, args, kwargs)
        except CheckError as error:  # it has run, and left the plain kernel's results
            warn(str(error), stacklevel=2)
            self.failed[full_name(kernel)] = REFUSED
            timed.keep_plain(kernel.__name__)
            self.count_plain(kernel, self.failed[full_name(kernel)])
            return None
        except IkpError as error:
            pass_on(error)
            reason = str(error)
        except Exception as error:
            pass_on(error)
            if not is_compiled(kernel):  # interpreted: a part of it has run
                raise
            reason = f"{type(error).__name__}: {error}"
        made = plain(*args, **kwargs)  # where this fails too, the launch was wrong, not the marks
        self.failed[full_name(kernel)] = f"could not be marked: {_one_line(reason)}"
        timed.keep_plain(kernel.__name__)
        self.count_plain(kernel, self.failed[full_name(kernel)])
        return made

    def stepping_in(self) -> AbstractContextManager[None]:
        """Have every launch in this process go through this, until the context is left."""
        return stepping_in(self)


def stepping_in(launcher: Launcher) -> AbstractContextManager[None]:
    """Have every launch in this process go through ``launcher``, until the context is left."""
    return stepping_into(
        {
            foreign.JIT: lambda module: _compiled(module, launcher),
            foreign.INTERPRETER: lambda module: _interpreted(module, launcher),
            foreign.AUTOTUNER: lambda module: _trials(module, launcher),
            foreign.HEURISTICS: lambda module: inductor.step_in(module, launcher),
        }
    )


def _compiled(module: ModuleType, launcher: Launcher) -> Callable[[], None]:
    if not foreign.TRITON.has(foreign.COMPILED):
        return _nothing
    return _launches(module.JITFunction, launcher)


def _interpreted(module: ModuleType, launcher: Launcher) -> Callable[[], None]:
    if not foreign.TRITON.has(foreign.INTERPRETED):
        return _nothing
    return _launches(module.InterpretedFunction, launcher)


def _nothing() -> None:
    """Undo nothing: no hook was set."""


def _launches(kind: Untyped, launcher: Launcher) -> Callable[[], None]:
    """Hook into the launches of a class of jitted functions; return the function that undoes it.

    A kernel of which no later launch is recorded passes with one look-up, and a count.
    """
    original = kind.run
    over = Over(launcher)
    shortcuts, steady = Shortcuts(launcher, over, original), SteadyLaunches(launcher)
    launcher.wakers.append(shortcuts.end_all)

    @functools.wraps(original)
    def run(self: JittedFunction, /, *args: object, **kwargs: object) -> object:
        if launcher.idle and not launcher.standing:
            return pass_by(self.__name__, original, self, *args, **kwargs)
        if (launch := steady.next(self, args, kwargs)) is not None:
            here = wanted()
            aside = here.aside
            here.others += 1
            aside.value += 1
            here.launch = launch
            try:
                return original(self, *args, **kwargs)
            finally:
                here.launch = None
                here.others -= 1
                aside.value -= 1
        if not kwargs.get("warmup") and over.counts(self, args, kwargs):
            shortcuts.passed(self)
            return pass_by(self.__name__, original, self, *args, **kwargs)
        if is_clone(self) or not foreign.fits(self):
            return original(self, *args, **kwargs)
        with others():
            made = launcher.run(self, functools.partial(original, self), *args, **kwargs)
        try:
            over.look(self, self, args, kwargs)
            steady.look(self, args, kwargs)
        except Exception as error:  # noqa: BLE001 - it has run; the next one is decided on anew
            pass_on(error)
        return made

    def restore() -> None:
        shortcuts.end_all()
        kind.run = original

    kind.run = run
    return restore


def _trials(module: ModuleType, launcher: Launcher) -> Callable[[], None]:
    """Have autotuners try plain kernels.

    Between windows, the driver's hook asks again about the kernel that is chosen.
    """
    if not foreign.TRITON.has(foreign.TRIALS):
        return _nothing
    kind: Untyped = module.Autotuner
    original = kind._bench

    @functools.wraps(original)
    def bench(self: object, /, *args: object, **kwargs: object) -> object:
        with tuning():
            found = original(self, *args, **kwargs)
        for wake in launcher.wakers if launcher.idle else ():
            wake()
        return found

    kind._bench = bench
    return lambda: setattr(kind, "_bench", original)


def _one_line(text: str, limit: int = 500) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
