"""``rewrite``: inserts marks into a kernel's syntax tree, around its loops, operations and lines.

The tree keeps the line of every node. So the compiler's messages, its debug information and the
names of the ranges all have the lines that the author wrote. No node is taken out or reordered.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Protocol

from ikp.backends.triton.unedited import _by_hand as by_hand
from ikp.backends.triton.unedited import _mark_nodes as mark_nodes
from ikp.backends.triton.unedited._foreign import JittedFunction
from ikp.backends.triton.unedited._mark_nodes import VERBS, at
from ikp.backends.triton.unedited._operations import (
    Names,
    is_helper,
    is_operation,
    is_verb,
)
from ikp.errors import KernelError
from ikp.paths import shown
from ikp.unedited.plan import Plan


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """One jitted function as its author wrote it."""

    name: str
    path: str
    first_line: int  # of its ``def``, in the file
    tree: ast.Module  # line 1 is that of ``def``
    scope: dict[str, object]  # objects of names outside the function

    @property
    def definition(self) -> ast.FunctionDef:
        """The function's node.

        Raises:
            KernelError: the source holds none.
        """
        node = self.tree.body[0] if self.tree.body else None
        if not isinstance(node, ast.FunctionDef):
            raise KernelError(f"the source of {self.name} in {self.path} is not a function.")
        return node

    @property
    def last_line(self) -> int:
        """The function's last line, in the file."""
        return self.first_line + (self.definition.end_lineno or 1) - 1


class Clone(Protocol):
    """The instrumented clone of a jitted function."""

    ikp_marked: Marked

    @property
    def cache_key(self) -> str:
        """Identify the marked code."""

    def run(self, *args: object, **kwargs: object) -> object:
        """Launch it, where it is a kernel."""


_Helper = Callable[[JittedFunction], Clone | None]
"""Returns the instrumented clone of a helper, or None where it has none."""


@dataclass(slots=True)
class Marked:
    """A function with marks. ``helpers`` are the marked functions it calls, by their new names."""

    tree: ast.Module
    helpers: dict[str, Clone] = field(default_factory=dict)
    marks: int = 0
    chosen: int = 0  # marks for chosen lines


def rewrite(source: FunctionSource, plan: Plan, role: str, helper: _Helper) -> Marked:
    """Return a function with the marks of ``plan``; ``source`` stays as it is.

    Args:
        source: the function.
        plan: the marks to insert.
        role: "kernel" or "helper".
        helper: returns the clone of a jitted function that this one calls, or None to call it as it
            is.
    """
    tree = copy.deepcopy(source.tree)
    marked = Marked(tree)
    made = FunctionSource(source.name, source.path, source.first_line, tree, source.scope)
    _TreeRewriter(made, plan, marked, helper).function(role)
    ast.fix_missing_locations(tree)
    return marked


def records_itself(source: FunctionSource) -> bool:
    """Return whether a function calls ``ikp.init``: its author has marked it by hand."""
    names = Names(source.definition, source.scope)
    called = (names.object_of(n.func) for n in ast.walk(source.tree) if isinstance(n, ast.Call))
    return any(is_verb(found) and getattr(found, "__name__", "") == "init" for found in called)


