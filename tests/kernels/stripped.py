"""Kernels as if nobody had heard of ikp: the same source with every line of it taken out."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

OURS = {"ctx", "prof", "token", "first", "second", "flight", "following"}
"""Names that hold only what verbs take and return, in the modules that are stripped."""


def stripped(module: ModuleType, folder: Path) -> ModuleType:
    """Return ``module`` imported again from a file in ``folder``, without ikp in its source."""
    assert module.__file__ is not None
    tree = _Stripper().visit(ast.parse(Path(module.__file__).read_text()))
    text = ast.unparse(ast.fix_missing_locations(tree))
    assert not re.search(r"\bikp\b(?! view|.s )", text)
    name = f"{module.__name__.rpartition('.')[2]}_stripped"
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made  # Triton looks up the globals of the functions that a kernel calls
    spec.loader.exec_module(made)
    return made


class _Stripper(ast.NodeTransformer):
    """Removes statements that call verbs, and everything that passes their results on."""

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        return None if any(alias.name == "ikp" for alias in node.names) else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if _is_verb(node.value) or isinstance(node.value, ast.Constant):  # docstrings too
            return None
        return self.generic_visit(node)

    def visit_With(self, node: ast.With) -> list[ast.stmt]:
        assert all(_is_verb(item.context_expr) for item in node.items)
        return [kept for part in node.body for kept in _as_list(self.visit(part))]

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        if _is_verb(node.value) or _is_ours(node.targets[0]):
            return None
        return self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> ast.AST | None:
        return None if node.value is not None and _is_verb(node.value) else self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        kept = [part for part in node.elts if not _is_ours(part)]
        if len(kept) == 1 and len(node.elts) > 1:
            return kept[0]
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = [argument for argument in node.args if not _is_ours(argument)]
        return self.generic_visit(node)

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        node.args = [argument for argument in node.args if argument.arg not in OURS]
        return node

    def _with_body(self, node: ast.If | ast.For | ast.While | ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    visit_If = visit_For = visit_While = visit_FunctionDef = _with_body  # noqa: N815


def _as_list(found: ast.AST | list[ast.stmt] | None) -> list[ast.stmt]:
    if found is None:
        return []
    return found if isinstance(found, list) else [found]  # type: ignore[list-item]


def _is_verb(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("ikp.", "open_in"))


def _is_ours(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in OURS
