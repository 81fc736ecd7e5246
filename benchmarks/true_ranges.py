"""What ikp shows of kernels that were put aside, beside the kernels' own clock reads and CUPTI.

    IKP_BENCHMARK_SOURCES=CHECKOUTS python -m benchmarks.true_ranges FOLDER

Three kernels of llm.c are recorded as they are, by ``ikp run --detail waits --sample 1``, and run
once more in another process with ``clock()`` written around the same loops and barriers, which
stores what each warp took. Two of Triton are recorded alone. CUPTI's duration of the plain kernel,
in the process by hand, is beside the launch's span. Prints a Markdown table: what each range holds
in the machine code, its median in cycles by hand and by ikp.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROUNDS = 9
HAND = "unsigned* hand"
"""The argument that a kernel gets for its own clock reads: for each warp, a cell of each place."""
PLACES = 8
"""Cells of a warp."""
Edit = tuple[str, str]


def around(
    first: str, last: str, cell: int, *, adds: bool = False, barrier: bool = False
) -> list[Edit]:
    """Return the edits that put clock reads before one text and behind another.

    Args:
        first: the text before which the first one goes.
        last: the text behind which the second one goes.
        cell: where the difference is stored.
        adds: whether it is added to what is there.
        barrier: whether a warp may read the clock twice before it has waited.
    """
    stored = (
        "clock(); clock(); " * barrier
        + f"if (ikp_lane == 0) ikp_cells[{cell}] {'+' * adds}= clock() - ikp_{cell};"
    )
    return [(first, f"unsigned ikp_{cell} = clock(); {first}"), (last, f"{last} {stored}")]


_SETUP = (
    "int ikp_thread = threadIdx.x + blockDim.x * threadIdx.y, ikp_lane = ikp_thread % 32; "
    "unsigned* ikp_cells = hand + 8 * ((blockIdx.x + gridDim.x * blockIdx.y) * "
    "(blockDim.x * blockDim.y / 32) + ikp_thread / 32); "
)


_STORES = (
    "    for (int i = 0; i < 8; ++i) {\n        for (int j = 0; j < 8; j += 4) {\n"
    "            float4 result;"
)


def edited(text: str, begin: str, edits: list[Edit]) -> str:
    """Return a kernel with clock reads, each at the first place of its text behind the last one."""
    text = re.sub(r"\b(int C|int OC)\)\s*\{", rf"\1, {HAND}) {{ {_SETUP}", text, count=1)
    at = text.index(begin)
    for old, new in edits:
        found = text.index(old, at)
        text = text[:found] + new + text[found + len(old) :]
        at = found + len(new) - len(old) if new.endswith(old) else found + len(new)
    return text


def online(text: str) -> str:
    loop = "for (int i = laneId; i < C; i += warpSize)"
    begin = "float maxval"
    edits = [
        *around(loop, "maxval = bigger;\n    }", 0),
        *around(loop, "/ sumval;\n    }", 1),
    ]
    return edited(text, begin, edits)


def shared(text: str) -> str:
    loop, barrier = "for (int i = tid; i < C; i += blockDim.x)", "__syncthreads();"
    edits = [
        *around(loop, "maxf(maxval, x[i]);\n    }", 0),
        *around(barrier, barrier, 1, barrier=True),
        *around(loop, "offset);\n    }", 2),
        *around(loop, "sumval += x[i];\n    }", 3),
        *around(loop, "/ sum;\n    }", 4),
    ]
    return edited(text, "float maxval", edits)


def matmul(text: str) -> str:
    barrier = "__syncthreads();"
    edits = [
        ("for (int so", "unsigned ikp_0 = clock(); for (int so"),
        *around(barrier, barrier, 1, adds=True, barrier=True),
        *around(barrier, barrier, 2, adds=True, barrier=True),
        (_STORES, f"    if (ikp_lane == 0) ikp_cells[0] = clock() - ikp_0;\n{_STORES}"),
    ]
    return edited(text, "int si_start", edits)


KERNELS: dict[str, tuple[Callable[[str], str], list[tuple[str, int, int]]]] = {
    "llm_c_softmax": (online, [("iteration", 1, 1)]),
    "llm_c_softmax_shared": (shared, [("barrier", 0, 1), ("iteration", 0, 4)]),
    "llm_c_matmul": (matmul, [("loop", 0, 0), ("barrier", 0, 1), ("barrier", 1, 2)]),
}
"""How clock reads are written into each, and its ranges: kind, number in program order, cell. The
iterations of a loop are compared in sum.
"""
ALONE = ("attorch_glu", "fla_hgrn")


def by_hand(out: Path) -> None:
    """Write medians of the kernels' own clock reads, and CUPTI's durations of the plain kernels."""
    import torch

    from benchmarks.calls import case, cuda, judge

    raw, made = case.raw, {}
    for name in (*KERNELS, *ALONE):
        _, call = judge.CASES[name]()
        call = call if name in KERNELS else _called(judge.CASES[name]())
        made[name] = {"kernels": _durations(call)}
    for name, (edit, _) in KERNELS.items():
        cells = torch.zeros(1 << 22, dtype=torch.int32, device="cuda")

        def compiled(
            text: str, kernel: str, edit: Any = edit, cells: Any = cells
        ) -> Callable[..., None]:
            built = raw(edit(text), kernel)

            def launch(*, args: tuple[Any, ...], **how: Any) -> None:
                built(args=(*args, cells), **how)

            return launch

        cuda.raw = compiled
        _, call = judge.CASES[name]()
        call()
        cells.zero_()
        call()
        torch.cuda.synchronize()
        found = cells.cpu().view(-1, PLACES)
        found = found[found[:, 0] > 0].double()
        made[name]["cells"] = found.median(0).values.tolist()
        made[name]["means"] = found.mean(0).tolist()
    out.write_text(json.dumps(made))


def _called(made: Any) -> Callable[[], Any]:
    fresh, call = made
    return lambda: call(*fresh())


def _durations(call: Callable[[], Any]) -> dict[str, float]:
    import torch
    from torch.autograd import DeviceType

    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(ROUNDS):
            call()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {}
    for each in profiler.events():
        if each.device_type == DeviceType.CUDA and not each.name.startswith("Mem"):
            times.setdefault(each.name, []).append(each.time_range.elapsed_us())
    return {name: statistics.median(each) for name, each in times.items()}


def recorded() -> None:
    """Launch the kernels as they are, for ``ikp run``."""
    import torch

    from benchmarks.calls import cuda, judge

    cuda.raw = partial(torch.cuda._compile_kernel, nvcc_options=["-lineinfo"])  # noqa: SLF001
    for name in (*KERNELS, *ALONE):
        call = _called(judge.CASES[name]())
        for _ in range(4):
            call()
            torch.cuda.synchronize()


def shown(trace: Path, labels: dict[str, str]) -> dict[str, Any]:
    """Return of each kernel its launch's span in us, and its ranges in program order.

    Args:
        trace: the recording.
        labels: the kernels' names -> the beginning of their labels.
    """
    import numpy as np

    import ikp
    from ikp.core.warps import launch_bounds

    loaded = ikp.load(trace)
    first, last = launch_bounds(loaded)
    made: dict[str, Any] = {}
    for name, begin in labels.items():
        numbers = [i for i, each in enumerate(loaded.launches) if each.label.startswith(begin)]
        if not numbers:
            made[name] = {"spans": {}, "ranges": []}
            continue
        number = numbers[-1]
        spans = sorted(float(last[each] - first[each]) / 1000 for each in numbers)
        of_launch = loaded.slots.launch[loaded.events.slot] == number
        ranges = []
        for region in np.unique(loaded.events.region[of_launch]):
            chosen = of_launch & (loaded.events.region == region)
            ticks, starts = loaded.events.ticks[chosen], loaded.events.start_ns[chosen]
            warps = np.bincount(loaded.events.slot[chosen], ticks)
            warps = warps[warps > 0]
            ranges.append(
                {
                    "name": loaded.regions[region].name,
                    "count": len(ticks),
                    "start": float(starts.min()),
                    "of_warp": float(np.median(warps)),
                    "mean_of_warp": float(warps.mean()),
                    "median": float(np.median(ticks)),
                }
            )
        ranges.sort(key=lambda each: line_of(each["name"]))
        made[name] = {"span": statistics.median(spans), "ranges": ranges}
    return made


def line_of(name: str) -> int:
    found = re.search(r":(\d+)", name)
    return int(found[1]) if found else 0


LABELS = {
    "llm_c_softmax": "softmax_forward_online_kernel8",
    "llm_c_softmax_shared": "softmax_forward_kernel4",
    "llm_c_matmul": "matmul_forward_kernel4",
    "attorch_glu": "glu_forward_kernel",
    "fla_hgrn": "chunk_hgrn_fwd_kernel_h",
}


def main() -> None:
    folder, *child = (Path(each) for each in sys.argv[1:])
    if child:
        by_hand(folder / "hand.json") if str(child[0]) == "hand" else recorded()
        return
    folder.mkdir(parents=True, exist_ok=True)
    here = ["-m", "benchmarks.true_ranges", str(folder)]
    subprocess.run([sys.executable, *here, "hand"], check=True, timeout=100)
    trace = folder / "ranges.pftrace"
    options = ["--kernel", "*", "--detail", "waits", "--sample", "1", "--launch", ":4"]
    options += ["--out", str(trace), "--force", "--buffer", "256"]
    command = [sys.executable, "-m", "ikp", "run", *options, *here, "recorded"]
    subprocess.run(command, check=True, timeout=100)
    inspect = [sys.executable, "-m", "ikp", "inspect", str(trace), "--format", "json"]
    told = subprocess.run(inspect, check=False, timeout=100, capture_output=True, text=True)
    (folder / "inspect.json").write_text(told.stdout)
    hand, seen = json.loads((folder / "hand.json").read_text()), shown(trace, LABELS)
    (folder / "shown.json").write_text(json.dumps(seen))
    print(
        "| kernel | what | by hand or CUPTI | ikp | ikp over it |\n| --- | --- | --- | --- | --- |"
    )
    for name, figures in seen.items():
        for row in rows(name, figures, hand[name]):
            print(row)


def rows(name: str, figures: dict[str, Any], hand: dict[str, Any]) -> list[str]:
    """Return the table's rows of one kernel: its launch, then its ranges by hand."""
    kernel = max(hand["kernels"].values())
    span = figures["span"]
    made = [f"| {name} | launch, us | {kernel:.1f} | {span:.1f} | {span / kernel:.3f} |"]
    places = KERNELS[name][1] if name in KERNELS else []
    for kind, number, cell in places:
        same = [each for each in figures["ranges"] if each["name"].startswith(kind)]
        if number >= len(same):
            made.append(f"| {name} | {kind} {number} | {hand['cells'][cell]:.0f} | no range | |")
            continue
        one = same[number]
        whole = hand["cells"][cell]
        made.append(
            f"| {name} | `{one['name']}`, cycles of a warp | {whole:.0f} | "
            f"{one['of_warp']:.0f} | {one['of_warp'] / max(whole, 1):.3f} |"
        )
    return made


if __name__ == "__main__":
    main()
