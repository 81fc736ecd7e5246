"""From ``pip install`` to a plugin that is listed, loaded and used, in a fresh process."""

from __future__ import annotations

import tomllib

import pytest

from ikp import plugins
from ikp.errors import PluginError
from tests.plugins.conftest import PLUGIN, Run

PROJECT = tomllib.loads((PLUGIN / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ORIGIN = f"{PROJECT['name']} {PROJECT['version']}"


def test_it_is_listed_with_kind_name_origin_and_version(run: Run) -> None:
    listed = run("-m", "ikp.cli.main", "plugins")
    rows = {tuple(line.split()) for line in listed.stdout.splitlines()}
    assert ("backend", "cuda", *ORIGIN.split(), "ikp_cuda.backend:CudaBackend") in rows
    assert ("exporter", "tsv", *ORIGIN.split(), "ikp_cuda.tsv_exporter:TsvExporter") in rows


def test_listing_imports_no_plugin(run: Run) -> None:
    script = (
        "import sys; from ikp.cli._plugins import registered; from ikp import plugins;"
        "print(*(p.name for p in registered()), *plugins.names(plugins.BACKENDS));"
        "print('IMPORTED', *(m for m in sys.modules"
        " if m.startswith(('ikp_cuda', 'ikp.backends.', 'ikp.exporters.'))))"
    )
    names, imported = run("-c", script).stdout.splitlines()
    assert names.split().count("cuda") == 2
    assert imported == "IMPORTED"


def test_both_load_and_say_so(run: Run) -> None:
    listed = run("-m", "ikp.cli.main", "plugins", "--check")
    words = {tuple(line.split()[:2]): line.split()[-1] for line in listed.stdout.splitlines()}
    assert words["backend", "cuda"] == "loads"
    assert words["exporter", "tsv"] == "loads"


def test_loading_the_backend_loads_no_torch_and_no_other_backend(run: Run) -> None:
    script = (
        "import sys; from ikp import plugins; plugins.load(plugins.BACKENDS, 'cuda');"
        "print(*({'torch', 'triton', 'cutlass'} & set(sys.modules)))"
    )
    done = run("-c", script)
    assert (done.returncode, done.stdout.strip()) == (0, "")


def test_uninstalled_it_is_told_by_name() -> None:
    with pytest.raises(PluginError, match=r"no plugin named 'cuda' in ikp\.backends"):
        plugins.load(plugins.BACKENDS, "cuda")


def test_they_are_what_the_interface_asks_for(registered: None) -> None:
    backend = plugins.load(plugins.BACKENDS, "cuda")
    assert isinstance(backend, plugins.Backend)
    assert isinstance(plugins.load(plugins.EXPORTERS, "tsv"), plugins.Exporter)
    assert backend.device_type() == "cuda"
