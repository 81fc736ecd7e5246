"""A wheel for one machine has the compiled libraries, and ikp takes them without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ikp import compiling
from ikp.backends.driver import _library
from ikp.core.decoding._plain import PLAIN
from ikp.driver.handshake import ASKING
from ikp.exporters.protobuf.joining import JOIN
from ikp.session.own_objects import OWN
from tests.backends.driver.driving import fake_driver
from tests.repo.tree import ROOT
from tools.wheels import compile_all

pytestmark = pytest.mark.any_pins


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The libraries, compiled by this machine's compiler."""
    made = tmp_path_factory.mktemp("prebuilt")
    made.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", os.environ.get("CC", "cc"))  # so that what is set is taken back
        compile_all(made, os.uname().machine, compiling.compiler())
    return made


def test_what_ikp_looks_for_is_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "PREBUILT", folder)
    monkeypatch.setenv("CC", "/nowhere/cc")
    assert {each.library().parent for each in (ASKING, JOIN, OWN, PLAIN)} == {folder}
    assert compiling.prebuilt(_library.DRIVER, _library.source()) is not None
    assert len([*folder.iterdir()]) == 5


STARTING = """
import ctypes, sys
from pathlib import Path
from ikp import compiling
from ikp.backends.driver import _library
compiling.PREBUILT = Path(sys.argv[1])
_library.install()
library = ctypes.CDLL("libcuda.so.1")
library.fake_log.restype = ctypes.c_char_p  # the driver's own
library.cuModuleLoadData(ctypes.byref(ctypes.c_void_p()), b"// PTX")
print(library.fake_log().decode().split()[0])
print(sorted({line.split()[-1] for line in open("/proc/self/maps") if "/libcuda.so" in line}))
"""


def test_the_library_before_the_driver_finds_the_driver_without_a_compiler(
    folder: Path, tmp_path: Path
) -> None:
    fake_driver(tmp_path)
    env = {**os.environ, "CC": "/nowhere/cc", "LD_LIBRARY_PATH": str(tmp_path)}
    env["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    command = [sys.executable, "-c", STARTING, str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("load\n"), "the call reached the driver"
    assert str(tmp_path / "libcuda.so.1") in done.stdout and "cache/ikp/" in done.stdout


def test_a_wheel_has_its_machines_tag_and_libraries(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    tag = "py3-none-manylinux_2_17_x86_64"
    env = {**os.environ, "IKP_PREBUILT": str(folder), "IKP_WHEEL_TAG": tag}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True)
    (path,) = tmp_path.iterdir()
    assert path.name.endswith(f"-{tag}.whl")
    wheel = zipfile.ZipFile(path)
    names = {name for name in wheel.namelist() if name.startswith("ikp/prebuilt/")}
    assert names == {f"ikp/prebuilt/{each.name}" for each in folder.iterdir()}
    (facts,) = (wheel.read(name) for name in wheel.namelist() if name.endswith("/WHEEL"))
    assert b"Root-Is-Purelib: false" in facts and f"Tag: {tag}".encode() in facts
