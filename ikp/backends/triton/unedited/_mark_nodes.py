"""Builders of the syntax tree nodes that are marks: calls of verbs, ``with`` blocks, a parameter.

Each has the source position of a node of the author's, so that lines stay true.
"""

from __future__ import annotations

import ast
from typing import TypeVar

from ikp.errors import UsageError

VERBS = "_ikp"
"""The name of the module ``_expressions`` in a marked function."""
PROF = "_ikp_prof"
"""The parameter that a marked kernel has in addition."""

_Node = TypeVar("_Node", bound=ast.AST)


def at(node: _Node, place: ast.AST) -> _Node:
    """Return the node, with the source position of another one."""
    return ast.copy_location(node, place)


def statement(verb: str, text: str, place: ast.AST) -> ast.Expr:
    """Return ``verb(text)`` as a statement."""
    return at(ast.Expr(_call(verb, ast.Constant(text))), place)


def opening(place: ast.AST) -> ast.Expr:
    """Return the ``init`` of a marked kernel."""
    return at(ast.Expr(_call("init", ast.Name(PROF, ast.Load()))), place)


def block(verb: str, body: list[ast.stmt], name: str, *payload: ast.expr) -> ast.With:
    """Return statements in a range."""
    item = ast.withitem(_call(verb, ast.Constant(name), *payload))
    return at(ast.With([item], body), body[0])


def around(node: ast.Call, name: str) -> ast.Call:
    """Return a call in a range, which opens when the call's last argument is evaluated."""
    last = node.args[-1] if node.args else None
    constant = ast.Constant(name)
    if last is not None and not isinstance(last, ast.Starred):
        node.args[-1] = at(_call("opened", last, constant), last)
        return at(_call("closed", node), node)
    # Without such an argument, the range opens before the call, and holds its arguments, too.
    return at(_call("closed", _call("opened", ast.Constant(None), constant), node), node)


def whole(node: ast.FunctionDef, name: str) -> None:
    """Put a kernel in a range, from its top to each of its exits."""
    _Exits(name).visit(node)
    if not isinstance(node.body[-1], ast.Return):
        node.body.append(statement("leave", name, node.body[-1]))
    node.body.insert(0, statement("whole", name, node.body[0]))


def add_parameter(node: ast.FunctionDef, name: str) -> None:
    """Give a kernel the parameter that takes the buffer.

    Raises:
        UsageError: it has it already.
    """
    every = [arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)]
    if PROF in every:
        raise UsageError(f"{name} has a parameter {PROF}: it is marked already.")
    made = at(ast.arg(PROF), node)
    if node.args.vararg is not None or node.args.kwonlyargs:
        node.args.kwonlyargs.append(made)
        node.args.kw_defaults.append(at(ast.Constant(None), node))
    else:
        node.args.args.append(made)
        node.args.defaults.append(at(ast.Constant(None), node))


def _call(verb: str, *arguments: ast.expr) -> ast.Call:
    function = ast.Attribute(ast.Name(VERBS, ast.Load()), verb, ast.Load())
    return ast.Call(function, list(arguments), [])


class _Exits(ast.NodeTransformer):
    """Closes the range of a function before each ``return``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def visit_Return(self, node: ast.Return) -> ast.AST | list[ast.stmt]:
        if node.value is None:
            return [statement("leave", self._name, node), node]
        node.value = at(_call("passed", node.value, ast.Constant(self._name)), node.value)
        return node
