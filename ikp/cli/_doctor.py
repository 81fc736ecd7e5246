"""``ikp doctor``: reports versions, packages, plugins, GPUs and environment, and what is broken."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from importlib import metadata

import click

from ikp import registry
from ikp.cli import _gpu as gpu
from ikp.cli._plugins import Check, Plugin, aligned, check, registered
from ikp.cli._reading import next_command
from ikp.errors import PluginError
from ikp.terminal import message
from ikp.version import __version__

_PACKAGES = ("torch", "numpy", "perfetto", "stevedore", "pandas", "pyarrow")
"""Packages to report, after those of the kernel languages."""
VARIABLES = {
    "IKP": "0 turns all recording off",
    "TRITON_INTERPRET": "1 runs Triton kernels on the CPU",
    "CUDA_VISIBLE_DEVICES": "the GPUs this process may see",
}


@dataclass(frozen=True, slots=True)
class _Report:
    """The findings of ``ikp doctor``."""

    python: str
    system: str
    ikp: str
    packages: dict[str, str | None]
    plugins: tuple[tuple[Plugin, Check], ...]
    gpus: gpu.Found
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
        plugins=tuple((plugin, check(plugin)) for plugin in registered()),
        gpus=gpu.find(),
        environment={name: os.environ.get(name) for name in VARIABLES},
    )


def _languages() -> list[str]:
    try:
        return list(registry.distributions())
    except PluginError:  # the check of the plugins reports it
        return []


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@click.command("doctor", short_help="What is installed, what loads, and is there a GPU.")
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
)
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


def _as_text(report: _Report) -> str:
    rows = [
        ("ikp", report.ikp),
        ("Python", report.python),
        ("system", report.system),
        *((name, found or "not installed") for name, found in report.packages.items()),
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
    content = asdict(report)
    content["plugins"] = [{**asdict(plugin), **asdict(result)} for plugin, result in report.plugins]
    content["problems"] = report.problems
    return json.dumps(content, indent=2)


def _next(report: _Report) -> None:
    """Print the next command: `ikp demo`, whose kernel is in Triton, or the install of Triton."""
    if report.packages.get("triton") is None or report.packages["torch"] is None:
        next_command("pip", "install", "ikp[triton]", why="to profile Triton kernels")
    else:
        next_command("ikp", "demo", why="profile a small kernel")
