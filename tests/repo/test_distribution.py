"""What users install: the wheel, the sdist, their metadata and the promises in pyproject.toml."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

import ikp
from tests.repo.tree import ROOT, files

pytestmark = pytest.mark.any_pins


PLUGIN = ROOT / "plugins" / "ikp-amd"


def distributions(source: Path, folder: Path) -> Path:
    """Return the folder, with the wheel and the sdist of a project in it."""
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return distributions(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(built.glob("*.whl")))


def package_files() -> set[str]:
    return {path.as_posix() for path in files() if path.parts[0] == "ikp"}


def test_the_wheel_holds_the_package_whole_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == package_files()
    assert "ikp/py.typed" in packed


def test_the_wheel_states_version_licence_and_commands(wheel: zipfile.ZipFile) -> None:
    info = f"ikp-{ikp.__version__}.dist-info"
    facts = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert facts["Version"] == ikp.__version__
    assert facts["License-Expression"] == "Apache-2.0"
    assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert "ikp = ikp.cli.main:main" in wheel.read(f"{info}/entry_points.txt").decode()


def test_a_package_page_has_whole_addresses(wheel: zipfile.ZipFile) -> None:
    """A registry shows README alone: a link to docs/ would lead nowhere there."""
    text = wheel.read(f"ikp-{ikp.__version__}.dist-info/METADATA").decode().partition("\n\n")[2]
    plain = (ROOT / "README.md").read_text(encoding="utf-8")
    home = project()["urls"]["Repository"]
    assert f"({home}/raw/v{ikp.__version__}/docs/images/gemm-zoom.png)" in text
    assert f"({home}/blob/v{ikp.__version__}/docs/reading-a-trace.md#how-far" in text
    links = re.findall(r"\]\(([^)\s]*)\)", text)
    assert links and all(each.startswith("https://") for each in links)
    assert re.sub(rf"{re.escape(home)}/(?:raw|blob)/v[^/]+/", "", text).strip() == plain.strip()


def test_each_record_of_the_package_says_the_same() -> None:
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == cited["version"] == ikp.__version__
    assert recipe["about"]["license"] == cited["license"] == project()["license"]
    asked = {each.replace(" ", "") for each in recipe["requirements"]["run"]}
    own = {CONDA_NAMES.get(name, name) + bound for name, bound in dependencies()}
    assert asked == {f"python{project()['requires-python']}", "__linux", *own}
    (command,) = recipe["build"]["python"]["entry_points"]
    assert command == f"ikp = {project()['scripts']['ikp']}"


CONDA_NAMES = {"isal": "python-isal"}


def dependencies() -> list[tuple[str, str]]:
    """Return name and bound of each package that ikp asks for."""
    found = (re.fullmatch(r"([\w-]+)(>=.*)", line) for line in project()["dependencies"])
    return [(each[1], each[2]) for each in found if each]


def test_pre_commit_runs_what_ci_runs() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = {hook["entry"].split(" --")[0] for repo in config["repos"] for hook in repo["hooks"]}
    lint = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nlint:")[2]
    steps = lint.partition("\n\n")[0].splitlines()[1:]
    assert hooks == {step.strip().removesuffix(" --check") for step in steps}


def test_workflows_run_what_is_here() -> None:
    """CI is .ci/run, a release `make dist`; each action is one commit, not a name that can move."""
    folder = ROOT / ".github" / "workflows"
    flows = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in folder.iterdir()}
    steps = [
        (name, step)
        for name, flow in flows.items()
        for job in flow["jobs"].values()
        for step in job["steps"]
    ]
    ran = {(name, step["run"]) for name, step in steps if "run" in step}
    assert {("ci", ".ci/run"), ("release", "make dist"), ("release", "make site")} <= ran
    used = [step["uses"] for _, step in steps if "uses" in step]
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", each) for each in used)
    assert [
        name for name, flow in flows.items() if flow["permissions"] != {"contents": "read"}
    ] == []


def test_the_sdist_holds_what_builds_the_wheel_and_no_tests(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        packed = {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in sdist.getnames()}
    extra = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"}
    assert packed == package_files() | extra | {"hatch_build.py"}


def test_the_plugin_is_packed_whole_without_its_tests(tmp_path: Path) -> None:
    folder = distributions(PLUGIN, tmp_path)
    home = PLUGIN.relative_to(ROOT)
    own = {path.relative_to(home).as_posix() for path in files() if path.is_relative_to(home)}
    own = {path for path in own if path.startswith("ikp_amd/")}
    wheel = zipfile.ZipFile(next(folder.glob("*.whl")))
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == own
    assert "ikp_amd/py.typed" in own
    (info,) = {name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert "hip = ikp_amd:AmdTarget" in wheel.read(f"{info}/entry_points.txt").decode()
    with tarfile.open(next(folder.glob("*.tar.gz"))) as sdist:
        packed = {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in sdist.getnames()}
    extra = {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"}
    assert packed - {".gitignore"} == own | extra - {".gitignore"}


def test_make_installs_the_plugin_with_ikp() -> None:
    for target in (".venv/.installed", ".venv-oldest/.installed"):
        command = ["make", "--dry-run", "--always-make", target]
        steps = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        assert steps.stdout.count("-e plugins/ikp-amd") == 2, "by uv, and by pip where it fails"


def test_each_folder_of_tests_is_in_one_part_of_the_suite() -> None:
    command = ["make", "--dry-run", "--always-make", "test-newest"]
    steps = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    parts = [line.split('"')[2].split() for line in steps.splitlines() if "pytest -m" in line]
    left_out = [{each.removeprefix("--ignore=") for each in part if "=" in each} for part in parts]
    folders = {*map(str, project_tests())}
    for folder in folders:
        around = {folder, folder.partition("/")[0]}
        found = [
            bool(around & {*part}) and folder not in out
            for part, out in zip(parts, left_out, strict=True)
        ]
        assert sum(found) == 1, folder


def project_tests() -> list[Path]:
    """Return the folders of tests, a plugin's whole, relative to the checkout."""
    own = [each.parent for each in (ROOT / "tests").glob("*/*.py")]
    return [each.relative_to(ROOT) for each in (*own, *(ROOT / "plugins").glob("*/tests"))]


