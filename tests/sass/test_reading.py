"""What is printed of a module's kernels at once says of each what it says of it alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ikp.probes.patch import patch
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow import reading
from ikp.sass.disassembly import tools
from ikp.sass.disassembly.tools import printed  # the tests' own replaces it there
from tests.sass import module

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Return what NVIDIA's disassembler is started for: the symbols of functions."""
    found: list[tuple[int, ...]] = []

    def counted(program: Path, symbols: Sequence[int], cubin: bytes) -> str:
        found.append(tuple(symbols))
        return printed(program, symbols, cubin)

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tools, "printed", counted)
    monkeypatch.setattr(reading, "composed", lambda file, name: None)
    return found


def _patched(names: Sequence[str]) -> list[bytes]:
    return [patch(module.cubin(), name, detail="ops", block=(128, 1, 1)).cubin for name in names]


def test_a_module_is_printed_once(
    asked: list[tuple[int, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = module.KERNELS[:3]
    together = _patched(names)
    assert len(asked) == 1
    monkeypatch.setattr(reading, "_TOGETHER", 0)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "alone"))
    assert _patched(names) == together
    symbols = [Cubin.read(module.cubin()).kernel(name).symbol for name in names]
    assert asked[1:] == [(each,) for each in symbols]


def test_no_more_is_printed_than_takes_as_long_as_to_start(
    asked: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Cubin.read(module.cubin())
    first, *_, last = file.kernels.values()
    size = sum(len(each.text.data) for each in (last, first))
    monkeypatch.setattr(reading, "_TOGETHER", size)
    reading.code_of(module.cubin(), file, last.name)  # the first one follows the last
    assert asked == [(last.symbol, first.symbol)]
    reading.code_of(module.cubin(), file, first.name)
    assert len(asked) == 1
