"""Which backends a verb asks, in what order, and what is told of those that can't be asked."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from stevedore import ExtensionManager

import ikp
from ikp import plugins, registry
from ikp.errors import KernelError, PluginError
from ikp.verbs.off import Off
from ikp.verbs.ranges import tracing

BACKEND = """
class Backend:
    interface = {interface}
    languages = ()
    @staticmethod
    def adapter(semantic, verb): ...
    def device_type(self): return "cpu"
    def argument(self, segment): ...
    def names(self): return {{}}
class Extended(Backend): ...
"""
Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Install]:
    """Return a function that installs a package of one module with entry points."""

    def package(name: str, source: str, **groups: dict[str, str]) -> None:
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(source)
        info = tmp_path / f"{name}-2.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n")
        lines = []
        for group, points in groups.items():
            lines += [f"[ikp.{group}]", *(f"{key} = {value}" for key, value in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines))

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(ExtensionManager, "ENTRY_POINT_CACHE", {})
    monkeypatch.setattr(registry, "_asked", {})
    monkeypatch.setattr(registry, "_broken", {})
    registry.packages.cache_clear()
    yield package
    registry.packages.cache_clear()


def kinds() -> list[str]:
    return [kind.__module__ for kind in registry.imported() if "ikp" not in kind.__module__]


def test_a_backend_is_asked_once_its_language_is_imported(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = BACKEND.format(interface=2)
    install("acme", source, backends={"acme": "acme:Backend"}, languages={"acme": "acmelang"})
    assert kinds() == []
    assert "acme" not in sys.modules
    monkeypatch.setitem(sys.modules, "acmelang", ModuleType("acmelang"))
    assert kinds() == ["acme"]


def test_without_a_language_named_it_is_its_own_package(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("acme", BACKEND.format(interface=2), backends={"acme": "acme:Backend"})
    assert kinds() == []
    monkeypatch.setitem(sys.modules, "acme", ModuleType("acme"))
    monkeypatch.delitem(sys.modules, "acme")
    __import__("acme")
    assert kinds() == ["acme"]


def test_one_that_extends_another_is_asked_before_it(install: Install) -> None:
    points = {"aaa": "acme:Backend", "zzz": "acme:Extended"}
    install("acme", BACKEND.format(interface=2), backends=points)
    __import__("acme")
    found = [kind.__name__ for kind in registry.imported() if kind.__module__ == "acme"]
    assert found == ["Extended", "Backend"]


def test_one_of_an_older_interface_is_told_with_its_package_and_hurts_no_other(
    install: Install,
) -> None:
    install("acme", BACKEND.format(interface=1), backends={"acme": "acme:Backend"})
    __import__("acme")
    with pytest.raises(PluginError) as caught:
        plugins.load(plugins.BACKENDS, "acme")
    assert str(caught.value) == (
        "plugin 'acme' in ikp.backends, from acme, was written for interface 1 of ikp's plugins, "
        "this ikp has 2. Upgrade acme; where that is yours, docs/plugins.md says what has changed."
    )
    assert kinds() == []
    with pytest.raises(KernelError, match=r"outside a kernel.* Not loaded: plugin 'acme'"):
        ikp.init(None)


def test_one_of_a_newer_interface_asks_for_another_ikp(install: Install) -> None:
    install("acme", BACKEND.format(interface=3), backends={"acme": "acme:Backend"})
    with pytest.raises(PluginError, match=r"interface 3 .* has 2\. Upgrade ikp\."):
        plugins.load(plugins.BACKENDS, "acme")


def test_a_guess_is_taken_where_nobody_knows_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def backend(answer: Any) -> Any:
        return SimpleNamespace(adapter=lambda semantic, verb: answer, languages=("one",))

    sure: Any = object()
    guess, other = Off(tuple), Off(tuple)
    for answers, taken in (((guess, None, sure), sure), ((None, guess, other), guess)):
        made = [backend(answer) for answer in answers]
        monkeypatch.setattr(registry, "imported", lambda made=made: made)
        assert tracing(None, "init") is taken


@pytest.mark.parametrize(("required", "extra"), [((), "dist"), (("NumPy>=1.26",), "")])
def test_no_extra_is_offered_for_a_package_that_is_required(
    required: tuple[str, ...], extra: str
) -> None:
    requirements = (*required, 'numpy>=1.26; extra == "dist"', 'build>=1.5; extra == "dist"')
    assert registry._extra_with("numpy", requirements) == extra


def test_a_missing_package_is_told_with_the_extra_that_has_it() -> None:
    remedies = {
        ("triton", "triton"): "pip install 'ikp[triton]'",
        ("gluon", "triton"): "pip install 'ikp[triton]'",
        ("gluon", "torch"): "pip install 'ikp[torch]'",
        ("cute", "cutlass"): "pip install 'ikp[cute]'",
        ("cute", "numpy"): None,
    }
    for (name, missing), remedy in remedies.items():
        assert registry.remedy_for(plugins.BACKENDS, name, missing) == remedy
    for name, missing, remedy in (
        ("parquet", "pyarrow", "pip install 'ikp[parquet]'"),
        ("hatchet", "pandas", "pip install 'ikp[pandas]'"),
        ("perfetto", "perfetto", None),
    ):
        assert registry.remedy_for(plugins.EXPORTERS, name, missing) == remedy


def test_where_no_language_is_installed_each_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import util

    from ikp.session import wishes

    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(PluginError) as caught:
        wishes._installed_backend()
    assert str(caught.value) == (
        "no kernel language is installed. Do: pip install 'ikp[triton]' (Triton and Gluon) or "
        "pip install 'ikp[cute]' (CuTe DSL)."
    )


def test_the_backend_of_a_session_that_names_none() -> None:
    assert list(registry.own()) == ["triton", "gluon", "cute", "driver"]


def test_ikps_own_backends_are_what_the_interface_asks_for() -> None:
    for name, kind in registry.own().items():
        assert kind.interface == registry.INTERFACE
        assert registry.packages()[name] in ("triton", "cutlass", "torch")
        assert bool(kind.languages) == (name != "driver")
        assert all(language.name and language.mark for language in kind.languages)


def printed(script: str) -> str:
    """Return what a fresh process prints."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_looking_at_the_backends_loads_no_language() -> None:
    script = """
import sys
from ikp import registry
print([each.name for each in registry.languages()], {"triton", "cutlass"} & set(sys.modules))
"""
    assert printed(script) == "['Triton', 'Gluon', 'CuTe DSL'] set()"


def test_the_door_is_light_and_exports_what_it_says() -> None:
    script = """
import sys
from ikp import plugins
print({"numpy", "stevedore"} & set(sys.modules))
for name in plugins.__all__:
    getattr(plugins, name)
print({"triton", "cutlass", "torch"} & set(sys.modules))
"""
    assert printed(script) == "set()\nset()"


def test_what_is_looked_for_is_in_no_log_of_the_program(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that logs all there is finds its own there."""
    caplog.set_level(logging.DEBUG)
    assert registry.names(registry.BACKENDS)
    with pytest.raises(PluginError):
        registry.load(registry.EXPORTERS, "no such one")
    assert not caplog.records
