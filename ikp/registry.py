"""The registry of plugins, backends and exporters: found by entry points through stevedore.

ikp's own, whose names and suffixes no other package can take, are imported directly: a search of
installed packages takes longer than reading a small trace.

Groups of entry points: ``ikp.backends`` and ``ikp.exporters`` name classes.
``ikp.languages`` names, for a backend, the package that programs in its language import, so that
nothing need be imported to know that a program has no kernel of that language; by default it is the
package of the backend's class.

A fourth group, ``ikp.triton_targets``, names classes for GPUs that Triton compiles for, under
Triton's names of its backends.

Listing names imports no plugin; loading one imports that one alone.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

from ikp.errors import ExportError, PluginError
from ikp.paths import checked_target, path_text, probe
from ikp.signals import pass_on

BACKENDS = "ikp.backends"
EXPORTERS = "ikp.exporters"
LANGUAGES = "ikp.languages"
TARGETS = "ikp.triton_targets"

INTERFACE = 2
"""Version of the protocols in ``ikp.plugins``. A plugin's ``interface`` must equal it."""

HOMES = {
    "chrome": "ikp.exporters.chrome:ChromeExporter",
    "csv": "ikp.exporters.csv_file:CsvExporter",
    "folded": "ikp.exporters.flame:FoldedExporter",
    "hatchet": "ikp.exporters.hatchet:HatchetExporter",
    "parquet": "ikp.exporters.parquet:ParquetExporter",
    "perfetto": "ikp.exporters.perfetto:PerfettoExporter",
    "speedscope": "ikp.exporters.flame:SpeedscopeExporter",
}
"""The modules and classes of ikp's own exporters, as in their entry points."""

BACKEND_HOMES = {
    "cute": "ikp.backends.cute:CuteBackend",
    "driver": "ikp.backends.driver:DriverBackend",
    "gluon": "ikp.backends.gluon:GluonBackend",
    "triton": "ikp.backends.triton:TritonBackend",
}
_OWN_LANGUAGES = {"cute": "cutlass", "driver": "torch", "gluon": "triton", "triton": "triton"}
"""The modules and classes of ikp's own backends, and the packages that their programs import. So
ikp works on ``PYTHONPATH`` without being installed, and no other package can replace a backend."""

_OWN = {BACKENDS: BACKEND_HOMES, EXPORTERS: HOMES}

_MEMBERS = {
    BACKENDS: ("languages", "adapter", "device_type", "argument", "names"),
    EXPORTERS: ("suffixes", "write"),
    TARGETS: (
        *("gpus", "stages", "options", "checked", "init", "start", "end", "instant", "role"),
        *("whole", "finish", "hook_on"),
    ),
}
"""The attributes that a plugin must have beside ``interface``."""

_asked: dict[str, Any] = {}
"""The backends' classes that ``imported`` has loaded, by name; None for a broken one."""
_broken: dict[str, str] = {}
"""The errors of broken backends."""


def names(namespace: str) -> list[str]:
    """Return the plugin names registered in ``namespace``, sorted; imports none of them."""
    return sorted({*_OWN.get(namespace, ()), *(point.name for point in _points(namespace))})


def _points(namespace: str) -> list[Any]:
    from stevedore import NamedExtensionManager

    with _unheard():
        manager: Any = NamedExtensionManager(namespace, names=[])
        return list(manager.list_entry_points())


@contextmanager
def _unheard() -> Iterator[None]:
    """Keep what stevedore logs, each entry point, from a program that logs all there is."""
    logger = logging.getLogger("stevedore")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def load(namespace: str, name: str) -> Any:
    """Import one plugin and return an instance of it.

    Raises:
        PluginError: no such plugin, its import failed, or it speaks another interface version.
    """
    return _found(namespace, name, made=True)


def kind(name: str) -> Any:
    """Import one backend and return its class, without an instance.

    Raises:
        PluginError: as ``load``.
    """
    return _found(BACKENDS, name, made=False)


@cache
def triton_target(backend: str) -> Any | None:
    """Return the class for the GPUs of one of Triton's backends; None where none is registered.

    Raises:
        PluginError: as ``load``.
    """
    registered = backend in names(TARGETS)
    return _found(TARGETS, backend, made=False) if registered else None


def triton_targets() -> list[Any]:
    """Return the classes of all targets that load."""
    found = []
    for name in names(TARGETS):
        try:
            found.append(triton_target(name))
        except PluginError as error:
            _broken[f"{TARGETS} {name}"] = str(error)
    return found


@cache
def triton_target_folders() -> list[Path]:
    """Return the folders of the packages of all targets; imports none of them."""
    packages = {point.value.partition(":")[0].partition(".")[0] for point in _points(TARGETS)}
    specs = filter(None, map(find_spec, sorted(packages)))
    return [Path(each) for spec in specs for each in spec.submodule_search_locations or ()]


