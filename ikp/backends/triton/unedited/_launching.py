"""``Launcher``: decides on each launch of an unedited kernel, and launches it with a buffer.

The launched kernel is an instrumented clone, or the kernel itself with probes in its machine code.
"""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ikp.backends.checked import report
from ikp.backends.labels import Labels
from ikp.backends.launched_grid import LaunchGrid
from ikp.backends.patched import (
    RecordedLaunch,
    chosen,
    is_hooked,
    shape,
    take_buffer,
    wanted,
)
from ikp.backends.triton.unedited import _by_hand as by_hand
from ikp.backends.triton.unedited._clones import clone_of, launch_shape
from ikp.backends.triton.unedited._foreign import JittedFunction, is_jitted
from ikp.backends.triton.unedited._mark_nodes import PROF
from ikp.backends.triton.unedited._reasons import (
    CAPTURED,
    NOT_CHOSEN,
    TUNING,
    capture_number,
    is_capturing,
    trials,
)
from ikp.backends.triton.unedited._repeated import KernelLaunches, NextLaunch
from ikp.backends.triton.unedited._special import (
    Specials,
    check_level,
    full_name,
    hook_the_compiler,
    takes_source,
)
from ikp.core.abi import Language
from ikp.core.segment import Selection
from ikp.core.turns import FIRST, IN_TURN
from ikp.errors import IkpWarning, PatchError
from ikp.session import current
from ikp.session.current import Session
from ikp.signals import deferred, pass_on
from ikp.unedited.plan import ALL, BEST, Plan, at_level, has_no_end

if TYPE_CHECKING:
    from ikp.backends.ahead import PatchesAhead
    from ikp.backends.patch_input import PatchInput

__tracebackhide__ = True  # pytest shows a launch that fails as it does without ikp


def _unheard(starts: bool) -> None:
    """Do nothing: no windows are opened."""


def nothing() -> None:
    """Do nothing: there is no trace to write."""


