"""Backends and exporters, found by entry point through stevedore, the built-in ones included.

Listing names imports no plugin; loading one imports that one alone.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ikp.errors import ExportError, PluginError
from ikp.paths import path_text

if TYPE_CHECKING:
    from ikp.core.segment import Segment
    from ikp.core.trace import Trace

BACKENDS = "ikp.backends"
EXPORTERS = "ikp.exporters"

INTERFACE = 1
"""Version of the two protocols below. A plugin's ``interface`` must equal it."""


@runtime_checkable
class Exporter(Protocol):
    """Writes traces in one file format. An instance of the class named by the entry point.

    One that writes totals, too, has ``totals = True``; others are asked for events alone. One that
    has a method ``prepare()`` is asked to import what it writes with before kernels run. One that
    has a method ``read(path)`` returns what it wrote; ``ikp.load`` makes that an ``ikp.Trace``.
    Traces are columns here, those of ``ikp.core.trace``: all that a format needs.
    """

    interface: int
    suffixes: tuple[str, ...]  # (".pftrace",)

    def write(self, trace: Trace, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write ``trace`` to ``path``; raise ExportError if it exists and ``force`` is false."""


@runtime_checkable
class Backend(Protocol):
    """The verbs for one DSL, as the host sees them."""

    interface: int

    def device_type(self) -> str:
        """Return where kernels launched now run: ``"cuda"``, or ``"cpu"`` for an interpreter."""

    def argument(self, segment: Segment) -> Any:
        """Return what a kernel of this DSL takes as its ``prof`` argument.

        None where it can't record; the backend has said why.
        """

    def names(self) -> dict[int, str]:
        """Return the region names known from kernels traced or loaded so far, by region id."""


SUFFIXES = {
    "chrome": (".json", ".json.gz", ".chrome_trace"),
    "csv": (".csv", ".csv.gz"),
    "hatchet": (".hatchet",),
    "parquet": (".parquet",),
    "perfetto": (".pftrace", ".perfetto-trace"),
}
"""Those of ikp's own exporters: to know who owns one, none need be imported. A plugin's suffixes
are known when it is loaded, and only then asked for; it can't take one of these."""

_MEMBERS = {BACKENDS: ("device_type", "argument", "names"), EXPORTERS: ("suffixes", "write")}
"""What a plugin must have beside ``interface``."""


def names(namespace: str) -> list[str]:
    """Return the plugin names registered in ``namespace``, sorted; imports none of them."""
    from stevedore import NamedExtensionManager

    manager: Any = NamedExtensionManager(namespace, names=[])
    return sorted(set(manager.entry_points_names()))


def load(namespace: str, name: str) -> Any:
    """Import one plugin and return an instance of it.

    Raises:
        PluginError: no such plugin, its import failed, or it speaks another interface version.
    """
    from stevedore.driver import DriverManager
    from stevedore.exception import MultipleMatches, NoMatches

    try:
        plugin: Any = DriverManager(namespace, name, invoke_on_load=True).driver
    except NoMatches as error:
        known = ", ".join(names(namespace)) or "none"
        raise PluginError(
            f"no plugin named {name!r} in {namespace} (registered: {known}). Install the package "
            f"that provides it, or reinstall ikp if a built-in one is missing."
        ) from error
    except MultipleMatches as error:
        raise PluginError(
            f"{namespace} has two plugins named {name!r}, from {_origins(namespace, name)}: "
            f"uninstall one of the packages."
        ) from error
    except ImportError as error:
        raise PluginError(missing_extra(namespace, name, error)) from error
    except (Exception, SystemExit) as error:  # a plugin may not end the process
        raise PluginError(
            f"plugin {name!r} in {namespace}, from {_origins(namespace, name)}, can't be loaded: "
            f"{type(error).__name__}: {error}. Upgrade or uninstall that package."
        ) from error
    if getattr(plugin, "interface", None) != INTERFACE:
        raise PluginError(
            f"plugin {name!r} in {namespace} was written for interface "
            f"{getattr(plugin, 'interface', 'unknown')}, this ikp has {INTERFACE}: upgrade the "
            "older one."
        )
    if lacking := [member for member in _MEMBERS[namespace] if not hasattr(plugin, member)]:
        raise PluginError(
            f"plugin {name!r} in {namespace}, from {_origins(namespace, name)}, has no "
            f"{', '.join(lacking)}. Upgrade or uninstall that package."
        )
    return plugin


EXTRAS = {
    "triton": "triton",
    "torch": "torch",
    "cutlass": "cute",
    "pandas": "pandas",
    "pyarrow": "parquet",
}


def missing_extra(namespace: str, name: str, error: ImportError) -> str:
    """Say which ``pip install`` line gives the package that ``error`` misses."""
    missing = (error.name or "").partition(".")[0]
    remedy = (
        f"pip install 'ikp[{EXTRAS[missing]}]'"
        if missing in EXTRAS
        else f"install {missing or 'it'}"
    )
    return f"plugin {name!r} in {namespace} can't be loaded: {error}. Do: {remedy}"


def _origins(namespace: str, name: str) -> str:
    """Return the packages that register ``name``."""
    from importlib.metadata import entry_points

    points = entry_points(group=namespace, name=name)
    return ", ".join(sorted({point.dist.name for point in points if point.dist})) or "nowhere"


def exporter_for_path(path: str | PathLike[str]) -> Exporter:
    """Return the exporter whose suffix the path has.

    Raises:
        ExportError: no exporter has it.
    """
    name = Path(path_text(path)).name
    registered = names(EXPORTERS)
    for plugin, suffixes in SUFFIXES.items():
        if name.endswith(suffixes) and plugin in registered:
            return _own(name, plugin)
    return _asked(name, [plugin for plugin in registered if plugin not in SUFFIXES])


def prepare(path: str | PathLike[str]) -> None:
    """Import what writing to ``path`` will take, where its exporter says what that is.

    Raises:
        ExportError: no exporter has its suffix.
    """
    getattr(exporter_for_path(path), "prepare", lambda: None)()


def _own(name: str, plugin: str) -> Exporter:
    try:
        exporter: Exporter = load(EXPORTERS, plugin)
    except PluginError as error:
        raise ExportError(f"{name!r} can't be written: {error}") from error
    return exporter


def _asked(name: str, plugins: list[str]) -> Exporter:
    """Return the exporter that says that it has the suffix."""
    known = [suffix for suffixes in SUFFIXES.values() for suffix in suffixes]
    broken: list[str] = []
    for plugin in plugins:
        try:
            exporter: Exporter = load(EXPORTERS, plugin)
        except PluginError as error:  # another plugin may still know the suffix
            broken.append(str(error))
            continue
        if name.endswith(tuple(exporter.suffixes)):
            return exporter
        known += exporter.suffixes
    raise ExportError(
        f"no exporter knows the suffix of {name!r}: use one of {', '.join(sorted(known))}."
        + "".join(f" Not loaded: {text}" for text in broken)
    )
