"""CuTe code compiled with its lines and calls: the same code, and each instruction's way to it."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cutlass._mlir_helpers import op
from cutlass.cutlass_dsl.cutlass_ast_decorators import ScfGenerator

from ikp.backends.cute._foreign import CUTE, LINES, LOOPS
from ikp.backends.cute.lines import with_lines
from ikp.probing import Feature, Foreign, Private
from tests.backends.cute import called_kernel, kernels
from tests.backends.cute.compiling import compile_cute, floats, number
from tests.backends.renaming import named, renamed, told_once

pytestmark = pytest.mark.compiled

ROOT = Path(__file__).parents[3]


@cache
def compiled(how: str = "lines") -> dict[str, dict[str, Any]]:
    """Return what the program found out of kernels' code, by their modules."""
    modules = ("called_kernel", "waiting_kernel")
    command = [sys.executable, "-m", "tests.backends.cute.called", how, *modules]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr[-3000:]
    made: dict[str, dict[str, Any]] = json.loads(ran.stdout.splitlines()[-1])
    return made


def line(comment: str) -> int:
    text = Path(called_kernel.__file__).read_text(encoding="utf-8").splitlines()
    (found,) = (n for n, each in enumerate(text, 1) if each.endswith(f"  # {comment}"))
    return found


def test_the_machine_code_is_the_same() -> None:
    lines, plain = compiled(), compiled("plain")
    assert all(lines[each]["code"] == plain[each]["code"] for each in lines)
    assert not any(lines for each in plain.values() for _, lines in each["lines"])


def test_each_call_of_a_helper_is_told_apart() -> None:
    """Branches and loops, which CuTe makes functions of, are no calls."""
    read, write, barrier, inner = map(line, ("read", "write", "barrier", "inner call"))
    even, odd, behind = map(line, ("even", "odd", "behind"))
    made = compiled()["called_kernel"]["lines"]
    found = {op: {tuple(lines) for which, lines in made if which == op} for op, _ in made}
    assert found["LDG"] == {(read, inner, even), (read, odd), (read, behind)}
    assert found["STG"] == {(write, even), (write, odd), (write, behind)}
    assert found["BAR"] == {(barrier, even), (barrier, odd), (barrier, behind)}


@pytest.mark.parametrize(("package", "feature", "name"), named(CUTE, LINES, LOOPS))
def test_without_a_name_it_compiles_as_it_would(
    package: Foreign, feature: Feature, name: Private
) -> None:
    plain = compile_cute(kernels.launch, kernels.control, floats(), number(), None)
    with renamed(package, name), told_once(package, feature, name), with_lines():
        again = compile_cute(kernels.launch, kernels.control, floats(), number(), None)
    assert again.compiled.asm["cubin"] == plain.compiled.asm["cubin"]


def test_a_wait_is_named_by_the_pipeline_that_its_source_waits_for() -> None:
    """CuTe's own names of barriers are in neither the PTX nor the machine code."""
    regions = compiled()["waiting_kernel"]["regions"]
    waits = [each for each in regions if "mbarrier" in each]
    assert [re.sub(r"\d+", "", each) for each in waits] == [
        "mbarrier wait @waiting_kernel.py: (ring.producer_acquire)",
        "mbarrier wait @waiting_kernel.py: (ring.consumer_wait)",
    ]


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUTE_DSL_LINEINFO", raising=False)
    before = op._LOC_TRANSFORMS, ScfGenerator.scf_execute_dynamic
    with with_lines():
        assert os.environ["CUTE_DSL_LINEINFO"] == "1"
        assert not {op._LOC_TRANSFORMS, ScfGenerator.scf_execute_dynamic} & {*before}
    assert (op._LOC_TRANSFORMS, ScfGenerator.scf_execute_dynamic) == before
    assert "CUTE_DSL_LINEINFO" not in os.environ
    monkeypatch.setenv("CUTE_DSL_LINEINFO", "0")
    with with_lines():
        assert os.environ["CUTE_DSL_LINEINFO"] == "0"
    assert os.environ["CUTE_DSL_LINEINFO"] == "0"


WITHOUT_CUTE = """
import os, sys
from ikp.backends.cute.lines import with_lines
before = dict(os.environ)
with with_lines():
    assert os.environ == before
assert "cutlass" not in sys.modules
"""


def test_a_program_without_cute_has_its_environment() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "CUTE_DSL_LINEINFO"}
    subprocess.run([sys.executable, "-c", WITHOUT_CUTE], check=True, env=environment)


def test_an_operations_function_reaches_nothing_of_ikp() -> None:
    """QuACK knows an epilogue by all that its functions reach, but for what is installed, and
    refuses what it can't tell of.
    """

    @op.dsl_user_op
    def users(*, loc: object = None) -> None:
        """Be an operation that a user has made of others."""

    def reached() -> dict[str, object]:
        found = inspect.getclosurevars(users)
        return {**found.globals, **found.nonlocals}

    plain = reached()
    with with_lines():
        assert reached() == plain
