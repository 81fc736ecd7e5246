"""The public interface for plugins: the protocols of what a plugin adds, and helpers.

A plugin adds a kernel language, GPUs or a file format. It is a class, named by an entry point
(docs/plugins.md). It imports from this module alone: the protocols, and all other names exported
below, stay as they are until ``INTERFACE`` changes. Importing this module loads only the standard
library; each name of another module is loaded when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
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
from ikp.registry import BACKENDS, EXPORTERS, INTERFACE, LANGUAGES, TARGETS, load, names

if TYPE_CHECKING:
    from ikp.core import abi, launch_fields
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
    "TARGETS",
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
    "TritonTarget",
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
    "launch_fields",
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
    "launch_fields": "ikp.core.launch_fields",
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
    """A kernel language: its name, and its words for messages."""

    name: str  # "Triton"
    mark: str = ""  # the decorator of a kernel: "@triton.jit"
    compiled: str = ""  # the call that returns a compiled kernel: "Triton's kernel[grid](...)"


@dataclass(frozen=True, slots=True)
class Image:
    """The machine code of one compiled module, for ``ikp.inspect``."""

    cubin: bytes
    ptx: str  # "" if there is none: then names are not known
    origin: str
    notes: tuple[str, ...] = ()
    shared: int | None = None  # dynamic bytes that a launch gives each block; None if not known


@runtime_checkable
class Backend(Protocol):
    """The verbs for a kernel language, as the host sees them; interface 2.

    The entry point names the class. It must be importable without the language. ``adapter`` and the
    optional functions below are called on the class, only in programs that have imported the
    language's package, and without an instance. Sessions make an instance: its ``__init__`` is to
    import the language, and to raise an ImportError if it is not installed.

    A backend may also have these, as static or class methods:

    - ``image(kernel) -> Image | None``: the machine code of a compiled kernel, for ``ikp.inspect``;
      None if it is no kernel of this language.
    - ``loaded_images() -> Iterable[Image]``: the machine code of the kernels with records that this
      process has loaded; traces keep the code facts of their ranges.
    - ``mark(kernel, plan, launches=, session=, buffer=)``: the result of ``ikp.instrument``; None
      if it is no kernel of this language. ``plan`` is a ``Plan``, ``launches`` a range,
      ``session`` returns the session that records, ``buffer`` are options of ``prof.buffer``.

    A method raises an error of ``ikp.errors`` whose message says what to do, as ikp's own do.
    """

    interface: ClassVar[int]  # a literal 2: ``INTERFACE`` would claim to fit every version
    languages: ClassVar[tuple[Language, ...]]
    # Optional: ``distribution``, what pip calls the language's package, where that has another name

    @staticmethod
    def adapter(semantic: Any, verb: str) -> Dsl | None:
        """Return the verbs' adapter, if code of this language calls a verb now; else None.

        Called for each call of a verb, in the thread that calls it, until a backend returns one. A
        backend that extends another's class is asked before that. An ``Off`` is a guess: it is
        taken if no other backend returns an adapter.

        Args:
            semantic: the verb's ``_semantic``, as Triton and languages on top of it pass it; None
                elsewhere. Return an adapter only for your own language's.
            verb: its name, for messages.

        Raises:
            KernelError: it is this language's code, and can't have verbs there.
        """

    def device_type(self) -> str:
        """Return the device type of kernels launched now: ``"cuda"``, or ``"cpu"``."""

    def argument(self, segment: Segment) -> Any:
        """Return the ``prof`` argument of a kernel of this language.

        Its attribute ``data`` is the segment's tensor, so that this is held as long as a launch may
        use it. None if the kernel can't record; the backend has warned why.
        """

    def names(self) -> Mapping[int, str]:
        """Return the region names known from kernels traced or loaded so far, by region id."""


@runtime_checkable
class TritonTarget(Protocol):
    """The verbs for other GPUs than NVIDIA's, which Triton and Gluon compile for; interface 2.

    The entry point has the name that Triton has for its backend (``options.backend_name``), and
    names the class, of which no instance is made. It must be importable without Triton. Verbs are
    inline assembly: code that a GPU runs, or marks, for which ``hook_on`` sets code later.

    Operands come in the order that is given here, each in 32 bits but addresses; those in brackets
    only where the record has them. The result of ``start`` is the start word of a range. An
    operand ``tag`` is the record's first word, where its region is known at run time alone;
    ``where`` and ``index`` are those of the verb. All comments must be in the text of the last
    stage, behind ``// ikp.store ``, ``; ikp.role `` and so on: ikp reads names of regions from it.
    """

    interface: ClassVar[int]
    gpus: ClassVar[str]  # what messages call them
    stages: ClassVar[tuple[str, ...]]  # of Triton's compiler, that hook_on wraps; the last is text
    options: ClassVar[Mapping[str, bool]]  # of ikp.profile(target_options=...), with defaults

    @staticmethod
    def checked(spec: Spec, arch: str) -> Spec:
        """Return the spec, if a kernel for Triton's ``arch`` can record like that.

        Raises:
            KernelError: it can't.
        """

    @staticmethod
    def init(spec: Spec, language: abi.Language) -> ptx.Asm:
        """Operands: the segment's address, bytes for slots (u32; 0 turns recording off)."""

    @staticmethod
    def start(comment: str) -> ptx.Asm:
        """Read the clock. No operands; the result is the start word."""

    @staticmethod
    def end(record: ptx.RecordCode) -> ptx.Asm:
        """Store one range. Operands: [tag], start word, payload, [where], [index]."""

    @staticmethod
    def instant(record: ptx.RecordCode) -> ptx.Asm:
        """Store one instant. Operands: [tag], payload, [where], [index]."""

    @staticmethod
    def role(number: int, comment: str) -> ptx.Asm:
        """Write the id of the role's name to the slot header. No operands."""

    @staticmethod
    def whole(comment: str) -> ptx.Asm:
        """Have the kernel's finish record a range that began where ``init`` did. No operands."""

    @staticmethod
    def finish() -> ptx.Asm:
        """Write the counts and the second clock anchor; at each exit of the kernel. No operands."""

    @staticmethod
    def hook_on(stages: MutableMapping[str, Callable[..., Any]]) -> None:
        """Wrap functions of ``stages``, one compilation's, by name; of kernels without verbs, too.

        Their errors end the compilation: raise KernelError.
        """


@runtime_checkable
class Exporter(Protocol):
    """A writer of traces in one file format: an instance of the class named by the entry point.

    An exporter that writes totals, too, has ``totals = True``; others get traces of events alone. A
    method ``prepare()``, if it has one, imports its packages before kernels run. ``packages``, if
    it has them, is a tuple of the packages that ``prepare`` imports parts of: ``ikp run`` imports
    these as it enters a program, and calls ``prepare`` at the first launch. A method
    ``read(path)``, if it has one, returns the trace in a file of its format; ``ikp.load`` makes
    that an ``ikp.Trace``. Traces are columns here, those of ``ikp.core.trace``.
    """

    interface: int
    suffixes: tuple[str, ...]  # (".pftrace",)

    def write(self, trace: Trace, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write ``trace`` to ``path``; raise ExportError if it exists and ``force`` is false."""
