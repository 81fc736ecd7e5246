"""The example plugins, installed as a user would: into a folder of its own, never the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from stevedore import ExtensionManager

from ikp import registry
from tests.repo.tree import ROOT

PLUGIN = ROOT / "examples" / "plugin-cuda"
LOOM = ROOT / "examples" / "plugin-loom"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the plugins are installed into, with nothing from a registry."""
    for tool in ("hatchling", "pip"):
        if not find_spec(tool):
            pytest.skip(f"{tool}, which installs the plugin, isn't installed")
    folder = tmp_path_factory.mktemp("site")
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "install", "-q", *offline, "--target", folder]
    done = subprocess.run([*command, PLUGIN, LOOM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def python(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``python ...`` in a folder, where the plugins are installed."""
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(folder)},  # stevedore's
    )


@pytest.fixture
def run(site: Path, tmp_path: Path) -> Run:
    """Return a function that runs ``python ...`` where the plugins are installed."""
    return partial(python, site, tmp_path)


@pytest.fixture
def registered(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process find the plugins, for one test."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(ExtensionManager, "ENTRY_POINT_CACHE", {})
    monkeypatch.setattr(registry, "_asked", {})
    registry.packages.cache_clear()
    yield
    registry.packages.cache_clear()


@pytest.fixture
def module(registered: None) -> Callable[[str], ModuleType]:
    """Return a function that imports one of the plugin's modules, as installed."""
    return lambda name: import_module(f"ikp_cuda.{name}")


@pytest.fixture
def build(module: Callable[[str], ModuleType]) -> Any:
    """Return the plugin's ``build``; of what was built before, it returns that."""
    return partial(_built, module("compiler").build)


def _built(build: Any, *args: Any, **options: Any) -> Any:
    """Build something once: nvcc takes longer than all that is done with it."""
    told = (args, sorted((name, str(value)) for name, value in options.items()))
    key = repr(told)
    if key not in _made:
        _made[key] = build(*args, **options)
    return _made[key]


_made: dict[str, Any] = {}