def shadowed(namespace: str, name: str, home: str) -> str:
    """Return why a plugin with the name of one of ikp's own is left out; "" for any other.

    Args:
        namespace: of its entry point.
        name: of the plugin.
        home: its ``"module:class"``.
    """
    if _OWN.get(namespace, {}).get(name, home) == home:
        return ""
    return (
        f"plugin {name!r} in {namespace}, {home}, from {_origins(namespace, name)}, is left out: "
        "ikp has one of that name. Its package must give it another; or uninstall that."
    )


def _found(namespace: str, name: str, *, made: bool) -> Any:
    if (home := _OWN.get(namespace, {}).get(name)) is not None:
        return _loaded(lambda: _of(home)() if made else _of(home), namespace, name)
    from stevedore.driver import DriverManager
    from stevedore.exception import MultipleMatches, NoMatches

    def find() -> Any:
        with _unheard():
            manager: Any = DriverManager(namespace, name, invoke_on_load=made)
        return manager.driver

    try:
        return _loaded(find, namespace, name, (NoMatches, MultipleMatches))
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


def _loaded(
    find: Callable[[], Any], namespace: str, name: str, passed: tuple[type[Exception], ...] = ()
) -> Any:
    """Return the plugin that ``find`` imports; its errors, but ``passed``, name its package."""
    try:
        plugin = find()
    except passed:
        raise
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        remedy = remedy_for(namespace, name, missing) or f"install {missing or 'it'}"
        raise PluginError(
            f"plugin {name!r} in {namespace} can't be loaded: {error}. Do: {remedy}"
        ) from error
    except (Exception, SystemExit) as error:  # a plugin may not end the process
        pass_on(error)
        raise PluginError(
            f"plugin {name!r} in {namespace}, from {_origins(namespace, name)}, can't be loaded: "
            f"{type(error).__name__}: {error}. Upgrade or uninstall that package."
        ) from error
    _check(plugin, namespace, name)
    return plugin


def _check(plugin: Any, namespace: str, name: str) -> None:
    """Refuse a plugin for another version of the interface, or without a part of it."""
    interface = getattr(plugin, "interface", "unknown")
    if interface != INTERFACE:
        package = _origins(namespace, name)
        newer = isinstance(interface, int) and interface > INTERFACE
        theirs = f"{package}; where that is yours, docs/plugins.md says what has changed"
        raise PluginError(
            f"plugin {name!r} in {namespace}, from {package}, was written for interface "
            f"{interface} of ikp's plugins, this ikp has {INTERFACE}. Upgrade "
            f"{'ikp' if newer else theirs}."
        )
    if lacking := [member for member in _MEMBERS[namespace] if not hasattr(plugin, member)]:
        raise PluginError(
            f"plugin {name!r} in {namespace}, from {_origins(namespace, name)}, has no "
            f"{', '.join(lacking)}. Upgrade or uninstall that package."
        )


def _origins(namespace: str, name: str) -> str:
    """Return the packages that register ``name``."""
    return ", ".join(sorted({dist.name for dist in _distributions(namespace, name)})) or "nowhere"


def _distributions(namespace: str, name: str) -> list[Any]:
    from importlib.metadata import entry_points

    points = entry_points(group=namespace, name=name)
    return [point.dist for point in points if point.dist]


def remedy_for(namespace: str, name: str, missing: str) -> str | None:
    """Return the ``pip install`` line of the extra that has a package which a plugin misses.

    None if no extra has it: then the package is required, and the plugin's installation is broken.
    """
    if namespace == BACKENDS and packages().get(name) == missing:
        missing = _distribution(name) or missing
    for dist in _distributions(namespace, name):
        if extra := _extra_with(missing, dist.requires or ()):
            return f"pip install '{dist.name}[{extra}]'"
    return None


def _distribution(name: str) -> str:
    try:
        return str(getattr(kind(name), "distribution", ""))
    except PluginError:
        return ""


_NAME = re.compile(r"[\w.-]+")
_OPTIONAL = re.compile(r"\s*(?P<package>[\w.-]+).*\bextra *== *['\"](?P<extra>[\w.-]+)['\"]")


def _extra_with(package: str, requirements: tuple[str, ...]) -> str:
    """Return the extra with a package: the one of its name, or else the smallest.

    Empty for a package that is required anyway, whichever extras have it, too.
    """
    required = (_NAME.match(each) for each in requirements if not _OPTIONAL.match(each))
    if any(each and each[0].lower() == package.lower() for each in required):
        return ""
    found = list(filter(None, map(_OPTIONAL.match, requirements)))
    sizes = [each["extra"] for each in found]
    extras = {each["extra"] for each in found if each["package"].lower() == package.lower()}
    return min(extras, key=lambda each: (each != package, sizes.count(each), each), default="")


@cache
def packages() -> dict[str, str]:
    """Return the package that programs in a backend's language import, by the backend's name."""
    points = [*_points(BACKENDS)]
    texts = (shadowed(BACKENDS, point.name, point.value) for point in points)
    _broken.update({text: text for text in texts if text})
    own = {point.name: point.value.partition(":")[0].split(".")[0] for point in points}
    named = {point.name: point.value for point in _points(LANGUAGES) if point.name in own}
    return own | named | _OWN_LANGUAGES


