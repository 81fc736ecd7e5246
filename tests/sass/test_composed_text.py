"""The text that is made from words says what nvdisasm prints, or is not made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ikp.errors import InspectError
from ikp.probes.patch import patch
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow import reading
from ikp.sass.dataflow.reading import composed
from ikp.sass.disassembly import form_texts, tools
from ikp.sass.disassembly.form_texts import FormTexts, printed_examples
from ikp.sass.disassembly.listing import Code, parse
from ikp.sass.disassembly.tool_paths import tool
from ikp.sass.disassembly.word_forms import Forms, forms_of, packed, unpacked
from tests.sass import compiled, module
from tests.sass.module import corpus

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]
TRITON = [name for name in compiled.CASES if "sm_" not in name]


def _facts(code: Code) -> list[object]:
    """Return all that is read of code. Labels have other names, so their places are taken."""
    return [
        (
            each.address,
            each.guard,
            each.opcode,
            [operand.partition("`")[0] for operand in each.operands],
            [code.labels[name] for name in each.targets],
            each.lines,
            each.bits,
        )
        for each in code.instructions
    ]


def _assert_the_same(cubin: bytes, name: str) -> bool:
    """Whether a kernel's code was made; it must be what nvdisasm prints."""
    file = Cubin.read(cubin)
    made = composed(file, name)
    if made is None:
        return False
    printed = tools.disassemble_function(cubin, name, {name: file.kernel(name).symbol})
    want = next(each for each in parse(printed) if each.name == name)
    assert (made.name, made.target) == (want.name, want.target)
    assert _facts(made) == _facts(want)
    assert [list(each.word) for each in made.instructions] == file.kernel(name).words.tolist()
    return True


@pytest.mark.parametrize("name", TRITON)
def test_tritons_kernels_are_read_without_nvdisasm(name: str) -> None:
    made = compiled.code(name).compiled
    assert _assert_the_same(made.asm["cubin"], made.name)


def test_what_names_places_in_every_way_is_read_the_same() -> None:
    made = [name for name in module.KERNELS if _assert_the_same(module.cubin(), name)]
    # The other one branches to an address in a register.
    assert made == ["loop", "divides", "calls", "prints"]


@pytest.mark.parametrize("path", corpus() or [Path("none")], ids=lambda path: path.stem)
@pytest.mark.skipif(not corpus(), reason="IKP_CORPUS names no folder of cubins")
def test_kernels_of_libraries_are_read_the_same(path: Path) -> None:
    cubin = path.read_bytes()
    for name in list(Cubin.read(cubin).kernels)[:3]:
        _assert_the_same(cubin, name)


def test_a_patch_is_the_same_with_either_text(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled.code("attention").compiled
    ours = patch(made.asm["cubin"], made.name, detail="ops")
    monkeypatch.setattr(reading, "composed", lambda file, name: None)
    assert patch(made.asm["cubin"], made.name, detail="ops") == ours


def test_an_instruction_of_an_unknown_form_leaves_the_kernel_to_nvdisasm() -> None:
    made = compiled.code("rms_norm").compiled
    file = Cubin.read(made.asm["cubin"])
    assert composed(file, made.name) is not None
    text = file.kernel(made.name).text
    data = bytearray(text.data)
    data[0:2] = (0x7FFF).to_bytes(2, "little")  # no opcode
    text.data = bytes(data)
    assert composed(file, made.name) is None


def test_a_chip_without_forms_is_left_to_nvdisasm() -> None:
    made = compiled.code("gathered sm_120").compiled
    assert composed(Cubin.read(made.asm["cubin"]), made.name) is None


def test_without_a_disassembler_no_text_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(sm: int) -> None:
        raise InspectError("none")

    made = compiled.code("rms_norm").compiled
    monkeypatch.setattr(reading, "texts_of", none)
    assert composed(Cubin.read(made.asm["cubin"]), made.name) is None


@pytest.fixture(scope="module")
def few() -> Forms:
    """Return some of the forms of sm_90: of all opcodes."""
    found = forms_of(90)
    assert found is not None
    return Forms(found.fields, found.known[::40])


def _printed(monkeypatch: pytest.MonkeyPatch, lines: Mapping[int, str]) -> None:
    monkeypatch.setattr(tools, "printed_code", lambda program, chip, code: lines)


def test_a_form_is_known_by_each_of_its_examples(few: Forms) -> None:
    for form in few.known:
        words = few.examples(form)
        assert words[0] != words[1] or not form >> 105
        assert [few.form(word) for word in words] == [form, form]


def test_forms_are_written_and_read_back(few: Forms) -> None:
    fields = {opcode: list(map(str, each)) for opcode, each in few.fields.items()}
    read = unpacked(packed(fields, few.known))
    assert (read.fields, sorted(read.known)) == (few.fields, sorted(few.known))


def test_a_form_whose_examples_disagree_has_no_text(
    few: Forms, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = next(form for form in forms_of(90).known if form & 0xFFF == 0x221 and form >> 105)  # type: ignore[union-attr]
    some = Forms(few.fields, (add,))
    program = tool("nvdisasm")
    lines: dict[int, str] = {}
    real = tools.printed_code
    monkeypatch.setattr(tools, "printed_code", lambda *given: lines.update(real(*given)) or lines)
    assert FormTexts(some, printed_examples(program, "90a", some)).of(add) is not None
    for wrong in (lines[16].replace("FADD", "FMUL"), lines[16].replace("R24", "R25"), ""):
        _printed(monkeypatch, {**lines, 16: wrong})
        assert FormTexts(some, printed_examples(program, "90a", some)).of(add) is None


def test_texts_are_learned_once_and_kept(
    few: Forms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[str] = []
    real = tools.printed_code

    def counted(program: Path, chip: str, code: bytes) -> dict[int, str]:
        starts.append(chip)
        return real(program, chip, code)

    def texts() -> dict[int, Any]:
        form_texts.texts_of.cache_clear()
        found = form_texts.texts_of(90)
        assert isinstance(found, FormTexts)
        return {form: text for form in few.known if (text := found.of(form)) is not None}

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tools, "printed_code", counted)
    monkeypatch.setattr(form_texts, "forms_of", lambda chip: few)
    first = texts()
    assert (len(first), texts() == first, starts) == (len(few.known), True, ["90a"])
    (path,) = tmp_path.glob("ikp-forms-*")
    path.write_bytes(path.read_bytes()[:-1])
    assert (texts() == first, starts) == (True, ["90a"] * 2)
    monkeypatch.undo()
    form_texts.texts_of.cache_clear()
