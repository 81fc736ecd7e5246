"""The marked source: what is marked, under which names, and that nothing else changes."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

import pytest

from ikp.backends.triton.unedited._clones import kernel_clone, marks
from ikp.errors import KernelError, UsageError
from ikp.unedited.plan import plan
from tests.kernels import control, unedited

pytestmark = pytest.mark.compiled

FILE = "unedited.py"


def line_of(function: Any, text: str) -> int:
    """Return the line in the file on which ``text`` stands in a function."""
    lines, first = inspect.getsourcelines(function.fn)
    (found,) = [first + i for i, line in enumerate(lines) if text in line]
    return found


def names(function: Any, **options: Any) -> list[str]:
    """Return the names of the ranges in a marked kernel, in the order of its source."""
    text = ast.unparse(kernel_clone(function, plan(**options)).ikp_marked.tree)
    return list(dict.fromkeys(re.findall(r"'([^'\n]*(?:@|py:)[^'\n]*)'", text)))


def marked(function: Any, **options: Any) -> str:
    return ast.unparse(kernel_clone(function, plan(**options)).ikp_marked.tree)


def test_detail_kernel_marks_the_kernel_at_each_exit() -> None:
    line = line_of(unedited.matmul, "def matmul")
    assert names(unedited.matmul, detail="kernel") == [f"matmul @{FILE}:{line}"]
    text = marked(unedited.matmul, detail="kernel")
    assert text.count("_ikp.whole(") == 1
    assert text.count("_ikp.leave(") == 2
    assert re.search(r"_ikp\.leave\('[^']*'\)\n\s+return", text)


def test_detail_loops_marks_loops_and_iterations() -> None:
    at = line_of(unedited.matmul, "for k in")
    found = names(unedited.matmul, detail="loops")
    assert found[1:] == [f"for k @{FILE}:{at}", f"for k iteration @{FILE}:{at}"]


def test_detail_ops_marks_operations_with_their_lines() -> None:
    found = names(unedited.matmul, detail="ops")
    load_a, load_b = (line_of(unedited.matmul, f"{x} = tl.load(p{x}") for x in "ab")
    assert found[3:] == [
        f"tl.load @{FILE}:{load_a}",
        f"tl.load @{FILE}:{load_b}",
        f"tl.dot @{FILE}:{line_of(unedited.matmul, 'tl.dot')}",
        f"doubled @{FILE}:{line_of(unedited.matmul, 'doubled(')}",
        f"tl.store @{FILE}:{line_of(unedited.matmul, 'tl.store')}",
    ]


def test_two_operations_of_one_name_on_a_line_have_two_names() -> None:
    found = [name for name in names(unedited.several, detail="ops") if name.startswith("tl.load")]
    at = line_of(unedited.several, "tl.load")
    assert len(found) == 2
    assert all(name.startswith(f"tl.load @{FILE}:{at}") for name in found)


def test_a_range_opens_after_the_arguments_of_its_call() -> None:
    assert "a = _ikp.closed(tl.load(_ikp.opened(pa, 'tl.load" in marked(
        unedited.matmul, detail="ops"
    )


def test_helpers_are_marked_inside_but_for_noinline_ones() -> None:
    clone = kernel_clone(unedited.matmul, plan("loops"))
    (helper,) = clone.ikp_marked.helpers.values()
    assert "for i iteration" in ast.unparse(helper.ikp_marked.tree)
    assert marks(clone) == 5
    several = kernel_clone(unedited.several, plan("ops"))
    assert several.ikp_marked.helpers == {}
    assert "_ikp.closed(plus_one(_ikp.opened(value, 'plus_one @" in marked(
        unedited.several, detail="ops"
    )


def test_between_the_loops_of_a_flattened_nest_there_are_no_marks() -> None:
    found = [name.partition(" @")[0] for name in names(unedited.persistent, detail="ops")]
    assert found == ["persistent", "for step iteration", "tl.load"]


def test_chosen_lines_are_one_range() -> None:
    first, last = line_of(unedited.matmul, "a = tl.load"), line_of(unedited.matmul, "tl.dot")
    for text in (
        f"{first}-{last}",
        f"unedited.py:{first}-{last}",
        f"kernels/{FILE}:{first}-{last}",
    ):
        assert names(unedited.matmul, lines=text)[1:] == [f"{FILE}:{first}-{last}"]


def test_chosen_lines_that_begin_in_one_block_and_end_in_another_are_several_ranges() -> None:
    first, last = line_of(unedited.matmul, "tl.dot"), line_of(unedited.matmul, "tl.store")
    found = names(unedited.matmul, lines=[f"{first}-{last}"])
    assert found[1] == f"{FILE}:{first}-{line_of(unedited.matmul, 'pb += ')}"
    assert found[2].endswith(f"-{last}")


def test_lines_of_another_file_are_not_chosen() -> None:
    with pytest.raises(KernelError, match=r"lines other\.py:1-900 hold no statement of matmul"):
        kernel_clone(unedited.matmul, plan(lines="other.py:1-900"))


@pytest.mark.parametrize("text", ["", "x", "9-3", "0", "a.py", "a.py:", "3-", "-3"])
def test_lines_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"names no lines: write 88, 88-96 or file\.py:88-96"):
        plan(lines=[text])


def test_unknown_options_are_refused() -> None:
    with pytest.raises(UsageError, match="detail='all' is unknown: use one of kernel, loops"):
        plan("all")


def test_a_kernel_with_ikp_init_is_refused() -> None:
    with pytest.raises(KernelError, match=r"nested calls ikp\.init itself"):
        kernel_clone(control.nested, plan())


def test_lines_of_the_marked_tree_are_those_of_the_source() -> None:
    plain = unedited.matmul.parse()
    clone = kernel_clone(unedited.matmul, plan("ops")).parse()
    places = {(type(n).__name__, n.lineno) for n in ast.walk(plain) if isinstance(n, ast.stmt)}
    kept = {(type(n).__name__, n.lineno) for n in ast.walk(clone) if isinstance(n, ast.stmt)}
    assert places <= kept


def test_taking_the_marks_out_gives_the_source_back() -> None:
    for kernel in (unedited.matmul, unedited.several):
        text = ast.unparse(_Unmarked().visit(kernel_clone(kernel, plan("ops")).parse()))
        assert text == ast.unparse(kernel.parse())


class _Unmarked(ast.NodeTransformer):
    """Takes out marks, as somebody would who knows only their names."""

    def visit_With(self, node: ast.With) -> Any:
        body = [self.visit(statement) for statement in node.body]
        return [s for part in body for s in (part if isinstance(part, list) else [part])]

    def visit_Expr(self, node: ast.Expr) -> Any:
        text = ast.unparse(node)
        if text.startswith(("_ikp.init(", "_ikp.whole(", "_ikp.leave(")):
            return None
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        verb = ast.unparse(node.func)
        if verb == "_ikp.closed":
            return self.visit(node.args[-1])
        if verb == "_ikp.opened":
            return self.visit(node.args[0])
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        node.id = re.sub(r"^_ikp_\d+_", "", node.id)
        return node

    def visit_arguments(self, node: ast.arguments) -> Any:
        if node.args and node.args[-1].arg == "_ikp_prof":
            node.args.pop()
            node.defaults.pop()
        return node
