"""What each of several processes does in the tests of ranks: record, gather, and go wrong.

Started as ``python ranks.py BACKEND DEVICE RANK SIZE FOLDER``; leaves its traces and ``RANK.json``
there. As rank ``all``, it forks for each.
"""

import dataclasses
import datetime
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import triton
import triton.language as tl

import ikp
import ikp.paths
import ikp.profiling.gather
import ikp.profiling.hosts

LATE_NS = 3_000_000
"""By how much the last rank's clock is behind, where each rank is of another host."""


@triton.jit
def stepped(out, n, prof):
    ikp.init(prof)
    for i in range(n):
        with ikp.range("step", i):
            tl.store(out + tl.program_id(0), i)
    ikp.instant("done")
    ikp.finish()


def record(device, blocks, n, path=None, label="k", **options):
    """Return the trace of one launch, and the host's time around it."""
    out = torch.zeros(blocks, dtype=torch.int32, device=device)
    stepped[(blocks,)](out, n, None)  # compiled before the time counts
    with ikp.profile(path, device=device, **options) as prof:
        if dist.is_initialized():
            dist.barrier()
        begin = time.time_ns()
        stepped[(blocks,)](out, n, prof.buffer(label))
        if device == "cuda":
            torch.cuda.synchronize()
        end = time.time_ns()
    return prof.trace, (begin, end)


def told(call):
    """Return what a call raises, in words."""
    try:
        return f"returned {call()!r}"
    except ikp.UsageError as error:
        return str(error)


def of_another_host(trace, boot, late_ns):
    """Return a trace as of a host whose clock is late, and have this process be of that host."""
    ikp.profiling.gather.boot = lambda: boot
    ikp.profiling.hosts._now_ns = lambda: time.time_ns() - late_ns
    moved = ikp.edit.shift(trace, -late_ns)
    return dataclasses.replace(moved, provenance={**trace.provenance, "boot": boot})


def main(backend, device, rank, size, folder):
    """Do everything in one process group: starting one takes longer than all the rest."""
    found = {"early": told(lambda: ikp.gather(None))}
    if device == "cuda":
        torch.cuda.set_device(rank)
    early, _ = record(device, 1, 1, label="early")
    found["early rank"] = early.launches[0].rank
    dist.init_process_group(
        backend,
        init_method=f"file://{folder / 'rendezvous'}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=120),
    )
    trace, window = record(device, 2 + rank, 3 + rank, folder / "own.{rank}.pftrace")
    found["window"] = window
    found["own"] = [int(trace.slots.start_ns.min()), int(trace.slots.end_ns.max())]

    last = size - 1
    for name, part, dst in (("all", trace, 0), ("late", early, last)):
        whole = ikp.gather(part, dst=dst)
        found[name] = whole is not None
        if whole is not None:
            whole.save(folder / f"{name}.pftrace")
    group = dist.new_group([0, last])
    if rank in {0, last}:
        whole = ikp.gather(trace, group, dst=last)
        found["group"] = whole is not None
        if whole is not None:
            whole.save(folder / "group.pftrace")
    else:
        found["not in it"] = told(lambda: ikp.gather(trace, group))

    for again in range(2):
        whole = ikp.gather(of_another_host(trace, "abc"[min(rank, 2)], LATE_NS * (rank == last)))
        if whole is not None:
            whole.save(folder / f"hosts{again}.pftrace")
    (ikp.profiling.gather.boot, ikp.profiling.hosts._now_ns) = (ikp.paths.boot, time.time_ns)

    off, _ = record(device, 1, 1, enabled=False)
    whole = ikp.gather(off if rank == last else trace)
    found["some recorded nothing"] = whole and [one.rank for one in whole.launches]
    whole = ikp.gather(off)
    found["none recorded"] = whole and len(whole.launches)
    found["no trace"] = told(lambda: ikp.gather(None if rank == last else trace))
    found["which dst"] = told(lambda: ikp.gather(trace, dst=min(rank, 1)))
    found["no dst"] = told(lambda: ikp.gather(trace, dst=size))
    if rank == last:
        ikp.profiling.gather.__version__ = "0.0.7"
    found["versions"] = told(lambda: ikp.gather(trace))
    dist.barrier()
    dist.destroy_process_group()
    found["after"] = told(lambda: ikp.gather(trace))
    (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")


def fork(backend, device, size, folder):
    """Be each rank in a child: to import torch takes longer than all that they do."""
    children = []
    for rank in range(size):
        if (child := os.fork()) == 0:
            main(backend, device, rank, size, folder)
            return
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in children]
    if any(codes):
        sys.exit(f"exit codes of the ranks: {codes}")


if __name__ == "__main__":
    backend, device, rank, size, folder = sys.argv[1:]
    if rank == "all":
        fork(backend, device, int(size), Path(folder))
    else:
        main(backend, device, int(rank), int(size), Path(folder))
