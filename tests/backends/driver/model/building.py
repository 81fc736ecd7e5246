"""Compiles the model of the driver, the library before it, and programs that run on both."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ikp.backends.driver
from ikp.compiling import compile_c

HERE = Path(__file__).parent
HOOK = Path(ikp.backends.driver.__file__).with_name("hook")
_RACES = 66
"""What a program ends with in which the thread sanitizer has found a race."""


@dataclass(frozen=True, slots=True)
class Built:
    """What was compiled, in a folder."""

    folder: Path

    @property
    def driver(self) -> Path:
        """The model of the driver."""
        return self.folder / "model.so"

    @property
    def hook(self) -> Path:
        """The library before it."""
        return self.folder / "hook.so"

    def run(self, first: int, count: int, how: str = "", *, timeout: float = 600) -> str:
        """Return what random programs say; an empty text where they end as they should.

        Args:
            first: the first one's number, which all of it follows from.
            count: how many.
            how: "threads" for four at a time, "forks" for children beside them.
            timeout: seconds.
        """
        command = [self.folder / "programs", self.hook, self.driver, str(first), str(count)]
        try:
            done = subprocess.run(
                [*command, *([how] if how else [])],
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout,
                env={
                    **os.environ,
                    "TSAN_OPTIONS": "ignore_noninstrumented_modules=1 halt_on_error=1",
                },
            )
        except subprocess.TimeoutExpired:
            return "it hangs"
        if not done.returncode:
            return ""
        said = "a race" if done.returncode == _RACES else done.stdout.strip()
        return said or f"it ends with {done.returncode}: {done.stderr.strip()[-300:]}"


def build(folder: Path, hook: Path = HOOK, *, old: bool = False, races: bool = False) -> Built:
    """Compile all three.

    Args:
        folder: for the results.
        hook: where the library's sources are.
        old: whether the driver is one from before CUDA 12, whose contexts have no numbers.
        races: whether races between threads are looked for.

    Raises:
        OSError: there is no compiler.
        CompileError: it fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = Built(folder)
    common, sanitizer = ["-O1", "-g", "-std=gnu17"], ["-fsanitize=thread"] if races else []
    shared = [*common, "-shared", "-fPIC", "-D_GNU_SOURCE"]
    name = f"-Wl,-soname,{made.driver},-Bsymbolic"  # the driver calls its own functions
    version = ["-DOLD"] if old else []
    model = [HERE / "driver.c", HERE / "graphs.c"]
    _compile([*shared, *version, name, "-o", made.driver, *model, "-lpthread"])
    # A context's end looks through all of them; of few, each thread looks at others' entries.
    few = f"-DBUCKETS={4 if races else 256}"
    own = ["-fvisibility=hidden", few, f'-DIKP_REAL="{made.driver}"', "-Wl,--no-as-needed"]
    sources = sorted(hook.glob("*.c"))
    _compile(
        [*shared, *sanitizer, *own, "-o", made.hook, *sources, made.driver, "-ldl", "-lpthread"]
    )
    # Programs share handles that another thread was given since: only the library's races count.
    programs = folder / "programs"
    _compile([*common, "-c", "-o", folder / "programs.o", HERE / "programs.c"])
    _compile([*sanitizer, "-o", programs, folder / "programs.o", "-ldl", "-lpthread"])
    return made


def _compile(arguments: Sequence[str | Path]) -> None:
    compile_c(*arguments)
