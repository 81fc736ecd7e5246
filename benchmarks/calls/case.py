"""What every module of calls shares: the form of a case, operands, and others' sources."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

Case = tuple[Callable[[], tuple[Any, ...]], Callable[..., Any]]
"""What makes the arguments of a call, and the call, which returns what it computed."""
SOURCES = "IKP_BENCHMARK_SOURCES"
"""The environment variable that names a folder with checkouts: triton, llm.c."""


class MissingError(Exception):
    """A library or a source that a case needs is not there."""


def randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def same(*tensors: Any) -> Callable[[], tuple[Any, ...]]:
    return lambda: tensors


def source(*parts: str) -> Path:
    """Return a file of a checkout.

    Raises:
        MissingError: it is not there.
    """
    path = Path(os.environ.get(SOURCES, "."), *parts)
    if not path.is_file():
        raise MissingError(f"no {'/'.join(parts)} under ${SOURCES}")
    return path


@cache
def definitions(*parts: str) -> ModuleType:
    """Import a script's imports, functions, classes and constants, and run nothing else of it.

    Its own examples begin with the first loop, or the first random operand, outside of functions.
    """
    path = source(*parts)
    tree = ast.parse(path.read_text())
    kept: list[ast.stmt] = []
    example = False
    for each in tree.body:
        defines = isinstance(each, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef))
        text = ast.unparse(each)
        example |= not defines and (isinstance(each, ast.For) or "torch.rand" in text)
        measures = any(word in text for word in ("perf_report", "parametrize", "__main__"))
        if not measures and (defines or not example):
            kept.append(each)
    tree.body = kept
    folder = Path(tempfile.mkdtemp())
    made = folder / f"{re.sub(r'[^a-z]+', '_', path.stem).strip('_')}.py"
    made.write_text(ast.unparse(tree))
    spec = importlib.util.spec_from_file_location(made.stem, made)
    if spec is None or spec.loader is None:
        raise MissingError(f"{made} is no module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[made.stem] = module
    spec.loader.exec_module(module)
    return module


def few_configurations(most: int = 3) -> None:
    """Let autotuners try a few of their configurations: tuning is no part of what is measured."""
    from triton.runtime.autotuner import Autotuner

    init = Autotuner.__init__

    def fewer(self: Any, fn: Any, arg_names: Any, configs: Any, *args: Any, **kwargs: Any) -> None:
        some = configs[:: -(-len(configs) // most)] if configs else configs
        init(self, fn, arg_names, some, *args, **kwargs)

    Autotuner.__init__ = fewer


def c_functions(path: Path, *names: str) -> str:
    """Return the text of some functions of a CUDA C++ file, or of common.h beside it."""
    text = path.read_text() + "".join(each.read_text() for each in path.parent.glob("common.h"))
    found = []
    for name in names:
        begin = re.search(
            rf"^(template[^\n]*\n)?__(global|device)__[^;{{}}]*\b{name}\s*\(", text, re.MULTILINE
        )
        if begin is None:
            raise MissingError(f"no function {name} in {path}")
        at = text.index("{", begin.end())
        depth, end = 1, at + 1
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        found.append(text[begin.start() : end])
    return "\n".join(found)


def raw(text: str, name: str) -> Any:
    """Compile CUDA C++ and return the kernel: ``kernel(grid, block, args, shared_mem)``."""
    return torch.cuda._compile_kernel(text, name)  # type: ignore[attr-defined]  # noqa: SLF001


def heads(batch: int = 2, length: int = 4096, count: int = 16) -> tuple[torch.Tensor, ...]:
    q, k, v = (randn(batch, length, count, 128) for _ in "qkv")
    return q, torch.nn.functional.normalize(k.float(), dim=-1).to(k.dtype), v


def gate(*shape: int) -> torch.Tensor:
    return torch.nn.functional.logsigmoid(randn(*shape, dtype=torch.float32))
