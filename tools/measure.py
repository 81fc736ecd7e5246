"""Measures of the code base: files, lines, circles, complexity, and files that one task visits.

``python -m tools.measure`` prints them as a table. ``--ways`` adds the files of ikp that three
tasks visit, with the lines that run in each: the demo's kernel from the verb to the file, in
Triton's interpreter; its cubin until it is patched; its recorded trace until the verdict. ``--cubin
FILE KERNEL`` and ``--trace FILE`` take others. A file is visited if a function of it is called.
Each task runs twice, and the second time counts.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "ikp"
DEMO = PACKAGE / "cli" / "recorded" / "attention.pftrace"
TraceFunction = Callable[[FrameType, str, Any], Any]
COMPLEX = 10
"""A function with more ways is complex: each condition, loop and comprehension adds one."""
_SENTENCE = re.compile(r"[^.!?]+[.!?](?=\s|$)")


def trees() -> dict[str, ast.Module]:
    """Return the syntax of each module, by dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def circles(modules: dict[str, ast.Module]) -> list[list[str]]:
    """Return the groups of modules that import each other in a circle; all imports count."""
    graph = {name: {*_imports(tree, modules)} - {name} for name, tree in modules.items()}
    reached = {name: _reached(graph, name) for name in graph}
    left, found = {*graph}, []
    for name in graph:
        if name in left:
            group = sorted(each for each in reached[name] if name in reached[each]) or [name]
            left -= {*group}
            found += [group] * (len(group) > 1)
    return found


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    waiting, found = [start], set[str]()
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def _imports(tree: ast.Module, modules: dict[str, ast.Module]) -> Iterator[str]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{each.name}" for each in node.names]
        for each in names:
            name = each
            while name and name not in modules:
                name = name.rpartition(".")[0]
            if name:
                yield name


def repeated_classes(modules: dict[str, ast.Module]) -> list[str]:
    """Return the names that two classes or more have."""
    kinds = (n for tree in modules.values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef))
    return [name for name, count in Counter(node.name for node in kinds).items() if count > 1]


def complex_share(modules: dict[str, ast.Module]) -> float:
    """Return the share of functions with more than ``COMPLEX`` ways, those inside them included."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = [n for tree in modules.values() for n in ast.walk(tree) if isinstance(n, kinds)]
    ways = [1 + sum(map(_branches, ast.walk(each))) for each in functions]
    return sum(each > COMPLEX for each in ways) / len(ways)


def _branches(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    kinds = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)
    return isinstance(node, (*kinds, ast.Assert))


def long_sentences() -> int:
    """Return the words of a sentence of the docs that nine in ten do not exceed."""
    words = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        if path.name == "api.md":
            continue
        text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        prose = [each for each in text.split("\n\n") if not each.lstrip().startswith(("#", "|"))]
        words += [len(one.split()) for part in prose for one in _SENTENCE.findall(part)]
    return sorted(words)[int(0.9 * len(words))]


def visited(task: Callable[[], object]) -> dict[str, int]:
    """Return the files of ikp that a task visits in its second run, with how many lines run."""
    task()
    lines: dict[str, set[int]] = {}

    def note(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        path = frame.f_code.co_filename
        if not path.startswith(f"{PACKAGE}{os.sep}"):
            return None
        found = lines.setdefault(path, set())
        if event == "line":
            found.add(frame.f_lineno)
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        task()
    finally:
        sys.settrace(before)
    return {str(Path(path).relative_to(PACKAGE)): len(found) for path, found in lines.items()}


def of_cubin(path: Path, kernel: str) -> dict[str, int]:
    """Return the files that a cubin visits until records are in it."""
    from ikp.probes.patch import patch

    data = path.read_bytes()
    return visited(lambda: patch(data, kernel))


def of_trace(path: Path) -> dict[str, int]:
    """Return the files that a trace visits from its file to its verdict as text."""
    import ikp

    trace = ikp.load(path)
    return visited(lambda: str(trace.explain()))


def of_record() -> dict[str, int]:
    """Return the files that records visit from the verb to a trace file, interpreted."""
    return _apart("interpreted", TRITON_INTERPRET="1")


def of_compiled() -> dict[str, int]:
    """Return the files that the demo's kernel visits, for sm_90, until records are in its code."""
    return _apart("compiled", TRITON_INTERPRET="0")


