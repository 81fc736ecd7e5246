"""Further runs of a recorded launch's kernel, on copies of its memory: with probes, or without."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ikp.backends.addressed import probe_addresses
from ikp.backends.checked import Launched
from ikp.backends.tried import try_suspects

if TYPE_CHECKING:
    from ikp.backends.loaded import Module
    from ikp.backends.patched import Launch


def run_further(
    module: Module,
    stream: int,
    prof: Any,
    launch: Launch,
    ptx: Callable[[], str],
    shown: str,
    launched: Callable[[], Launched],
) -> None:
    """Make the runs that a launch's plan asks for, and keep in the launch what they found.

    Args:
        module: the patched kernel that is launched.
        stream: the driver's handle.
        prof: the buffer of the launch's records.
        launch: the launch.
        ptx: returns the plain kernel's PTX, "" if not known.
        shown: the kernel's name in traces, where that is not its symbol.
        launched: returns the launch of the plain kernel.
    """
    plan = launch.plan
    if plan.probe:
        launch.addresses = probe_addresses(module, stream, prof, plan, ptx(), shown, launched)
    if plan.tries:
        launch.tried = try_suspects(module, stream, prof, plan.tries, shown, launched)
