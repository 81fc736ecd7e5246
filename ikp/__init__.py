"""An intra-kernel profiler for Triton, Gluon, CuTe DSL and CUDA C++: its names, imported lazily.

In a kernel: ``init``, ``range``, ``instant``, ``start``, ``end``, ``start_async``, ``end_async``,
``no_token``, ``role``, ``finish``. On the host: ``profile``, ``capture``, ``calibrate``,
``gather``, ``instrument``, ``load``, ``inspect``, ``diff``, ``edit``, ``many``. Importing this
package loads neither a DSL nor numpy; each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ikp.version import __version__

if TYPE_CHECKING:
    from ikp import edit, many
    from ikp.analysis.diff.compare import diff
    from ikp.analysis.diff.difference import Diff
    from ikp.analysis.explain.verdict import Finding, Verdict
    from ikp.analysis.stats import Stats
    from ikp.backends.argument import Argument
    from ikp.calibration.calibrate import calibrate
    from ikp.core.overhead import Figure, Overhead
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
    from ikp.inspection.inspector import inspect
    from ikp.profiling.capture import capture
    from ikp.profiling.gather import gather
    from ikp.profiling.instrument import instrument
    from ikp.profiling.profile import profile
    from ikp.profiling.steps import schedule
    from ikp.session.current import set_export
    from ikp.trace import Trace, load
    from ikp.verbs.intrinsics import (
        end,
        end_async,
        finish,
        instant,
        no_token,
        role,
        start,
        start_async,
    )
    from ikp.verbs.ranges import init, range

_HOMES = {
    "ikp.analysis.diff.compare": "diff",
    "ikp.analysis.diff.difference": "Diff",
    "ikp.analysis.explain.verdict": "Finding Verdict",
    "ikp.analysis.stats": "Stats",
    "ikp.backends.argument": "Argument",
    "ikp.calibration.calibrate": "calibrate",
    "ikp.core.overhead": "Figure Overhead",
    "ikp.verbs.intrinsics": (
        # the verbs of a kernel
        "end end_async finish instant no_token role start start_async"
    ),
    "ikp.verbs.ranges": "init range",
    "ikp.profiling.capture": "capture",
    "ikp.profiling.gather": "gather",
    "ikp.profiling.instrument": "instrument",
    "ikp.profiling.profile": "profile",
    "ikp.session.current": "set_export",
    "ikp.profiling.steps": "schedule",
    "ikp.trace": "Trace load",
    "ikp.errors": (
        "BufferError DecodeError ExportError IkpError IkpWarning InspectError KernelError "
        "PluginError RegionError UsageError"
    ),
    "ikp.inspection.inspector": "inspect",
}
_MODULES = ("edit", "many")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Argument",
    "BufferError",
    "DecodeError",
    "Diff",
    "ExportError",
    "Figure",
    "Finding",
    "IkpError",
    "IkpWarning",
    "InspectError",
    "KernelError",
    "Overhead",
    "PluginError",
    "RegionError",
    "Stats",
    "Trace",
    "UsageError",
    "Verdict",
    "__version__",
    "calibrate",
    "capture",
    "diff",
    "edit",
    "end",
    "end_async",
    "finish",
    "gather",
    "init",
    "inspect",
    "instant",
    "instrument",
    "load",
    "many",
    "no_token",
    "profile",
    "range",
    "role",
    "schedule",
    "set_export",
    "start",
    "start_async",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"ikp.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'ikp' has no attribute {name!r}")
    try:
        value = getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("triton", "torch"):
            raise
        from ikp.errors import PluginError

        raise PluginError(
            f"ikp.{name} needs {missing}, which is not installed. Do: pip install 'ikp[{missing}]'"
        ) from error
    globals()[name] = value  # the next access finds it without this function
    return value


def __dir__() -> list[str]:
    return __all__
