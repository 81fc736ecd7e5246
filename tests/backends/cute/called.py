"""A kernel whose helpers are called at several places; compiled with its lines, or without.

A process of its own compiles it, since CuTe looks at the environment as it is imported:
``python -m tests.backends.cute.called lines`` prints a hash of the machine code and, of each
instruction that reaches memory or waits for the block, the lines that it comes from.
"""

from __future__ import annotations

import hashlib
import json
import sys
from contextlib import nullcontext

from ikp.backends.cute.lines import with_lines
from tests.backends.cute.dump import dump_to_temporary_folder

OPERATIONS = ("LDG", "STG", "BAR")


def main() -> None:
    dump_to_temporary_folder()
    with with_lines() if sys.argv[1:] == ["lines"] else nullcontext():
        from tests.backends.cute import called_kernel, compiling

        arguments = (compiling.floats(), compiling.number())
        made = compiling.compile_cute(called_kernel.launch, *arguments)
    json.dump(told(made.compiled.asm["cubin"]), sys.stdout)


def told(cubin: bytes) -> dict[str, object]:
    from ikp.sass.cubins.cubin import Cubin
    from ikp.sass.dataflow.reading import read

    (name,) = (file := Cubin.read(cubin)).kernels
    (code,) = read(cubin)
    lines = [
        (each.op, [line.number for line in each.lines])
        for each in code.flow.code.instructions
        if each.op in OPERATIONS
    ]
    return {"code": hashlib.sha256(file.kernel(name).words.tobytes()).hexdigest(), "lines": lines}


if __name__ == "__main__":
    main()
