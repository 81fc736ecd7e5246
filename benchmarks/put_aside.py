"""What recording costs calls of libraries, half of which were put aside before anything was tuned.

    IKP_BENCHMARK_SOURCES=CHECKOUTS python -m benchmarks.put_aside [--half judge] [--only A,B]
        [--rounds 12] [--out FOLDER]

Calls stand in ``benchmarks/calls``: "develop" to work on, "judge" to judge by. Libraries have to be
importable; what can't be imported is told. Cases run in processes of their own under ``ikp run
--kernel '*'``, in which recording is switched on and off. Who times has the GPU for itself. Prints
a Markdown table: the kernels' time by CUPTI, whether results are equal bit for bit, and for each
detail the ratio to the plain call right before it, the L2 cache flushed: median (quartiles). Then
medians and ninth deciles of each half. With ``--out``, figures of each launch are kept as JSON.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

MODES = {"loops": ("loops", 7), "waits": ("waits", 7), "ops": ("ops", 7), "all": ("waits", 1)}
"""By column: detail, and one block in how many that has ranges."""
LIMIT = 100
"""Seconds for a process, with what it waits for others."""
DELIMITER = "spin_kernel"
"""torch.cuda._sleep's kernel, which no library launches."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--half", choices=["develop", "judge", "both"], default="both")
    options.add_argument("--only", help="names of cases, with commas between them")
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options.add_argument("--each", type=int, default=2, help="cases of a process")
    options.add_argument("--modes", default=",".join(MODES))
    options.add_argument("--out", type=Path)
    options.add_argument("--child", help=argparse.SUPPRESS)
    options.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = options.parse_args()
    modes = asked.modes.split(",")
    if asked.child:
        measure_all(asked.child.split(","), modes, asked.rounds, asked.folder)
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(asked.jobs) as pool:
        folder = asked.out or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        work = list(groups(asked.half, asked.only, asked.each))
        measure = partial(child, modes=modes, rounds=asked.rounds, folder=folder)
        columns = ["half", "call", "plain, us", "bits", *modes]
        print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
        made: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for half, results in pool.map(lambda each: (each[0], measure(each[1])), work):
            for result in results:
                print(f"| {half} | {row(result, modes)} |", flush=True)
                made[half].append(result)
    for half, results in made.items():
        print(f"\n{half}: {summary(results, modes)}")


