"""Plugins that are wrong in one way each: told by name, and none takes another down with it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from stevedore import ExtensionManager

import ikp
from ikp import plugins, registry
from ikp.cli._plugins import check, registered
from ikp.errors import PluginError
from ikp.plugins import BACKENDS, EXPORTERS, INTERFACE
from tests.repo.tree import ROOT

GOOD = f"""
class Exporter:
    interface = {INTERFACE}
    suffixes = (".good",)
    def write(self, trace, path, *, force=False): ...

class Backend:
    interface = {INTERFACE}
    languages = ()
    @staticmethod
    def adapter(semantic, verb): ...
    def device_type(self): return "cuda"
    def argument(self, segment): return segment
    def names(self): return {{}}
"""
Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    """Return a function that installs a package of one module with entry points."""

    def package(name: str, source: str, group: str, **points: str) -> None:
        monkeypatch.delitem(sys.modules, name, raising=False)  # another test's
        (tmp_path / f"{name}.py").write_text(source)
        info = tmp_path / f"{name}-2.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n")
        lines = [f"{point} = {name}:{target}" for point, target in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
        monkeypatch.setattr(ExtensionManager, "ENTRY_POINT_CACHE", {})

    monkeypatch.syspath_prepend(str(tmp_path))
    return package


@pytest.mark.parametrize(
    ("name", "source", "told"),
    [
        ("bad_raises", "raise RuntimeError('boom')", "RuntimeError: boom"),
        ("bad_syntax", "def", "SyntaxError"),
        ("bad_attribute", "", "no attribute 'Exporter'"),
        ("bad_needs", "import no_such_module_at_all", "install no_such_module_at_all"),
        ("bad_init", "class Exporter:\n  def __init__(self): 1 / 0", "ZeroDivisionError"),
        ("bad_newer", GOOD.replace(f"= {INTERFACE}", "= 99"), "written for interface 99"),
        ("bad_older", GOOD.replace(f"= {INTERFACE}", "= 1"), "from bad_older, was written for"),
        ("bad_unsaid", "class Exporter: ...", "interface unknown"),
    ],
)
def test_it_is_told_and_the_others_still_work(
    install: Install, name: str, source: str, told: str
) -> None:
    install(name, source, EXPORTERS, aaa_bad="Exporter")  # asked before any other
    install(f"{name}_good", GOOD, EXPORTERS, good="Exporter")
    with pytest.raises(PluginError, match=told):
        plugins.load(EXPORTERS, "aaa_bad")
    assert registry.exporter_for_path("x.good").suffixes == (".good",)
    states = {each.name: check(each).loads for each in registered() if each.package != "ikp"}
    assert (states["aaa_bad"], states["good"]) == (False, True)


@pytest.mark.parametrize("group", [BACKENDS, EXPORTERS])
def test_two_with_one_name_are_an_error_that_names_both(install: Install, group: str) -> None:
    kind = "Backend" if group == BACKENDS else "Exporter"
    install("acme", GOOD, group, twin=kind)
    install("umbrella", GOOD, group, twin=kind)
    with pytest.raises(PluginError, match="acme, umbrella: uninstall one"):
        plugins.load(group, "twin")


def test_one_that_is_called_as_ikps_own_is_left_out_and_told(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("shadow", GOOD, BACKENDS, triton="Backend")
    monkeypatch.setattr(registry, "_broken", {})
    registry.packages.cache_clear()
    assert type(plugins.load(BACKENDS, "triton")).__name__ == "TritonBackend"
    assert [*registry.own()] == ["triton", "gluon", "cute", "driver"]
    assert (registry.packages()["triton"], len(registry.broken())) == ("triton", 1)
    both = {each.package: each for each in registered() if each.name == "triton"}
    assert both.keys() == {"ikp", "shadow"}
    for told in (check(both["shadow"]).error, *registry.broken()):
        assert "'triton' in ikp.backends, shadow:Backend, from ikp, shadow, is left out" in told
    registry.packages.cache_clear()


def test_without_anything_installed_ikps_own_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_points", lambda _: [])
    registry.packages.cache_clear()
    assert [*registry.own()] == ["triton", "gluon", "cute", "driver"]
    assert registry.packages().keys() == registry.BACKEND_HOMES.keys()
    assert registry.names(BACKENDS) == ["cute", "driver", "gluon", "triton"]
    with pytest.raises(ikp.KernelError, match=r"Call it in a function marked @triton\.jit"):
        ikp.instant("outside")
    registry.packages.cache_clear()


def test_a_shadowed_exporter_leaves_the_others(install: Install) -> None:
    install("shadow_exporter", GOOD, EXPORTERS, perfetto="Exporter", good="Exporter")
    assert registry.exporter_for_path("x.good").suffixes == (".good",)
    assert type(registry.exporter_for_path("x.pftrace")).__name__ == "PerfettoExporter"
    assert type(plugins.load(EXPORTERS, "perfetto")).__name__ == "PerfettoExporter"


@pytest.mark.parametrize(
    ("group", "kind", "method"),
    [
        (BACKENDS, "Backend", "adapter"),
        (BACKENDS, "Backend", "argument"),
        (BACKENDS, "Backend", "device_type"),
        (BACKENDS, "Backend", "languages"),
        (BACKENDS, "Backend", "names"),
        (EXPORTERS, "Exporter", "write"),
        (EXPORTERS, "Exporter", "suffixes"),
    ],
)
def test_a_missing_method_is_told_when_it_is_loaded(
    install: Install, group: str, kind: str, method: str
) -> None:
    install("lacking", GOOD.replace(method, "other"), group, lacking=kind)
    with pytest.raises(PluginError, match=method):
        plugins.load(group, "lacking")


def test_one_that_exits_at_import_does_not_end_the_process(install: Install) -> None:
    install("exits", "raise SystemExit(3)", EXPORTERS, aaa_exits="Exporter")
    with pytest.raises(PluginError, match="SystemExit"):
        plugins.load(EXPORTERS, "aaa_exits")


def test_a_suffix_of_ikps_own_is_known_without_asking_anybody(install: Install) -> None:
    install("greedy", GOOD.replace(".good", ".csv"), EXPORTERS, aaa_greedy="Exporter")
    assert type(registry.exporter_for_path("x.csv")).__name__ == "CsvExporter"
    assert "greedy" not in sys.modules


@pytest.mark.parametrize("name", registry.SUFFIXES)
def test_the_suffixes_known_beforehand_are_those_of_the_exporters(name: str) -> None:
    pytest.importorskip("pyarrow")
    assert plugins.load(EXPORTERS, name).suffixes == registry.SUFFIXES[name]


def test_ikps_own_lie_where_their_entry_points_say() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"][EXPORTERS] == registry.HOMES
    assert project["entry-points"][BACKENDS] == registry.BACKEND_HOMES
    assert project["entry-points"][registry.LANGUAGES] == registry._OWN_LANGUAGES
    assert registry.HOMES.keys() == registry.SUFFIXES.keys()


def test_a_suffix_of_ikps_own_asks_nobody_what_is_installed() -> None:
    script = (
        "import sys; from ikp.registry import exporter_for_path; exporter_for_path('x.pftrace'); "
        "print({'stevedore', 'importlib.metadata', 'tempfile'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "set()"
