"""Whether an edit of what shapes device code is seen by compile caches."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import ikp
from ikp.session import wishes as module

pytestmark = pytest.mark.any_pins

PACKAGE = Path(ikp.__file__).parent
SHAPES_CODE = [
    "core/abi.py",
    "core/regions.py",
    "targets/ptx.py",
    "verbs/dsl.py",
    "verbs/inline_ptx.py",
    "verbs/intrinsics.py",
    "verbs/ranges.py",
    "unedited/plan.py",
    "backends/gluon/__init__.py",
    "backends/triton/adapter.py",
    "backends/triton/_hooks.py",
    "backends/triton/passes/entry.py",
    "backends/triton/passes/schedule.py",
    "backends/triton/unedited/_rewrite.py",
    "backends/cute/_adapter.py",
]


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "ikp"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(module, "__file__", str(folder / "session" / "wishes.py"))
    return folder


def fingerprint() -> str:
    return module.revision.__wrapped__()


def test_it_is_the_same_for_the_same_sources(copy: Path) -> None:
    assert fingerprint() == module.revision()
    assert len(fingerprint()) == 12


@pytest.mark.parametrize("path", SHAPES_CODE)
def test_an_edit_changes_it(path: str, copy: Path) -> None:
    before = fingerprint()
    with (copy / path).open("r+") as file:  # fails where there is no such file
        file.seek(0, 2)
        file.write("# edited\n")
    assert fingerprint() != before


@pytest.mark.parametrize("path", ["core/decoding/decode.py", "cli/main.py", "errors.py"])
def test_host_code_does_not_make_kernels_compile_again(path: str, copy: Path) -> None:
    before = fingerprint()
    with (copy / path).open("r+") as file:  # fails where there is no such file
        file.seek(0, 2)
        file.write("# edited\n")
    assert fingerprint() == before