def groups(half: str, only: str | None, each: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the cases of each process, with their half."""
    from benchmarks.calls import develop, judge

    for name, module in (("develop", develop), ("judge", judge)):
        if half in (name, "both"):
            names = [case for case in module.CASES if only is None or case in only.split(",")]
            for at in range(0, len(names), each):
                yield name, names[at : at + each]


def child(names: list[str], modes: list[str], rounds: int, folder: Path) -> list[dict[str, Any]]:
    """Measure some cases in a process of their own; return what is known of each."""
    own = ["--child", ",".join(names), "--folder", str(folder), "--rounds", str(rounds)]
    command = [
        *(sys.executable, "-m", "ikp", "run", "--level", "machine", "--kernel", "*"),
        *("--memory", "8000", "--out", f"{folder}/{names[0]}.pftrace", "--force"),
        *("-m", "benchmarks.put_aside", *own, "--modes", ",".join(modes)),
    ]
    said = ""
    try:
        ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT)
        lines = [line for line in ran.stderr.splitlines() if line and not line.startswith("ikp: ")]
        said = " ".join(lines[-1:])[-200:] or f"ended with {ran.returncode}"
    except subprocess.TimeoutExpired:
        said = f"not done after {LIMIT} s"
    results = []
    for name in names:
        made = folder / f"{name}.json"
        results.append(json.loads(made.read_text()) if made.exists() else {"failed": said})
        results[-1]["name"] = name
    return results


def row(result: dict[str, Any], modes: list[str]) -> str:
    if "failed" in result:
        return f"{result['name']} | failed: {result['failed']} |" + " |" * len(modes)
    cells = [result["modes"][each] for each in modes]
    told = " | ".join(
        f"{each['ratio']:.3f} ({each['low']:.3f} to {each['high']:.3f}){missing(each)}"
        for each in cells
    )
    return f"{result['name']} | {result['us']:.1f} | {result['bits']} | {told}"


def missing(mode: dict[str, Any]) -> str:
    return f", not recorded: {mode['missing'][:150]}" if mode["missing"] else ""


def summary(results: list[dict[str, Any]], modes: list[str]) -> str:
    """Return medians and ninth deciles over the calls whose launches were recorded."""
    told = []
    for mode in modes:
        ratios = [
            each["modes"][mode]["ratio"]
            for each in results
            if "failed" not in each and not each["modes"][mode]["missing"]
        ]
        if len(ratios) > 1:
            ninth = statistics.quantiles(ratios, n=10, method="inclusive")[8]
            told.append(f"{mode} {statistics.median(ratios):.3f}, {ninth:.3f} ({len(ratios)})")
    return "; ".join(told)


def measure_all(names: list[str], modes: list[str], rounds: int, folder: Path) -> None:
    """Measure cases in this process, and end it: a trace of so many launches is not wanted."""
    from benchmarks.calls import develop, judge
    from benchmarks.calls.case import few_configurations
    from benchmarks.switch import Switch

    few_configurations()
    switch, cases = Switch(), develop.CASES | judge.CASES
    for name in names:
        try:
            told = measured(switch, cases[name], modes, rounds, folder / "lock")
        except Exception as error:  # noqa: BLE001 - the next case may do
            told = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:250]}"}
        (folder / f"{name}.json").write_text(json.dumps(told))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def measured(
    switch: Any, make: Callable[[], Any], modes: list[str], rounds: int, lock: Path
) -> dict[str, Any]:
    """Return a case's figures: its plain time, whether its results are equal, its ratios."""
    import torch

    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        torch.manual_seed(0)
        case = make()
        results(switch, case, None)  # compiles, and tunes
        first, again = (results(switch, case, None) for _ in "ab")
        steady = all(map(torch.equal, first, again))
        bits = []
        for mode in modes:
            made = results(switch, case, mode)
            bits.append("=" if all(map(torch.equal, first, made)) else "DIFFER")
        told = "/".join(bits) if steady else "plain differs from itself"
        del first, again, made
        switch.missing()
        fcntl.flock(file, fcntl.LOCK_UN)
        fcntl.flock(file, fcntl.LOCK_EX)
        plain: list[float] = []
        figures: dict[str, Any] = {}
        for mode in modes:
            pairs = timed(switch, case, mode, rounds)
            ratios = [sum(b for _, b in two) / sum(a for _, a in one) for one, two in pairs]
            low, middle, high = statistics.quantiles(ratios, n=4)
            plain += [sum(each for _, each in one) for one, _ in pairs]
            figures[mode] = {"ratio": middle, "low": low, "high": high}
            figures[mode]["kernels"] = kernels(pairs)
            figures[mode]["missing"] = switch.missing()
            figures[mode]["launches"] = launches(switch, case, mode)
    return {"us": statistics.median(plain), "bits": told, "modes": figures}


def record(switch: Any, call: Callable[[], Any], mode: str | None) -> Any:
    if mode is None:
        return switch.run(call, None)
    detail, switch.sample = MODES[mode]
    return switch.run(call, detail)


def results(switch: Any, case: Any, mode: str | None) -> list[Any]:
    """Return what a call computes, as bytes."""
    import torch

    fresh, call = case
    arguments = fresh()
    made = record(switch, lambda: call(*arguments), mode)
    made = made if isinstance(made, (tuple, list)) else (made,)
    tensors = [each for each in made if isinstance(each, torch.Tensor)]
    bits = [each.detach().clone().contiguous().reshape(-1).view(torch.uint8) for each in tensors]
    switch.session.reset()  # waits for the GPU
    return bits


Durations = list[tuple[str, float]]


def timed(switch: Any, case: Any, mode: str, rounds: int) -> list[tuple[Durations, Durations]]:
    """Return the kernels' durations in us, by CUPTI, of plain and recorded calls in turn."""
    import torch

    fresh, call = case
    flush = torch.empty(1 << 28, dtype=torch.int8, device="cuda")

    def once(mode: str | None) -> None:
        arguments = fresh()
        flush.zero_()
        torch.cuda._sleep(100)  # noqa: SLF001
        torch.cuda.synchronize()
        kept = record(switch, lambda: call(*arguments), mode)
        torch.cuda.synchronize()
        torch.cuda._sleep(100)  # noqa: SLF001
        del kept
        switch.session.reset()

    for each in (None, mode):
        once(each)
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(rounds):
            once(None)
            once(mode)
        torch.cuda.synchronize()
    found = [each for each in profiler.events() if not each.name.startswith("Mem")]
    found.sort(key=lambda each: each.time_range.start)
    calls: list[Durations] = []
    inside = False
    for each in found:
        if DELIMITER in each.name:
            inside = not inside
            calls += [[]] if inside else []
        elif inside:
            calls[-1].append((each.name, each.time_range.elapsed_us()))
    if len(calls) != 2 * rounds or not calls[0]:
        raise RuntimeError(f"{len(calls)} calls in the profile for {2 * rounds}")
    return list(zip(calls[0::2], calls[1::2], strict=True))


def kernels(pairs: list[tuple[Durations, Durations]]) -> list[dict[str, Any]]:
    """Return medians of each kernel of a call: plain in us, and the ratio."""
    names = [name for name, _ in pairs[0][0]]
    same = [(one, two) for one, two in pairs if [n for n, _ in one] == [n for n, _ in two] == names]
    return [
        {
            "name": name[:120],
            "us": statistics.median(one[at][1] for one, _ in same),
            "ratio": statistics.median(two[at][1] / one[at][1] for one, two in same),
        }
        for at, name in enumerate(names)
        if same
    ]


def launches(switch: Any, case: Any, mode: str) -> list[dict[str, Any]]:
    """Return what a recorded call's trace says of each of its launches."""
    from benchmarks.calls import figures

    fresh, call = case
    switch.session.reset()
    arguments = fresh()
    record(switch, lambda: call(*arguments), mode)
    made = figures.of_trace(switch.session.trace, str(switch.launcher.plan))
    switch.session.reset()
    switch.missing()
    return made


if __name__ == "__main__":
    main()
