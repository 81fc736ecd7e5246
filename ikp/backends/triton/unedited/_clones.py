"""The instrumented clone of a jitted function, for Triton's compiler and for its interpreter.

A clone is a shallow copy of the function's object whose class differs in a few methods. It parses
to the marked tree, and finds the marks' verbs and the marked helpers among its names. Its cache key
is made of the original's key and of the marked tree. So marked and plain code never meet in a
compile cache, in memory or on disk. No stale code is reused: the key has the marks by their text,
and their compiled form by the spec in the buffer's argument. A marked kernel takes one parameter
more.
"""

from __future__ import annotations

import ast
import copy
import functools
import hashlib
import inspect
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeGuard, TypeVar

from ikp.backends.triton.unedited import _by_hand as by_hand
from ikp.backends.triton.unedited import _expressions as expressions
from ikp.backends.triton.unedited import _foreign as foreign
from ikp.backends.triton.unedited._foreign import JittedFunction
from ikp.backends.triton.unedited._mark_nodes import PROF, VERBS
from ikp.backends.triton.unedited._operations import scope_of
from ikp.backends.triton.unedited._rewrite import (
    Clone,
    FunctionSource,
    Marked,
    records_itself,
    rewrite,
)
from ikp.backends.triton.unedited._special import Special, full_name
from ikp.errors import IkpError, KernelError
from ikp.probing import Untyped
from ikp.signals import deferred, pass_on
from ikp.unedited.plan import Plan

_Kind = TypeVar("_Kind")

_making = threading.Lock()
"""A clone is in the table before it is complete: no other thread may find it then."""


def kernel_clone(kernel: JittedFunction, plan: Plan) -> _Clone:
    """Return the instrumented clone of a jitted kernel, which takes the buffer as ``PROF``.

    Raises:
        KernelError: it calls ``ikp.init`` itself, it has no source, or the plan marks nothing.
    """
    with _making:
        clone = _clone(kernel, plan, "kernel")
    if plan.lines and not any(each.ikp_marked.chosen for each in _with_helpers(clone)):
        source = _source(kernel)
        raise KernelError(
            f"lines {', '.join(map(str, plan.lines))} hold no statement of {source.name}, nor of "
            f"what it calls: {source.name} is lines {source.first_line}-{source.last_line} of "
            f"{source.path}. A statement is chosen if all its lines are."
        )
    return clone


def check(kernel: JittedFunction) -> None:
    """Refuse a kernel that can never be marked, before it is launched.

    Raises:
        KernelError: the kernel calls ``ikp.init`` itself, or has no source.
    """
    source = _source(kernel)
    if records_itself(source):
        raise KernelError(
            f"{source.name} calls ikp.init itself: it records without being marked. Launch it as "
            "it is, with prof.buffer(label)."
        )


def is_clone(function: object) -> TypeGuard[_Clone]:
    """Return whether a jitted function is an instrumented clone."""
    return isinstance(function, _Clone)


def marks(clone: _Clone) -> int:
    """Return the number of marks in a clone and the helpers it calls."""
    return sum(each.ikp_marked.marks for each in _with_helpers(clone))


def _with_helpers(clone: Clone) -> list[Clone]:
    seen: dict[int, Clone] = {}
    todo = [clone]
    while todo:
        each = todo.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            todo += each.ikp_marked.helpers.values()
    return list(seen.values())


class _Clone:
    """The methods of an instrumented clone that differ from its original's."""

    ikp_original: Untyped
    ikp_marked: Marked
    ikp_clones: dict[object, _Clone]
    hash: str | None
    used_global_vals: dict[object, object]
    _hash_lock: AbstractContextManager[bool]

    __name__: str
    signature: inspect.Signature
    params: list[object]
    arg_names: list[str]
    device_caches: Mapping[object, object]
    pre_run_hooks: Iterable[Callable[..., object]]
    create_binder: Callable[[], object]
    run: Callable[..., object]

    def parse(self) -> ast.Module:
        """Return a new copy of the marked tree: the compiler writes notes into it."""
        return copy.deepcopy(self.ikp_marked.tree)

    def get_capture_scope(self) -> dict[str, object]:
        """Return the objects of names outside the function."""
        return {
            **self.ikp_original.get_capture_scope(),
            **self.ikp_marked.helpers,
            VERBS: expressions,
        }

    @property
    def cache_key(self) -> str:
        """The key of the marked code in Triton's caches, which no other code has."""
        with self._hash_lock:
            if self.hash is None:
                original = self.ikp_original
                self.hash = f"recursion:{original.__name__}"  # as Triton does: helpers may recurse
                tree = ast.dump(self.ikp_marked.tree, include_attributes=True)
                helpers = [helper.cache_key for helper in self.ikp_marked.helpers.values()]
                key = "\0".join([original.cache_key, tree, *helpers])
                self.used_global_vals = original.used_global_vals
                self.hash = hashlib.sha256(key.encode()).hexdigest()
            return self.hash

    def __hash__(self) -> int:
        return hash(self.cache_key)


