"""``ikp plugins``: lists the backends, exporters and targets, and whether each loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata

import click

from ikp.cli._reading import next_command
from ikp.errors import PluginError
from ikp.plugins import BACKENDS, EXPORTERS, TARGETS, load
from ikp.registry import BACKEND_HOMES, HOMES, remedy_for, shadowed
from ikp.terminal import message, printable
from ikp.version import __version__


@dataclass(frozen=True, slots=True)
class Plugin:
    """One registered plugin: its name, and the distribution that it is from."""

    namespace: str
    name: str
    target: str  # "package.module:Class"
    package: str
    version: str

    @property
    def kind(self) -> str:
        """``"backend"``, ``"exporter"`` or ``"triton target"``."""
        return self.namespace.removeprefix("ikp.").removesuffix("s").replace("_", " ")


@dataclass(frozen=True, slots=True)
class Check:
    """Whether a plugin loads. ``absent`` says that only a package it needs is not installed."""

    loads: bool
    absent: bool = False
    error: str = ""

    @property
    def word(self) -> str:
        """One word for a table."""
        return "loads" if self.loads else "absent" if self.absent else "BROKEN"


def registered() -> list[Plugin]:
    """Return all plugins, sorted; imports none of them."""
    found = [
        Plugin(
            namespace,
            point.name,
            point.value,
            point.dist.name if point.dist else "unknown",
            point.dist.version if point.dist else "unknown",
        )
        for namespace in (BACKENDS, EXPORTERS, TARGETS)
        for point in metadata.entry_points(group=namespace)
    ]
    seen = {(each.namespace, each.target) for each in found}
    for namespace, homes in ((BACKENDS, BACKEND_HOMES), (EXPORTERS, HOMES)):  # not installed
        missing = [pair for pair in homes.items() if (namespace, pair[1]) not in seen]
        found += [Plugin(namespace, *pair, "ikp", __version__) for pair in missing]
    return sorted(found, key=lambda plugin: (plugin.namespace, plugin.name))


def check(plugin: Plugin) -> Check:
    """Load a plugin and return whether it loads, with the error if it does not."""
    if text := shadowed(plugin.namespace, plugin.name, plugin.target):
        return Check(False, error=text)
    try:
        load(plugin.namespace, plugin.name)
    except PluginError as error:
        return Check(False, absent=_is_absence(plugin, error), error=str(error))
    except Exception as error:  # noqa: BLE001 - any error of a plugin is reported
        return Check(False, error=f"{type(error).__name__}: {error}")
    return Check(True)


def _is_absence(plugin: Plugin, error: PluginError) -> bool:
    """Return whether an optional package is not installed, as opposed to a broken plugin."""
    cause = error.__cause__
    if not isinstance(cause, ModuleNotFoundError) or cause.name is None:
        return False
    missing = cause.name.partition(".")[0]
    own = plugin.target.partition(":")[0].partition(".")[0]
    optional = remedy_for(plugin.namespace, plugin.name, missing) is not None
    return optional or own not in {"ikp", missing}


@click.command("plugins", short_help="The backends, exporters and targets that are registered.")
@click.option("--check", "load_each", is_flag=True, help="Also import each, and say what fails.")
def command(load_each: bool) -> None:
    """List backends, exporters and targets with the package each came from.

    Backends bring ikp's verbs to a kernel language, exporters write a file format, Triton targets
    are GPUs that Triton compiles for. Any installed package can add its own. Nothing is imported
    unless --check is given; then the exit code is 1 if a plugin is broken.
    """
    plugins = registered()
    checks = [check(plugin) for plugin in plugins] if load_each else []
    click.echo(_table(plugins, checks))
    for each in checks:
        if each.error:
            click.echo(message(each.error), err=True)
    if load_each:
        next_command("ikp", "doctor", why="versions and GPU as well")
    else:
        next_command("ikp", "plugins", "--check", why="does each one load?")
    if any(not each.loads and not each.absent for each in checks):
        raise SystemExit(1)


def _table(plugins: list[Plugin], checks: list[Check]) -> str:
    rows = [
        (plugin.kind, plugin.name, f"{plugin.package} {plugin.version}", plugin.target)
        + ((checks[i].word,) if checks else ())
        for i, plugin in enumerate(plugins)
    ]
    return aligned(rows)


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows of cells as lines with aligned columns."""
    rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
