"""Imports point one way, all of them: at the top, in functions, and for types alone."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.processes import use_slim_torch
from tests.repo.tree import ROOT, files, modules, nodes, syntax

pytestmark = pytest.mark.any_pins

COMMON = (
    *("errors", "version", "progress", "terminal", "patterns", "paths", "named_files", "probing"),
    *("compiling", "signals", "children", "tool_starter", "caches", "warning", "printing"),
    *("json_schema", "uncollected", "after_import"),
)
"""What every room but the core may import, which takes the last of them only."""

SASS = (
    *("sass", "sass.cubins", "sass.disassembly", "sass.control_flow", "sass.dataflow"),
    *("sass.insertion", "sass.assembly"),
)
PROBES = ("probes", "probes.points", "probes.code", "probes.placement")
MACHINE_CODE = (*SASS, *PROBES, "driver")
"""Finished machine code: who may import one of its folders may import all."""

EVERY_FORMAT = ("core", "plugins", "exporters", "exporters.timeline")
"""What a file format may import: none another one."""

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "core": ("errors", "compiling"),
    "targets": ("core",),
    "verifier": ("sass.cubins", "sass.disassembly"),
    "sass": (),
    "sass.cubins": (),
    "sass.disassembly": (),
    "sass.control_flow": ("sass.disassembly",),
    "sass.dataflow": ("sass.cubins", "sass.disassembly", "sass.control_flow"),
    "sass.insertion": ("sass.cubins",),
    "sass.assembly": ("sass.cubins",),
    "driver": ("core",),
    "probes": ("core", "verifier", *SASS, *PROBES[1:]),
    "probes.points": ("sass.disassembly", "sass.control_flow", "sass.dataflow"),
    "probes.code": ("core", "sass.cubins", "sass.disassembly", "sass.assembly"),
    "probes.placement": ("core", *SASS, *PROBES[1:-1]),
    "checking": ("driver", "sass.cubins"),
    "ptx": ("core", "targets", *MACHINE_CODE),
    "registry": (),
    "schemas": (),
    "unedited": ("core",),
    "verbs": ("core", "targets", "registry"),
    "plugins": ("core", "targets", "registry", "verbs", "unedited"),
    "session": ("core", "registry", "plugins", "driver"),
    "edit": ("core",),
    "analysis": ("core",),
    "calibration": ("core", "session"),
    "trace": ("core", "registry", "plugins", "analysis", "viewer"),
    "many": ("core", "analysis", "exporters.parquet", "trace"),
    "profiling": (
        *("host_traces", "exporters.perfetto"),
        *("core", "registry", "plugins", "session", "edit", "calibration", "unedited", "trace"),
        *("inspection", "analysis"),
    ),
    "backends": (
        "core",
        *MACHINE_CODE,
        "checking",
        "ptx",
        "session",
        "targets",
        "unedited",
        "verbs",
    ),
    "backends.driver": (
        *("core", "plugins", "verbs", "session", "unedited", "backends", "checking", *MACHINE_CODE),
    ),
    "backends.triton": (
        *("core", "targets", "plugins", "verbs", "session", "profiling", "unedited", "backends"),
        *(*MACHINE_CODE, "checking", "ptx", "registry"),
    ),
    "backends.gluon": ("core", "plugins", "verbs", "backends.triton", *MACHINE_CODE),
    "backends.cute": ("core", "targets", "plugins", "verbs", "backends", *MACHINE_CODE),
    "exporters.protobuf": ("compiling",),
    "exporters.timeline": ("core",),
    "exporters": ("core", "plugins", "exporters.timeline"),
    "exporters.columns": ("core", "exporters.protobuf"),
    "exporters.perfetto": (*EVERY_FORMAT, "exporters.protobuf", "exporters.columns"),
    "exporters.chrome": EVERY_FORMAT,
    "exporters.flame": EVERY_FORMAT,
    "exporters.hatchet": EVERY_FORMAT,
    "exporters.csv_file": EVERY_FORMAT,
    "exporters.parquet": EVERY_FORMAT,
    "inspection": ("core", "verifier", *MACHINE_CODE, "ptx", "targets", "registry", "plugins"),
    "host_traces": ("core",),
    "viewer": ("core", "edit", "exporters.columns", "exporters.perfetto", "exporters.protobuf"),
    "running": ("core", "registry", "session", "profiling", "unedited", "analysis", "trace"),
    "cli": (
        *("core", "registry", "plugins", "session", "profiling", "edit", "analysis", "calibration"),
        *("exporters", "inspection", "viewer", "running", "trace", "many", "host_traces"),
        *("exporters.perfetto", "schemas", "agents"),
    ),
    "agents": (),
    "notebook": ("profiling", "trace"),
    "__main__": ("cli",),
}
"""The rooms, and what each may import of ikp beside itself."""

EXCEPTIONS = {
    ("ikp.calibration._kernels", "ikp"): "shows what a user writes",
    ("ikp.cli._demo_kernel", "ikp"): "shows what a user writes",
    ("ikp.cli._demo", "ikp"): "shows what a user writes",
}
"""Arrows that point up, each with its reason."""

AT_THE_TOP_ONLY_IN = {
    "click": "cli",
    "google": "exporters",
    "mcp": "agents",
    "perfetto": "exporters",
    "triton": "backends.triton",
    "cutlass": "backends.cute",
    "pandas": None,
    "pydantic": "agents",
    "pyarrow": None,
    "ddsketch": None,
    "distributed": None,
    "rich": None,
    "stevedore": None,
    "torch": None,
}
"""Where a package that is heavy or optional may be imported at a module's top."""

