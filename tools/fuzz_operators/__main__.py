"""``python -m tools.fuzz_operators``: a suite of operators, recorded and compared, in slices.

    python -m tools.fuzz_operators --slice 1/3 --jobs 14 --minutes 8 --out slice1.jsonl
    python -m tools.fuzz_operators --suite cuda --out cuda.jsonl
    python -m tools.fuzz_operators --summary slice1.jsonl slice2.jsonl

Each operator has a process of its own, which is forked: it runs plain twice, then with every kernel
recorded at each detail, and is compared bit for bit. A results file gets a line per operator as it
ends; what is in it already does not run again. The exit code is 1 if there was a defect.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tools.fuzz_operators.cases import Suite
from tools.fuzz_operators.driving import Driver, Orders
from tools.fuzz_operators.outcomes import DEFECTS
from tools.fuzz_operators.recorder import DETAILS, Recorder, check_untouched, load_before_driver
from tools.fuzz_operators.summary import read, summary


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the options that a command line stands for."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz_operators",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--suite", choices=SUITES, default="torch")
    parser.add_argument("--slice", default="1/1", help="K/N: every N-th operator from the K-th on")
    parser.add_argument("--only", help="operators whose name has this regular expression")
    parser.add_argument("--list", action="store_true", help="print the operators, and run none")
    parser.add_argument("--details", default=",".join(DETAILS))
    parser.add_argument("--dtypes", help="of the suite torch, such as float32,int64")
    parser.add_argument("--samples", type=int, default=2, help="of an operator's own, per type")
    parser.add_argument("--arch", default="sm_90a", help="that the suite cuda is built for")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=90, help="seconds of a process")
    parser.add_argument("--restarts", type=int, default=3, help="of an operator, behind faults")
    parser.add_argument("--minutes", type=float, help="after which the run ends")
    parser.add_argument("--buffer", type=int, default=16, help="MiB of a launch's records")
    parser.add_argument("--memory", type=int, default=1024, help="MiB of all records of a detail")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        help="a word for ikp run: --option=--sample --option=1",
    )
    parser.add_argument("--no-count", action="store_true", help="leave CUPTI out")
    parser.add_argument("--out", type=Path, default=Path("operators.jsonl"))
    parser.add_argument("--summary", type=Path, nargs="+", help="of results files; runs nothing")
    given = parser.parse_args(words)
    if (
        not re.fullmatch(r"[1-9]\d*/[1-9]\d*", given.slice)
        or not 1 <= _part(given)[0] <= (_part(given)[1])
    ):
        parser.error(f"--slice {given.slice!r} is no slice: write 1/6 to 6/6.")
    if unknown := set(given.details.split(",")) - set(DETAILS):
        parser.error(f"--details: {', '.join(sorted(unknown))}; there are {', '.join(DETAILS)}.")
    return given


def _part(given: argparse.Namespace) -> tuple[int, int]:
    number, of = map(int, given.slice.split("/"))
    return number, of


def _torch(given: argparse.Namespace) -> Suite:
    from tools.fuzz_operators.torch_operators import DTYPES, TorchOperators

    dtypes = given.dtypes.split(",") if given.dtypes else DTYPES
    return TorchOperators(dtypes, given.samples)


def _cupy(_: argparse.Namespace) -> Suite:
    from tools.fuzz_operators.cupy_programs import CupyPrograms

    return CupyPrograms()


def _jax(_: argparse.Namespace) -> Suite:
    from tools.fuzz_operators.jax_programs import JaxPrograms

    return JaxPrograms()


def _cuda(given: argparse.Namespace) -> Suite:
    from tools.fuzz_operators.cuda_samples import CudaSamples

    return CudaSamples(given.arch)


SUITES: dict[str, Callable[[argparse.Namespace], Suite]] = {
    "torch": _torch,
    "cupy": _cupy,
    "jax": _jax,
    "cuda": _cuda,
}


def chosen(names: Sequence[str], given: argparse.Namespace) -> list[str]:
    """Return the operators of a slice."""
    number, of = _part(given)
    fitting = [each for each in names if not given.only or re.search(given.only, each)]
    return fitting[number - 1 :: of]


def main(words: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; 1 if there was a defect."""
    given = parsed(words)
    if given.summary:
        operators = read(given.summary)
        print(summary(operators))
        return _failed(operators)
    for each in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(each, "1")  # threads do not outlive a fork, and cores are few
    suite = SUITES[given.suite](given)
    if given.list:
        print("\n".join(chosen(suite.names(), given)))
        return 0
    # What torch's list imports initialises CUDA, and no forked process could use the driver then.
    listing = [sys.executable, "-m", "tools.fuzz_operators", "--list", *(words or sys.argv[1:])]
    names = subprocess.run(listing, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    load_before_driver()
    suite.prepare()
    check_untouched()
    options = ["--buffer", str(given.buffer), "--memory", str(given.memory), *given.option]
    orders = Orders(
        details=given.details.split(","),
        jobs=given.jobs,
        limit_s=given.limit,
        restarts=given.restarts,
        minutes=given.minutes,
        count=not given.no_count,
    )
    Driver(suite, lambda: Recorder(options), orders).run(names, given.out)
    operators = read([given.out])
    print(summary(operators))
    return _failed(operators)


def _failed(operators: Sequence[dict[str, Any]]) -> int:
    return int(any(r["outcome"] in DEFECTS for each in operators for r in each["results"]))


if __name__ == "__main__":
    sys.exit(main())
