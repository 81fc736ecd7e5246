"""What recording costs calls of libraries, half of which were put aside before anything was tuned.

    IKP_BENCHMARK_SOURCES=CHECKOUTS python -m benchmarks.put_aside [--half judge] [--only A,B]
        [--rounds 12] [--out FOLDER] [--prepare 75] [--seconds 150] [--costs-alone]

Calls stand in ``benchmarks/calls``: "develop" to work on, "judge" to judge by, and "later" ones,
split as well. Libraries have to be importable; what can't be imported is told. Cases run in
processes of their own under ``ikp run``, in which recording is switched on and off; for each detail
there is one. All processes of a detail are prepared first, side by side; then one times at once,
and has the GPU for itself. Prints a Markdown table: the kernels' time by CUPTI, whether results are
equal bit for bit, and for each detail the ratio to the plain call of the same round, the L2 cache
flushed: median (quartiles). Then medians and ninth deciles of each half. With ``--out``, figures of
each launch are kept as JSON. ``--costs-alone`` leaves out what traces tell of recording beside 64
pairs of calls, which takes longer than all else.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

MODES: dict[str, tuple[str, int | None]] = {
    **{detail: (detail, None) for detail in ("loops", "waits", "ops")},
    "waits, 7": ("waits", 7),
    "waits, 1": ("waits", 1),
}
"""By column: detail, and one block in how many that has ranges; None, the default."""
SETTLED_S = 0.02
"""After so long, what a turn's records lay in has been zeroed: that takes bandwidth."""
CLOSE = 0.02
TOLD = "waits"
"""The column of which it is measured how true a trace's own figure is."""
DELIMITER = "spin_kernel"
"""torch.cuda._sleep's kernel, which no library launches."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--half", choices=[*halves(), "all"], default="all")
    options.add_argument("--only", help="names of cases, with commas between them")
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--each", type=int, default=2, help="cases of a process")
    options.add_argument("--prepare", type=float, default=75, help="seconds to prepare all")
    options.add_argument("--seconds", type=float, default=150, help="for all of it, at a detail")
    options.add_argument("--modes", default=";".join(MODES))
    options.add_argument("--costs-alone", action="store_true", help="not how true traces are")
    options.add_argument("--out", type=Path)
    options.add_argument("--child", help=argparse.SUPPRESS)
    options.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = options.parse_args()
    modes = asked.modes.split(";")
    if asked.child:
        told = TOLD if TOLD in modes and not asked.costs_alone else None
        child(asked.child.split(","), modes, told, asked.rounds, asked.folder)
    with tempfile.TemporaryDirectory() as name:
        folder = asked.out or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        work = list(groups(asked.half, asked.only, asked.each))
        parts = {mode: folder / mode.replace(", ", "-") for mode in modes}
        said = {}
        for mode, part in parts.items():
            part.mkdir(exist_ok=True)
            own = ["--rounds", str(asked.rounds), "--modes", mode, "--folder", str(part)]
            own += ["--costs-alone"] if asked.costs_alone else []
            every = [names for _, names in work]
            said[mode] = run_all(every, own, part, asked.prepare, asked.seconds)
        columns = ["half", "call", "plain, us", "bits", *modes]
        print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
        made: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for half, names in work:
            for each in names:
                paths = {mode: part / f"{each}.json" for mode, part in parts.items()}
                found = together(
                    json.loads(path.read_text()) if path.exists() else {"failed": said[mode][each]}
                    for mode, path in paths.items()
                )
                made[half].append(found)
                print(f"| {half} | {row(each, found, modes)} |")
    for half, results in made.items():
        print(f"\n{half}: {summary(results, modes)}")


def together(found: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return what was found of a call at several details, a process each; or the first failure."""
    every = list(found)
    if failed := [each for each in every if "failed" in each]:
        return failed[0]
    return {
        "us": statistics.median(each["us"] for each in every),
        "bits": "/".join(each["bits"] for each in every),
        "modes": {mode: one for each in every for mode, one in each["modes"].items()},
    }


