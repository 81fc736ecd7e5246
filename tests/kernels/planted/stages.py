"""The persistent GEMM of the examples, with a ring of two stages, or of four."""

from unittest import mock

import torch
from cutlass.cute.runtime import from_dlpack

from examples import gemm_cute
from tests.kernels.planted.case import SMS, Case, Take
from tests.kernels.planted.compiled import Compiled

LANGUAGE, EXPECTED = "CuTe DSL", "one stage too few"
TILES, DEPTH = 4, 2048


def prepare(faulty: bool) -> Case:
    torch.manual_seed(0)
    rows, columns = SMS * gemm_cute.BM, TILES * gemm_cute.BN
    a = torch.randn(rows, DEPTH, device="cuda").half()
    b = torch.randn(DEPTH, columns, device="cuda").half()
    out = torch.empty(rows, columns, device="cuda", dtype=torch.float16)
    operands = tuple(from_dlpack(each, assumed_align=16) for each in (a, b.t(), out))
    function = Compiled(gemm_cute.matmul, operands, SMS)

    def run(take: Take) -> None:
        with mock.patch.object(gemm_cute, "STAGES", 2 if faulty else gemm_cute.STAGES):
            function(take())

    chosen = {"warps": [0, 4, 8], "blocks": range(0, SMS, 44)}
    return Case(run, out, a.float() @ b.float(), chosen, tolerance=5e-3)