def _apart(name: str, **environment: str) -> dict[str, int]:
    """Return what a function of this module does with a folder, in a process of its own."""
    code = (
        "import json, sys; from pathlib import Path; from tools import measure; "
        f"print(json.dumps(measure.{name}(Path(sys.argv[1]))))"
    )
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, folder],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def interpreted(folder: Path) -> dict[str, int]:
    """Run the demo's kernel, in a process of Triton's interpreter; return the files visited."""
    import torch

    import ikp
    from ikp.cli._demo_kernel import attention

    q, k, v, out = (torch.zeros((1, 16, 16), dtype=torch.float16) for _ in range(4))

    def task() -> None:
        with ikp.profile(folder / "x.pftrace", force=True) as prof:
            attention[(1, 1)](
                *(q, k, v, out, 1.0, prof.buffer("attention")), TILES=1, BLOCK=16, DIM=16
            )

    return visited(task)


def compiled(folder: Path) -> dict[str, int]:
    """Compile the demo's kernel without its records; return the files that its patch visits."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from ikp.cli._demo_kernel import attention

    constants = {"prof": None, "TILES": 8, "BLOCK": 64, "DIM": 64}
    types = dict.fromkeys(attention.arg_names, "*fp16") | {"scale": "fp32"}
    types |= dict.fromkeys(constants, "constexpr")
    places = {(attention.arg_names.index(name),): value for name, value in constants.items()}
    made = triton.compile(ASTSource(attention, types, places), target=GPUTarget("cuda", 90, 32))
    file = folder / "attention.cubin"
    file.write_bytes(made.asm["cubin"])
    return of_cubin(file, made.metadata.name)


def ways(asked: argparse.Namespace) -> dict[str, dict[str, int]]:
    """Return the files of each way that is asked for, by what goes it."""
    found = {}
    if asked.cubin:
        found["a cubin"] = of_cubin(Path(asked.cubin[0]), asked.cubin[1])
    elif asked.ways:
        found["a cubin"] = of_compiled()
    if asked.trace or asked.ways:
        found["a verdict"] = of_trace(asked.trace or DEMO)
    if asked.ways:
        found["a record"] = of_record()
    return found


def main() -> None:
    """Print all measures."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure", description=__doc__)
    parser.add_argument("--cubin", nargs=2, metavar=("FILE", "KERNEL"))
    parser.add_argument("--trace", type=Path, metavar="FILE")
    parser.add_argument("--ways", action="store_true")
    asked = parser.parse_args()
    found = ways(asked)
    modules = trees()
    lines = [
        len(path.read_text(encoding="utf-8").splitlines())
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".c", ".h")
    ]
    groups = circles(modules)
    rows: dict[str, object] = {
        "files": len(lines),
        "lines": f"{sum(lines):,}",
        "lines of a file, median and most": f"{median(lines):.0f}, {max(lines)}",
        f"functions over complexity {COMPLEX}": f"{complex_share(modules):.1%}",
        "circles of files (files in them)": f"{len(groups)} ({sum(map(len, groups))})",
        "class names used twice or more": len(repeated_classes(modules)),
        "words of a sentence of the docs, p90": long_sentences(),
    }
    for name, files in found.items():
        rows[f"files that {name} visits (lines run)"] = f"{len(files)} ({sum(files.values()):,})"
    width = max(map(len, rows))
    sys.stdout.writelines(f"{name:<{width}}  {value}\n" for name, value in rows.items())
    for name, files in found.items():
        print(f"\n{name}: each file, and the lines of it that run")
        sys.stdout.writelines(f"{count:>5}  {path}\n" for path, count in sorted(files.items()))


if __name__ == "__main__":
    main()
