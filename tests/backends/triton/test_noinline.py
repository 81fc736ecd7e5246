"""Verbs in functions that a kernel calls: they are handed the kernel's registers."""

from __future__ import annotations

import re
from dataclasses import replace
from traceback import format_exception

import pytest
from triton import knobs

from ikp.backends.triton._hooks import names_in_code
from ikp.core.abi import ClockKind, OverflowMode
from ikp.inspection.inspector import report
from tests.backends.sass import LOCAL_MEMORY, SYNCHRONISING, Code, compile_kernel, spec, verbs_in
from tests.inspection.compiled import image
from tests.kernels import called
from tests.products import one_by_one

pytestmark = pytest.mark.compiled

TYPES = {"out": "*i32", "n": "i32"}
SPECS = {
    "default": spec(),
    "ring": spec(OverflowMode.WRAP),
    "64 bits": spec(clock=ClockKind.CYCLES64),
    "as written": spec(schedule=False),
    "chosen warps": replace(spec(), select=True),
}
RECORDING = {"early", "valued", "deeper", "silent"}


def compiled(name: str = "default", capability: int = 90) -> Code:
    return compile_kernel(called.calling, TYPES, SPECS[name], capability=capability)


def functions(text: str) -> dict[str, str]:
    """Return the parameters of each function that the PTX defines, by the helper's name."""
    heads = re.findall(r"^\.func[^;{]*?\$_(\w+?)__Pi32\w*\(([^)]*)\)[^;{]*\{", text, re.MULTILINE)
    return dict(heads)


@pytest.mark.parametrize(("name", "capability"), one_by_one(SPECS, [90, 80, 100]))
def test_ptxas_takes_the_functions_and_all_regions_are_named(name: str, capability: int) -> None:
    code = compiled(name, capability)
    assert code.compiled.asm["cubin"]
    names = {each for each, _ in called.records(4)}
    assert set(names_in_code(code.ptx).values()) == names
    assert code.count(SYNCHRONISING) == compile_kernel(
        called.calling, TYPES, None, capability=capability
    ).count(SYNCHRONISING)


@pytest.mark.parametrize("name", SPECS)
def test_only_functions_that_record_or_lead_there_take_registers(name: str) -> None:
    found = functions(compiled(name).ptx)
    assert {each for each, given in found.items() if "ikp_in" in given} == RECORDING
    assert set(found) - RECORDING == {"quiet"}
    assert all(found[each].count(".param .b32 ikp_in") == 4 for each in RECORDING)


def test_functions_of_gluon_kernels_take_them_too() -> None:
    from tests.backends.gluon import kernels
    from tests.backends.gluon.compiling import compile_gluon

    code = compile_gluon(kernels.calling, TYPES, spec())
    assert code.compiled.asm["cubin"]
    assert [list(functions(code.ptx)), "ikp_in_3" in code.ptx] == [["called"], True]


def test_a_kernel_whose_functions_hold_no_verbs_is_as_before() -> None:
    assert "ikp_in" not in compile_kernel(called.around_plain, TYPES, spec()).ptx


def test_no_register_is_spilled() -> None:
    assert compiled().count(LOCAL_MEMORY) == {}


def test_without_a_buffer_the_functions_are_those_of_the_kernel() -> None:
    code = compile_kernel(called.calling, TYPES, None)
    assert verbs_in(code.ptx) == []
    assert {"ikp_cur", "// ikp.store"} <= set(verbs_in(compiled().ptx))


def test_inspection_finds_each_range_where_it_is() -> None:
    (kernel,) = report([image(compiled())])
    assert {each.name for each in kernel.ranges} == {each for each, _ in called.records(4)}
    assert kernel.warnings == kernel.problems == ()


def test_a_called_function_can_not_add_to_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs.compilation, "always_compile", True)
    message = r"can't add to the kernel's totals.*Remove noinline=True"
    with pytest.raises(Exception) as caught:  # noqa: PT011 - its cause is what counts
        compile_kernel(called.calling, TYPES, replace(spec(), totals=True))
    assert re.search(message, " ".join("".join(format_exception(caught.value)).split()))
