"""A session's options, checked, and the backend, device and spec of each buffer that follow."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ikp import registry
from ikp.core import abi
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.overhead import Overhead
from ikp.core.segment import EVERYTHING, Selection, Spec
from ikp.driver import cuda, devices
from ikp.errors import BufferError, PluginError, UsageError
from ikp.plugins import Backend
from ikp.session import _foreign as foreign
from ikp.session.device import Device, device_of, torch_of_program
from ikp.session.known_launch import ask_device, now
from ikp.session.memory import DEFAULT_BYTES
from ikp.session.options import CLOCKS, OVERFLOWS
from ikp.session.replays import REPLAYS
from ikp.session.storage import drives_cuda, is_capturing


class Wishes:
    """The options of ``ikp.profile``, checked. Any thread may call its methods."""

    def __init__(
        self,
        *,
        clock: str = "cycles",
        mode: str = "timeline",
        overflow: str = "stop",
        buffer_size: int | None = None,
        device: Any = None,
        backend: str | None = None,
        schedule: bool = True,
        target_options: Mapping[str, bool] | None = None,
        deduct_overhead: object = False,
        replays: int = REPLAYS,
    ) -> None:
        self.clock: ClockKind = _choice(ClockKind, clock, "clock", CLOCKS)
        self.overflow: OverflowMode = _choice(OverflowMode, overflow, "overflow", OVERFLOWS)
        self.totals = _checked_mode(mode, overflow, self.clock) == "totals"
        self.schedule = schedule
        self.target_options = _checked_target_options(target_options)
        self.deduct = _checked_deduction(deduct_overhead, self.totals)
        self.buffer_size = buffer_size
        self.replays = _checked_replays(replays)
        self._device = device
        self._backend = backend
        self.backends: dict[str, Backend] = {}  # by name, those of buffers taken so far

    def use(self, backends: Iterable[str]) -> None:
        """Load backends by their names: a trace has their names of ranges.

        Raises:
            PluginError: one can't be loaded.
        """
        for name in backends:
            if name not in self.backends:
                self.backends[name] = registry.load(registry.BACKENDS, name)

    def settle(self, backend: str | None, device: Any, selection: Selection) -> Settled:
        """Return the settings of one buffer, whose own backend and device, if any, are given.

        Raises:
            PluginError: no kernel language is installed, or the backend can't be loaded.
            UsageError: it is no device, or the session's options don't work on it.
            BufferError: no kernel records there, or a CUDA graph is being captured.
        """
        ask_device()
        code = revision()
        name = self._backend if backend is None else backend
        if name is None:
            name = self._backend = _installed_backend()
        self.use([name])
        wish = self._device if device is None else device
        found = checked_device(self.backends[name].device_type() if wish is None else wish)
        named = wish is not None and device_of(wish).index is not None
        given = named or found.type == "cpu"
        if found.type == "cpu" and self.deduct:
            raise UsageError(
                "deduct_overhead takes out what recording costs on a GPU, and the buffer is on the "
                "CPU, where the interpreter itself takes most of the time. Leave deduct_overhead "
                "out."
            )
        spec = Spec(
            clock=self.clock,
            overflow=self.overflow,
            device=found.type,
            schedule=self.schedule,
            select=selection != EVERYTHING,
            totals=self.totals,
            target_options=self.target_options,
            revision=code,
        )
        return Settled(name, self.backends[name], found, spec, lasting(found, given=given))


def _checked_replays(wish: object) -> int:
    """Return how many replays of each CUDA graph are kept."""
    if isinstance(wish, bool) or not isinstance(wish, int) or not 0 <= wish < _MOST_REPLAYS:
        raise UsageError(
            f"replays={wish!r} can't be used: give how many replays of each CUDA graph are kept; "
            "0 keeps the last one."
        )
    return wish


_MOST_REPLAYS = 1 << 31


@dataclass(frozen=True, slots=True)
class Settled:
    """The settings of one buffer: backend, device, spec."""

    name: str  # of the backend
    backend: Backend
    device: Device
    spec: Spec
    holds: Callable[[], bool]
    """Whether a launch here and now would get the same; else they are to be settled anew."""


def lasting(device: Device, *, given: bool) -> Callable[[], bool]:
    """Return a function that says whether the settings of a buffer hold, here and now.

    Args:
        device: what they are for.
        given: whether the user named it; else it is the current one.
    """
    if device.type != "cuda":
        return lambda: True
    number, torch = device.index, torch_of_program()
    if torch is None:
        return lambda: now.device == number or (now.device < 0 and given)
    capturing, current = torch.cuda.is_current_stream_capturing, torch.cuda.current_device
    if (raw := foreign.current()) is not None:
        _, capturing = raw

    def holds() -> bool:
        if now.device >= 0:
            return given or now.device == number
        return (given or current() == number) and not capturing()

    return holds


def checked_device(wish: Any) -> Device:
    """Return the device that a buffer is to be on.

    Raises:
        UsageError: it is no device.
        BufferError: no kernel records there, or a CUDA graph is being captured.
    """
    device = device_of(wish)
    if device.type == "cpu":
        return device
    if device.type != "cuda":
        raise BufferError(f"no recording on device {device}: use a CUDA device or the CPU.")
    torch = torch_of_program()
    if torch is None:
        there, who = now.device >= 0 or devices.count() > 0, "the CUDA driver"
    else:
        there, who = bool(torch.cuda.is_available()), "torch"
    if not there:
        raise BufferError(
            f"no CUDA device for the buffer on {device}: {who} sees no GPU. Without one, "
            "run kernels in Triton's interpreter: set TRITON_INTERPRET=1 before importing "
            "triton."
        )
    if is_capturing(device):
        raise BufferError(
            "prof.buffer was called while a CUDA graph is being captured: take the buffer "
            "before the capture and pass it in."
        )
    return device if device.index is not None else Device("cuda", _current(torch))


def _current(torch: Any) -> int:
    """Return the number of the current GPU: of the launch, of torch, or of the driver."""
    if now.device >= 0:
        return now.device
    if torch is not None:
        return int(torch.cuda.current_device())
    return cuda.device() if cuda.context() else 0


@cache
def device_facts(device: Device) -> tuple[str, float]:
    """Return the device's name and advertised clock in Hz (0 where unknown).

    Cached: the driver takes most of a millisecond to report the clock, and each launch asks.
    """
    if device.type == "cpu":
        return "CPU", 0.0
    number = device.index or 0
    if drives_cuda():
        return f"{devices.name(number)} ({device})", devices.clock_rate_hz(number)
    import torch

    properties = torch.cuda.get_device_properties(str(device))
    return f"{properties.name} ({device})", getattr(properties, "clock_rate", 0) * 1e3


def _installed_backend() -> str:
    """Return the first of ikp's own backends whose language is installed.

    Buffers of any of these backends serve kernels of all of them.
    """
    from importlib.util import find_spec

    own, packages = registry.own(), registry.packages()
    for name in own:
        if own[name].languages and find_spec(packages[name]) is not None:
            return name
    installs: dict[str, list[str]] = {}
    for name, kind in own.items():
        if not kind.languages:
            continue
        pip = registry.remedy_for(registry.BACKENDS, name, packages[name])
        installs.setdefault(pip or "", []).extend(each.name for each in kind.languages)
    remedies = (f"{pip} ({' and '.join(languages)})" for pip, languages in installs.items())
    raise PluginError(f"no kernel language is installed. Do: {' or '.join(remedies)}.")


def _choice(kind: Any, value: str, name: str, allowed: tuple[str, ...]) -> Any:
    """Return the member of an enum that an option names."""
    if value not in allowed:
        raise UsageError(f"{name}={value!r} is unknown: use {_either(allowed)}.")
    return kind[value.upper()]


def _checked_mode(mode: object, overflow: str, clock: ClockKind) -> str:
    """Return a session's mode, if its other options go with it."""
    if mode not in DEFAULT_BYTES:
        raise UsageError(f"mode={mode!r} is unknown: use 'timeline' or 'totals'.")
    if mode == "totals" and overflow != "stop":
        raise UsageError(
            f"mode='totals' has nothing that overflow={overflow!r} could keep the latest of: a "
            "total is of all ranges of its region. Leave overflow out."
        )
    if mode == "totals" and clock.bits > abi.WORD_BITS:
        raise UsageError(
            f"mode='totals' adds up ranges shorter than 2**32 ticks each, in sums of 64 bits: "
            f"clock={clock.unit.name.lower()!r} does. For single ranges longer than that, leave "
            "mode out."
        )
    return str(mode)


