"""The A/B check of a launch, patched and plain, and the facts of the launch that its trace gets.

In the check, patched and plain kernel run in another process, and their results are compared.
"""

from __future__ import annotations

import json
import struct
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ikp.backends.loaded import Module
from ikp.backends.patched import Counts, RecordedLaunch, drop_buffer
from ikp.backends.reached import reached
from ikp.checking.comparison import Buffer, CheckResult
from ikp.checking.messages import KernelForm, LaunchConfiguration, Request, packed
from ikp.checking.process import check
from ikp.core.run_figures import (
    ADDRESSES,
    CARVE_OUT,
    FAR,
    NO_ADDRESSES,
    NOT_TRIED,
    PARAMETERS,
    TRIED,
    AddressFigures,
    TriedSuspects,
)
from ikp.driver import cuda, cuda_functions, cuda_memory
from ikp.errors import CheckError, PatchError
from ikp.probes.kept_code import KEPT
from ikp.session.current import Session
from ikp.session.segment_sources import ends_within

REFUSED = "fail the check (--check)"
"""The reason that later launches of a kernel run plain, after one has failed the check."""
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class PlainLaunch:
    """A launch of a plain kernel."""

    name: str  # as the compiler wrote it
    cubin: bytes  # its variables are those of the program's own module, if there are any
    shape: LaunchConfiguration
    values: Sequence[tuple[int, bytes]]  # of parameters: the offset of each, and its bytes
    variables: Sequence[tuple[str, int, int]] = ()  # of its module: names, addresses and bytes
    constants: Mapping[str, bytes] = field(default_factory=dict)  # of its module
    names: Mapping[int, str] = field(default_factory=dict)  # of arguments, by their addresses


def checked(
    module: Module,
    stream: int,
    prof: Any,
    words: Sequence[int],
    launched: Callable[[], PlainLaunch],
    session: weakref.ref[Session] | None = None,
) -> CheckResult | None:
    """Compare a kernel with probes with the plain one, once for each module in a session.

    Nothing is launched in this process: the caller launches the kernel that the verdict allows.

    Args:
        module: the patched kernel.
        stream: the driver's handle.
        prof: the buffer that it records into.
        words: the launch parameters with the buffer's address.
        launched: returns the launch of the plain kernel.
        session: the one that records the launch. A later session's trace has a check of its own.

    Returns:
        The check's verdict; None where an earlier launch was compared, and the kernel may run.
    """
    run = "check", session
    if module.refused is not None or run in module.further:
        return module.refused
    if cuda.capturing(stream):
        return CheckResult("not checked: a CUDA graph captures its launch")
    module.further.add(run)
    try:
        wait_for_earlier(_PATIENCE_S)
        verdict = check(_request(module, prof, words, launched()))
    except PatchError as error:
        return CheckResult(f"not checked: {error}")
    module.refused = verdict if verdict.refused else None
    return verdict


def wait_for_earlier(patience: float = _PATIENCE_S) -> None:
    """Wait for earlier launches, which may be waiting for the launch that comes next.

    Args:
        patience: for how many seconds.

    Raises:
        PatchError: one failed, or has not ended in time.
    """
    context = cuda.context()

    def wait() -> None:
        cuda.use(context)
        cuda.wait()

    if not ends_within(patience, wait):
        raise PatchError(f"what was launched before it has not ended in {patience:g} s.")


def _request(module: Module, prof: Any, words: Sequence[int], launch: PlainLaunch) -> Request:
    found = reached(launch.values, launch.variables, prof.address, launch.names)
    plain = KernelForm(launch.cubin, *packed(launch.values), launch.constants)
    recorded = replace(plain, cubin=module.patch.cubin)
    value = struct.pack(f"<{len(words)}Q", *words)
    if (argument := module.patch.argument) is not None:
        recorded = recorded.with_argument(argument.offset, value.ljust(argument.size, b"\0"))
    else:
        from ikp.probes.code.entry_code import CELL

        recorded = replace(recorded, constants={**launch.constants, CELL: value})
    records = Buffer("records", prof.address, int(prof.data.numel()))
    shape, name = launch.shape, launch.name
    return Request(name, shape, plain, recorded, found.written, (records, *found.scratch))


def report(counts: Counts, session: Session, label: str, launch: RecordedLaunch) -> None:
    """Add a patched kernel's facts to its trace; forget its launch where it failed the check.

    Args:
        counts: the counter of launches that it is in.
        session: the session that recorded it.
        label: the kernel's.
        launch: it, with its patch, its buffer first in ``taken``.

    Raises:
        CheckError: it failed the check.
    """
    add_facts(session, label, launch)
    if launch.verdict is None or not launch.verdict.refused:
        return
    drop_buffer(counts, session, label, launch.taken[0])
    raise CheckError(
        f"{label} fails the check: {launch.verdict.text}. It runs plain, and nothing was recorded "
        "of it. Please report it, with the kernel's cubin."
    )


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
