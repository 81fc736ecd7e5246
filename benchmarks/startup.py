"""What starting costs: ``import ikp`` and ``ikp --help`` beside a bare Python.

    python benchmarks/startup.py [--rounds N]

Prints the median and the quartiles of N processes each, taken in turn, and the ratio to a process
that does nothing. No GPU.
"""

import argparse
import statistics
import subprocess
import sys
import time

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


if __name__ == "__main__":
    main()
