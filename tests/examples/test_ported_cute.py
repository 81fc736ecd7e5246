"""The ported CuTe example, compiled for Hopper: every region is in the machine code."""

from __future__ import annotations

from pathlib import Path

import pytest
from cutlass import Float32
from cutlass.cute.runtime import make_fake_compact_tensor

from examples import from_nuggets_cute
from ikp.backends.triton._hooks import names_in_code
from tests.backends.cute.compiling import compile_cute, floats, prof
from tests.backends.cute.test_inspect import inspected
from tests.backends.sass import LOCAL_MEMORY, SYNCHRONISING

pytestmark = pytest.mark.compiled


@pytest.mark.parametrize("static", [False, True])
def test_nested_regions_counted_or_placed_by_index(static: bool) -> None:
    kernel = from_nuggets_cute.NestedRegions(static=static)
    made, plain = (compile_cute(kernel, floats(), on) for on in (prof(), None))
    assert set(names_in_code(made.ptx).values()) == {"iteration", "compute", "store"}
    assert made.count(SYNCHRONISING) == plain.count(SYNCHRONISING)
    assert made.count(LOCAL_MEMORY) == {}
    found = inspected(made)
    for region, work in {"compute": {"LDG", "FADD", "STG"}, "store": {"STG"}}.items():
        for copy in found[region].copies:
            assert work <= {instruction.op for instruction in copy.instructions}


def test_a_producer_and_a_consumer() -> None:
    tensor = make_fake_compact_tensor(Float32, (4 * from_nuggets_cute.PAIR,))
    made = compile_cute(from_nuggets_cute.ProducerAndConsumer(), tensor, prof())
    names = {"produce", "consume", "producer", "consumer"}
    assert set(names_in_code(made.ptx).values()) == names
    assert made.count(LOCAL_MEMORY) == {}
    found = inspected(made)
    for region in ("produce", "consume"):
        (copy,) = found[region].copies
        assert {"FFMA", "BRA", "STG"} <= {instruction.op for instruction in copy.instructions}


def test_without_a_gpu_it_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match="needs an NVIDIA GPU: CuTe kernels run nowhere else"):
        from_nuggets_cute.main([str(tmp_path / "out.pftrace")])
    assert list(tmp_path.iterdir()) == []
