"""Records kernels with one known fault each, and their repaired twins; measures what repair gains.

    python benchmarks/planted.py FOLDER [CASE ...]

Without CASE: all of tests/kernels/planted. Writes CASE.faulty.pftrace, CASE.repaired.pftrace and
CASE.log for each, and gains.json: the median time of both twins without records, launched in turn,
in us. Each case runs in a process of its own with a time limit, and each twin is recorded in one of
its own, so that its trace keeps its machine code and no other's; one case at a time measures. Needs
a GPU of compute capability 9.0.
"""

import argparse
import fcntl
import importlib
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CASES = (
    *("slow_producer", "slow_consumer", "stages", "tail", "slow_block", "skew", "conflicts"),
    *("uncoalesced", "epilogue", "imbalance", "launches", "occupancy", "serial_wgmma"),
)
SECONDS = 60  # for a case to compile, and again for it to run
WORKERS = 5  # cases that compile while one measures
ROUNDS = 30
AHEAD = 2_000_000  # cycles that the device is kept busy while launches are put in its queue
TWINS = {"faulty": True, "repaired": False}


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the device: others may compile meanwhile. Waiting for it does not count as time."""
    signal.alarm(0)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        signal.alarm(SECONDS)
        yield


def record(case: Any, path: Path | None) -> None:
    """Run a case once, recorded."""
    import ikp

    with ikp.profile(path, force=True) as prof:
        case.run(lambda: prof.buffer("kernel", **case.recorded))
    if path is not None:
        dropped = sum(launch.dropped for launch in prof.trace.launches)
        print(f"{path.name}: {path.stat().st_size} bytes, {dropped} records dropped")
        print(prof.trace.stats())


def elapsed_us(case: Any) -> float:
    """Return how long one run takes on the device, or from launch to launch if that matters."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    if case.queued:
        torch.cuda._sleep(AHEAD)  # noqa: SLF001 - torch has no other way to do it
    begin.record()
    case.run(lambda: None)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3


def run(name: str, folder: Path) -> None:
    """Check, measure and record one case, in this process. SIGALRM ends it where it hangs."""
    signal.alarm(SECONDS)
    sys.path.insert(0, str(ROOT))
    module = importlib.import_module(f"tests.kernels.planted.{name}")
    cases = {twin: module.prepare(faulty) for twin, faulty in TWINS.items()}
    for case in cases.values():  # compiles
        case.run(lambda: None)
    with alone(folder):
        for case in cases.values():
            case.check()
        times: dict[str, list[float]] = {twin: [] for twin in TWINS}
        for _ in range(ROUNDS):
            for twin, case in cases.items():
                times[twin].append(elapsed_us(case))
        for twin in TWINS:
            subprocess.run([*command(name, folder), "--twin", twin], cwd=ROOT, check=True)
    gains = {f"{twin}_us": round(statistics.median(each), 2) for twin, each in times.items()}
    gains |= {"language": module.LANGUAGE, "expected": module.EXPECTED}
    (folder / f"{name}.json").write_text(json.dumps(gains))


def run_twin(name: str, twin: str, folder: Path) -> None:
    """Record one twin, in this process: once to compile it, and once more."""
    os.environ |= {"CUTE_DSL_KEEP": "ptx,cubin", "CUTE_DSL_DUMP_DIR": str(folder / "code" / name)}
    (folder / "code" / name).mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(ROOT))
    case = importlib.import_module(f"tests.kernels.planted.{name}").prepare(TWINS[twin])
    record(case, None)
    record(case, folder / f"{name}.{twin}.pftrace")


def command(name: str, folder: Path) -> list[str]:
    """Return what runs one case in another process."""
    return [sys.executable, __file__, str(folder), "--here", name]


def run_apart(name: str, folder: Path) -> dict[str, Any]:
    """Run one case in a process of its own, and return what it measured, or why it did not."""
    result = folder / f"{name}.json"
    result.unlink(missing_ok=True)
    with (folder / f"{name}.log").open("w") as log:
        done = subprocess.run(command(name, folder), stdout=log, stderr=log, cwd=ROOT, check=False)
    if done.returncode or not result.exists():
        return {"failed": f"exit status {done.returncode}: see {name}.log"}
    measured: dict[str, Any] = json.loads(result.read_text())
    result.unlink()
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--here", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--twin", choices=TWINS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    names = asked.cases or CASES
    if unknown := set(names) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}. There are: {', '.join(CASES)}")
    folder = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if asked.twin:
        run_twin(asked.here, asked.twin, folder)
        return
    if asked.here:
        run(asked.here, folder)
        return
    gains: dict[str, Any] = {}
    with ThreadPoolExecutor(WORKERS) as pool:
        made = {pool.submit(run_apart, name, folder): name for name in names}
        for done in as_completed(made):  # what is there is kept, should a later one never end
            gains[made[done]] = done.result()
            print(made[done], json.dumps(done.result()), flush=True)
            (folder / "gains.json").write_text(json.dumps(gains, indent=2) + "\n")
    sys.exit(any("failed" in found for found in gains.values()))


if __name__ == "__main__":
    main()
