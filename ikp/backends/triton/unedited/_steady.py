"""``SteadyLaunches``: kernels all of whose launches are recorded; decided on where each is made.

Such a launch goes straight to Triton, and Triton's launcher to the driver. There the hook library
gives it the next buffer, or asks Python, which decides as it would have before Triton was called.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from typing import Final

from ikp.backends.patched import RecordedLaunch, is_hooked, wanted
from ikp.backends.triton.unedited._foreign import JittedFunction
from ikp.backends.triton.unedited._launching import Launcher
from ikp.backends.triton.unedited._reasons import trials
from ikp.backends.triton.unedited._repeated import KernelLaunches
from ikp.backends.triton.unedited._special import full_name
from ikp.probing import Untyped
from ikp.session.current import Session
from ikp.session.known_launch import revocations

__tracebackhide__ = True  # pytest shows a launch that fails as it does without ikp
_MOST: Final = 1024
"""The most forms of launches that are kept."""


@dataclass(frozen=True, slots=True)
class _LaunchForm:
    """Launches of one kernel with so many arguments, of such names, and when that was seen.

    Those of one compiled function specialise the kernel alike: ``launches`` has them by the
    driver's handle.
    """

    epoch: int
    revoked: int
    launches: dict[int, KernelLaunches] = field(default_factory=dict)


class SteadyLaunches:
    """The forms of launches of which a launcher records all, in the session that is open.

    Args:
        launcher: decides on launches.
    """

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._forms: dict[tuple[object, ...], _LaunchForm] = {}

    def next(
        self, kernel: JittedFunction, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> SteadyLaunch | None:
        """Return a launch that is to be decided on where it is made; None where it is not.

        Args:
            kernel: the jitted function.
            args: arguments of its ``run``.
            kwargs: arguments of its ``run``.
        """
        form = self._forms.get((id(kernel), len(args), *kwargs))
        if form is None or form.revoked != revocations[0] or form.epoch != self._launcher.epoch:
            return None
        if kwargs.get("warmup") or trials.depth:
            return None
        return SteadyLaunch(self._launcher, form, kernel, args, kwargs)

    def look(
        self, kernel: JittedFunction, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """Note the form of a launch that was made, if all later ones like it are recorded."""
        launcher, revoked, epoch = self._launcher, revocations[0], self._launcher.epoch
        session = launcher.session() if is_hooked() else None
        if session is None or kwargs.get("warmup"):
            return
        special = launcher.special(kernel, args, kwargs)
        if _left(launcher, special, session) is None:
            return
        if len(self._forms) >= _MOST:
            self._forms.clear()
        key = (id(kernel), len(args), *kwargs)
        if key not in self._forms:
            weakref.finalize(kernel, self._forms.pop, key, None).atexit = False
        self._forms[key] = _LaunchForm(epoch, revoked)


def _left(launcher: Launcher, special: JittedFunction, session: Session) -> KernelLaunches | None:
    """Return a kernel's launches where later ones may be left to the driver's hook, or None."""
    launches = launcher.launches_of(full_name(special), session)
    if launches is None or not launches.left or not launcher.lasts(special, session):
        return None
    return launches


class SteadyLaunch:
    """A launch that is decided on where it is made.

    Args:
        launcher: decides on it.
        form: of it, seen before in the same session.
        kernel: the jitted function.
        args: arguments of its ``run``.
        kwargs: arguments of its ``run``.
    """

    __slots__ = ("_args", "_form", "_kernel", "_kwargs", "_launcher")

    def __init__(
        self,
        launcher: Launcher,
        form: _LaunchForm,
        kernel: JittedFunction,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> None:
        self._launcher, self._form, self._kernel = launcher, form, kernel
        self._args, self._kwargs = args, kwargs

    def made(self) -> RecordedLaunch | None:
        """Return the launch to record, which came to the driver past Triton's launcher."""
        session, special = self._launcher.choose(self._kernel, self._args, self._kwargs)
        if session is None:
            return None
        launches = self._launcher.launches_of(full_name(special), session)
        return None if launches is None else launches.make()

    def reaches(
        self,
        pending: Callable[[Untyped, Callable[..., object]], Callable[..., object]],
        compiled: Untyped,
        plain: Callable[..., object],
        x: int,
        y: int,
        z: int,
        stream: int,
        function: int,
        *rest: object,
    ) -> object:
        """Launch a kernel that Triton has compiled, by its launcher, with records.

        Args:
            pending: returns what makes this thread's pending launch of a kernel, by its launcher.
            compiled: the kernel.
            plain: its launcher.
            x: blocks.
            y: blocks.
            z: blocks.
            stream: the driver's handle.
            function: the driver's handle.
            rest: further arguments of the launcher.
        """
        launches = self._form.launches.get(function)
        known = launches and launches.left.get((function, stream, get_ident(), x, y, z))
        if not known or not known.is_of(compiled, plain):
            made = partial(pending, compiled, plain)
            return self._decide(made, function, x, y, z, stream, function, *rest)
        here = wanted()
        aside, before = here.aside, here.left
        here.left, aside.left = known.left, function
        try:
            return plain(x, y, z, stream, function, *rest)
        finally:  # a signal's handler may have launched this one, inside another launch
            here.left = before
            aside.left = None if before is None else before.known.plain

    def _decide(
        self, pending: Callable[[], Callable[..., object]], function: int, *args: object
    ) -> object:
        """Decide on a launch as before Triton is called, and make it by its launcher alone."""
        session, special = self._launcher.choose(self._kernel, self._args, self._kwargs)
        if session is None:
            return pending()(*args)
        made = self._launcher.record(session, special, lambda: pending()(*args), (), {})
        launches = _left(self._launcher, special, session)
        if launches is not None:
            self._form.launches[function] = launches
        return made
