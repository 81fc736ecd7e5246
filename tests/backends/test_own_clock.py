"""A clock that the kernel reads by its own language's means, and gives a record as payload."""

from __future__ import annotations

import re

import pytest
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import ikp
from tests.backends.cute.dump import dump_to_temporary_folder
from tests.backends.sass import Code, compile_kernel, spec

pytestmark = pytest.mark.compiled
dump_to_temporary_folder()


@triton.jit
def in_triton(out, n, prof):
    ikp.init(prof)
    began = tl.extra.cuda.globaltimer()
    for k in range(n):
        tl.store(out + k, k)
    ikp.instant("took", (tl.extra.cuda.globaltimer() - began).to(tl.int32))


@gluon.jit
def in_gluon(out, n, prof):
    ikp.init(prof)
    began = tl.extra.cuda.globaltimer()
    for k in range(n):
        gl.store(out + k, k)
    ikp.instant("took", (tl.extra.cuda.globaltimer() - began).to(gl.int32))


def compiled(language: str) -> Code:
    types = {"out": "*i32", "n": "i32"}
    if language == "triton":
        return compile_kernel(in_triton, types, spec())
    if language == "gluon":
        from tests.backends.gluon.compiling import compile_gluon

        return compile_gluon(in_gluon, types, spec())
    pytest.importorskip("cutlass")
    from tests.backends.cute import kernels
    from tests.backends.cute.compiling import compile_cute, floats, number, prof

    return compile_cute(kernels.launch, kernels.timed, floats(), number(), prof())


def made_of(text: str, register: str) -> list[str]:
    """Return the operations on the way from a register back to two others."""
    found = re.search(rf"^\s*([a-z][\w.]*)\s+{register},\s*(%\w+)(, %\w+)?;", text, re.MULTILINE)
    if found is None:
        return []
    return [found[1], *([] if found[3] else made_of(text, found[2]))]


@pytest.mark.parametrize("language", ["triton", "gluon", "cute"])
def test_a_clock_of_the_language_goes_along_as_payload(language: str) -> None:
    body = compiled(language).ptx.split("// ikp.end", 1)[1]  # what comes after init
    (payload,) = re.findall(r"v4\.b32 \[a\], \{0x\w+, %\w+, %\w+, (%\w+)\}", body)
    assert made_of(body, payload)[-1].startswith("sub")
    own = "%clock;" if language == "cute" else "%globaltimer;"
    before, _, after = body.partition("// ikp.clock")
    assert before.count(own) == 2
    assert "// ikp.finish" not in before and "// ikp.store" in after
