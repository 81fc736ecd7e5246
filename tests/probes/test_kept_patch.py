"""A patch that is kept is used for what it was made of, and as long as it is whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ikp.core.segment import EVERYTHING, Selection
from ikp.errors import InspectError
from ikp.probes import kept_code, kept_patch
from ikp.probes.kept_patch import KeptPatch
from ikp.probes.made_patch import Patch
from ikp.sass.cubins.extra_argument import ExtraArgument
from ikp.sass.disassembly import sources
from ikp.verifier.declared import Declared

pytestmark = pytest.mark.any_pins

CODE = b"machine code"
OPTIONS = {"detail": "ops", "block": (128, 1, 1), "blocks": EVERYTHING}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep in a folder of the test's own, and have a disassembler."""
    folder, program = tmp_path / "cache", tmp_path / "nvdisasm"
    program.write_text("one")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    monkeypatch.setattr(kept_patch, "tool", lambda _: program)
    kept_patch._disassembler.cache_clear()
    yield folder
    kept_patch._disassembler.cache_clear()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Write what the kernel was compiled from."""
    path = tmp_path / "kernel.py"
    path.write_text("a = tl.load(x)\n")
    return path


def place(code: bytes = CODE, name: str = "k", **options: Any) -> KeptPatch:
    """Return where what is made of some code is kept."""
    found = KeptPatch.of(code, name, OPTIONS | options)
    assert found is not None
    return found


def kept(source: Path) -> Patch:
    """Keep a patch in which nothing is as it is by default."""
    made = Patch(
        b"patched code", ("k", "load"), 4, (30, 32), 12, ("a note",), ("told",), ((0, 32),),
        (16, 32), "", True, True, Selection(3, 1, 2, 5, True), ExtraArgument(3, 48, 72), 2, True,
        Declared("k", 32, ((0, 32),), (16, 32), 0, 528, 16, 3), (str(source),),
    )  # fmt: skip
    made = replace(made, kept=kept_code.keep(made, "k", "ptx", 0, CODE))
    place().write(made)
    return made


def test_it_is_what_was_made(source: Path) -> None:
    assert place().read() is None
    made = kept(source)
    assert place().read() == made


@pytest.mark.parametrize(
    "other",
    [{"code": b"other"}, {"name": "f"}, {"detail": "loops"}, {"blocks": None}, {"ptx": "// x"}],
)
def test_what_is_made_of_something_else_is_another(source: Path, other: dict[str, Any]) -> None:
    kept(source)
    assert place(**other).read() is None


def test_another_disassembler_may_read_code_otherwise(source: Path) -> None:
    kept(source)
    kept_patch.tool("nvdisasm").write_text("another")
    kept_patch._disassembler.cache_clear()
    assert place().read() is None


def test_an_edit_of_the_kernels_source_may_change_names(source: Path) -> None:
    kept(source)
    source.write_text("b = tl.load(x)\n")
    sources._read.cache_clear()
    assert place().read() is None
    source.unlink()
    sources._read.cache_clear()
    assert place().read() is None


@pytest.mark.parametrize("suffix", [".cubin", ".plain", ".ptx"])
def test_machine_code_that_went_away_is_made_again(source: Path, suffix: str) -> None:
    Path(kept(source).kept).with_suffix(suffix).unlink()
    assert place().read() is None


@pytest.mark.parametrize("suffix", [".cubin", ".plain", ".ptx"])
def test_what_another_put_in_its_place_is_not_used(source: Path, suffix: str) -> None:
    path = Path(kept(source).kept).with_suffix(suffix)
    path.write_bytes(path.read_bytes().replace(b"c", b"o", 1) + b"\n")
    assert place().read() is None


def test_what_is_not_there_whole_is_not_kept(source: Path) -> None:
    made = kept(source)
    place().path.unlink()
    Path(made.kept).write_bytes(b"other code")
    place().write(made)
    assert place().read() is None


@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "another's", "foreign", "a link"])
def test_a_damaged_or_foreign_file_is_as_good_as_none(source: Path, damage: str) -> None:
    kept(source)
    path, other = place().path, place(detail="loops").path
    content = path.read_bytes()
    changed = content.replace(b'"warps": 4', b'"warps": 8')
    contents = {"empty": b"", "cut": content[:-3], "changed": changed, "foreign": content}
    path.unlink()
    if damage == "a link":
        other.write_bytes(content)
        path.symlink_to(other)
    elif damage == "another's":
        other.write_bytes(content)
        path = other
    else:
        path.write_bytes(contents[damage])
    if damage == "foreign":
        path.chmod(0o666)
    asked = place(detail="loops") if damage == "another's" else place()
    assert asked.read() is None
    again = kept(source)
    assert place().read() == again


def test_what_has_the_seal_and_another_shape_is_none(source: Path) -> None:
    from ikp import caches

    kept(source)
    for content in (b"", b"{}", b"[]", b"null", json.dumps({"files": 1, "sources": []}).encode()):
        caches.keep(place().path, place().key, content)
        assert place().read() is None


def test_why_a_kernel_was_refused_is_kept_too(source: Path) -> None:
    place().write("k uses all its registers.")
    assert place().read() == "k uses all its registers."
    assert place(name="f").read() is None
    made = kept(source)
    assert place().read() == made


def test_where_nothing_can_be_kept_nothing_is(source: Path, cache: Path) -> None:
    cache.write_text("a file, no folder")
    assert kept(source).kept.startswith("not kept: ")
    assert place().read() is None


def test_without_a_disassembler_there_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Path:
        raise InspectError(name)

    monkeypatch.setattr(kept_patch, "tool", missing)
    assert KeptPatch.of(CODE, "k", OPTIONS) is None


def test_all_that_patches_is_in_the_key() -> None:
    """Else an older ikp's patch would be used. What reads a patch needs none of it."""
    told = "import sys, {}; print(*(m.__file__ for n, m in sys.modules.items() if 'ikp' == n[:3]))"
    patching, reading = (
        subprocess.run(
            [sys.executable, "-c", told.format(f"ikp.probes.{module}")],
            capture_output=True, text=True, check=True, env=os.environ,
        ).stdout.split()
        for module in ("patch", "kept_patch")
    )  # fmt: skip
    hashed = {*kept_patch.own_files(str(Path(kept_patch.__file__).parents[1]))}
    assert len(patching) > 50 and {*patching} <= hashed
    heavy = ("/placement/", "/points/", "/cubin.py", "/chips.py", "/tools.py", "/children.py")
    assert not [each for each in reading if any(part in each for part in heavy)]