def imported() -> list[Any]:
    """Return the classes of the backends whose language this program has imported.

    A backend that extends another comes before that. Backends that can't be loaded are left out:
    ``broken`` has their errors.
    """
    for name, package in packages().items():
        if package in sys.modules and name not in _asked:
            try:  # waits where another thread is importing the package: sys.modules does not
                _asked[name] = kind(name)
            except PluginError as error:
                _broken[name] = str(error)
                _asked[name] = None
    found = [each for each in list(_asked.values()) if each is not None]
    return sorted(found, key=lambda each: len(each.__mro__), reverse=True)


def broken() -> list[str]:
    """Return why backends are left out by ``imported``."""
    return list(_broken.values())


def own() -> dict[str, Any]:
    """Return the classes of ikp's own backends by name, those first that a session prefers.

    They can be imported without their languages.
    """
    kinds = {name: kind(name) for name in BACKEND_HOMES}
    return dict(sorted(kinds.items(), key=lambda pair: (-pair[1].rank, pair[0])))


def languages() -> Iterator[Any]:
    """Yield the languages of ikp's own backends, and of those that this program has imported."""
    yield from dict.fromkeys(language for kind in _known() for language in kind.languages)


def distributions() -> Iterator[str]:
    """Yield the pip names of the packages of the same languages."""
    found = (str(getattr(kind, "distribution", "")) for kind in _known())
    yield from dict.fromkeys(filter(None, found))


def _known() -> list[Any]:
    return [*own().values(), *imported()]


SUFFIXES = {
    "speedscope": (".speedscope.json", ".speedscope"),  # before .json, which it ends in
    "chrome": (".json", ".json.gz", ".chrome_trace"),
    "csv": (".csv", ".csv.gz"),
    "folded": (".folded",),
    "hatchet": (".hatchet",),
    "parquet": (".parquet",),
    "perfetto": (".pftrace", ".perfetto-trace", ".pftrace.gz"),
}
"""The suffixes of ikp's own exporters: to find the owner of one, none need be imported. A plugin's
suffixes are known only when it is loaded; it can't take one of these."""


def check_target(path: str | PathLike[str], force: bool, *, later: bool = False) -> None:
    """Refuse a path that can't be written, before the work whose result goes to it.

    Imports the packages that writing needs, if its exporter has a method ``prepare``.

    Args:
        path: where something is to be written.
        force: whether a file may be there.
        later: ``prepare`` will be called, too: of packages that the exporter names, only the
            outermost modules are imported now. Python finds the rest by these, wherever the
            program looks for modules by then.

    Raises:
        ExportError: no exporter has its suffix, or no file can be written there.
    """
    exporter = exporter_for_path(path)
    packages: tuple[str, ...] = getattr(exporter, "packages", ()) if later else ()
    for each in packages:
        import_module(each)
    if not packages:
        getattr(exporter, "prepare", lambda: None)()
    probe(checked_target(path, force))


def prepare(path: str | PathLike[str]) -> None:
    """Import what writing to a path will take, where its exporter says what that is.

    Raises:
        ExportError: no exporter has its suffix.
    """
    getattr(exporter_for_path(path), "prepare", lambda: None)()


def exporter_for_path(path: str | PathLike[str]) -> Any:
    """Return the exporter whose suffix the path has.

    Raises:
        ExportError: no exporter has it.
    """
    name = Path(path_text(path)).name
    for plugin, suffixes in SUFFIXES.items():
        if name.endswith(suffixes):
            try:
                return load(EXPORTERS, plugin)
            except PluginError as error:
                raise ExportError(f"{name!r} can't be written: {error}") from error
    return _of_plugins(name, [plugin for plugin in names(EXPORTERS) if plugin not in SUFFIXES])


def reads_back(path: str | PathLike[str]) -> bool:
    """Return whether a file of this name, that an exporter wrote, can be read as a trace."""
    try:
        return hasattr(exporter_for_path(path), "read")
    except ExportError:
        return False


def opens_in_viewer(path: str | PathLike[str]) -> bool:
    """Return whether ``ikp view`` opens files of this name: Perfetto's, and Chrome's JSON."""
    name = Path(path_text(path)).name
    plugin = next((each for each, ends in SUFFIXES.items() if name.endswith(ends)), "")
    return plugin in {"chrome", "perfetto"}


def _of(home: str) -> Any:
    """Return the class that ``"module:class"`` names."""
    module, _, kind = home.partition(":")
    return getattr(import_module(module), kind)


def _of_plugins(name: str, plugins: list[str]) -> Any:
    """Return the exporter that says that it has the suffix."""
    known = [suffix for suffixes in SUFFIXES.values() for suffix in suffixes]
    broken: list[str] = []
    for plugin in plugins:
        try:
            exporter = load(EXPORTERS, plugin)
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