def _checked_deduction(wish: object, totals: bool) -> bool | Overhead:
    """Return the overhead to deduct; refuse it without a timeline."""
    if not isinstance(wish, (bool, Overhead)):
        raise UsageError(
            f"deduct_overhead={wish!r} is unknown: use True, False, or what ikp.calibrate returned."
        )
    if wish and totals:
        raise UsageError(
            "mode='totals' has no timeline, and so no place at which overhead could be deducted. "
            "Leave deduct_overhead out, or mode."
        )
    return wish


def _checked_target_options(wish: object) -> tuple[tuple[str, bool], ...]:
    """Return the options for GPU targets, sorted, if an installed target has each."""
    if wish is None:
        return ()
    if not isinstance(wish, Mapping) or not all(isinstance(v, bool) for v in wish.values()):
        raise UsageError(f"target_options={wish!r}: give a dict from an option's name to a bool.")
    known = {name for each in registry.triton_targets() for name in each.options}
    if unknown := sorted(set(map(str, wish)) - known):
        raise UsageError(
            f"target_options has {', '.join(map(repr, unknown))}, and no installed package for "
            f"other GPUs has such an option (there are: {', '.join(sorted(known)) or 'none'}). "
            "Leave it out, or install the package of these GPUs (`ikp plugins` lists those there "
            "are)."
        )
    return tuple(sorted(wish.items()))


def _either(names: tuple[str, ...]) -> str:
    *first, last = map(repr, names)
    return f"{', '.join(first)} or {last}"


_SOURCES = (
    *("core/abi.py", "core/launch_fields.py", "core/regions.py"),
    *("verbs", "targets", "ptx", "backends", "unedited"),
)


@cache
def revision() -> str:
    """Return 12 hex digits of the SHA-256 of the sources that generate device code.

    Compile caches do not see this package: without it in the cache key, an upgraded (or edited)
    ikp would silently run the old machine code.
    """
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    sources = [root / source for source in _SOURCES]
    for path in [*sources, *registry.triton_target_folders()]:
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
