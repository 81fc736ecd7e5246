"""What a session was asked for, and what follows from that for each of its buffers."""

from __future__ import annotations

from typing import Any

from ikp import plugins, registry
from ikp.core import abi
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.overhead import Overhead
from ikp.core.regions import merge
from ikp.core.segment import EVERYTHING, Selection, Spec
from ikp.errors import PluginError, UsageError
from ikp.session.device import checked_device, free_bytes
from ikp.session.memory import DEFAULT_BYTES, Room, inferred
from ikp.session.options import CLOCKS, OVERFLOWS


class Wishes:
    """The options of ``ikp.profile``, checked. Any thread may ask."""

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
        sched_barriers: bool = True,
        deduct_overhead: object = False,
    ) -> None:
        self.clock: ClockKind = _choice(ClockKind, clock, "clock", CLOCKS)
        self.overflow: OverflowMode = _choice(OverflowMode, overflow, "overflow", OVERFLOWS)
        self.totals = _checked_mode(mode, overflow, self.clock) == "totals"
        self.schedule, self.barriers = schedule, sched_barriers
        self.deduct = _checked_deduction(deduct_overhead, self.totals)
        self._buffer_size = buffer_size
        self._device = device
        self._backend = backend
        self._backends: dict[str, plugins.Backend] = {}

    def chosen_backend(self, wish: str | None) -> str:
        """Return which backend's kernels take a buffer.

        Raises:
            PluginError: no kernel language is installed.
        """
        if wish is None and self._backend is None:
            self._backend = _installed_backend()
        return wish or self._backend or ""

    def backend(self, name: str) -> plugins.Backend:
        """Return a backend, loaded once.

        Raises:
            PluginError: it can't be loaded.
        """
        if name not in self._backends:
            self._backends[name] = plugins.load(plugins.BACKENDS, name)
        return self._backends[name]

    def names(self) -> dict[int, str]:
        """Return the region names that the backends know, by id."""
        return merge(backend.names() for backend in tuple(self._backends.values()))

    def device(self, wish: Any, backend: str) -> Any:
        """Return the torch device that a buffer is to be on.

        Raises:
            UsageError: it is no device, or not one where the session's options can be met.
            BufferError: no kernel records there, or a CUDA graph is being captured.
        """
        wish = self._device if wish is None else wish
        if wish is None:
            wish = self.backend(backend).device_type()
        device = checked_device(wish)
        if device.type == "cpu" and self.deduct:
            raise UsageError(
                "deduct_overhead takes out what recording costs on a GPU, and the buffer is on the "
                "CPU, where the interpreter itself takes most of the time. Leave deduct_overhead "
                "out."
            )
        return device

    def spec(self, device: Any, selection: Selection) -> Spec:
        """Return what a kernel must know of its recording when it is compiled."""
        from ikp.session.revision import revision

        return Spec(
            clock=self.clock,
            overflow=self.overflow,
            device=device.type,
            schedule=self.schedule,
            barriers=self.barriers,
            select=selection != EVERYTHING,
            totals=self.totals,
            revision=revision(),
        )

    def size(self, spec: Spec, device: Any, chosen: Selection, room: Room) -> Any:
        """Return a buffer's size as it was given; else what suits the launch, or any."""
        slots = room.slots(chosen)
        size = self._buffer_size if room.size is None else room.size
        return inferred(spec, slots, lambda: free_bytes(device)) if size is None else size


def _installed_backend() -> str:
    """Return that of ikp's own backends which comes first among those whose language is installed.

    Buffers of each serve kernels of all of them.
    """
    from importlib.util import find_spec

    own, packages = registry.own(), registry.packages()
    for name in own:
        if find_spec(packages[name]) is not None:
            return name
    installs: dict[str, list[str]] = {}
    for name, kind in own.items():
        pip = registry.remedy_for(plugins.BACKENDS, name, packages[name])
        installs.setdefault(pip or "", []).extend(each.name for each in kind.languages)
    remedies = (f"{pip} ({' and '.join(languages)})" for pip, languages in installs.items())
    raise PluginError(f"no kernel language is installed. Do: {' or '.join(remedies)}.")


def _choice(kind: Any, value: str, name: str, allowed: tuple[str, ...]) -> Any:
    """Return the member of an enum that an option names."""
    if value not in allowed:
        raise UsageError(f"{name}={value!r} is unknown: use {_either(allowed)}.")
    return kind[value.upper()]


def _checked_mode(mode: object, overflow: str, clock: ClockKind) -> str:
    """Return what a session keeps, if its other options go with that."""
    if mode not in DEFAULT_BYTES:
        raise UsageError(f"mode={mode!r} is unknown: use 'timeline' or 'totals'.")
    if mode == "totals" and overflow == "wrap":
        raise UsageError(
            "mode='totals' has nothing that overflow='wrap' could keep the latest of: a total is "
            "of all ranges of its region. Leave overflow out."
        )
    if mode == "totals" and clock.bits > abi.WORD_BITS:
        raise UsageError(
            f"mode='totals' adds up ranges shorter than 2**32 ticks each, in sums of 64 bits: "
            f"clock={clock.unit.name.lower()!r} does. For single ranges longer than that, leave "
            "mode out."
        )
    return str(mode)


def _checked_deduction(wish: object, totals: bool) -> bool | Overhead:
    """Return what is to be deducted, if there is a timeline from which it can be."""
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


def _either(names: tuple[str, ...]) -> str:
    *first, last = map(repr, names)
    return f"{', '.join(first)} or {last}"
