"""What takes any error for ikp's own passes on what a program's signal handler has raised."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.repo.tree import modules, nodes, syntax

pytestmark = pytest.mark.any_pins

EXCEPTED = {
    ("ikp.cli._gpu", "find"): "a command, which runs no program",
    ("ikp.cli._plugins", "check"): "a command, which runs no program",
    ("ikp.exporters.perfetto._writer", "_work"): "a thread of its own, where no handler runs",
    ("ikp.running.startup.sitecustomize", "_flush"): "the program is over, and ikp not imported",
    ("ikp.signals", "window"): "the module that it is about",
    ("ikp.signals", "_give_back"): "the module that it is about",
    ("ikp.checking.child", "_check"): "a process of its own",
    ("ikp.session.harvest", "_read"): "a thread of its own, where no handler runs",
    ("ikp.session.segment_sources", "waited_for"): "a thread of its own, where no handler runs",
    ("ikp.session.service", "run"): "a thread of its own, where no handler runs",
    ("ikp.session.service", "answered"): "a thread of its own, where no handler runs",
    ("ikp.session.termination", "_end"): "a thread of its own, while the process ends",
}
"""Fences that pass nothing on, each with its reason."""


STARTS_CHILDREN = {
    "ikp.children": "the place",
    "ikp.tool_starter": "what the place asks where no child of the program may be started",
}
"""Modules that start processes, each with its reason."""


def test_one_place_starts_children() -> None:
    """They have a limit there, and end with their parent."""
    found = {
        name
        for name, path in modules().items()
        for node in nodes(syntax(path))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
        if "subprocess" in (alias.name, getattr(node, "module", ""))
    }
    assert found == STARTS_CHILDREN.keys(), "use ikp.children.run"


def test_no_function_of_python_s_starts_one_unseen() -> None:
    """``platform`` asks ``uname -p``, ``ctypes.util`` a compiler: as children of the program."""
    starts = {"platform.platform", "platform.processor", "ctypes.util.find_library", "os.popen"}
    found = {
        (name, ast.unparse(node))
        for name, path in modules().items()
        if not name.startswith(("ikp.cli", "ikp.analysis"))  # which run in processes of their own
        for node in nodes(syntax(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in starts
    }
    assert found == set()


def fences(tree: ast.Module) -> Iterator[tuple[str, ast.ExceptHandler]]:
    """Yield the handlers of any exception, each with the function that has it."""
    for function in nodes(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for node in own_nodes(function):
                if isinstance(node, ast.ExceptHandler) and takes_all(node):
                    yield function.name, node


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, but of those within it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
            yield from own_nodes(node)


def takes_all(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {each.id for each in kinds if isinstance(each, ast.Name)}
    return handler.type is None or bool(names & {"Exception", "BaseException"})


def lets_through(handler: ast.ExceptHandler) -> bool:
    """Whether the first or the only thing that a handler comes to is to pass on, or to raise."""
    last = handler.body[-1]
    calls = (each.func for each in ast.walk(handler) if isinstance(each, ast.Call))
    passes = any(getattr(each, "id", getattr(each, "attr", "")) == "pass_on" for each in calls)
    return passes or (isinstance(last, ast.Raise) and last.exc is None)


def test_every_fence_passes_on_what_a_signal_handler_raised() -> None:
    wrong = {
        (name, function)
        for name, path in modules().items()
        for function, handler in fences(syntax(path))
        if not lets_through(handler)
    }
    assert wrong - EXCEPTED.keys() == set(), "call ikp.signals.pass_on(error) first"
    assert EXCEPTED.keys() - wrong == set(), "exceptions that nothing needs any more"


def test_the_rule_sees_what_it_must_and_no_more() -> None:
    source = """
def bad():
    try: pass
    except (ValueError, Exception) as error: print(error)
    def inner():
        try: pass
        except: pass
def good():
    try: pass
    except Exception as error:
        signals.pass_on(error)
        print(error)
    try: pass
    except BaseException:
        undo()
        raise
    try: pass
    except OSError: pass
"""
    found = [(name, lets_through(each)) for name, each in fences(ast.parse(source))]
    assert sorted(found) == [("bad", False), ("good", True), ("good", True), ("inner", False)]
