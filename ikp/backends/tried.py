"""Bounds that are tried: a kernel is timed without its suspects, on copies of a launch's memory."""

from __future__ import annotations

import statistics
import struct
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ikp.backends.checked import Launched
from ikp.backends.reached import Reached, reached
from ikp.backends.run_once import run_once, zeros
from ikp.checking.check import run_apart
from ikp.checking.messages import Timed
from ikp.checking.request import Code, Request, packed
from ikp.core.tried_suspects import TriedSuspect, TriedSuspects

if TYPE_CHECKING:
    from ikp.backends.loaded import Module
    from ikp.probes.suspects import Trial

_ROUNDS: Final = 15
_NS: Final = 1e9


def try_suspects(
    module: Module,
    stream: int,
    prof: Any,
    most: int,
    shown: str,
    launched: Callable[[], Launched],
) -> TriedSuspects | str | None:
    """Time a launch's kernel without its suspects, once for each module, in another process.

    Args:
        module: the patched kernel that is launched.
        stream: the driver's handle.
        prof: the buffer of the launch's records.
        most: how many suspects are tried.
        shown: the kernel's name in traces, where that is not its symbol.
        launched: returns the launch of the plain kernel.

    Returns:
        The times; why there are none; None where an earlier launch of the kernel was tried.
    """

    def run(launch: Launched) -> TriedSuspects:
        return _tried(launch, prof, most)

    return run_once(module, "suspects", stream, shown, launched, run)


def _tried(launch: Launched, prof: Any, most: int) -> TriedSuspects:
    from ikp.probes.suspects import trials

    found = reached(launch.values, launch.variables, prof.address, launch.names)
    made, count = trials(launch.cubin, launch.name, launch.shape.block, most)
    return TriedSuspects(count, tuple(_one(launch, found, each) for each in made))


def _one(launch: Launched, found: Reached, trial: Trial) -> TriedSuspect:
    """Return one suspect's times, or why there are none."""
    from ikp.probes.code.entry_code import CELL
    from ikp.probes.suspects import LINE_BYTES, REDIRECTED

    suspect = trial.suspect
    untimed = TriedSuspect(
        suspect.kind, suspect.line, len(suspect.members), trial.how, trial.refused
    )
    if trial.refused:
        return untimed
    plain = Code(launch.cubin, *packed(launch.values), launch.constants)
    redirected = trial.how == REDIRECTED
    with zeros(LINE_BYTES) if redirected else nullcontext() as line:
        constants = dict(launch.constants)
        if line is not None:
            constants[CELL] = struct.pack("<QII", line.address, 0, 0)
        other = replace(plain, cubin=trial.cubin, constants=constants)
        beside = (*([] if line is None else [line]), *found.scratch)
        request = Request(
            *(launch.name, launch.shape, plain, other, found.written, beside), rounds=_ROUNDS
        )
        answer, _ = run_apart(request)
    if not isinstance(answer, Timed):
        return replace(untimed, refused=f"{answer.text}.")
    gains = [1 - b / a for a, b in zip(answer.plain, answer.other, strict=True)]
    quartiles = statistics.quantiles(gains, n=4)
    return replace(
        untimed,
        plain_ns=round(_NS * statistics.median(answer.plain), 1),
        tried_ns=round(_NS * statistics.median(answer.other), 1),
        gain=round(statistics.median(gains), 4),
        spread=round((quartiles[2] - quartiles[0]) / 2, 4),
    )
