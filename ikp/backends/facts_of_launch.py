"""Facts of a recorded launch, added to its trace: check, addresses, kept code, far parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from ikp.backends.patched import RecordedLaunch
from ikp.core.code_facts import CARVE_OUT, FAR, PARAMETERS
from ikp.core.run_figures import (
    ADDRESSES,
    NO_ADDRESSES,
    NOT_TRIED,
    TRIED,
    AddressFigures,
    TriedSuspects,
)
from ikp.driver import cuda_functions, cuda_memory
from ikp.probes.kept_code import KEPT
from ikp.session.current import Session


def add_facts(session: Session, label: str, launch: RecordedLaunch) -> None:
    """Add the facts on a patched kernel to its trace: check, addresses, kept code, choices.

    Args:
        session: the session that records it.
        label: the kernel's.
        launch: the launch with the patch.
    """
    if launch.verdict is not None:
        _add(session, f"check of {label}", launch.verdict.text)
    if isinstance(launch.addresses, AddressFigures):
        session.facts.setdefault(f"{ADDRESSES}{label}", launch.addresses.text())
    elif launch.addresses is not None:
        session.facts.setdefault(f"{NO_ADDRESSES}{label}", launch.addresses)
    if isinstance(launch.tried, TriedSuspects):
        session.facts.setdefault(f"{TRIED}{label}", launch.tried.text())
    elif launch.tried is not None:
        session.facts.setdefault(f"{NOT_TRIED}{label}", launch.tried)
    if launch.patch is not None and launch.patch.kept:
        _add(session, f"{KEPT}{label}", launch.patch.kept)
    if launch.patch is not None and launch.patch.messages:
        session.facts[f"chosen in {label}"] = "\n".join(launch.patch.messages)


def add_arguments(
    launch: RecordedLaunch, values: Callable[[], str], function: int | None = None
) -> None:
    """Add the arguments of a session's first recorded launch of a label to the trace's facts.

    The driver is asked now whose memory they point to: before the launch, while the program still
    holds it. An address is given out again, often as memory of another kind.

    Args:
        launch: it is about to be made.
        values: returns the values of its parameters; see ``PARAMETERS``.
        function: the plain function, where its program may have set a carve-out for it.
    """
    facts, key = launch.facts, f"{PARAMETERS}{launch.label}"
    if facts is None or key in facts:
        return
    facts[key] = values()
    facts[f"{FAR}{launch.label}"] = _far_memory(facts[key])
    if function is not None and (percent := cuda_functions.carve_out(function)) >= 0:
        facts[f"{CARVE_OUT}{launch.label}"] = str(percent)


_POINTER: Final = 8
"""Bytes of a parameter that may be a pointer."""


def _far_memory(parameters: str) -> str:
    """Return which parameters point to memory of the host or of another GPU; see ``FAR``."""
    found = {}
    for offset, text in json.loads(parameters).items():
        value = bytes.fromhex(text)
        if len(value) == _POINTER and any(value):
            far = cuda_memory.far_memory(int.from_bytes(value, "little"))
            if far is not None:
                found[offset] = far
    return json.dumps(found)


def _add(session: Session, key: str, text: str) -> None:
    """Add a line to a fact of the trace, once: each of a kernel's specialisations adds its own."""
    if session.facts.get(key) == text:
        return
    known = session.facts.get(key, "").splitlines()
    session.facts[key] = "\n".join(dict.fromkeys([*known, text]))
