"""Programs whose CuTe has other names than ``ikp`` knows: they run plain, and are told once."""

from __future__ import annotations

import pytest

from ikp.backends.cute import CuteBackend
from ikp.backends.cute._foreign import CALLS, CUTE, LINES, LOOPS, TVM_FFI, VERBS
from ikp.core.segment import Segment
from ikp.probing import Feature, Foreign, Private
from tests.backends.cute import kernels
from tests.backends.cute.compiling import compile_cute, floats, number
from tests.backends.renaming import named, renamed, told_once
from tests.backends.sass import spec

pytestmark = pytest.mark.compiled


@pytest.mark.parametrize(("package", "feature", "name"), named(CUTE, VERBS, CALLS))
def test_a_kernel_marked_by_hand(package: Foreign, feature: Feature, name: Private) -> None:
    import torch

    segment = Segment("k", torch.zeros(4096, dtype=torch.uint8), spec(), "cute", "a GPU", 0.0)
    with renamed(package, name), told_once(package, feature, name):
        prof = CuteBackend().argument(segment)
        code = compile_cute(kernels.launch, kernels.control, floats(), number(), prof)
    assert prof is None
    assert "ikp" not in "\n".join(line.partition("//")[0] for line in code.ptx.splitlines())
    assert "st.global" in code.ptx


@pytest.mark.parametrize(("package", "feature", "name"), named(CUTE, TVM_FFI))
def test_without_tvm_ffi_kernels_are_recorded(
    package: Foreign, feature: Feature, name: Private
) -> None:
    pytest.importorskip("tvm_ffi")
    import torch

    segment = Segment("k", torch.zeros(4096, dtype=torch.uint8), spec(), "cute", "a GPU", 0.0)
    with renamed(package, name), told_once(package, feature, name):
        prof = CuteBackend().argument(segment)
        code = compile_cute(kernels.launch, kernels.control, floats(), number(), prof)
    assert "ikp_cur" in code.ptx


def test_every_feature_is_taken_away() -> None:
    assert set(CUTE.features) == {VERBS, CALLS, TVM_FFI, LINES, LOOPS}
