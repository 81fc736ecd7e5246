"""Decides which calls of a kernel are operations, jitted helpers or verbs; resolves their names."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import TypeGuard

from ikp.backends.triton.unedited._foreign import JittedFunction

_LIBRARIES = ("triton.", "torch._inductor.")

OPERATIONS = frozenset(
    (
        *("load", "store", "gather", "scatter"),  # of pointers, descriptors and shared memory
        *("load_tensor_descriptor", "store_tensor_descriptor", "buffer_load", "buffer_store"),
        *("dot", "dot_scaled", "dot_fma", "mfma", "mfma_scaled", "wmma", "wmma_scaled"),
        *("debug_barrier", "barrier", "thread_barrier", "wait", "arrive"),
        *("commit_group", "wait_group"),
    )
)
"""Functions of Triton's languages that move data, multiply tiles or wait."""
_PREFIXES = ("atomic_", "async_", "buffer_atomic_")
_METHODS = ("load", "store", "gather", "scatter", "atomic_")
"""The same, as methods of objects that only the compiler knows: descriptors and shared memory."""


_LANGUAGE = re.compile(r"triton\.(?:experimental\.\w+\.)?language\b")
"""The modules of Triton's own language, and of the others that it compiles."""


class Names:
    """The objects that names in one function refer to, as far as the source alone shows."""

    def __init__(self, tree: ast.FunctionDef, scope: Mapping[str, object]) -> None:
        self._scope = scope
        self._local = {arg.arg for arg in ast.walk(tree.args) if isinstance(arg, ast.arg)}
        self._local |= {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }

    def object_of(self, node: ast.expr) -> object:
        """Return the object that a dotted name refers to; None if the source does not show it."""
        if isinstance(node, ast.Name):
            return None if node.id in self._local else self._scope.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.object_of(node.value)
            if isinstance(owner, (ModuleType, type)):
                return getattr(owner, node.attr, None)
        return None

    def is_local(self, node: ast.expr) -> bool:
        """Return whether a dotted name starts at a parameter or a variable."""
        while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
            node = node.func if isinstance(node, ast.Call) else node.value
        return isinstance(node, ast.Name) and node.id in self._local


def is_operation(call: ast.Call, names: Names) -> bool:
    """Return whether a call is an operation of the language that gets a range."""
    known = names.object_of(call.func)
    if known is None:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        return names.is_local(call.func) and method.startswith(_METHODS)
    name = getattr(known, "__name__", "")
    of_language = _LANGUAGE.match(str(getattr(known, "__module__", "")))
    return of_language is not None and (name in OPERATIONS or name.startswith(_PREFIXES))


def is_helper(value: object) -> TypeGuard[JittedFunction]:
    """Return whether an object is a jitted function of the user, not of a compiler's library."""
    return is_jitted(value) and not _module(value).startswith(_LIBRARIES)


_JITTED = ("JITFunction", "InterpretedFunction")
"""Triton's classes of jitted functions, compiled and interpreted."""


def is_jitted(value: object) -> TypeGuard[JittedFunction]:
    """Return whether an object is a jitted function."""
    return any(kind.__name__ in _JITTED for kind in type(value).__mro__)


def is_verb(value: object) -> bool:
    """Return whether an object is one of ikp's own verbs."""
    return getattr(value, "__module__", "") in ("ikp.verbs.intrinsics", "ikp.verbs.ranges")


def scope_of(function: FunctionType) -> dict[str, object]:
    """Return the names that a Python function finds outside itself: built-in, global, enclosing."""
    enclosing = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            enclosing[name] = cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    return {**vars(builtins), **function.__globals__, **enclosing}


def _module(jitted: JittedFunction) -> str:
    return str(getattr(jitted.fn, "__module__", None) or "")