class _TreeRewriter(ast.NodeTransformer):
    """Rewrites the tree of one function in place."""

    def __init__(
        self,
        source: FunctionSource,
        plan: Plan,
        marked: Marked,
        helper: _Helper,
    ) -> None:
        self._source, self._plan, self._marked, self._helper = source, plan, marked, helper
        self._node = source.definition
        self._names = Names(self._node, source.scope)
        self._at_source = plan.level == "source"
        self._inside_helpers = self._at_source and (plan.loops or bool(plan.lines))
        self._taken: set[str] = set()
        self._flattened = 0  # enclosing loops that the compiler flattens with the loops in them
        self._inner = 0  # enclosing loops inside a flattened one

    def function(self, role: str) -> None:
        """Mark the whole function, and the statements in it."""
        node = self._node
        if self._at_source and self._plan.lines:
            node.body = self._chosen_lines(node.body)
        node.body = [kept for part in node.body for kept in _listed(self.visit(part))]
        if role == "kernel" and self._at_source:
            mark_nodes.whole(node, f"{self._source.name} {self._place(node)}")
            self._marked.marks += 1
        if role == "kernel":
            mark_nodes.add_parameter(node, self._source.name)
            node.body.insert(0, mark_nodes.opening(node.body[0]))
            if not self._at_source:
                file = by_hand.token(Path(self._plan.ttgir))
                node.body.insert(1, mark_nodes.statement("by_hand", file, node.body[0]))

    # Nodes to mark.

    def visit_For(self, node: ast.For) -> ast.AST:
        """Mark a loop and its iterations; the target is the iterations' payload."""
        flat = _is_flattened(node)
        inner = not flat and self._flattened > 0
        self._flattened, self._inner = self._flattened + flat, self._inner + inner
        self.generic_visit(node)
        self._flattened, self._inner = self._flattened - flat, self._inner - inner
        if flat:
            return node
        target = ast.unparse(node.target)
        variable = [ast.Name(target, ast.Load())] if isinstance(node.target, ast.Name) else []
        return self._loop(node, f"for {target}", *variable)

    def visit_While(self, node: ast.While) -> ast.AST:
        """Mark a loop and its iterations."""
        text = _short(ast.unparse(node.test))
        self.generic_visit(node)
        return self._loop(node, f"while {text}")

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Mark an operation or a call of a helper."""
        operation = is_operation(node, self._names)
        known = self._names.object_of(node.func)
        text = _short(ast.unparse(node.func))
        self.generic_visit(node)
        if is_helper(known):
            self._replace(node, known)
            operation = True
        between = self._flattened and not self._inner
        if not (operation and self._plan.ops and self._at_source) or between:
            return node
        self._marked.marks += 1
        return mark_nodes.around(node, self._named(text, node))

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """Leave a lambda as it is: its body runs elsewhere."""
        return node

    def _loop(self, node: ast.For | ast.While, text: str, *variable: ast.expr) -> ast.AST:
        """Mark a loop and its iterations.

        Where the source asks to flatten a loop nest, a mark between two loops would keep the
        compiler from it. There, only iterations of inner loops and the operations in them are
        marked.
        """
        if not (self._plan.loops and self._at_source) or _has(node, ast.Return):
            return node
        place = self._place(node)
        inner = self._with("iteration", node.body, f"{text} iteration {place}", *variable)
        node.body = [inner]
        if self._flattened:
            return node
        return self._with("range", [node], f"{text} {place}")

    def _chosen_lines(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return statements, with each run of statements in chosen lines put into a range."""
        made: list[ast.stmt] = []
        group: list[ast.stmt] = []
        for statement in [*body, None]:
            if statement is not None and self._is_chosen(statement):
                group.append(statement)
                continue
            if group:
                first, last = self._line(group[0]), self._line(group[-1], end=True)
                span = str(first) if first == last else f"{first}-{last}"
                made.append(self._with("range", group, f"{self._file}:{span}"))
                self._marked.chosen += 1
                group = []
            if statement is not None:
                for name in ("body", "orelse"):
                    if inner := getattr(statement, name, None):
                        setattr(statement, name, self._chosen_lines(inner))
                made.append(statement)
        return made

    def _is_chosen(self, statement: ast.stmt) -> bool:
        if _has(statement, ast.Return) or _is_text(statement):
            return False
        span = self._line(statement), self._line(statement, end=True)
        return any(lines.hold(self._source.path, *span) for lines in self._plan.lines)

    def _with(self, verb: str, body: list[ast.stmt], name: str, *payload: ast.expr) -> ast.With:
        self._marked.marks += 1
        return mark_nodes.block(verb, body, name, *payload)

    # Calls of helpers.

    def _replace(self, call: ast.Call, function: JittedFunction) -> None:
        """Have a call call the instrumented clone of a helper."""
        name = self._bound(function)
        if name is not None:
            call.func = at(ast.Name(name, ast.Load()), call.func)

    def _bound(self, function: JittedFunction) -> str | None:
        made = self._helper(function) if self._inside_helpers else None
        if made is None:
            return None
        for name, known in self._marked.helpers.items():
            if known is made:
                return name
        name = f"{VERBS}_{len(self._marked.helpers)}_{function.__name__}"
        self._marked.helpers[name] = made
        return name

    # Names.

    @property
    def _file(self) -> str:
        return shown(PurePath(self._source.path).name)

    def _line(self, node: ast.AST, *, end: bool = False) -> int:
        relative: int = (end and getattr(node, "end_lineno", None)) or node.lineno  # type: ignore[attr-defined]
        return self._source.first_line + relative - 1

    def _place(self, node: ast.AST) -> str:
        return f"@{self._file}:{self._line(node)}"

    def _named(self, text: str, node: ast.Call) -> str:
        """Return the name of an operation; with its column where a line has two of one name."""
        name = f"{text} {self._place(node)}"
        if name in self._taken:
            name = f"{name}:{node.col_offset + 1}"
        self._taken.add(name)
        return name


def _is_flattened(node: ast.For) -> bool:
    """Return whether a loop asks, or may ask, the compiler to flatten it with its inner loops."""
    keywords = node.iter.keywords if isinstance(node.iter, ast.Call) else []
    values = [keyword.value for keyword in keywords if keyword.arg == "flatten"]
    return any(not (isinstance(v, ast.Constant) and not v.value) for v in values)


def _has(node: ast.AST, kind: type[ast.AST]) -> bool:
    return any(isinstance(part, kind) for part in ast.walk(node))


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _listed(found: ast.stmt | list[ast.stmt]) -> list[ast.stmt]:
    return found if isinstance(found, list) else [found]


def _short(text: str, limit: int = 40) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