USER_CODE = {"ikp.cli.programs.attention", "ikp.calibration._kernels", "ikp.cli._demo_kernel"}
"""Modules that show what a user writes, and so import what a user imports."""


@cache
def every_import(tree: ast.AST) -> tuple[str, ...]:
    """Return the dotted names that a module imports, wherever in it."""
    return tuple(name for node in nodes(tree) for name in imported(node))


def top_level_imports(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names that are imported when the module is, those for types left out."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from imported(node)
            todo += ast.iter_child_nodes(node)


def imported(node: ast.AST) -> Iterator[str]:
    """Yield the dotted names that one statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def room(name: str) -> str:
    """Return the innermost room that a module is in; "" for ikp itself."""
    rooms = (*MAY_IMPORT, *COMMON)
    return max((each for each in rooms if within(name, f"ikp.{each}")), key=len, default="")


@cache
def parsed() -> dict[str, ast.Module]:
    return {name: syntax(path) for name, path in modules().items()}


def allowed(module: str, name: str) -> bool:
    here, there = room(module), room(name)
    if here == there or (there in COMMON and here not in ("core", "exporters.protobuf")):
        return True
    return there in MAY_IMPORT.get(here, ())


def excepted(module: str, name: str) -> tuple[str, str] | None:
    return next((each for each in EXCEPTIONS if each[0] == module and within(name, each[1])), None)


def test_all_imports_point_down() -> None:
    wrong, used = [], set()
    for module, tree in parsed().items():
        if module in ("ikp", "ikp.sass"):  # the doors: each names the home of each public name
            continue
        for name in every_import(tree):
            if within(name, "ikp") and not allowed(module, name):
                exception = excepted(module, name)
                used.add(exception)
                if exception is None:
                    wrong.append(f"{module} imports {name}")
    assert wrong == []
    assert EXCEPTIONS.keys() - used == set(), "exceptions that nothing needs any more"


def test_the_rooms_have_no_circle() -> None:
    above: dict[str, int] = {}

    def height(one: str, path: tuple[str, ...]) -> int:
        assert one not in path, f"a circle: {' -> '.join((*path, one))}"
        if one not in above:
            below = (height(each, (*path, one)) for each in MAY_IMPORT.get(one, ()))
            above[one] = 1 + max(below, default=0)
        return above[one]

    assert max(height(one, ()) for one in MAY_IMPORT) > 1


def module_of(name: str) -> str:
    """Return the module that a dotted name is, or is in; "" for none of ikp's."""
    known = parsed()
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def circle() -> list[str]:
    """Return modules that import each other in a circle; none if none do."""
    graph = {
        module: {
            there for name in every_import(tree) if (there := module_of(name)) not in ("", module)
        }
        for module, tree in parsed().items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(each) for each in error.args[1]]
    return []


def test_no_files_import_each_other_in_a_circle() -> None:
    """All imports count, those inside functions and for types, too."""
    assert circle() == []


def test_a_module_with_an_underscore_is_its_own_rooms() -> None:
    wrong = []
    for module, tree in parsed().items():
        for name in every_import(tree):
            folder, underscore, _ = name.partition("._")
            if underscore and within(name, "ikp") and not within(module, folder):
                wrong.append(f"{module} imports {name}")
    assert [each for each in wrong if "__" not in each] == []


def test_the_core_knows_numpy_alone() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, tree in parsed().items()
        if room(module) == "core"
        for name in every_import(tree)
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "numpy", "ikp"}
    ]
    assert wrong == []


