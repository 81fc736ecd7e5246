"""``facts_of_trace``: facts on the machine code of each launch label, for a trace's provenance.

A label's kernel must be found first.

A launch whose kernel was recorded in its machine code says where that lies. Of others, the kernels
that this process has loaded are known, and the names of the ranges in each: a launch is of the one
that has the names that it recorded. Where there are several, as of two specialisations, what they
agree on is kept, and of what bounds a time the bound that holds for each.

``CodeFacts`` of a cubin's kernels are cached on disk: a disassembler takes a second. There is a
file for each cubin and its names; who can't write it computes it again.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from ikp import caches, registry
from ikp.core.code_facts import FACTS, NO_FACTS, CodeFacts, RangeFacts, parse_facts
from ikp.core.regions import region_id
from ikp.core.run_figures import FAR, PARAMETERS, AddressFigures, read_addresses
from ikp.core.trace import Launch, Trace
from ikp.errors import IkpError
from ikp.inspection._images import kept_image, read_marks
from ikp.inspection.summary_of_code import code_facts
from ikp.paths import triton_cache
from ikp.plugins import Image
from ikp.probes.kept_code import KEPT
from ikp.sass.dataflow.lane_state import Shape
from ikp.signals import deferred, pass_on
from ikp.version import __version__


def cached_facts(
    image: Image, shape: Shape, figures: AddressFigures | None = None
) -> list[CodeFacts]:
    """Return what is known of an image's kernels; see ``code_facts``, which raises the same."""
    path, key = _place(image, shape, figures)
    known = _read(path, key)
    if known is None:
        known = list(code_facts(image, shape, figures).values())
        _write(path, key, known)
    return known


def _place(image: Image, shape: Shape, figures: AddressFigures | None) -> tuple[Path, bytes]:
    recorded = figures.text() if figures else ""
    said = f"{__version__}\0{image.shared}\0{shape}\0{recorded}\0{image.ptx}".encode()
    key = image.cubin + said
    name = hashlib.sha256(key).hexdigest()[:16]
    return triton_cache() / f"ikp-facts-{name}.json", key


def _read(path: Path, key: bytes) -> list[CodeFacts] | None:
    content = caches.kept(path, key)
    try:
        found = [parse_facts(text) for text in json.loads(content)] if content else [None]
    except (ValueError, TypeError):
        return None
    whole = [each for each in found if each is not None]
    return whole if len(whole) == len(found) else None


def _write(path: Path, key: bytes, facts: list[CodeFacts]) -> None:
    with suppress(OSError):
        caches.keep(path, key, json.dumps([each.text() for each in facts]).encode())


_THREADS: Final = re.compile(r"\.reqntid\s+(\d+)\s*(?:,\s*(\d+)\s*)?(?:,\s*(\d+)\s*)?")
"""Of a block, as a kernel's PTX fixes them, in each direction."""
_WARP: Final = 32
_PATIENCE: Final = 5.0
"""Seconds after which no further kernel is inspected: a session should end."""


def facts_of_trace(trace: Trace) -> dict[str, str]:
    """Return what to keep in a trace's provenance of the machine code of its launches.

    Nothing where there is no machine code; where it could not be read, why.
    """
    with deferred():
        return _facts_of_trace(trace, time.monotonic() + _PATIENCE)


def _facts_of_trace(trace: Trace, until: float) -> dict[str, str]:
    found: dict[str, str] = {}
    known: dict[str, Image] = {}
    for backend in registry.imported():
        try:
            known |= {each.origin: each for each in _loaded(backend)}  # Gluon's are Triton's, too
        except Exception as error:  # noqa: BLE001 - a backend may be anybody's
            pass_on(error)
            found[f"{NO_FACTS}all"] = f"{type(error).__name__}: {error}"
    recorded, loaded = _recorded(trace), list(known.values())
    warps: dict[str, set[int]] = {}
    shapes: dict[str, Shape] = {}
    for each in trace.launches:
        warps.setdefault(each.label, set()).add(each.warps_per_block)
        if each.label not in shapes:
            said = (trace.provenance.get(f"{name}{each.label}") for name in (PARAMETERS, FAR))
            shapes[each.label] = _shape(each, *said)
    answers: dict[object, tuple[str, str]] = {}  # thousands of labels may be of one kernel
    for label in sorted(recorded, key=_time_by_label(trace), reverse=True):
        kept = trace.provenance.get(f"{KEPT}{label}")
        figures = read_addresses(trace.provenance, label)
        asked = kept, frozenset(recorded[label]), frozenset(warps[label]), shapes[label], figures
        if asked not in answers:
            answers[asked] = _answer(trace, *asked, loaded, until)
        heading, text = answers[asked]
        if text:
            found[f"{heading}{label}"] = text
    return found


