"""Kernels whose helpers are called at several places; compiled with their lines, or without.

A process of its own compiles them, since CuTe looks at the environment as it is imported:
``python -m tests.backends.cute.called lines MODULE...`` prints, of each module's kernel, a hash of
the machine code and, of each instruction that reaches memory or waits for the block, the lines that
it comes from; and the names of its regions.
"""

from __future__ import annotations

import hashlib
import json
import sys
from contextlib import nullcontext
from importlib import import_module

from ikp.backends.cute.lines import with_lines
from tests.backends.cute.dump import dump_to_temporary_folder

OPERATIONS = ("LDG", "STG", "BAR")


def main(how: str, *modules: str) -> None:
    dump_to_temporary_folder()
    said = {}
    with with_lines() if how == "lines" else nullcontext():
        from tests.backends.cute import compiling

        for each in modules:
            arguments = (compiling.floats(), compiling.number())
            launch = import_module(f"tests.backends.cute.{each}").launch
            made = compiling.compile_cute(launch, *arguments).compiled.asm
            said[each] = told(made["cubin"], made["ptx"])
    json.dump(said, sys.stdout)


def told(cubin: bytes, ptx: str) -> dict[str, object]:
    from ikp.probes.points.probe_points import Level, ProbeRegions
    from ikp.sass.cubins.cubin import Cubin
    from ikp.sass.dataflow.reading import read

    (name,) = (file := Cubin.read(cubin)).kernels
    (code,) = read(cubin)
    lines = [
        (each.op, [line.number for line in each.lines])
        for each in code.flow.code.instructions
        if each.op in OPERATIONS
    ]
    digest = hashlib.sha256(file.kernel(name).words.tobytes()).hexdigest()
    regions = [each.name for each in ProbeRegions(code.flow, ptx).at(Level.OPS)]
    return {"code": digest, "lines": lines, "regions": regions}


if __name__ == "__main__":
    main(*sys.argv[1:])