class _InterpretedClone(_Clone):
    """The same for Triton's interpreter, which runs rewritten Python."""

    rewriter: Untyped
    ikp_function: Callable[..., object] | None

    def rewrite(self) -> Callable[..., object]:
        """Return the function to run."""
        if self.ikp_function is None:
            self.ikp_function = self.rewriter.rewrite_ast()
        return self.ikp_function


def _clone(function: JittedFunction, plan: Plan, role: str) -> _Clone:
    clones: dict[object, _Clone] = function.__dict__.setdefault("ikp_clones", {})
    file = by_hand.token(Path(plan.ttgir)) if plan.ttgir else ""
    key = (_version(function), file, plan, role)
    if key not in clones:
        source = _source(function)
        if role == "kernel":
            check(function)
        interpreted = not hasattr(function, "cache_key")
        if interpreted and plan.ttgir:
            raise KernelError(
                "ttgir= places records in what Triton's compiler makes, and the interpreter "
                "compiles nothing: leave it out, and the kernel's source is marked."
            )
        clone = as_kind(function, _InterpretedClone if interpreted else _Clone)
        clone.ikp_original, clone.ikp_clones = function, {}
        clones[key] = clone  # known before its helpers: they may call it
        clone.ikp_marked = Marked(source.tree)
        try:
            clone.ikp_marked = rewrite(source, plan, role, functools.partial(_helper, plan))
        except BaseException:
            del clones[key]
            raise
        if plan.ttgir:
            by_hand.register()
        if isinstance(clone, _InterpretedClone):
            _finish_interpreted(clone, role)
        else:
            _finish_compiled(clone, role)
    return clones[key]


def _helper(plan: Plan, function: JittedFunction) -> _Clone | None:
    """Return the clone of a function that a marked one calls; None to call it as it is."""
    if getattr(function, "noinline", False) or getattr(function, "kwargs", {}).get("noinline"):
        return None  # a function of its own in the machine code: no records in it
    return _clone(function, plan, "helper")


def _version(function: object) -> str:
    """Return the key of a jitted function's and its helpers' source now: it can be replaced."""
    return str(getattr(function, "cache_key", ""))


def as_kind(value: object, kind: type[_Kind]) -> _Kind:
    """Return a shallow copy of an object, of a class that has the methods of ``kind`` first."""
    kinds: tuple[Untyped, Untyped] = kind, type(value)
    made: _Kind = object.__new__(_class(*kinds))
    made.__dict__.update(vars(value))
    return made


@functools.cache
def _class(kind: Untyped, original: Untyped) -> type:
    return type(f"{kind.__name__.strip('_')}{original.__name__}", (kind, original), {})


def _source(function: JittedFunction) -> FunctionSource:
    python = function.fn
    try:
        text = function.src if hasattr(function, "src") else _text(function)
        first = _first_line(function)
    except (OSError, TypeError, ValueError, AttributeError) as error:
        raise KernelError(
            f"the source of {python.__qualname__} is not available ({error}), and marks are put "
            "into the source. Define the kernel in a file; or record it by hand, with ikp.init."
        ) from error
    tree = ast.parse(text)
    name, path = python.__name__, python.__code__.co_filename
    return FunctionSource(name, path, first, tree, scope_of(python))


def _first_line(function: JittedFunction) -> int:
    """Return the line of ``def`` in the file."""
    lines, first = inspect.getsourcelines(function.fn) if _bare(function) else _kept(function)
    for offset, line in enumerate(lines):
        if line.strip().startswith("def "):
            return int(first) + offset
    return int(first)


def _bare(function: object) -> bool:
    return not hasattr(function, "raw_src")


def _kept(function: Untyped) -> tuple[list[str], int]:
    return function.raw_src, function.starting_line_number


def _text(function: Untyped) -> str:
    """Return an interpreted function's source from ``def`` on, as its rewriter prepares it."""
    lines, _ = inspect.getsourcelines(function.fn)
    return foreign.source(function.rewriter, lines)


