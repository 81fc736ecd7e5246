"""Find the forms of instructions in cubins, hold their texts against nvdisasm, and write them down.

    python -m tools.forms ikp/sass/disassembly/sm_90.forms FOLDER_OF_CUBINS ...

Forms that the file has are kept, and its fields are used. An opcode that it does not have is named
at the end: find its fields (those bits whose change changes one number that nvdisasm prints), and
pass them, as in ``--fields 824="R16 R24 R64 P12 P87 i32.32"``. Texts that would not be nvdisasm's
are printed, and nothing is written: the fields of that opcode, or the classes of values, are wrong.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ikp.errors import PatchError
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.disassembly import tools
from ikp.sass.disassembly.form_texts import PRINTABLE, FormTexts, printed_examples
from ikp.sass.disassembly.tool_paths import tool
from ikp.sass.disassembly.word_forms import CONTROL, Forms, NumberField, packed, unpacked

Words = npt.NDArray[np.uint64]
_MEANING: Final = np.uint64((1 << CONTROL - 64) - 1)
_AT_ONCE: Final = 200_000
_BYTES: Final = 16


def collected(paths: Sequence[Path], chip: int) -> Words:
    """Return all words of a chip's cubins, each once, without their control bits."""
    found = [np.empty((0, 2), np.uint64)]
    for path in paths:
        try:
            cubin = Cubin.read(path.read_bytes())
        except PatchError as refusal:
            print(f"{path}: left out, {refusal}")
            continue
        for kernel in cubin.kernels.values() if cubin.sm == chip else ():
            words = kernel.words
            words[:, 1] &= _MEANING
            found.append(words)
        if len(found) > 1000:
            found = [_once(found)]
    return _once(found)


def _once(words: Sequence[Words]) -> Words:
    joined = np.ascontiguousarray(np.concatenate(words))
    return np.unique(joined.view("V16").ravel()).view(np.uint64).reshape(-1, 2)


def counted(forms: Forms, words: Words) -> tuple[Counter[int], Counter[int]]:
    """Return how many words each form has, and how many each opcode without fields."""
    found, unknown = Counter[int](), Counter[int]()
    for low, high in words.tolist():
        form = forms.form(low | high << 64)
        if form is None:
            unknown[low & 0xFFF] += 1
        else:
            found[form] += 1
    return found, unknown


def different(texts: FormTexts, chip: str, words: Words) -> Iterator[str]:
    """Yield the words whose text would not be the one that nvdisasm prints."""
    for first in range(0, len(words), _AT_ONCE):
        part = words[first : first + _AT_ONCE].copy()
        part[:, 1] |= np.uint64(PRINTABLE >> 64)
        lines = tools.printed_code(tool("nvdisasm"), chip, part.tobytes())
        for at, (low, high) in enumerate(part.tolist()):
            found = texts.text(low | high << 64)
            if found is None:
                continue
            text, distance = found
            if distance is not None:
                text %= hex((at + 1) * _BYTES + distance & (1 << 64) - 1)
                if (at + 1) * _BYTES + distance < 0:
                    continue  # no target: nvdisasm writes such places in two ways
            if text != lines.get(at * _BYTES, text):
                yield f"{high:016x}{low:016x}: {text!r}, but nvdisasm: {lines[at * _BYTES]!r}"


def main() -> None:
    """Write the file, unless a text differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("cubins", type=Path, nargs="+")
    parser.add_argument("--chip", default="90a")
    parser.add_argument("--fields", action="append", default=[], help='824="R16 P12"')
    given = parser.parse_args()
    old = unpacked(given.file.read_text("utf-8")) if given.file.is_file() else Forms({}, ())
    fields = {opcode: tuple(map(str, each)) for opcode, each in old.fields.items()}
    for each in given.fields:
        opcode, _, text = each.partition("=")
        fields[int(opcode, 16)] = tuple(text.split())
    forms = Forms({at: tuple(map(NumberField.of, each)) for at, each in fields.items()}, ())
    paths = [path for each in given.cubins for path in sorted(each.rglob("*.cubin"))]
    words = collected(paths, int(given.chip.rstrip("af")))
    count, unknown = counted(forms, words)
    forms = Forms(forms.fields, (*sorted({*count, *old.known}),))
    texts = FormTexts(forms, printed_examples(tool("nvdisasm"), given.chip, forms))
    kept = [each for each in forms.known if texts.of(each) is not None]
    print(f"{len(words):,} words, {len(count):,} forms; {len(forms.known):,} kept, of which")
    print(f"{len(forms.known) - len(kept)} have no text. Opcodes without fields:")
    print(", ".join(f"{opcode:x} ({number})" for opcode, number in unknown.items()) or "none")
    wrong = list(different(texts, given.chip, words))
    print("\n".join(wrong[:50]))
    if wrong:
        raise SystemExit(f"{len(wrong)} texts differ: nothing is written.")
    given.file.write_text(packed(fields, kept), "utf-8")


if __name__ == "__main__":
    main()
