from importlib import metadata

import pytest
from click.testing import CliRunner
from stevedore import ExtensionManager

from ikp.cli import _plugins as plugins
from ikp.cli._plugins import Plugin, check, registered
from ikp.cli.main import cli
from ikp.version import __version__

GROUPS = ("ikp.backends", "ikp.exporters")


@pytest.fixture
def registry(monkeypatch, tmp_path):
    """Install a distribution whose plugins are ``module:attribute`` of files given as text."""

    def install(files, **points):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        info = tmp_path / "acme_ikp-3.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-ikp\nVersion: 3.1\n")
        lines = [f"{name} = {target}" for name, target in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[ikp.exporters]", *lines]))
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(
            ExtensionManager, "ENTRY_POINT_CACHE", {}
        )  # later tests must not see it

    return install


def plugin(name):
    (found,) = [each for each in registered() if each.name == name]
    return found


def test_the_built_in_ones_are_listed_with_their_package():
    listed = {(p.kind, p.name): f"{p.package} {p.version}" for p in registered()}
    assert listed["exporter", "perfetto"] == f"ikp {__version__}"
    assert listed["backend", "triton"] == f"ikp {__version__}"


def test_one_from_elsewhere_is_listed_and_not_imported(registry):
    registry({"acme_x.py": "raise SystemError('imported')"}, acme="acme_x:Exporter")
    result = CliRunner().invoke(cli, ["plugins"])
    assert result.exit_code == 0
    words = [line.split() for line in result.stdout.splitlines()]
    assert ["exporter", "acme", "acme-ikp", "3.1", "acme_x:Exporter"] in words
    assert "next: ikp plugins --check" in result.stderr


def test_check_tells_absent_from_broken(registry):
    files = {
        "acme_good.py": "class E: interface, suffixes, write = 2, ('.x',), print",
        "acme_torch.py": "raise ModuleNotFoundError(\"No module named 'acmelib'\", name='acmelib')",
        "acme_broken.py": "raise SystemError('boom')",
        "acme_old.py": "class E: interface, suffixes = 0, ('.x',)",
    }
    registry(
        files,
        good="acme_good:E",
        absent="acme_torch:E",
        broken="acme_broken:E",
        old="acme_old:E",
        nowhere="acme_nowhere:E",
    )
    assert check(plugin("good")).word == "loads"
    assert check(plugin("absent")).word == "absent"
    assert "acmelib" in check(plugin("absent")).error
    assert "SystemError: boom" in check(plugin("broken")).error
    assert "interface" in check(plugin("old")).error and check(plugin("old")).word == "BROKEN"
    assert check(plugin("nowhere")).word == "BROKEN"


def test_check_exits_with_1_if_one_is_broken(registry):
    registry({"acme_broken.py": "raise SystemError('boom')"}, broken="acme_broken:E")
    result = CliRunner().invoke(cli, ["plugins", "--check"])
    assert result.exit_code == 1
    assert "SystemError: boom" in result.stderr
    assert "BROKEN" in result.stdout and "next: ikp doctor" in result.stderr


def test_check_exits_with_0_if_all_load(monkeypatch):
    monkeypatch.setattr(plugins, "load", lambda *_: object())
    result = CliRunner().invoke(cli, ["plugins", "--check"])
    assert (result.exit_code, "BROKEN" in result.stdout) == (0, False)


def test_ikps_own_are_there_where_it_is_not_installed(monkeypatch):
    usual = registered()
    monkeypatch.setattr(metadata, "entry_points", lambda group: [])
    assert [each for each in usual if each.target.startswith("ikp.")] == registered()


def test_a_missing_hard_dependency_of_our_own_is_broken(monkeypatch):
    from ikp.errors import PluginError

    def load(*_):
        raise PluginError("x") from ModuleNotFoundError("none", name="perfetto")

    monkeypatch.setattr(plugins, "load", load)
    ours = Plugin("ikp.exporters", "perfetto", "ikp.exporters.perfetto:E", "ikp", "1")
    assert check(ours).word == "BROKEN"
