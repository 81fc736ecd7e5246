"""The CuTe GEMM, compiled for Hopper: what the records add to it, and what they must not."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from cutlass import Float16
from cutlass.cute.runtime import make_fake_compact_tensor

from examples import gemm_cute
from ikp.backends.triton._hooks import names_in_code
from tests.backends.cute.compiling import compile_cute, prof
from tests.backends.opcodes import TOOLS
from tests.backends.sass import LOCAL_MEMORY, SYNCHRONISING, Code
from tests.kernels.stripped import stripped

pytestmark = pytest.mark.compiled

TENSOR_CORES = ("HGMMA", "UTMALDG", "SYNCS", "WARPGROUP", "USETMAXREG")
SIZE, BLOCKS = 4096, 132
REGIONS = {
    "wait empty", "issue TMA", "wait drained", "wait full", "issue WGMMA", "wait WGMMA", "store",
}  # fmt: skip


def compile_gemm(module: ModuleType, *buffer: object) -> Code:
    row_major, column_major = (
        make_fake_compact_tensor(Float16, (SIZE, SIZE), stride_order=order, assumed_align=16)
        for order in ((1, 0), (0, 1))
    )
    return compile_cute(module.matmul, row_major, column_major, row_major, BLOCKS, *buffer)


@cache
def gemm(on: bool) -> Code:
    return compile_gemm(gemm_cute, prof() if on else None)


def test_the_tensor_cores_work_as_before() -> None:
    recorded, off = gemm(True), gemm(False)
    for name in TENSOR_CORES:
        assert recorded.opcodes[name] == off.opcodes[name] > 0
    assert recorded.count(SYNCHRONISING) == off.count(SYNCHRONISING)
    assert not recorded.count(LOCAL_MEMORY)
    assert recorded.registers == off.registers


def test_multiplications_stay_in_flight() -> None:
    # Where ptxas serialises WGMMAs, each has its own group (gsb0) and a wait for it.
    for code in (gemm(True), gemm(False)):
        multiplications = [i for i in code.instructions if "HGMMA" in i]
        assert ["gsb0" in i for i in multiplications] == 2 * [False, False, False, True]
        waits = [i for i in code.instructions if "DEPBAR" in i]
        assert [wait.split()[-1] for wait in waits] == ["0x1", "0x0"]


def test_ptxas_serialises_no_multiplication(tmp_path: Path) -> None:
    path = tmp_path / "gemm.ptx"
    path.write_text(gemm(True).ptx)
    command = [TOOLS / "ptxas", "-v", "-arch=sm_90a", path, "-o", tmp_path / "gemm.cubin"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "0 bytes spill stores, 0 bytes spill loads" in done.stderr
    assert "serialized" not in done.stderr  # "Potential Performance Loss: wgmma.mma_async ..."


def test_off_is_the_kernel_without_ikp(tmp_path: Path) -> None:
    assert gemm(False).words == compile_gemm(stripped(gemm_cute, tmp_path)).words


def test_every_wait_has_its_record_and_every_role_its_name() -> None:
    assert set(names_in_code(gemm(True).ptx).values()) == REGIONS | {"producer", "consumer"}


def test_without_a_gpu_it_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match=r"needs a GPU of compute capability 9\.0 \(H100, H"):
        gemm_cute.main(tmp_path / "out.pftrace")
    assert list(tmp_path.iterdir()) == []