def test_a_package_in_plugins_imports_what_a_stranger_may() -> None:
    sources = [path for path in files() if path.parts[0] == "plugins" and path.suffix == ".py"]
    wrong = [
        f"{path} imports {name}"
        for path in sources
        if "tests" not in path.parts
        for name in every_import(syntax(path))
        if within(name, "ikp") and not within(name, "ikp.plugins")
    ]
    assert sources and wrong == []


ELSEWHERE = re.compile(r"\b(?:amd\w*|rocm|hips?|hsa\w*|gfx\d\w*|gcn|mi[23]\d0)\b", re.IGNORECASE)
"""Words for GPUs whose package is another one."""
NAMES_THEM = {
    ("backends/triton/gpu_targets.py", "hip"): "the error that says which package to install",
    ("backends/triton/gpu_targets.py", "amd"): "the error that says which package to install",
}


def test_ikp_names_no_gpus_that_a_package_in_plugins_has() -> None:
    found = {
        (path.relative_to("ikp").as_posix(), word.lower())
        for path in files()
        if path.parts[0] == "ikp" and path.suffix in (".py", ".toml", ".md")
        for word in ELSEWHERE.findall((ROOT / path).read_text(encoding="utf-8"))
    }
    assert found == NAMES_THEM.keys()


@cache
def defined(tree: ast.Module) -> set[str]:
    """Return what a module has at its top."""
    names = {each.id for each in nodes(tree) if isinstance(each, ast.Name)}
    made = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)
    names |= {each.name for each in nodes(tree) if isinstance(each, made)}
    imports = (each for each in nodes(tree) if isinstance(each, (ast.Import, ast.ImportFrom)))
    return names | {alias.asname or alias.name for each in imports for alias in each.names}


def test_what_no_test_runs_imports_what_is_there() -> None:
    """Benchmarks need a GPU, or minutes: a name that moved would be missed by whoever runs one."""
    known = parsed()
    wrong = [
        f"{path}: {each.module}.{alias.name}"
        for path in files()
        if path.parts[0] in ("benchmarks", "examples", "tools") and path.suffix == ".py"
        for each in nodes(syntax(path))
        if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("ikp.")
        for alias in each.names
        if f"{each.module}.{alias.name}" not in known
        and alias.name not in defined(known.get(str(each.module), ast.Module([], [])))
    ]
    assert wrong == []


def test_heavy_packages_are_imported_where_they_are_used() -> None:
    def misplaced(module: str, name: str) -> bool:
        package = name.partition(".")[0]
        where = AT_THE_TOP_ONLY_IN.get(package)
        return package in AT_THE_TOP_ONLY_IN and not (where and within(module, f"ikp.{where}"))

    wrong = [
        f"{module} imports {name}"
        for module, tree in parsed().items()
        for name in top_level_imports(tree)
        if module not in USER_CODE and misplaced(module, name)
    ]
    assert wrong == []


def test_the_rule_sees_what_it_must_and_no_more() -> None:
    source = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import torch
else:
    import a
try:
    from b import c
except ImportError:
    import d.e
class K:
    import f
    def late(self):
        import triton
