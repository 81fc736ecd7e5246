"""Kernels that nobody edited, on a GPU: right results, and as many ranges as the code says."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

import ikp  # noqa: E402
from ikp.sass.cubins import instruction  # noqa: E402
from tests.kernels import unedited  # noqa: E402

pytestmark = pytest.mark.gpu

SIZES = {"BM": 128, "BN": 128, "BK": 64}
M, N, K, WARPS = 512, 384, 640, 8
TILES, STEPS = 12, 10
VABSDIFF4 = 0x15  # its opcode, without the form of the operands


@triton.jit
def unknown(x, out, n):
    """Have an instruction that the test takes out of machine code's tables."""
    for k in range(n):
        value = tl.load(x + k)
        different = tl.inline_asm_elementwise(
            "vabsdiff4.u32.u32.u32 $0, $1, $2, $2;",
            "=r,r,r",
            [value, 0],
            tl.int32,
            is_pure=False,
            pack=1,
        )
        tl.store(out + k, different)


class Matmul:
    """The operands of one matmul, and its launch."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.a = torch.randn((M, K), device="cuda", dtype=torch.float16)
        self.b = torch.randn((K, N), device="cuda", dtype=torch.float16)

    def launch(self, kernel) -> float:
        """Launch, with two blocks too many, and return the relative error."""
        c = torch.zeros((M, N), device="cuda", dtype=torch.float16)
        kernel[(TILES + 2,)](self.a, self.b, c, M, N, K, **SIZES, num_warps=WARPS, num_stages=3)
        right = self.a.float() @ self.b.float()
        return float((c.float() - right).norm() / right.norm())


@pytest.fixture
def matmul() -> Matmul:
    return Matmul()


def counts(trace: ikp.Trace) -> Counter[str]:
    names = (trace.regions[region].name for region in trace.events.region)
    return Counter(name.partition(" @")[0] for name in names)


@pytest.mark.parametrize("detail", ["kernel", "loops", "ops"])
def test_ptx_level(matmul: Matmul, detail: str) -> None:
    marked = ikp.instrument(unedited.matmul, detail=detail, level="ptx")
    with pytest.warns(ikp.IkpWarning, match="marks are in its PTX"), ikp.profile() as prof:
        assert matmul.launch(marked) < 1e-3
    found = counts(prof.trace)
    assert prof.trace.launches[0].dropped == 0
    assert prof.trace.slots.finished.all()
    assert found["matmul"] == WARPS * (TILES + 2)
    if detail != "kernel":
        assert found["loop"] == WARPS * TILES
        assert found["iteration"] == WARPS * TILES * STEPS
    if detail == "ops":
        assert found["wgmma x4"] == WARPS * TILES * STEPS


def test_plain_launches_in_between_are_plain(matmul: Matmul) -> None:
    marked = ikp.instrument(unedited.matmul)
    with ikp.profile() as prof:
        for _ in range(3):
            assert matmul.launch(unedited.matmul) < 1e-3
            assert matmul.launch(marked) < 1e-3
    assert len(prof.trace.launches) == 3


def test_an_autotuned_kernel() -> None:
    tuned = triton.autotune(
        configs=[triton.Config({"BLOCK": size}) for size in (256, 512)],
        key=["n"],
        restore_value=["x_ptr"],
    )(unedited.scaled)
    x = torch.ones(4096, device="cuda")
    with ikp.profile() as prof:
        ikp.instrument(tuned)[lambda meta: (triton.cdiv(4096, meta["BLOCK"]),)](x, 4096)
    assert (x == 5).all()
    assert len(prof.trace.launches) == 1


def test_where_no_level_is_asked_for_it_is_the_machine_code_or_else_the_ptx(
    matmul: Matmul, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instruction, "_NEVER", instruction._NEVER - {VABSDIFF4})
    marked = ikp.instrument(unedited.matmul)
    with ikp.profile() as prof:
        assert matmul.launch(marked) < 1e-3
    assert prof.trace.provenance["marks in matmul"] == "level=machine detail=loops"
    values = torch.arange(64, device="cuda", dtype=torch.int32)
    out = torch.zeros_like(values)
    reason = "can't be recorded in its machine code: .* its marks are in its PTX, assembled again"
    with pytest.warns(ikp.IkpWarning, match=reason), ikp.profile() as prof:
        ikp.instrument(unknown)[(2,)](values, out, 3, num_warps=4)
    assert torch.equal(out, values.where(values < 3, 0))
    assert prof.trace.provenance["marks in unknown"] == "level=ptx detail=loops"
    assert counts(prof.trace) == {"unknown": 8, "loop": 8, "iteration": 24}


def test_what_a_session_asks_for_in_vain_leaves_the_kernel_plain(matmul: Matmul) -> None:
    marked = ikp.instrument(unedited.matmul)
    with (
        pytest.warns(ikp.IkpWarning, match="matmul runs plain: .* have no clock='cycles64'"),
        ikp.profile(clock="cycles64") as prof,
    ):
        assert matmul.launch(marked) < 1e-3
    assert len(prof.trace.launches) == 0
    with ikp.profile(), pytest.raises(ikp.KernelError, match="and other GPUs"):
        matmul.launch(ikp.instrument(unedited.matmul, level="source"))


PROGRAM = """\
import torch, triton, triton.language as tl

@triton.jit
def add(x, y, n, BLOCK: tl.constexpr):
    for i in range(n):
        at = (tl.program_id(0) * n + i) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at) + 1)

x = torch.ones(4 * 8 * 128, device="cuda")
y = torch.zeros_like(x)
compiled = add.warmup(x, y, 8, BLOCK=128, num_warps=4, grid=(1,))
compiled._init_handles()
print("registers", compiled.n_regs > 0)
compiled[4, 1, 1](x, y, 8, 128)
print((y == 2).all().item())
f = torch.compile(lambda t: torch.softmax(t * 2, -1))
t = torch.randn(64, 512, device="cuda")
for _ in range(2):
    print(torch.allclose(f(t), torch.softmax(t * 2, -1), atol=1e-5))
"""


def test_a_program_with_a_kernel_compiled_ahead_and_torch_compile(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "ikp.cli.main", "run", "prog.py"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["registers", "True", "True", "True", "True"], done.stderr
    assert "could not be marked" not in done.stderr
    trace = ikp.load(tmp_path / "ikp-prog.pftrace")
    assert counts(trace)["iteration"] in {4 * 4 * n for n in (1, 2, 4, 8)}
    labels = [launch.label for launch in trace.launches]
    assert [label for label in labels if label.startswith("add")] == ["add"], "once, by one layer"
    assert any(label.startswith("triton_") for label in labels)
