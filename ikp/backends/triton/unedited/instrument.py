"""``ikp.instrument``: one kernel, marked without being edited."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any

from ikp.backends.triton.unedited import by_hand, foreign, operations
from ikp.backends.triton.unedited.launching import Launcher, tuning
from ikp.backends.triton.unedited.twins import as_kind, check, is_twin
from ikp.errors import UsageError
from ikp.profiling.profile import profile
from ikp.session.current import current
from ikp.unedited.plan import Plan, plan, span


def instrument(
    kernel: Any,
    *,
    detail: str | None = None,
    lines: str | Iterable[str] | None = None,
    level: str = "source",
    ttgir: str | PathLike[str] | None = None,
    launches: str | None = None,
    prof: profile | None = None,
    **buffer: Any,
) -> Any:
    """Return a kernel that launches as ``kernel`` does, with ranges that nobody wrote.

    Each launch inside an open session records into a buffer of its own, which is passed aside: the
    launch is written as before. Outside a session the kernel runs as it is::

        marked = ikp.instrument(matmul)
        with ikp.profile("matmul.pftrace") as prof:
            marked[grid](a, b, c, M, N, K, BLOCK=64)

    ``kernel`` stays as it is, and so does the code that is compiled for it.

    Args:
        kernel: a ``@triton.jit`` or ``@gluon.jit`` function, autotuned or with heuristics or not.
            An autotuner tries its configurations without marks.
        detail: "kernel" marks the kernel and warp-specialised partitions, "loops" also each loop
            and iteration, "ops" also each load, store, dot, copy, wait, barrier and call of a
            helper. None is "loops", or "kernel" where ``lines`` are chosen.
        lines: also mark these lines of the source: "88-96", "file.py:88-96", or several of them.
        level: "source" puts marks where the author wrote the operation, "scheduled" where the
            compiler's scheduling moved it.
        ttgir: a file of TritonGPU IR with records placed by hand, in place of all marks. Where it
            does not exist, a launch writes the kernel's IR there, to be edited: a line
            ``ikp.start "name"`` begins a range, ``ikp.end "name"`` ends it.
        launches: which launches to record, counted from 0: "3", "3:5", ":8". None is all.
        prof: the session that records; None takes the one that is open when the kernel is launched:
            this thread's or asyncio task's own; or else the main thread's.
        buffer: options of ``prof.buffer``: ``size``, ``warps``, ``blocks``, ``granularity``.

    Raises:
        UsageError: ``kernel`` is no Triton or Gluon kernel, or an option is unknown.
        KernelError: the kernel can't be marked: it calls ``ikp.init`` itself, or its source is not
            available. At a launch: the chosen lines hold none of its statements.
    """
    marks = plan(detail, lines, level)
    if ttgir is not None:
        marks = Plan(level="scheduled", ttgir=str(by_hand.checked(ttgir)))
    launcher = Launcher(
        marks,
        (lambda: prof) if prof is not None else current,
        span(launches),
        buffer,
    )
    return _with_inner(kernel, functools.partial(_recorded, launcher))


def _recorded(launcher: Launcher, kernel: Any) -> Any:
    if not foreign.fits(kernel):
        return kernel
    check(kernel)  # the rest is found at a launch: helpers may be defined, and globals set, later
    made = as_kind(kernel, _Recorded)
    made.ikp_kernel, made.ikp_launcher = kernel, launcher
    return made


class _Recorded:
    """What a kernel that records does otherwise than the one it was made of."""

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
    if is_twin(kernel) or isinstance(kernel, _Recorded):
        raise UsageError(f"{kernel.__name__} is marked already: mark the kernel it was made of.")
    if operations.is_jitted(kernel):
        return make(kernel)
    inner = getattr(kernel, "fn", None)
    if inner is None or not hasattr(kernel, "run"):
        raise UsageError(_not_a_kernel(kernel))
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


def _not_a_kernel(value: Any) -> str:
    what = f"{type(value).__module__}.{type(value).__qualname__}"
    if "cutlass" in str(getattr(value, "__module__", "")) + what or hasattr(value, "_dsl_cls"):
        return (
            "CuTe DSL kernels can't be marked from outside: their Python runs once, as the kernel "
            "is built, with control flow that CuTe rewrites itself. Write ikp.init(prof) and "
            "with ikp.range(name) into the kernel."
        )
    if inspect.isfunction(value):
        return (
            f"{value.__qualname__} is a plain Python function: ikp.instrument takes the kernel, "
            "marked @triton.jit or @gluon.jit."
        )
    return (
        f"ikp.instrument takes a kernel marked @triton.jit or @gluon.jit (autotuned or with "
        f"heuristics, too), not {what}."
    )
