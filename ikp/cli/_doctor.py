"""``ikp doctor``: reports versions, packages, plugins, GPUs and environment, and what is broken."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final, TypedDict

import click

from ikp import registry
from ikp.cli import _gpu as gpu
from ikp.cli._options import format_option
from ikp.cli._plugins import Check, Plugin, aligned, check, registered
from ikp.cli._reading import next_command
from ikp.compiling import cache_folder, compiler_path
from ikp.errors import PluginError
from ikp.inspection.tools_found import tools_found
from ikp.json_schema import headed
from ikp.printing import as_json
from ikp.terminal import message
from ikp.version import __version__

_PACKAGES = ("torch", "numpy", "perfetto", "stevedore", "pandas", "pyarrow")
"""Packages to report, after those of the kernel languages."""
VARIABLES = {
    "IKP": "0 turns all recording off",
    "TRITON_INTERPRET": "1 runs Triton kernels on the CPU",
    "CUDA_VISIBLE_DEVICES": "the GPUs this process may see",
}


VERSION: Final = 1


class PluginJson(TypedDict):
    """A registered plugin, and whether it loads."""

    namespace: str
    name: str
    target: str
    package: str
    version: str
    loads: bool
    absent: bool
    error: str


class GpusJson(TypedDict):
    """The GPUs that a kernel could run on."""

    names: list[str]
    driver: str | None
    note: str
    problems: list[str]


class CacheJson(TypedDict):
    """The folder of ikp's compiled helpers and patched kernels."""

    folder: str | None
    writable: bool


class DoctorJson(TypedDict):
    """The JSON of ``ikp doctor``, without the head."""

    python: str
    system: str
    ikp: str
    packages: dict[str, str | None]
    tools: dict[str, str | None]
    cache: CacheJson
    plugins: list[PluginJson]
    gpus: GpusJson
    environment: dict[str, str | None]
    problems: list[str]


@dataclass(frozen=True, slots=True)
class _Report:
    """The findings of ``ikp doctor``."""

    python: str
    system: str
    ikp: str
    packages: dict[str, str | None]
    tools: dict[str, str | None]
    cache: Path | None
    plugins: tuple[tuple[Plugin, Check], ...]
    gpus: gpu.GpusFound
    environment: dict[str, str | None]

    @property
    def problems(self) -> list[str]:
        """The broken plugins and GPU stacks, as opposed to merely absent ones."""
        broken = [
            f"{plugin.kind} {plugin.name}: {result.error}"
            for plugin, result in self.plugins
            if not result.loads and not result.absent
        ]
        if not self.plugins:
            broken.append("no plugin is registered, not even ikp's own: reinstall ikp.")
        return broken + list(self.gpus.problems)


def _examine() -> _Report:
    """Examine this Python, its packages, ikp's plugins, the GPUs and the environment."""
    return _Report(
        python=f"{platform.python_version()} ({platform.python_implementation()})",
        system=platform.platform(),
        ikp=__version__,
        packages={name: _version(name) for name in (*_languages(), *_PACKAGES)},
        tools={**tools_found(), "C compiler": compiler_path()},
        cache=cache_folder(),
        plugins=tuple((plugin, check(plugin)) for plugin in registered()),
        gpus=gpu.find(),
        environment={name: os.environ.get(name) for name in VARIABLES},
    )


def _languages() -> list[str]:
    try:
        return list(registry.distributions())
    except PluginError:  # the check of the plugins reports it
        return []


def _can_be_written(folder: Path | None) -> bool:
    """Return whether files can be put into a folder, or the folder can be made."""
    if folder is None:
        return False
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@click.command("doctor", short_help="What is installed, what loads, and is there a GPU.")
@format_option("text", "json")
def command(output: str) -> None:
    """Say what is installed, which backends and exporters load, and which GPU is there.

    The exit code is 0 unless something is broken. A package that is not installed, or a GPU that is
    not there, is reported but is not a fault.
    """
    report = _examine()
    click.echo(_as_json(report) if output == "json" else _as_text(report))
    for problem in report.problems:
        click.echo(f"broken: {message(problem)}", err=True)
    _next(report)
    if report.problems:
        raise SystemExit(1)


_NOT_KEPT: Final = " (can't be written: each process patches and compiles anew)"


def _cache_line(cache: Path | None) -> str:
    """Return where things are kept between processes, and whether they can be."""
    return f"{cache or 'none'}{'' if _can_be_written(cache) else _NOT_KEPT}"


def _as_text(report: _Report) -> str:
    rows = [
        ("ikp", report.ikp),
        ("Python", report.python),
        ("system", report.system),
        *((name, found or "not installed") for name, found in report.packages.items()),
        *((name, found or "not found") for name, found in report.tools.items()),
        ("cache", _cache_line(report.cache)),
        *(_plugin_row(plugin, result) for plugin, result in report.plugins),
        *(("GPU", line) for line in report.gpus.lines()),
        *(
            (name, f"{'not set' if found is None else found} ({VARIABLES[name]})")
            for name, found in report.environment.items()
        ),
    ]
    return aligned(rows)


def _plugin_row(plugin: Plugin, result: Check) -> tuple[str, str]:
    state = result.word + (f": {result.error}" if result.absent else "")
    return f"{plugin.kind} {plugin.name}", f"{state} (from {plugin.package} {plugin.version})"


def _as_json(report: _Report) -> str:
    content: DoctorJson = {
        "python": report.python,
        "system": report.system,
        "ikp": report.ikp,
        "packages": report.packages,
        "tools": report.tools,
        "cache": {
            "folder": None if report.cache is None else str(report.cache),
            "writable": _can_be_written(report.cache),
        },
        "plugins": [_plugin_json(plugin, result) for plugin, result in report.plugins],
        "gpus": {
            "names": list(report.gpus.names),
            "driver": report.gpus.driver,
            "note": report.gpus.note,
            "problems": list(report.gpus.problems),
        },
        "environment": report.environment,
        "problems": report.problems,
    }
    return as_json(headed("doctor", VERSION, content))


def _plugin_json(plugin: Plugin, result: Check) -> PluginJson:
    return {
        "namespace": plugin.namespace,
        "name": plugin.name,
        "target": plugin.target,
        "package": plugin.package,
        "version": plugin.version,
        "loads": result.loads,
        "absent": result.absent,
        "error": result.error,
    }


def _next(report: _Report) -> None:
    """Print the next command: `ikp demo`, whose kernel is in Triton, or the install of Triton."""
    if report.packages.get("triton") is None or report.packages["torch"] is None:
        next_command("ikp", "demo", "--recorded", why="a kernel that an H100 ran")
        next_command("pip", "install", "ikp[triton]", why="to profile Triton kernels")
    else:
        next_command("ikp", "demo", why="profile a small kernel")
