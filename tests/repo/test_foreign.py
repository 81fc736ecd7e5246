"""Undocumented names of other packages are used where they are listed, and nowhere else."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.repo.tree import ROOT, modules, nodes, syntax

pytestmark = pytest.mark.any_pins

PUBLIC = {
    *("triton", "triton.language", "triton.jit", "triton.language.constexpr"),
    *(
        "torch",
        "torch.distributed",
        "torch.profiler",
        "torch.nn.functional.scaled_dot_product_attention",
    ),
    *("cutlass", "cutlass.Float32", "cutlass.Int32", "cutlass.Int64", "cutlass.Uint32"),
}
"""What ikp imports of them that their documentation has."""

LISTS = (
    "ikp.backends.triton.unedited._foreign",
    "ikp.backends.triton.foreign",
    "ikp.backends.cute._foreign",
    "ikp.profiling.foreign",
    "ikp.session._foreign",
)

EXCEPTIONS = {
    (
        "ikp.probes.points.source_ranges",
        "cutlass.cute.experimental.iket",
    ): "what users' sources import, which are read, not run",
    ("ikp.running.startup.sitecustomize", "tvm_ffi"): "a package's name, which is public",
    ("ikp.backends.triton.unedited._operations", "torch._inductor"): "a prefix of names",
    (
        "ikp.backends.triton.unedited._clones",
        "*",
    ): "a twin is a copy of Triton's object; foreign.fits looked at that",
    ("ikp.backends.triton.unedited._inductor", "*"): "TORCH.fits looked at the object before",
    (
        "ikp.backends.triton.unedited.everything",
        "*",
    ): "steps in where TRITON.has said yes, and sets what it found",
    ("ikp.backends.triton.unedited._special", "*"): "of a kernel that foreign.fits has looked at",
    ("ikp.backends.triton.unedited._warm", "*"): "of a kernel that foreign.fits has looked at",
    ("ikp.backends.triton.adapter", "*"): "compiling gives it only where TRITON.has(VERBS)",
    ("ikp.backends.triton._state", "backend_name"): "called by Compiled only",
    ("ikp.backends.triton._hooks", "backend_name"): "NVIDIA's, where options have none",
    ("ikp.backends.triton.adapter", "backend_name"): "asked behind TRITON.has(VERBS)",
    (
        "ikp.backends.triton.unedited._expressions",
        "backend_name",
    ): "a twin's code calls it, with a buffer",
    ("ikp.backends.cute._checks", "*"): "loaded where CUTE.has(CALLS): extends what that has found",
    ("ikp.session.handed", "_disabled_torch_function_impl"): "torch's documentation has it",
    (
        "ikp.profiling.torch_profiler",
        "_profiler_enabled",
    ): "in torch.autograd for ten releases; without it host=True fails before any kernel runs",
    (
        "ikp.running.startup.sitecustomize",
        "torch._inductor.runtime.triton_heuristics",
    ): "waits for its import, if that comes",
    ("ikp.session.handed", "_data"): "an attribute of ikp's own",
    ("ikp.session.replays", "_data"): "an attribute of ikp's own",
    ("ikp.cli._target", "torch.distributed.launch"): "documented, as python -m",
    ("ikp.cli._target", "torch.distributed.run"): "documented, as python -m",
    ("ikp.backends.triton._hooks", "is_ikp"): "ikp's own sign, which foreign looks for",
    ("ikp.backends.triton._image", "arg_names"): "only makes an error's text better",
}
"""Other places, with the reason why a name that has gone does no harm there."""


@cache
def trees() -> dict[str, ast.Module]:
    return {name: syntax(path) for name, path in modules().items() if name not in LISTS}


@cache
def listed() -> set[str]:
    """Return the last parts of all names in the lists that are words of their own."""
    texts = "".join(modules()[name].read_text(encoding="utf-8") for name in LISTS)
    words = re.findall(r'"(?:[\w.]+\.)?(\w+)"', texts)
    telling = {word for word in words if "_" in word and word == word.lower()}
    return telling - {"inline_asm_elementwise", "__init__"}  # documented; everywhere


@cache
def own() -> set[str]:
    """Return the names with an underscore in front that ikp defines itself."""
    found = set()
    for tree in trees().values():
        for node in nodes(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found |= {node.attr} if ast.unparse(node.value) in ("self", "cls") else set()
    return found


def private(tree: ast.Module) -> Iterator[str]:
    """Yield the names in a module that look like undocumented ones of another package."""
    mine, theirs = own(), listed()
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if foreign(each.name))
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{each.name}" for each in node.names]
            yield from (name for name in names if foreign(name))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"(triton|cutlass|torch)(\.\w+)+\.?", node.value):
                yield from [node.value.rstrip(".")] if foreign(node.value.rstrip(".")) else []
            elif node.value in theirs and not node.value.startswith("ikp"):
                yield node.value
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("foreign", "sys"):
            undocumented = re.match(r"_[a-z]", node.attr) and node.attr not in mine
            if node.attr in theirs or undocumented:
                yield node.attr


@cache
def used() -> set[tuple[str, str]]:
    """Return each module with each such name in it."""
    return {(module, name) for module, tree in trees().items() for name in private(tree)}


def foreign(name: str) -> bool:
    return name.partition(".")[0] in ("triton", "cutlass", "torch") and name not in PUBLIC


def excused(module: str, name: str) -> Any:
    return EXCEPTIONS.get((module, name)) or EXCEPTIONS.get((module, "*"))


def test_undocumented_names_are_used_where_they_are_listed() -> None:
    assert {pair for pair in used() if not excused(*pair)} == set()


def test_the_rule_sees_what_it_must() -> None:
    source = """
from triton import knobs
from triton.runtime.jit import JITFunction
import torch._inductor
import triton.language as tl
MODULE = "torch._inductor.runtime"
def f(kernel, self):
    kernel._bench
    kernel.device_caches
    self._own
    getattr(kernel, "_fn_name")
"""
    found = set(private(ast.parse(source)))
    wanted = {"triton.knobs", "triton.runtime.jit.JITFunction", "torch._inductor", "_bench"}
    assert wanted | {"torch._inductor.runtime", "device_caches"} <= found
    assert "triton.language" not in found


def test_every_exception_is_needed() -> None:
    needed = used() | {(module, "*") for module, _ in used()}
    assert set(EXCEPTIONS) - needed == set()


def test_the_versions_are_those_that_can_be_installed() -> None:
    from ikp.backends.triton.unedited import _foreign as launches

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = str(project["optional-dependencies"])
    first, last = launches.TRITON.known
    major, minor = map(int, last.split("."))
    assert f"triton>={first},<{major}.{minor + 1}" in text
    assert f"torch>={launches.TORCH.known[0]}" in text
    cute = modules()["ikp.backends.cute._foreign"].read_text(encoding="utf-8")
    (oldest,) = re.findall(r'"nvidia-cutlass-dsl", \("([\d.]+)"', cute)
    assert f"nvidia-cutlass-dsl>={oldest}" in text
