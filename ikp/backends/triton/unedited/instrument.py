"""``mark``: ``ikp.instrument`` of a jitted function, as a copy that records its launches."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ikp.backends.triton.unedited import _by_hand as by_hand
from ikp.backends.triton.unedited import _foreign as foreign
from ikp.backends.triton.unedited import _operations as operations
from ikp.backends.triton.unedited._clones import as_kind, check, is_clone
from ikp.backends.triton.unedited._launching import Launcher
from ikp.backends.triton.unedited._reasons import tuning
from ikp.errors import UsageError
from ikp.profiling.instrument import not_a_kernel
from ikp.profiling.profile import profile
from ikp.unedited.plan import Plan


def mark(
    kernel: Any,
    plan: Plan,
    launches: range,
    session: Callable[[], profile | None],
    buffer: Mapping[str, Any],
) -> Any:
    """Return a recording copy of a jitted function, or of one in wrappers; None of other objects.

    Raises:
        UsageError: the wrappers have no jitted function inside, or an option is wrong.
        KernelError: the kernel can't be marked.
    """
    if plan.ttgir:
        plan = replace(plan, ttgir=str(by_hand.checked(plan.ttgir)))
    wraps = getattr(kernel, "fn", None) is not None and hasattr(kernel, "run")
    if not wraps and not operations.is_jitted(kernel) and not isinstance(kernel, _Recorded):
        return None
    options = dict(buffer)
    if isinstance(warps := options.get("warps"), Iterator):  # each launch reads them
        options["warps"] = [*warps]
    launcher = Launcher(plan, session, launches, options)
    return _with_inner(kernel, functools.partial(_recorded, launcher))


def _recorded(launcher: Launcher, kernel: Any) -> Any:
    if not foreign.fits(kernel):
        return kernel
    if not launcher.plan.ranges:  # else the kernel calls ikp.init itself, and gets no buffer
        check(
            kernel
        )  # the rest is found at a launch: helpers may be defined, and globals set, later
    made = as_kind(kernel, _Recorded)
    made.ikp_kernel, made.ikp_launcher = kernel, launcher
    return made


class _Recorded:
    """The methods of a recording copy that differ from the kernel's."""

    __name__: str
    ikp_kernel: Any
    ikp_launcher: Launcher

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch the marked kernel where a session is open."""
        return self.ikp_launcher.run(self.ikp_kernel, self.ikp_kernel.run, *args, **kwargs)

    def __hash__(self) -> int:
        return hash(self.ikp_kernel)


def _with_inner(kernel: Any, make: Callable[[Any], Any]) -> Any:
    """Return a copy of a kernel, and of the wrappers around it, with the jitted function replaced.

    Raises:
        UsageError: there is none.
    """
    if is_clone(kernel) or isinstance(kernel, _Recorded):
        raise UsageError(f"{kernel.__name__} is marked already: mark the kernel it was made of.")
    if operations.is_jitted(kernel):
        return make(kernel)
    inner = getattr(kernel, "fn", None)
    if inner is None or not hasattr(kernel, "run"):
        raise not_a_kernel(kernel)
    wrapper = copy.copy(kernel)
    wrapper.fn = _with_inner(inner, make)
    foreign.quieted(wrapper, _quiet)
    return wrapper


def _quiet(bench: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(bench)
    def benched(*args: Any, **kwargs: Any) -> Any:
        with tuning():
            return bench(*args, **kwargs)

    return benched