def _finish_compiled(clone: _Clone, role: str) -> None:
    clone.hash, clone.used_global_vals = None, {}
    if role != "kernel":
        return
    parameter, clone.signature = _with_parameter(clone.signature)
    clone.params = [*clone.params, foreign.parameter(len(clone.params), parameter)]
    clone.arg_names = [*clone.arg_names, PROF]
    clone.device_caches = defaultdict(clone.create_binder)
    clone.pre_run_hooks = _Hooks(clone.pre_run_hooks)


def _finish_interpreted(clone: _InterpretedClone, role: str) -> None:
    clone.ikp_function = None
    clone.rewriter = as_kind(clone.rewriter, _Rewriter)
    clone.rewriter.ikp_marked = clone.ikp_marked
    if role == "kernel":
        clone.arg_names = [*clone.arg_names, PROF]
        clone.pre_run_hooks = _Hooks(clone.pre_run_hooks)


def _with_parameter(signature: inspect.Signature) -> tuple[inspect.Parameter, inspect.Signature]:
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    by_name = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.KEYWORD_ONLY} & kinds
    kind = inspect.Parameter.KEYWORD_ONLY if by_name else inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameter = inspect.Parameter(PROF, kind, default=None)
    return parameter, signature.replace(parameters=[*signature.parameters.values(), parameter])


class _Hooks:
    """The original's hooks before a launch, called without the clone's additional argument."""

    def __init__(self, hooks: Iterable[Callable[..., object]]) -> None:
        self._hooks = hooks  # the original's own list: it may grow

    def __iter__(self) -> Iterator[Callable[..., object]]:
        for hook in self._hooks:
            yield functools.partial(_without_prof, hook)


def _without_prof(hook: Callable[..., object], *args: object, **kwargs: object) -> object:
    kwargs.pop(PROF, None)
    return hook(*args, **kwargs)


class _Rewriter:
    """The methods of Triton's rewriter of interpreted functions that differ for a marked one."""

    ikp_marked: Marked
    ast_transformer: ast.NodeTransformer
    def_file_lineno: int

    def _transform_ast(self, src: str) -> ast.Module:  # noqa: ARG002 - the marked tree is it
        tree: ast.Module = self.ast_transformer.visit(copy.deepcopy(self.ikp_marked.tree))
        ast.fix_missing_locations(tree)
        return ast.increment_lineno(tree, self.def_file_lineno - 1)

    def _compile_and_exec(self, transformed_ast: ast.Module) -> Callable[..., object]:
        # The marks' names are variables of an enclosing function: the function's own module stays
        # as it is.
        names = {**self.ikp_marked.helpers, VERBS: expressions}
        around = super()._compile_and_exec(_enclosed(transformed_ast, list(names)))  # type: ignore[misc]
        function: Callable[..., object] = around(**names)
        return function


def _enclosed(tree: ast.Module, names: list[str]) -> ast.Module:
    """Return a module whose function of the same name returns the original one, given names."""
    (function,) = tree.body
    name = function.name  # type: ignore[attr-defined]
    outer = ast.parse(f"def {name}({', '.join(names)}):\n return {name}")
    outer.body[0].body.insert(0, function)  # type: ignore[attr-defined]
    return outer


_TRITON_WARPS = 4
"""Warps of a block where a launch names no number; Triton's interpreter has one."""


def launch_shape(
    kernel: JittedFunction, args: tuple[object, ...], kwargs: dict[str, object]
) -> dict[str, object]:
    """Return a launch's grid and warps, as ``prof.buffer`` takes them."""
    grid = kwargs["grid"]
    if callable(grid):
        signature = inspect.signature(kernel.fn)
        own = {name: value for name, value in kwargs.items() if name in signature.parameters}
        bound = signature.bind_partial(*args, **own)
        bound.apply_defaults()
        grid = grid(bound.arguments)
    warps = kwargs.get("num_warps", _TRITON_WARPS) if hasattr(kernel, "cache_key") else 1
    return {"grid": grid, "num_warps": warps}


def clone_of(kernel: JittedFunction, plan: Plan) -> Clone:
    """Return the instrumented clone of a kernel.

    Raises:
        KernelError: it can't be marked; also where Triton is not as ikp knows it.
    """
    with deferred():
        try:
            return kernel_clone(kernel.jitted if isinstance(kernel, Special) else kernel, plan)
        except IkpError:
            raise
        except Exception as error:
            pass_on(error)
            raise KernelError(
                f"{full_name(kernel)} can't be marked: {type(error).__name__}: {error}. Please "
                "report it, with the version of Triton. Recording it by hand, with ikp.init, may "
                "work."
            ) from error