@dataclass(slots=True)
class Launcher:
    """Decides for each launch of a kernel whether it is recorded, and launches it.

    ``session`` returns the session that records now, or None. ``plain`` counts the launches that
    ran without marks, by kernel and reason.
    """

    plan: Plan
    session: Callable[[], Session | None]
    launches: Sequence[int] = ALL  # in order
    buffer: dict[str, Any] = field(default_factory=dict)  # options of ``prof.buffer``
    seen: Counter[str] = field(default_factory=Counter)
    recorded: Counter[str] = field(default_factory=Counter)
    plain: Counter[tuple[str, str]] = field(default_factory=Counter)
    labels: Labels = field(default_factory=Labels)
    epoch: int = 0  # how often it began anew
    idle: bool = False  # nothing is recorded now
    captures: int = 0  # of CUDA graphs that are under way, as far as the driver's hook sees them
    standby: Callable[[], Session | None] | None = None
    """Returns the session that gives captured launches buffers while nothing is recorded."""
    captured: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By kernel, the number of its latest capture, and how many captures had it before."""
    wakers: list[Callable[[], None]] = field(default_factory=list)
    profiler: Callable[[bool], None] = _unheard
    """Called at the program's cudaProfilerStart (True) and cudaProfilerStop."""
    exits: Callable[[], None] = nothing
    """Called as the program calls C's exit()."""
    ahead: PatchesAhead | None = None
    """Patches kernels that run plain while nothing is recorded; None where no window opens."""
    specials: Specials = field(init=False)
    _kernels: dict[str, KernelLaunches] = field(default_factory=dict)
    """The launches of each kernel in the latest session that recorded some."""

    def __post_init__(self) -> None:
        self.specials = Specials(self.labels)

    def begin_anew(self) -> None:
        """Count all launches from zero, and decide anew on each kernel."""
        for each in (self.seen, self.recorded, self.plain, self.captured):
            each.clear()
        self._kernels.clear()
        self._decide_anew()

    def _decide_anew(self) -> None:
        self.epoch += 1
        for wake in self.wakers:
            wake()

    @property
    def standing(self) -> bool:
        """Whether captured launches get buffers though nothing is recorded."""
        return self.captures > 0 and self.standby is not None

    def capture_begins(self) -> None:
        """Decide anew on each kernel: captures have launches of their own to record."""
        self.captures += 1
        self._decide_anew()

    def capture_ends(self) -> None:
        """Decide on kernels without captures again."""
        self.captures = max(0, self.captures - 1)

    def run(
        self,
        kernel: JittedFunction,
        plain: Callable[..., object],
        /,
        *args: object,
        **kwargs: object,
    ) -> object:
        """Launch ``kernel`` as its own ``run(*args, grid=, warmup=, ...)`` would.

        Args:
            kernel: the jitted function.
            plain: its own ``run``.
            args: arguments of ``run``.
            kwargs: arguments of ``run``.
        """
        if self.session() is not None:
            if is_jitted(kernel):
                hook_the_compiler()
            if kwargs.get("warmup"):
                from ikp.backends.triton.unedited._warm import Warm  # few programs warm up

                compiled = plain(*args, **kwargs)
                return compiled if compiled is None else Warm(self.run, kernel, compiled, kwargs)
        session, special = self.choose(kernel, args, kwargs)
        if session is None:
            return plain(*args, **kwargs)
        return self.record(session, special, plain, args, kwargs)

    def choose(
        self, kernel: JittedFunction, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[Session | None, JittedFunction]:
        """Return the session that records a launch, or None, and the function as it specialises."""
        special = self.special(kernel, args, kwargs)
        return self.chosen(special), special

    def special(
        self,
        kernel: JittedFunction,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> JittedFunction:
        """Return a function as a launch specialises it; as it is, where none is recorded."""
        if trials.depth or self.session() is None:
            return kernel
        return self.specials.of(kernel, args, kwargs)

    def chosen(self, kernel: JittedFunction, capture: int | None = None) -> Session | None:
        """Return the session that records this launch, or None; count the launch.

        ``capture`` is the number of the CUDA graph's capture that it is in, 0 for none; None where
        torch's current stream says so.
        """
        session = self.session()
        if not current.enabled() or (session is None and not self.standing):
            return None
        if capture is None:
            capture = capture_number() if self.captures else 0
        standing = session is None
        if standing and capture and self.standby is not None:
            session = self.standby()
        if session is None:
            return None
        reason = self.reason_for_plain(kernel, session, capture)
        if reason == NOT_CHOSEN and standing:  # launches are counted in each window
            reason = None
        if reason:
            self.count_plain(kernel, reason)
            return None
        return session

    def count_plain(self, kernel: JittedFunction, reason: str, times: int = 1) -> None:
        """Count launches without marks; warn where a CUDA graph's capture is the reason."""
        if reason == CAPTURED and not self.plain[kernel.__name__, reason]:
            warnings.warn(
                f"{kernel.__name__} is {reason} and runs without marks there: a graph launches "
                "again and again into one buffer. Record a launch outside the capture.",
                IkpWarning,
                stacklevel=6,
            )
        self.plain[kernel.__name__, reason] += times

    def lasts(self, kernel: JittedFunction, session: Session) -> bool:
        """Return whether a session is to record all later launches of a kernel.

        It holds until stocks are revoked (``ikp.session.known_launch``).
        """
        every = has_no_end(self.launches) and self.seen[full_name(kernel)] > self.launches[0]
        asks = self.captures or not current.enabled()
        return every and not asks and self.session() is session

    def count_more(self, kernel: JittedFunction, number: int) -> None:
        """Count recorded launches of a kernel that were not asked about."""
        self.seen[full_name(kernel)] += number
        self.recorded[kernel.__name__] += number

    def over(self, kernel: JittedFunction) -> str | None:
        """Return why no later launch of a kernel is recorded; None where one may be."""
        if self.captures:
            return None
        last = self.launches[-1] if self.launches else -1
        return NOT_CHOSEN if self.seen[full_name(kernel)] > last else None

    @property
    def goes_on(self) -> bool:
        """Whether any later launch, of any kernel, may be recorded; cheaper than to ask of one."""
        return False

    def counted(self, kernel: JittedFunction) -> tuple[str, str] | None:  # noqa: ARG002 - a rule
        """Return the key that counts a kernel's later launches; None while one may be recorded."""
        return None

    def reason_for_plain(
        self, kernel: JittedFunction, session: Session, capture: int = 0
    ) -> str | None:
        """Return why this launch is not recorded, or None.

        Args:
            kernel: the kernel.
            session: the session that would record it.
            capture: the number of the CUDA graph's capture that it is in, 0 for none.
        """
        if trials.depth:
            return TUNING
        name = full_name(kernel)
        marked = self.launches_of(name, session) is not None or self.way(kernel).afterwards
        if not marked and is_capturing():
            return CAPTURED
        numbers = self.launches
        if numbers is IN_TURN and (capture or not marked or not is_hooked()):
            numbers = FIRST  # no plain launch is timed
        return None if self._number(name, capture) in numbers else NOT_CHOSEN

    def _number(self, name: str, capture: int) -> int:
        """Return which launch of a kernel this is: all launches of one capture are one."""
        if not capture:
            self.seen[name] += 1
            return self.seen[name] - 1
        latest, number = self.captured.get(name, (0, -1))
        self.captured[name] = capture, number + (latest != capture)
        return self.captured[name][1]

    def way(self, kernel: JittedFunction) -> Plan:
        """Return a kernel's plan, with its level decided."""
        if self.plan.level != BEST or not takes_source(kernel):
            return self.plan
        return at_level(self.plan, "machine" if self.plan.needs_machine_code else "source")

    def look_ahead(self) -> None:
        """Note kernels that run plain while nothing is recorded, to have them patched."""
        from ikp.backends.ahead import PatchesAhead

        self.ahead = PatchesAhead()

    def to_patch(
        self, kernel: JittedFunction, function: int, grid: LaunchGrid
    ) -> PatchInput | None:
        """Return a kernel as a recorded launch like an earlier, plain one has it patched.

        Args:
            kernel: it.
            function: the driver's handle that was launched.
            grid: of the launch.

        Returns:
            It; None where no such launch has its machine code patched.
        """
        plan = self.way(kernel)
        if not is_jitted(kernel) or plan.level not in ("machine", BEST):
            return None
        from ikp.backends.triton.unedited import _machine_code as machine_code

        return machine_code.to_patch(kernel, function, at_level(plan, "machine"), grid)

    def record(
        self,
        session: Session,
        kernel: JittedFunction,
        plain: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Launch a kernel with a buffer of ``session``; plain, where no level can record it."""
        try:
            return self.launch(session, kernel, plain, args, kwargs)
        except PatchError as error:
            pass_on(error)
            if self.plan.level != BEST:
                raise
            reason = f"could not be marked: {error}"
            if not self.plain[kernel.__name__, reason]:
                warnings.warn(f"{kernel.__name__} runs plain: {error}", IkpWarning, stacklevel=3)
            self.count_plain(kernel, reason)
            return plain(*args, **kwargs)

    def launch(
        self,
        session: Session,
        kernel: JittedFunction,
        plain: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Launch the clone that the plan marks, or the kernel itself with probes in its code."""
        launches = self.launches_of(full_name(kernel), session)
        if launches is None:
            plan = self.way(kernel)
            check_level(plan, kernel)
            if not plan.afterwards:
                return self._launch_clone(plan, session, kernel, plain, args, kwargs)
            launches = self._begin(plan, session, kernel)
        return self._launch_patched(launches, session, kernel, plain, args, kwargs)

    def launches_of(self, name: str, session: Session) -> KernelLaunches | None:
        """Return the launches of a kernel with probes in its code; None where there were none."""
        launches = self._kernels.get(name)
        return launches if launches is not None and launches.session() is session else None

    def _launch_clone(
        self,
        plan: Plan,
        session: Session,
        kernel: JittedFunction,
        plain: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Launch the clone that ``plan`` marks."""
        label = kernel.__name__
        clone = clone_of(kernel, plan)
        launched = launch_shape(kernel, args, kwargs)
        kwargs = {**kwargs, "grid": launched["grid"]}  # a function is asked once, as without marks
        with deferred():
            named = {"kernel": full_name(kernel)}
            prof = current.buffer(session, label, {**launched, **named, **self.buffer})
        if prof is None:
            return plain(*args, **kwargs)
        try:
            made = clone.run(*args, **{**kwargs, PROF: prof})
        except BaseException:
            session.discard(prof)
            raise
        if plan.ttgir and not Path(plan.ttgir).exists() and hasattr(made, "asm"):
            by_hand.write(Path(plan.ttgir), by_hand.without_mark(made.asm["ttgir"]))
        self.recorded[label] += 1
        session.facts[f"marks in {label}"] = str(plan)
        return made

    def _launch_patched(
        self,
        launches: KernelLaunches,
        session: Session,
        kernel: JittedFunction,
        plain: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Launch the kernel as it was compiled, with probes in its machine code or its PTX.

        Raises:
            KernelError: the chosen code is not in it.
            PatchError: ikp can't insert probes into the compiler's output.
            CheckError: it failed the A/B check: it computes other results than the plain kernel.
        """
        here = wanted()
        here.launch = launch = NextLaunch(launches)
        try:
            made = plain(*args, **kwargs)
        finally:
            here.launch = None
        if not launch.reached:
            self.count_plain(kernel, "launched by another runtime than Triton's")
        if launch.recorded is not None:
            report(self, session, launches.label, launch.recorded)
        return made

    def _begin(self, plan: Plan, session: Session, kernel: JittedFunction) -> KernelLaunches:
        """Return the launches of a kernel in a session, of which there were none yet.

        Raises:
            PatchError: Triton launches otherwise than ikp knows.
        """
        from ikp.backends.triton.unedited import _machine_code as machine_code

        machine_code.need(plan)
        label, full, known = kernel.__name__, full_name(kernel), weakref.ref(session)

        def recorded() -> RecordedLaunch:
            taken: list[Any] = []

            def buffer(
                how: Plan,
                grid: tuple[int, int, int],
                warps: int,
                most: int | None,
                heeded: Selection,
            ) -> Any:
                if (session := known()) is None:
                    return None
                options = {**shape(grid, warps, most, heeded), "kernel": full, **self.buffer}
                prof = take_buffer(self, session, label, how, options)
                taken.extend([] if prof is None else [prof])
                return prof

            session = known()
            launch = RecordedLaunch(
                *(plan, Language.TRITON, buffer, chosen(self.buffer)),
                label=label,
                facts=None if session is None else session.facts,
                taken=taken,
                session=known,
            )
            if plan.level == BEST:
                launch.plan = at_level(plan, "machine")
                launch.otherwise = at_level(plan, "ptx")
            return launch

        made = KernelLaunches(known, label, kernel, recorded, self.recorded)
        self._kernels[full] = made
        return made
