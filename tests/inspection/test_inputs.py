"""What can be inspected, and what is said of what can't."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import ikp
from ikp.inspection.report import KernelReport
from ikp.sass.disassembly import tool_paths
from ikp.sass.disassembly.opcodes import Work
from tests.backends.sass import Code, compile_kernel, spec
from tests.inspection.compiled import OUT_AND_N, code, kernel
from tests.kernels import control
from tests.kernels.straight import straight

pytestmark = pytest.mark.compiled


@pytest.fixture
def gemm() -> Code:
    return code("gemm sm_90")


def save(made: Code, stem: Path, *suffixes: str) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    for suffix in suffixes:
        content = made.compiled.asm[suffix]
        data = content if isinstance(content, bytes) else str(content).encode()
        stem.with_suffix(f".{suffix}").write_bytes(data)


def counts(report: Iterable[KernelReport]) -> dict[str, int]:
    return {r.name: len(r.copies[0].instructions) for k in report for r in k.ranges}


def test_a_compiled_triton_kernel(gemm: Code) -> None:
    report = ikp.inspect(gemm.compiled)
    assert [kernel.name for kernel in report] == ["gemm"]
    assert [kernel.target for kernel in report] == ["sm_90a"]
    assert report["dot"].holds(Work.TENSOR)
    assert len(report) == 1
    assert report.warnings == report.kernels[0].warnings


@pytest.mark.any_pins
def test_a_cubin_with_its_ptx_beside_it(gemm: Code, tmp_path: Path) -> None:
    save(gemm, tmp_path / "gemm", "cubin", "ptx")
    for path in ("gemm.cubin", "gemm.ptx"):
        report = ikp.inspect(tmp_path / path)
        assert counts(report) == counts([kernel("gemm sm_90")])
        assert report.kernels[0].origin == str(tmp_path / "gemm.cubin")
        assert report.kernels[0].notes == ()


@pytest.mark.any_pins
def test_a_cubin_alone_has_ids_for_names(gemm: Code, tmp_path: Path) -> None:
    save(gemm, tmp_path / "gemm", "cubin")
    (found,) = ikp.inspect(str(tmp_path / "gemm.cubin"))
    assert sorted(counts([kernel("gemm sm_90")]).values()) == sorted(
        len(r.copies[0].instructions) for r in found.ranges
    )
    assert all(r.name.startswith("region 0x") for r in found.ranges)
    assert "names are ids" in found.notes[0]
    assert [w.range.source.first for w in found.warnings if w.range.source] == [38]  # by its lines


@pytest.mark.parametrize("name", ["nested sm_80", "gluon specialised sm_90"])
def test_ptx_alone_is_assembled(name: str, tmp_path: Path) -> None:
    save(code(name), tmp_path / "kernel", "ptx")
    (found,) = ikp.inspect(tmp_path / "kernel.ptx")
    assert {r.name for r in found.ranges} == {r.name for r in kernel(name).ranges}
    assert "assembled from PTX" in found.notes[0]


@pytest.mark.any_pins
def test_a_folder_gives_the_latest_kernel_of_each_name_that_records(
    gemm: Code, tmp_path: Path
) -> None:
    nested = code("nested")
    plain = compile_kernel(control.nested, OUT_AND_N)
    for at, (folder, name, made) in enumerate(
        [("1", "gemm", code("gemm sm_90 not placed")), ("2", "gemm", gemm), ("3", "n", nested),
         ("4", "plain", plain)]
    ):  # fmt: skip
        save(made, tmp_path / folder / name, "cubin", "ptx")
        os.utime((tmp_path / folder / name).with_suffix(".ptx"), (at, at))
    report = ikp.inspect(tmp_path)
    assert [k.origin for k in report] == [str(tmp_path / p) for p in ("3/n.cubin", "2/gemm.cubin")]
    assert [k.name for k in ikp.inspect(tmp_path, name="gem*")] == ["gemm"]


@pytest.mark.any_pins
@pytest.mark.parametrize("name", ["nomatch", "GEMM"])
def test_a_name_that_matches_nothing(gemm: Code, name: str) -> None:
    with pytest.raises(ikp.InspectError, match=f"no kernel has a name that matches '{name}'"):
        ikp.inspect(gemm.compiled, name=name)


def test_a_kernel_without_records() -> None:
    plain = compile_kernel(control.nested, OUT_AND_N)
    with pytest.raises(ikp.InspectError, match="no kernel records anything"):
        ikp.inspect(plain.compiled)


def test_a_kernel_with_init_alone() -> None:
    made = compile_kernel(control.payloads, {"ints": "*i32", "floats": "*fp32"}, spec())
    assert {r.kind for r in ikp.inspect(made.compiled).kernels[0].ranges} == {"range", "instant"}


def test_a_jitted_function_is_not_compiled_yet() -> None:
    with pytest.raises(ikp.UsageError, match=r"ikp\.inspect\(kernel\[grid\]"):
        ikp.inspect(control.nested)


@pytest.mark.any_pins
@pytest.mark.parametrize("thing", [None, 3, b"cubin"])
def test_something_else(thing: object) -> None:
    with pytest.raises(ikp.UsageError, match="a compiled kernel or a path"):
        ikp.inspect(thing)


def test_a_kernel_for_another_gpu() -> None:
    with pytest.raises(ikp.InspectError, match=r"no machine code for an NVIDIA GPU.*hsaco"):
        ikp.inspect(SimpleNamespace(asm={"hsaco": b"", "amdgcn": ""}))


def test_a_cute_kernel_whose_code_was_not_kept() -> None:
    pytest.importorskip("cutlass")  # no such kernel without CuTe, whose own folder says what it is
    with pytest.raises(ikp.InspectError, match="KeepCUBIN"):
        ikp.inspect(SimpleNamespace(__cubin__=None, __ptx__=None))


@pytest.mark.any_pins
def test_paths_that_do_not_help(tmp_path: Path) -> None:
    with pytest.raises(ikp.InspectError, match="no such file"):
        ikp.inspect(tmp_path / "gone.cubin")
    with pytest.raises(ikp.InspectError, match="no kernel below"):
        ikp.inspect(tmp_path)
    (tmp_path / "text.txt").write_text("")
    with pytest.raises(ikp.UsageError, match=r"neither a \.cubin nor a \.ptx"):
        ikp.inspect(tmp_path / "text.txt")
    (tmp_path / "broken.cubin").write_bytes(b"no ELF")
    with pytest.raises(ikp.InspectError, match="nvdisasm can't read this machine code"):
        ikp.inspect(tmp_path / "broken.cubin")
    (tmp_path / "text.ptx").write_text("not PTX")
    with pytest.raises(ikp.InspectError, match=r"no \.target line"):
        ikp.inspect(tmp_path / "text.ptx")
    (tmp_path / "wrong.ptx").write_text(".version 8.0\n.target sm_90\n.address_size 64\nwrong\n")
    with pytest.raises(ikp.InspectError, match="ptxas refuses"):
        ikp.inspect(tmp_path / "wrong.ptx")


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    tool_paths.tool.cache_clear()
    monkeypatch.setattr(tool_paths, "find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    yield
    tool_paths.tool.cache_clear()


@pytest.mark.any_pins
@pytest.mark.usefixtures("no_tools")
def test_no_disassembler_is_told_with_where_it_comes_from(gemm: Code) -> None:
    with pytest.raises(ikp.InspectError, match=r"nvdisasm was not found.*pip install triton"):
        ikp.inspect(gemm.compiled)


@pytest.mark.any_pins
@pytest.mark.usefixtures("no_tools")
def test_a_toolkits_disassembler_does(
    gemm: Code, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tests.backends.opcodes import TOOLS

    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvdisasm").symlink_to(TOOLS / "nvdisasm")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert counts(ikp.inspect(gemm.compiled))


@pytest.mark.any_pins
def test_inspecting_a_file_needs_no_dsl(gemm: Code, tmp_path: Path) -> None:
    save(gemm, tmp_path / "gemm", "cubin", "ptx")
    script = f"import sys, ikp; ikp.inspect({str(tmp_path)!r}); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert not {"triton", "torch", "cutlass"} & set(ran.stdout.split())


def test_a_kernel_that_keeps_totals_is_refused_with_the_reason() -> None:
    summed = compile_kernel(
        straight,
        {"x": "*i32", "p": "i32"},
        replace(spec(), totals=True),
        {"STORES": 1, "RECORDS": 1, "KIND": "range"},
    )
    with pytest.raises(ikp.InspectError, match=r"keeps totals .*compiled for a timeline"):
        ikp.inspect(summed.compiled)