def _answer(
    trace: Trace,
    kept: str | None,
    names: frozenset[str],
    warps: frozenset[int],
    shape: Shape,
    figures: AddressFigures | None,
    loaded: list[Image],
    until: float,
) -> tuple[str, str]:
    """Return what is known of a label's code, or why nothing is: under which heading, and what."""
    try:
        fitting = [each for each in loaded if _fits(each, warps)] or loaded
        facts = _of_label(trace, kept, names, fitting, _Asked(shape, until, figures))
    except Exception as error:  # noqa: BLE001 - a trace goes before what is said of its code
        pass_on(error)
        return NO_FACTS, f"{type(error).__name__}: {error}"
    return FACTS, facts.text() if facts is not None else ""


@dataclass(frozen=True, slots=True)
class _Asked:
    """How the kernels that are inspected were launched, and the moment to give up."""

    shape: Shape
    until: float
    figures: AddressFigures | None = None  # of address probes


_MOST_WARPS: Final = 4
_BLOCKS: Final = 32
_SPREAD: Final = 15
"""Warps of a block whose addresses are computed, first blocks of a grid, and others: with the first
one they divide it by 16, so that what repeats with a dimension of data is seen."""
_ROWS: Final = 16
"""Rows of blocks whose first ones are looked at, too: they run at once where rows are short."""


def _shape(launch: Launch, parameters: str | None, far: str | None = None) -> Shape:
    """Return the shape of a launch, with as many of its warps as are looked at."""
    x, y, z = launch.block
    width, height, depth = launch.grid
    warps = max(min(launch.warps_per_block, _MOST_WARPS), 1)
    sizes = (max(x, 1), max(y, 1), max(z, 1)), (max(width, 1), max(height, 1), max(depth, 1))
    return Shape(*sizes, warps, _BLOCKS, _SPREAD, _ROWS, _arguments(parameters), _far(far))


def _arguments(text: str | None) -> tuple[tuple[int, bytes], ...]:
    """Return the values of parameters by their offset; nothing of a text that has none."""
    try:
        said = json.loads(text or "{}")
        return tuple((int(offset), bytes.fromhex(value)) for offset, value in said.items())
    except (ValueError, TypeError, AttributeError):
        return ()


def _far(text: str | None) -> tuple[tuple[int, int], ...]:
    """Return the base and the bytes of memory that is not the device's; nothing without a text."""
    try:
        return tuple((int(base), int(size)) for _, base, size in json.loads(text or "{}").values())
    except (ValueError, TypeError, AttributeError):
        return ()


def any_loaded() -> bool:
    """Return whether a language knows code of kernels that record; it is in this process alone."""
    return any(any(True for _ in _loaded(each)) for each in registry.imported())


def _loaded(backend: object) -> Iterable[Image]:
    """Return the machine code of kernels that record, as far as a language knows what it loaded."""
    known = getattr(backend, "loaded_images", None)
    return list(known()) if known is not None else []


def _time_by_label(trace: Trace) -> Callable[[str], int]:
    """Return what says how long warps ran in all launches of a label."""
    slots = trace.slots
    took = np.bincount(
        slots.launch, weights=slots.end_ns - slots.start_ns, minlength=len(trace.launches)
    )
    sums = Counter[str]()
    for launch, time_ns in zip(trace.launches, took.tolist(), strict=True):
        sums[launch.label] += int(time_ns)
    return sums.__getitem__


def _recorded(trace: Trace) -> dict[str, set[str]]:
    """Return the names of the regions that each label's launches recorded on a GPU."""
    first = trace.slots.launch.astype(np.int64) * len(trace.regions)
    seen = np.zeros(len(trace.launches) * len(trace.regions), np.bool_)
    seen[first[trace.events.slot] + trace.events.region] = True  # to sort a million takes longer
    found: dict[str, set[str]] = {}
    for pair in np.flatnonzero(seen).tolist():
        launch, region = divmod(pair, len(trace.regions))
        if trace.launches[launch].clock.kind != "host":
            label = trace.launches[launch].label
            found.setdefault(label, set()).add(trace.regions[region].name)
    return found


def _with_ranges(every: list[CodeFacts], names: frozenset[str]) -> list[CodeFacts]:
    """Return the facts with exactly the ranges that were recorded, else those with more."""
    exact = [each for each in every if {*each.ranges} == names]
    return exact or [each for each in every if names <= {*each.ranges}]