def groups(half: str, only: str | None, each: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the cases of each process, with their half."""
    for name, (cases, kernels) in halves().items():
        chosen = [case for case in cases if only is None or case in only.split(",")]
        for libraries in (True, False):
            names = [case for case in chosen if (case in kernels) == libraries]
            for at in range(0, len(names) if half in (name, "all") else 0, each):
                yield name, names[at : at + each]


def halves() -> dict[str, tuple[dict[str, Any], dict[str, str]]]:
    """Return the cases of each half by name, and the kernels of those that libraries compiled."""
    from benchmarks.calls import develop, judge, later

    return {
        "develop": (develop.CASES, develop.KERNELS),
        "judge": (judge.CASES, judge.KERNELS),
        "later develop": (later.DEVELOP, {}),
        "later judge": (later.JUDGE, {}),
    }


def run_all(
    work: list[list[str]], own: list[str], folder: Path, prepare: float, seconds: float
) -> dict[str, str]:
    """Run the processes of all cases; return of each case what its process said at its end."""
    begun, processes = time.monotonic(), []
    (folder / "lock").write_text("")
    for names in work:
        command = [sys.executable, "-m", "ikp", "run", "--level", "machine", "--kernel", "*"]
        command += ["--memory", "8000", "--out", f"{folder}/{names[0]}.pftrace", "--force"]
        command += ["-m", "benchmarks.put_aside", *own, "--child", ",".join(names)]
        own_memory = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        with (folder / f"{names[0]}.log").open("w") as log:
            processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=own_memory))
    ready = [folder / f"{names[0]}.ready" for names in work]
    while time.monotonic() < begun + prepare and any(
        not path.exists() and process.poll() is None
        for path, process in zip(ready, processes, strict=True)
    ):
        time.sleep(0.1)
    late = [
        process.poll() is None and not path.exists()
        for path, process in zip(ready, processes, strict=True)
    ]
    for process in (each for each, is_late in zip(processes, late, strict=True) if is_late):
        process.kill()
        process.wait()
    print(f"prepared in {time.monotonic() - begun:.0f} s, {sum(late)} late", file=sys.stderr)
    (folder / "go").write_text("")
    said: dict[str, str] = {}
    for names, process, is_late in zip(work, processes, late, strict=True):
        try:
            process.wait(max(begun + seconds - time.monotonic(), 0.1))
            why = last_line(folder / f"{names[0]}.log") or f"ended with {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            why = f"not done after {seconds:g} s"
        said |= dict.fromkeys(names, f"not prepared in {prepare:g} s" if is_late else why)
    print(f"done in {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return said


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " ".join([line for line in lines if not line.startswith("ikp: ")][-1:])[-200:]


def row(name: str, result: dict[str, Any], modes: list[str]) -> str:
    if "failed" in result:
        return f"{name} | failed: {result['failed']} |" + " |" * len(modes)
    cells = [result["modes"][each] for each in modes]
    shown = " | ".join(
        f"{each['ratio']:.3f} ({each['low']:.3f} to {each['high']:.3f}){missing(each)}"
        for each in cells
    )
    return f"{name} | {result['us']:.1f} | {result['bits']} | {shown}"


def missing(mode: dict[str, Any]) -> str:
    return f", not recorded: {mode['missing'][:150]}" if mode["missing"] else ""


def summary(results: list[dict[str, Any]], modes: list[str]) -> str:
    """Return medians and ninth deciles over the calls whose launches were recorded."""
    said = []
    for mode in modes:
        ratios = [
            each["modes"][mode]["ratio"]
            for each in results
            if "failed" not in each and not each["modes"][mode]["missing"]
        ]
        if len(ratios) > 1:
            ninth = statistics.quantiles(ratios, n=10, method="inclusive")[8]
            said.append(f"{mode} {statistics.median(ratios):.3f}, {ninth:.3f} ({len(ratios)})")
    return "; ".join(said + truth(results))


def truth(results: list[dict[str, Any]]) -> list[str]:
    """Return how far what traces say of recording is from what was measured beside."""
    columns = [each["modes"].get(TOLD, {}) for each in results if "failed" not in each]
    found = []
    for way in ("measured", "estimated"):
        off = [
            abs(one["told"][way] - one["told"]["true"])
            for one in columns
            if way in one.get("told", ())
        ]
        if len(off) > 1:
            close = sum(each <= CLOSE for each in off) / len(off)
            ninth = statistics.quantiles(off, n=10, method="inclusive")[8]
            found.append(f"{way} within {CLOSE:g}: {close:.0%}, nine in ten within {ninth:.3f}")
    return found


def child(names: list[str], modes: list[str], told: str | None, rounds: int, folder: Path) -> None:
    """Measure cases in this process, and end it: a trace of so many launches is not wanted."""
    from benchmarks.calls.case import few_configurations
    from benchmarks.switch import Switch

    few_configurations()
    every = halves().values()
    switch, cases = Switch(), {name: case for some, _ in every for name, case in some.items()}
    named = {name: pattern for _, some in every for name, pattern in some.items()}
    patterns = [named[each] for each in names if each in named]
    switch.launcher.kernels = re.compile("|".join(patterns), re.IGNORECASE) if patterns else None
    known = {
        name: attempt(lambda name=name: prepared(switch, cases[name], modes)) for name in names
    }
    (folder / f"{names[0]}.ready").write_text("")
    while not (folder / "go").exists():
        time.sleep(0.05)
    for name in names:
        if "failed" not in known[name]:
            more = attempt(partial(measured, switch, cases[name], modes, told, rounds, folder))
            known[name] = more if "failed" in more else joined(known[name], more)
        (folder / f"{name}.json").write_text(json.dumps(known[name]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def attempt(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return run()
    except Exception as error:  # noqa: BLE001 - the next case may do
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        said = " ".join(str(error).split())[:250]
        return {"failed": f"{type(error).__name__} in {where}: {said}"}


def joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    modes = {mode: one["modes"][mode] | other["modes"][mode] for mode in one["modes"]}
    return one | other | {"modes": modes}


def prepared(switch: Any, make: Callable[[], Any], modes: list[str]) -> dict[str, Any]:
    """Compile, tune and patch a case; return whether results are equal, and figures of launches."""
    import torch

    torch.manual_seed(0)
    case = make()
    results(switch, case, None)  # compiles, and tunes
    first, again = (results(switch, case, None) for _ in "ab")
    steady, bits, figures = all(map(torch.equal, first, again)), [], {}
    for mode in modes:
        made = results(switch, case, mode)
        bits.append("=" if all(map(torch.equal, first, made)) else "DIFFER")
        figures[mode] = {"missing": switch.missing(), "launches": launches(switch, case, mode)}
    del case, first, again, made
    torch.cuda.empty_cache()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]):
        torch.cuda._sleep(1)  # noqa: SLF001 - the first profile of a process takes long to begin
    return {"bits": "/".join(bits) if steady else "plain differs from itself", "modes": figures}


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Within the context, no other process times a call: it has the GPU for itself."""
    with (folder / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def measured(
    switch: Any,
    make: Callable[[], Any],
    modes: list[str],
    told: str | None,
    rounds: int,
    folder: Path,
) -> dict[str, Any]:
    """Return a case's plain time, its ratios at each mode, and how true a trace is of one."""
    import torch

    from benchmarks.told import judged

    with alone(folder):
        torch.manual_seed(0)
        case = make()
        found = timed(switch, case, modes, rounds)
    said = attempt(partial(judged, switch, case, told, folder)) if told else {}
    del case
    torch.cuda.empty_cache()
    order = [None, *modes]
    flat = durations(found, rounds * len(order))
    calls: dict[str | None, list[Durations]] = {mode: [] for mode in order}
    for at, durations_of_one in enumerate(flat):
        number, place = divmod(at, len(order))
        calls[turned(order, number)[place]].append(durations_of_one)
    figures: dict[str, Any] = {}
    plain = calls[None]
    for mode in modes:
        pairs = list(zip(plain, calls[mode], strict=True))
        ratios = [sum(b for _, b in two) / sum(a for _, a in one) for one, two in pairs]
        low, middle, high = statistics.quantiles(ratios, n=4)
        figures[mode] = {"ratio": middle, "low": low, "high": high, "kernels": kernels(pairs)}
    us = statistics.median(sum(each for _, each in one) for one in plain)
    if told:
        figures[told]["told"] = said
    return {"us": us, "modes": figures}


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


def timed(switch: Any, case: Any, modes: list[str], rounds: int) -> Any:
    """Profile calls in turn, plain and at each mode; return the profiler's events."""
    import torch

    fresh, call = case
    flush = torch.empty(1 << 28, dtype=torch.int8, device="cuda")

    def once(mode: str | None) -> None:
        arguments = fresh()
        flush.zero_()
        torch.cuda.synchronize()
        torch.cuda._sleep(100)  # noqa: SLF001
        kept = record(switch, lambda: call(*arguments), mode)
        torch.cuda.synchronize()
        torch.cuda._sleep(100)  # noqa: SLF001
        del kept

    def turn(order: list[str | None]) -> None:
        for mode in order:
            once(mode)
        switch.session.reset()
        time.sleep(SETTLED_S)

    order = [None, *modes]
    turn(order)
    return profiled(lambda: [turn(turned(order, number)) for number in range(rounds)])


def profiled(run: Callable[[], object]) -> Any:
    """Return the profiler's events of what a function does."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    return profiler.events()


def turned(order: list[Any], number: int) -> list[Any]:
    """Return a list begun at another of its entries: none is always the first of a turn."""
    at = number % len(order)
    return order[at:] + order[:at]


Durations = list[tuple[str, float]]


def durations(events: Any, count: int) -> list[Durations]:
    """Return the kernels' durations in us of each call: what ran between two delimiters."""
    from torch.autograd import DeviceType

    found = [
        each
        for each in events
        if each.device_type == DeviceType.CUDA and not each.name.startswith("Mem")
    ]
    found.sort(key=lambda each: each.time_range.start)
    calls: list[Durations] = []
    inside = False
    for each in found:
        if DELIMITER in each.name:
            inside = not inside
            calls += [[]] if inside else []
        elif inside:
            calls[-1].append((each.name, each.time_range.elapsed_us()))
    if len(calls) != count or not all(calls):
        raise RuntimeError(f"{sum(map(bool, calls))} calls with kernels in the profile for {count}")
    return calls


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
