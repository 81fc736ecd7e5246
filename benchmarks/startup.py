"""What starting costs: ``import ikp``, ``ikp --help``, and torch under ``ikp run``.

    python benchmarks/startup.py [--rounds N]

Prints the median and the quartiles of N processes each, taken in turn, and the ratio to a process
that does nothing; of `import torch`, where it is installed, also the processor's seconds with `ikp
run` over those without. No GPU.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

PROGRAMS = {
    "nothing": ["-c", "pass"],
    "import ikp": ["-c", "import ikp"],
    "ikp --help": ["-m", "ikp.cli.main", "--help"],
    "import numpy": ["-c", "import numpy"],
}


def took(program: list[str]) -> float:
    """Run a program in a Python of its own; return its ms."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *program], check=True, stdout=subprocess.DEVNULL)
    return 1e3 * (time.perf_counter() - began)


def with_torch(rounds: int) -> list[float]:
    """Return the ratios of the processor's time of ``import torch`` under ``ikp run``."""
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "program.py"
        script.write_text("import torch")
        for _ in range(rounds):
            plain, recorded = (
                _processor([*start, str(script)]) for start in ([], ["-m", "ikp", "run"])
            )
            ratios.append(recorded / plain)
    return ratios


def _processor(program: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *program], check=False, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(rounds):
        for name, program in PROGRAMS.items():
            times[name].append(took(program))
    bare = statistics.median(times["nothing"])
    print("| process | ms | quartiles | ratio | more, ms |\n| --- | --- | --- | --- | --- |")
    for name, found in times.items():
        low, middle, high = statistics.quantiles(found, n=4)
        print(
            f"| {name} | {middle:.0f} | {low:.0f} to {high:.0f} | {middle / bare:.2f} "
            f"| {middle - bare:.0f} |"
        )
    if find_spec("torch"):
        ratios = with_torch(rounds)
        print(
            f"import torch under ikp run: {statistics.median(ratios):.3f} of the processor's time"
        )


if __name__ == "__main__":
    main()
