"""The door: all that a package of your own uses to add a language or a file format to ikp.

A plugin is a class, named by an entry point (docs/plugins.md). It imports from here alone: the
protocols that ikp asks, and what else is exported below, stay as they are until ``INTERFACE``
changes. Importing this module loads nothing but the standard library; each name that comes from
elsewhere is loaded when it is first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from ikp.errors import (
    BufferError,
    DecodeError,
    ExportError,
    IkpError,
    IkpWarning,
    InspectError,
    KernelError,
    PluginError,
    RegionError,
    UsageError,
)
from ikp.registry import BACKENDS, EXPORTERS, INTERFACE, LANGUAGES, load, names

if TYPE_CHECKING:
    from ikp.core import abi
    from ikp.core.regions import checked_name, merge, region_id
    from ikp.core.segment import Segment, Selection, Spec
    from ikp.core.trace import Trace
    from ikp.targets import ptx, ptx_slot, ptx_totals
    from ikp.unedited.plan import Plan
    from ikp.verbs.dsl import (
        Dsl,
        OpenRange,
        Payload,
        Place,
        Region,
        Unrecorded,
        constant_payload,
        constant_region,
        describe_context,
        init_twice,
        intern,
        known,
        never_closed,
        no_init,
        not_a_buffer,
        not_a_payload,
        not_a_region,
        placed,
    )
    from ikp.verbs.inline_ptx import PtxRecorder
    from ikp.verbs.off import Off

__all__ = [
    "BACKENDS",
    "EXPORTERS",
    "INTERFACE",
    "LANGUAGES",
    "Backend",
    "BufferError",
    "DecodeError",
    "Dsl",
    "ExportError",
    "Exporter",
    "IkpError",
    "IkpWarning",
    "Image",
    "InspectError",
    "KernelError",
    "Language",
    "Off",
    "OpenRange",
    "Payload",
    "Place",
    "Plan",
    "PluginError",
    "PtxRecorder",
    "Region",
    "RegionError",
    "Segment",
    "Selection",
    "Spec",
    "Trace",
    "Unrecorded",
    "UsageError",
    "abi",
    "checked_name",
    "constant_payload",
    "constant_region",
    "describe_context",
    "init_twice",
    "intern",
    "known",
    "load",
    "merge",
    "names",
    "never_closed",
    "no_init",
    "not_a_buffer",
    "not_a_payload",
    "not_a_region",
    "placed",
    "ptx",
    "ptx_slot",
    "ptx_totals",
    "region_id",
]

_MODULES = {
    "abi": "ikp.core.abi",
    "ptx": "ikp.targets.ptx",
    "ptx_slot": "ikp.targets.ptx_slot",
    "ptx_totals": "ikp.targets.ptx_totals",
}
_HOMES = {
    "ikp.core.regions": "checked_name merge region_id",
    "ikp.core.segment": "Segment Selection Spec",
    "ikp.core.trace": "Trace",
    "ikp.unedited.plan": "Plan",
    "ikp.verbs.dsl": (
        "Dsl OpenRange Payload Place Region Unrecorded constant_payload constant_region "
        "describe_context init_twice intern known never_closed no_init not_a_buffer not_a_payload "
        "not_a_region placed"
    ),
    "ikp.verbs.inline_ptx": "PtxRecorder",
    "ikp.verbs.off": "Off",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ikp.plugins' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


@dataclass(frozen=True, slots=True)
class Language:
    """A kernel language, as messages speak of it."""

    name: str  # "Triton"
    mark: str = ""  # what makes a Python function a kernel: "@triton.jit"
    compiled: str = ""  # what returns a compiled kernel: "Triton's kernel[grid](...)"


@dataclass(frozen=True, slots=True)
class Image:
    """The machine code of one compiled module, for ``ikp.inspect``."""

    cubin: bytes
    ptx: str  # "" where there is none: then names are not known
    origin: str
    notes: tuple[str, ...] = ()
    shared: int | None = None  # bytes that a launch gives each block; None where nothing says it


@runtime_checkable
class Backend(Protocol):
    """The verbs for a kernel language, as the host sees them; interface 2.

    The entry point names the class. It must be importable without the language. What is asked of
    the class, ``adapter`` and the optional functions below, is asked only in programs that have
    imported the language's package, and makes no instance. Sessions make one: that is where to
    import the language, and to refuse with an ImportError where it is not installed.

    A backend may also have these, as static or class methods:

    - ``image(kernel) -> Image | None``: the machine code of a compiled kernel, for ``ikp.inspect``;
      None for what is no kernel of this language.
    - ``loaded_images() -> Iterable[Image]``: the machine code of the kernels with records that this
      process has loaded, of which traces keep in short what their ranges hold.
    - ``mark(kernel, plan, launches=, session=, buffer=)``: what ``ikp.instrument`` returns; None
      for what is no kernel of this language. ``plan`` is a ``Plan``, ``launches`` a range,
      ``session`` returns the session that records, ``buffer`` are options of ``prof.buffer``.

    A method raises what ikp's own do: a class of ``ikp.errors`` that says what to do.
    """

    interface: ClassVar[int]  # a literal 2: ``INTERFACE`` would claim to fit every version
    languages: ClassVar[tuple[Language, ...]]
    # Optional: ``distribution``, what pip calls the language's package, where that has another name

    @staticmethod
    def adapter(semantic: Any, verb: str) -> Dsl | None:
        """Return what the verbs ask, if code of this language calls a verb right now.

        Asked for each call of a verb, in the thread that calls it, until a backend answers. One
        that extends another backend's class is asked before that. An ``Off`` is a guess: it is
        taken where nobody answers with more.

        Args:
            semantic: what the caller handed the verb as ``_semantic``, as Triton and what extends
                it do; None elsewhere. Answer to your own alone.
            verb: its name, for messages.

        Raises:
            KernelError: it is this language's code, and verbs can't stand there.
        """

    def device_type(self) -> str:
        """Return where kernels launched now run: ``"cuda"``, or ``"cpu"``."""

    def argument(self, segment: Segment) -> Any:
        """Return what a kernel of this language takes as its ``prof`` argument.

        Its attribute ``data`` is the segment's, so that this is held as long as a launch may use
        it. None where the kernel can't record; the backend has said why.
        """

    def names(self) -> Mapping[int, str]:
        """Return the region names known from kernels traced or loaded so far, by region id."""


@runtime_checkable
class Exporter(Protocol):
    """Writes traces in one file format. An instance of the class named by the entry point.

    One that writes totals, too, has ``totals = True``; others are asked for events alone. One that
    has a method ``prepare()`` is asked to import what it writes with before kernels run; with
    ``packages``, a tuple of the names of those that this imports parts of, ``ikp run`` imports
    these as it enters a program, and asks for the rest at the first launch. One that
    has a method ``read(path)`` returns what it wrote; ``ikp.load`` makes that an ``ikp.Trace``.
    Traces are columns here, those of ``ikp.core.trace``: all that a format needs.
    """

    interface: int
    suffixes: tuple[str, ...]  # (".pftrace",)

    def write(self, trace: Trace, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write ``trace`` to ``path``; raise ExportError if it exists and ``force`` is false."""