def test_the_installed_version_is_the_one_in_the_source() -> None:
    assert metadata.version("ikp") == ikp.__version__, "reinstall: make install"


def project() -> dict[str, Any]:
    facts: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return facts["project"]


def required(extra: str) -> set[str]:
    """Return the packages that ``ikp[extra]`` asks for, through extras of its own too."""
    found = set()
    for line in project()["optional-dependencies"][extra]:
        own = re.match(r"ikp\[(.*?)\]", line)
        if own:
            found |= {name for inner in own[1].split(",") for name in required(inner.strip())}
        else:
            found.add(normal(re.split(r"[\s<>=!~;\[]", line)[0]))
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: str) -> dict[str, str]:
    """Return each package's pin; of two for different Pythons, the older's, which stands first."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    found: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith("#"):
            name, version = line.partition(";")[0].split("==")
            found.setdefault(name, version)
    return found


@pytest.mark.parametrize(
    ("file", "extra"), [("requirements-newest.txt", "dev"), ("requirements-oldest.txt", "test")]
)
def test_what_make_installs_is_pinned(file: str, extra: str) -> None:
    own = {normal(name) for name, _ in dependencies()}
    assert (required(extra) | own) - pins(file).keys() == set()


@pytest.mark.parametrize("extra", ["dist", "site"])
def test_what_builds_the_site_and_a_release_is_pinned(extra: str) -> None:
    assert required(extra) - pins(f"requirements-{extra}.txt").keys() == set()


def test_the_oldest_pins_are_the_promised_bounds() -> None:
    """A bound that no run has tried is a guess. Dependencies of users only: tools may be newer."""
    project_bounds = ["triton>=3.6", "torch>=2.10", "pandas>=2", "pyarrow>=14"]
    promises = dict(
        re.match(r"([\w-]+)>=([\d.]+)", line).groups()  # type: ignore[union-attr]
        for line in [*project()["dependencies"], *project_bounds]
    )
    oldest = pins("requirements-oldest.txt")
    for name, bound in promises.items():
        assert re.fullmatch(re.escape(bound) + r"(\.0)*", oldest[name]), f"{name} {oldest[name]}"


def test_torch_and_triton_are_of_one_release() -> None:
    """Torch's wheel for Linux names one Triton: pip refuses any other beside it."""
    named = [re.match(r"triton==([\d.]+)", line) for line in metadata.requires("torch") or ()]
    assert {each[1] for each in named if each} <= {metadata.version("triton")}


def test_the_demo_installs_no_tools() -> None:
    """What `make demo` installs is what the demo needs: minutes and gigabytes count."""
    steps = subprocess.run(
        ["make", "--dry-run", "--always-make", "demo"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "-e '.[triton]'" in steps.stdout
    assert "[dev]" not in steps.stdout
    tools = {"hypothesis", "mypy", "nvidia-cutlass-dsl", "pytest", "viztracer"}
    assert tools & required("triton") == set()
