"""Put a range around every wait of a CuTe kernel: a new text of a module's source.

What is changed: each kernel and each host function that launches it get a parameter ``prof``, the
launch passes it on, the kernel starts with ``ikp.init`` and ends with ``ikp.finish``, and each
statement that waits, in the kernel or in functions it calls, gets a range with the name of what is
waited for. ``if __name__ == "__main__"`` becomes ``main()``, so that the module can be imported.
"""

import ast
import re
from enum import Enum

WAITS = frozenset(
    {
        "acquire",
        "acquire_and_advance",
        "arrive_and_wait",
        "barrier",
        "cluster_wait",
        "consumer_wait",
        "cp_async_bulk_wait_group",
        "cp_async_wait_group",
        "griddepcontrol_wait",
        "mbarrier_wait",
        "pipeline_init_wait",
        "producer_acquire",
        "producer_tail",
        "sync_threads",
        "wait",
        "wait_and_advance",
        "wait_group",
    }
)
"""Calls by these names wait. Their ``try_`` forms don't."""


class Ranges(Enum):
    """What a wait is put into."""

    NOTHING = "nothing"  # the module as it is, but for main()
    ANCHORS = "init and finish alone"
    IKP = "ikp"
    IKET = "ikp's init and finish, and NVIDIA's IKET ranges"


class PatchError(Exception):
    """The source is not what this script can change; says why."""


def patch(source: str, ranges: Ranges) -> str:
    """Return ``source`` with ``ranges`` around its waits.

    Raises:
        PatchError: no kernel, no launch, a kernel that returns early, or a wait inside an
            expression.
    """
    tree = ast.parse(source)
    tree.body = [kept for node in tree.body for kept in _without_main(node)]
    if ranges is Ranges.NOTHING:
        return ast.unparse(tree)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    kernels = [f for f in functions if _is_decorated(f, "kernel")]
    if not kernels:
        raise PatchError("there is no function marked @cute.kernel")
    names = {kernel.name for kernel in kernels}
    hosts = [f for f in functions if _is_decorated(f, "jit") and _pass_on_prof(f, names)]
    if not hosts:
        raise PatchError("there is no @cute.jit function with kernel(...).launch(...)")
    if ranges is not Ranges.ANCHORS:
        for function in _reached(kernels, functions):
            _Wrapper(ranges).run(function)
    for kernel in kernels:
        _add_init_and_finish(kernel)
    for function in (*kernels, *hosts):
        _add_parameter(function)
    imports = "import ikp"
    if ranges is Ranges.IKET:
        imports += "\nfrom cutlass.cute.experimental import iket"
    tree.body[_after_docstring(tree.body) : 0] = ast.parse(imports).body
    return ast.unparse(ast.fix_missing_locations(tree))


def waits(source: str) -> int:
    """Return how many ranges ``patch`` has put into ``source``."""
    return len(re.findall(r"with ikp\.range\(|iket\.range_push\(", source))


class _Wrapper(ast.NodeTransformer):
    """Wraps the statements of one function that wait."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._wrapped = 0

    def run(self, function: ast.FunctionDef) -> None:
        expected = sum(_is_wait(node) for node in ast.walk(function))
        self.generic_visit(function)
        if self._wrapped != expected:
            raise PatchError(
                f"{function.name} has {expected} waits, of which {expected - self._wrapped} stand "
                f"inside expressions, where no range can go"
            )

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.AST]:
        return self._wrap(node, node.value)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.AST]:
        return self._wrap(node, node.value)

    def _wrap(self, statement: ast.stmt, value: ast.expr) -> ast.AST | list[ast.AST]:
        if not _is_wait(value):
            return statement
        self._wrapped += 1
        name = _range_name(value)
        if self._ranges is Ranges.IKP:
            (made,) = ast.parse(f"with ikp.range({name!r}):\n    pass").body
            made.body = [statement]
            return made
        # IKET's names have at most 32 characters.
        push, pop = ast.parse(f"iket.range_push({name[:32]!r})\niket.range_pop()").body
        return [push, statement, pop]


def _reached(
    kernels: list[ast.FunctionDef], functions: list[ast.FunctionDef]
) -> list[ast.FunctionDef]:
    """Return the kernels and the functions of the module that they call, directly or not."""
    by_name = {function.name: function for function in functions}
    reached: dict[str, ast.FunctionDef] = {}
    left = [kernel.name for kernel in kernels]
    while left:
        name = left.pop()
        if name in by_name and name not in reached:
            reached[name] = by_name[name]
            calls = (node for node in ast.walk(by_name[name]) if isinstance(node, ast.Call))
            left += [_called(call) for call in calls]
    return list(reached.values())


def _pass_on_prof(host: ast.FunctionDef, kernels: set[str]) -> bool:
    """Add ``prof`` to the launches in a function; return whether there are any."""
    found = False
    for node in ast.walk(host):
        if isinstance(node, ast.Call) and _called(node) == "launch":
            launched = node.func.value if isinstance(node.func, ast.Attribute) else None
            if isinstance(launched, ast.Call) and _called(launched) in kernels:
                launched.keywords.append(ast.keyword("prof", ast.Name("prof", ast.Load())))
                found = True
    return found


def _add_init_and_finish(kernel: ast.FunctionDef) -> None:
    last = kernel.body[-1]
    returns = [node for node in ast.walk(kernel) if isinstance(node, ast.Return)]
    if returns not in ([], [last]):
        raise PatchError(f"the kernel {kernel.name} returns early: ikp.finish has no one place")
    end = len(kernel.body) - len(returns)
    kernel.body[end:end] = ast.parse("ikp.finish()").body
    start = _after_docstring(kernel.body)
    kernel.body[start:start] = ast.parse("ikp.init(prof)").body


def _add_parameter(function: ast.FunctionDef) -> None:
    arguments = function.args
    arguments.args.append(ast.arg("prof"))
    if arguments.defaults:
        arguments.defaults.append(ast.Constant(None))


def _without_main(node: ast.stmt) -> list[ast.stmt]:
    """Turn a main block into ``def main()``; the last one is what callers see."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
        (made,) = ast.parse("def main():\n    pass").body
        made.body = node.body
        return [made]
    return [node]


def _is_decorated(function: ast.FunctionDef, name: str) -> bool:
    return any(
        ast.unparse(mark).partition("(")[0] == f"cute.{name}" for mark in function.decorator_list
    )


def _is_wait(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _called(node) in WAITS


def _called(call: ast.Call) -> str:
    """Return the last part of what is called: ``f`` in ``a.b.f()``."""
    return ast.unparse(call.func).rpartition(".")[2]


def _range_name(call: ast.Call) -> str:
    """Return a wait's last two parts: ``mainloop_pipeline.consumer_wait``."""
    return ".".join(ast.unparse(call.func).removeprefix("self.").split(".")[-2:])


def _after_docstring(body: list[ast.stmt]) -> int:
    """Return where statements may be put: after a docstring and ``from __future__`` imports."""
    at = 0
    while at < len(body) and (
        (isinstance(body[at], ast.Expr) and isinstance(body[at].value, ast.Constant))
        or (isinstance(body[at], ast.ImportFrom) and body[at].module == "__future__")
    ):
        at += 1
    return at
