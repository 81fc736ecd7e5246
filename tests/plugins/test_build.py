"""Names and numbers on both sides of the compiler, and sources that it must refuse."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ikp.core import abi
from ikp.core.abi import OverflowMode, PayloadType
from ikp.core.regions import region_id
from ikp.core.segment import Spec
from ikp.errors import KernelError, PluginError, RegionError
from tests.plugins.conftest import PLUGIN
from tests.plugins.kernels import NEEDS_NVCC, Modules, repeated

pytestmark = pytest.mark.any_pins


@NEEDS_NVCC
def test_ids_in_machine_code_are_those_of_the_host(build: Any) -> None:
    ptx = build(repeated(1), spec=Spec(), ptx=True).decode()
    tag = abi.tag(abi.Kind.RANGE, PayloadType.U32, region_id("step"))
    assert re.search(rf"\b{tag}\b", ptx)


@NEEDS_NVCC
@pytest.mark.parametrize("name", ["a b", "quote ' here", "測量", "x" * 300])
def test_any_name_works(build: Any, module: Modules, name: str) -> None:
    source = repeated(1).replace("step", name)
    assert (
        str(abi.tag(abi.Kind.RANGE, PayloadType.U32, region_id(name)))
        in build(source, spec=Spec(), ptx=True).decode()
    )
    assert module("regions").known()[region_id(name)] == name


@NEEDS_NVCC
def test_an_overlooked_name_does_not_compile_until_it_is_passed(build: Any) -> None:
    source = '#define NAME "hidden"\n' + repeated(1).replace('"step"', "NAME")
    with pytest.raises(KernelError, match="string literal right after its verb"):
        build(source, spec=Spec())
    build(source, spec=Spec(), names=["hidden"])


@NEEDS_NVCC
@pytest.mark.parametrize("payload", ["1.0", "1ull"])
def test_a_payload_of_64_bits_does_not_compile(build: Any, payload: str) -> None:
    with pytest.raises(KernelError, match="nvcc refuses"):
        build(repeated(1).replace('"step", n', f'"step", {payload}'), spec=Spec())


@NEEDS_NVCC
def test_a_verb_without_init_does_not_assemble(build: Any) -> None:
    with pytest.raises(KernelError, match="ikp_cur"):
        build(repeated(1).replace("ikp::init(prof);", ""), spec=Spec())


def test_without_nvcc_the_error_says_what_to_install(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PluginError, match="install the CUDA toolkit"):
        build(repeated(1))


def test_two_names_with_one_id_are_refused(
    module: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    regions = module("regions")
    monkeypatch.setattr(regions, "region_id", lambda name: 5)
    with pytest.raises(RegionError, match="rename one"):
        regions.find('ikp::instant("a"); ikp::instant("b");')


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ('ikp::Range r("a", 1);', {"a"}),
        ('ikp::Range r{"a"};', {"a"}),
        ('auto t = ikp::start( "a b" );', {"a b"}),
        ('instant("a"); printf("b");', {"a"}),
        ('ikp::instant(\n    "a");', {"a"}),
        ("ikp::instant(ikp::Region(3));", set()),
        ('restart("a");', set()),
    ],
)
def test_names_are_found_after_verbs(module: Modules, code: str, names: set[str]) -> None:
    assert set(module("regions").find(code).values()) == names


def test_every_number_of_the_header_is_the_abis(module: Modules) -> None:
    text = module("generated").header(Spec(), {5: "five"})
    numbers = dict(re.findall(r"constexpr unsigned (\w+) = (\d+)u;", text))
    assert int(numbers["MAGIC"]) == abi.MAGIC
    assert int(numbers["MIN_SLOT_BYTES"]) == abi.min_slot_bytes(OverflowMode.STOP)
    assert '{"five", 5u}' in text
    verbs = (PLUGIN / "ikp_cuda" / "ikp.cuh").read_text(encoding="utf-8")
    code = re.sub(r"//.*|\.[uv]\d+|\.b32|%\d|0xf+(ull|u)", "", verbs)
    assert set(re.findall(r"\b\d+\b", code)) <= {"0", "1", "2", "32"}  # axes, bits, lanes