def _of_label(
    trace: Trace, kept: str | None, names: frozenset[str], loaded: list[Image], asked: _Asked
) -> CodeFacts | None:
    refused: list[IkpError] = []
    if kept is not None:
        found = list(_of_kept(trace, kept, asked, refused))
    else:
        every = list(_facts(_with_names(loaded, names), asked, refused))
        found = _with_ranges(every, names)
        refused = [] if every else refused
    if refused and not found:
        raise refused[0]
    return _agreed(found) if found else None


def _of_kept(
    trace: Trace, paths: str, asked: _Asked, refused: list[IkpError]
) -> Iterator[CodeFacts]:
    """Yield what is known of the machine code that launches say was theirs."""
    shown = {region.id: region.name for region in trace.regions}
    for path in paths.splitlines():
        for image in _kept(path):
            own = read_marks(image.ptx).kernel  # a trace may call it otherwise
            for each in _facts([image], asked, refused):
                name = shown.get(region_id(own), own) if own else own
                ranges = {name if key == own else key: one for key, one in each.ranges.items()}
                yield replace(each, ranges=ranges, kernel=name)


def _kept(path: str) -> Iterator[Image]:
    """Yield the machine code that was kept, if it was and is still there."""
    with suppress(OSError):
        yield kept_image(path)


def _with_names(loaded: list[Image], names: frozenset[str]) -> Iterator[Image]:
    for image in loaded:
        try:
            if names <= {*read_marks(image.ptx).names.values()}:
                yield image
        except IkpError:
            continue


def _fits(image: Image, warps: frozenset[int]) -> bool:
    """Return whether some launches may be of a kernel, by the warps of their blocks."""
    fixed = [math.prod(int(n or 1) for n in found) for found in _THREADS.findall(image.ptx)]
    return not fixed or any(-(-threads // _WARP) in warps for threads in fixed)


def _facts(some: Iterable[Image], asked: _Asked, refused: list[IkpError]) -> Iterator[CodeFacts]:
    """Yield what is known of some images; put into ``refused`` why nothing is of others."""
    for image in some:
        if time.monotonic() > asked.until:  # what a few say is not what all of them do
            raise TimeoutError(f"inspecting its kernels took over {_PATIENCE:.0f} s")
        try:
            yield from cached_facts(image, asked.shape, asked.figures)
        except IkpError as error:  # no disassembler, or a file that is not understood
            refused.append(error)


def _agreed(some: list[CodeFacts]) -> CodeFacts:
    """Return what all of some kernels have in common; of a range, all that have it."""
    first = some[0]
    names = dict.fromkeys(name for each in some for name in each.ranges)
    ranges = {
        name: _agreed_range([each.ranges[name] for each in some if name in each.ranges])
        for name in names
    }
    return CodeFacts(
        first.chip,
        _common(some, "registers"),
        _common(some, "shared"),
        all(each.all_products for each in some),
        ranges,
        len(some),
        _common(some, "plain_registers"),
        _lost_by_all(some),
        _common(some, "local_bytes"),
        _common(some, "spills"),
        _common(some, "static_shared"),
        _common(some, "register_limit"),
        first.loops if len(some) == 1 else (),
        _common(some, "kernel") or "",
        _common(some, "ahead"),
        _common(some, "halo") or 0.0,
    )


def _lost_by_all(some: list[CodeFacts]) -> tuple[str, ...]:
    """Return what is said of ranges that lost something in each kernel: any may have been launched.

    How much it is may differ, and where it went.
    """
    lost = [{_range_of(text) for text in each.lost} for each in some]
    every = dict.fromkeys(text for each in some for text in each.lost)
    shared = {_range_of(text): text for text in reversed(every) if _in_all(text, lost)}
    return tuple(reversed(shared.values())) if len(some) > 1 else tuple(every)


def _in_all(text: str, lost: list[set[str]]) -> bool:
    return all(_range_of(text) in each for each in lost)


def _range_of(text: str) -> str:
    """Return the name and the lines that a text on a range begins with."""
    return text.partition(" holds ")[0].partition(" is empty")[0]


def _agreed_range(some: list[RangeFacts]) -> RangeFacts:
    if all(each == some[0] for each in some):
        return some[0]
    return RangeFacts(
        _common(some, "activity") or "",
        _common(some, "flop"),
        _common(some, "bytes"),
        _most([each.shared for each in some]),
        _most([each.issue for each in some]),
        _common(some, "lane_bytes"),
        tuple(name for name in some[0].awaits if all(name in each.awaits for each in some)),
    )


def _common(some: Sequence[CodeFacts] | Sequence[RangeFacts], name: str) -> Any:
    """Return the fact of a name that all have in common, or None."""
    values = [getattr(each, name) for each in some]
    return values[0] if len(set(values)) == 1 else None


def _most(values: list[int | None]) -> int | None:
    """Return the largest; None where one is not known."""
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None
