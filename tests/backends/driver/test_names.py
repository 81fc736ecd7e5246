"""Labels of kernels: short, alike in every run, and of one kernel alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.backends.driver import _names as named
from ikp.backends.driver._hook import DriverObject, HandleKind
from ikp.backends.driver._names import LONGEST, bare, demangled, labels, readable, shortened
from ikp.backends.driver._seen_kernels import Same, SeenKernel
from ikp.backends.labels import Labels

pytestmark = pytest.mark.any_pins
MANGLED = Path(__file__).with_name("mangled.txt").read_text().split()
"""Kernels of torch 2.11, cuBLAS, cuSOLVER, cuSPARSE and CUTLASS, some alike but for parameters."""
FUNCTION = DriverObject(1, 1, 2, "", "", 0, HandleKind.FUNCTION)
LIBRARY = DriverObject(2, 2, 0, "", "libs/libone.so.1", 0, HandleKind.LIBRARY)


@given(st.permutations(MANGLED))
def test_different_kernels_have_different_labels_in_whatever_order(symbols: list[str]) -> None:
    known = Labels()
    found = {symbol: known.of(symbol, labels(symbol)) for symbol in symbols}
    assert len(set(found.values())) == len(symbols)
    assert max(map(len, found.values())) <= LONGEST
    alone = [each for each in MANGLED if [*map(readable, MANGLED)].count(readable(each)) == 1]
    assert {each: found[each] for each in alone} == {each: readable(each) for each in alone}
    assert len(alone) > 25
    assert found == {symbol: known.of(symbol, ()) for symbol in symbols}


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("std::enable_if<(1)>(0), int>::type ns::f<int>(int)", "ns::f<int>"),
        ("A::operator->()", "A::operator->"),
        ("void A::operator()<int>(int) const", "A::operator()<int>"),
        ("bool operator<< <int>(int)", "operator<<<int>"),
        ("unsigned long (anonymous namespace)::g(int)", "g"),
        ("void k<(char)60, ns::B<3ul> >(int)", "k<(char)60, B<3>>"),
        (
            "void n::k<2, at::f(at::T&)::{lambda()N1}::operator()() const::{lambda(x::H)N2}>(int)",
            "n::k<2, f::{lambda(H)N2}>",
        ),
        ("f(int)::{lambda()N1}::operator()() const", "f::{lambda()N1}::operator()"),
    ],
)
def test_a_name_is_cut_where_its_parts_end(name: str, label: str) -> None:
    assert shortened(name.replace(")N", ")#")) == label.replace(")N", ")#")


@given(st.text("a<>(){}[],: #*", max_size=30))
def test_a_name_of_any_form_has_a_label(name: str) -> None:
    assert len(shortened(name)) <= 2 * len(name)


def test_what_no_library_demangles_is_called_by_the_names_in_it() -> None:
    symbol = next(each for each in MANGLED if each.startswith("_ZN7cutlass13device_kernel"))
    assert demangled(symbol) == symbol
    assert bare(symbol) == "cutlass::device_kernel"
    assert re.fullmatch(r"cutlass::device_kernel<\w+, .*\.\.\.#[0-9a-f]{7}", readable(symbol))


def test_without_a_library_of_cpp_names_are_those_of_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(named, "_LIBRARIES", ())
    walk = "_ZN2at6native5drift4walkILi4EfEEvPT0_i"
    assert named.demangled.__wrapped__(walk) == walk


def kernel(symbol: str, known: Labels, number: int = 1) -> SeenKernel:
    return SeenKernel(symbol, FUNCTION, LIBRARY, known, number)


def test_a_pattern_may_fit_the_name_with_and_without_arguments() -> None:
    made = kernel("_ZN2at6native4walkILi4EfEEvPT0_i", Labels())
    assert made.names == (
        "libone.at::native::walk",
        "libone.at::native::walk<4, float>",
        "libone.void at::native::walk<4, float>(float*, int)",
    )


def test_other_code_of_one_symbol_is_another_kernel() -> None:
    known = Labels()
    first, second = kernel("kernel_cutlass_k_0", known), kernel("kernel_cutlass_k_0", known, 2)
    assert second.__name__ == second.demangled == "kernel_cutlass_k_0#2"
    assert first.__name__ == first.demangled == "kernel_cutlass_k_0"
    assert first.full_name != second.full_name


def test_the_same_code_is_the_same_kernel_however_often_it_is_loaded() -> None:
    same, reads = Same(), []

    def code(text: bytes) -> bytes:
        reads.append(text)
        return text

    assert same.number("k", 1, lambda: code(b"a")) == 1
    assert same.number("k", 1, lambda: code(b"a")) == 1
    assert same.number("m", 1, lambda: code(b"b")) == 1
    assert not reads  # nothing has come twice
    assert same.number("k", 2, lambda: code(b"b")) == 2
    assert same.number("k", 3, lambda: code(b"a")) == 1
    assert same.number("k", 4, lambda: code(b"b")) == 2
    assert same.number("k", 5, lambda: None) == 1  # it is gone
    assert reads.count(b"a") == 2 and reads.count(b"b") == 2


def test_what_was_recorded_is_known_when_its_module_is_gone() -> None:
    same = Same()
    assert same.number("k", 1, lambda: None) == 1
    same.seen("k", 1, lambda: b"a")
    assert same.number("k", 2, lambda: b"b") == 2
