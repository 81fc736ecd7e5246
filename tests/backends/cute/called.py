"""A kernel whose helpers are called at several places; compiled with its lines, or without.

A process of its own compiles it, since CuTe looks at the environment as it is imported:
``python -m tests.backends.cute.called lines`` prints a hash of the machine code and, of each
instruction that reaches memory or waits for the block, the lines that it comes from; and the names
of its regions. Another kernel's module may follow.
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


def main() -> None:
    dump_to_temporary_folder()
    how, which, *_ = [*sys.argv[1:], *("", "called_kernel")[len(sys.argv) - 1 :]]
    with with_lines() if how == "lines" else nullcontext():
        from tests.backends.cute import compiling

        arguments = (compiling.floats(), compiling.number())
        module = import_module(f"tests.backends.cute.{which}")
        made = compiling.compile_cute(module.launch, *arguments)
    json.dump(told(made.compiled.asm["cubin"], made.compiled.asm["ptx"]), sys.stdout)


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
    main()