"""
    found = set(top_level_imports(ast.parse(source)))
    assert found == {"typing.TYPE_CHECKING", "a", "b.c", "d.e", "f"}
    assert set(every_import(ast.parse(source))) == found | {"torch", "triton"}
    assert not allowed("ikp.core.abi", "ikp.session.memory.Arena")
    assert not allowed("ikp.core.abi", "ikp.terminal.bare")
    assert allowed("ikp.session.memory", "ikp.core.abi.Kind")
    assert not allowed("ikp.exporters.timeline.tracks", "ikp.exporters.perfetto._schema")
    assert not allowed("ikp.exporters.chrome", "ikp.exporters.perfetto._schema")
    assert not allowed("ikp.exporters.protobuf.varints", "ikp.exporters.perfetto._schema")


def loaded_by(code: str) -> set[str]:
    """Return the packages outside the standard library that a fresh process loads for ``code``."""
    loaded = {name.partition(".")[0] for name in modules_loaded_by(code)}
    return loaded - sys.stdlib_module_names


def modules_loaded_by(code: str) -> set[str]:
    """Return the modules that a fresh process loads for ``code``."""
    script = (
        f"import sys; before = set(sys.modules); {code}; "
        "print('LOADED', *(set(sys.modules) - before))"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(ran.stdout.rpartition("LOADED")[2].split())


def test_writing_a_pftrace_loads_nothing_that_reads_one() -> None:
    reading = {"reader", "column_file", "first_look", "salvage", "_walk"}
    rooms = {f"ikp.exporters.perfetto.{each}" for each in reading}
    rooms |= {f"ikp.exporters.columns.{each}" for each in ("chunk", "event_chunks", "small_tables")}
    assert rooms <= parsed().keys()
    loaded = modules_loaded_by("import ikp.exporters.perfetto._writer")
    assert "ikp.exporters.perfetto._events" in loaded and not loaded & rooms


def test_import_ikp_loads_only_the_standard_library() -> None:
    assert loaded_by("import ikp") == {"ikp"}


def test_help_loads_only_the_command_line() -> None:
    run = "cli.main(['--help'], standalone_mode=False)"
    assert loaded_by(f"from ikp.cli.main import cli; {run}") == {"click", "ikp"}


NOT_FOR_A_SESSION = (
    *("ikp.exporters.chrome", "ikp.exporters.hatchet", "ikp.exporters.csv_file"),
    "ikp.exporters.flame",
    *("ikp.exporters.parquet", "ikp.exporters.perfetto.reader"),
    *("ikp.backends.triton.unedited", "ikp.backends.cute"),
    *("ikp.analysis", "ikp.calibration", "ikp.cli", "ikp.edit", "ikp.inspection", "ikp.viewer"),
    *("pandas", "pyarrow", "rich", "click"),
)
"""What a session that writes a Perfetto trace has no use for."""


def test_what_changes_machine_code_is_loaded_with_the_first_recorded_launch() -> None:
    """A program that imports torch under `ikp run` waits for what it may never use."""
    pytest.importorskip("triton")
    begin = (
        "from ikp.unedited.plan import plan; from ikp.backends.triton import TritonBackend; "
        "import triton; chosen = dict(launches=range(8), buffer={}, kernels=None, room=1); "
        "TritonBackend.watch(plan(), **chosen).stepping_in().__enter__()"
    )
    loaded = modules_loaded_by(begin)
    assert "ikp.backends.patched" in loaded
    assert not [each for each in loaded if each.startswith(("ikp.sass.", "ikp.probes.p"))]


@pytest.mark.parametrize("interpreted", ["0", "1"])
def test_a_session_loads_the_exporter_of_its_path_and_no_other(
    interpreted: str, tmp_path: Path
) -> None:
    """What plugins have for other GPUs is not loaded until a kernel is compiled for one."""
    for package in ("torch", "triton"):
        pytest.importorskip(package)
    script = (
        "import sys, ikp\n"
        "with ikp.profile(sys.argv[1], device='cpu', backend='triton') as prof:\n"
        "    prof.buffer('k')\n"
        "    loaded = set(sys.modules)\n"
        "print('LOADED', *loaded)"
    )
    use_slim_torch(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "x.pftrace")],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": interpreted},
    )
    loaded = set(ran.stdout.rpartition("LOADED")[2].split())
    assert {"ikp.exporters.perfetto._writer", "ikp.backends.triton._hooks"} <= loaded
    assert "ikp_amd" not in loaded
    assert [one for one in loaded if any(within(one, each) for each in NOT_FOR_A_SESSION)] == []
