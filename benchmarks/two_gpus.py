"""Two GPUs of one host, a process for each: do their clocks agree, and is a late rank found?

    python -m benchmarks.two_gpus [--seconds 60] [--one-gpu] [--keep FOLDER]

Each rank maps the other's memory (CUDA IPC). Pairs of blocks send each other 128 bytes and a flag,
in turn, recorded as ``put`` and ``wait``. Printed are, with what is asked of each:

- how far apart the two GPUs' times are, by the shortest flights there and back in each launch;
- messages that were received before they were sent, by the times in both traces;
- trials in which the verdict lays a delay of 5 us to the rank, block and range it was put in.

``--one-gpu`` runs both ranks on one GPU, which runs them in turn: that tries the program alone.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

import ikp
from ikp.core.abi import segment_bytes
from ikp.driver import cuda, cuda_memory

BLOCKS: Final = 16
ROUNDS: Final = 256
LAUNCHES_S: Final = 2.2
"""Launches a second: with 8,192 messages each, 60 s have more than a million."""
TRIALS, PLANTED_ROUNDS, LATE_NS = 10, 100, 5_000
SD_NS: Final = 500
_WORDS: Final = 32
FLAG: tl.constexpr = tl.constexpr(_WORDS)
"""Words from one block's flag to the next one's; behind all flags, as many words of data each."""
DATA: tl.constexpr = tl.constexpr(BLOCKS * _WORDS)
_HANDLE: Final = 64
_LAZY_PEER_ACCESS: Final = 1


@triton.jit
def send(there, block, value, number):
    """Store 32 numbers in the other rank's memory, and then the flag that says so."""
    lanes = tl.arange(0, FLAG)
    tl.store(there + DATA + block * FLAG + lanes, lanes * 0 + number)
    tl.debug_barrier()
    tl.atomic_xchg(there + block * FLAG, value, sem="release", scope="sys")


@triton.jit
def await_flag(here, block, value):
    """Wait until a flag of this rank's has at least a value."""
    while tl.atomic_add(here + block * FLAG, 0, sem="acquire", scope="sys") < value:
        pass
    tl.debug_barrier()


@triton.jit
def is_wrong(here, block, number):
    """Return how many of the numbers that have arrived are others than were sent."""
    found = tl.load(here + DATA + block * FLAG + tl.arange(0, FLAG), volatile=True)
    return tl.sum((found != number).to(tl.int32))


@triton.jit(do_not_specialize=["base", "first", "rounds", "leads"])
def volley(here, there, wrong, base, first, rounds, leads, prof):
    """Send and receive in turn with the same block of the other rank; the leading rank begins."""
    ikp.init(prof)
    here, there = here.to(tl.pointer_type(tl.int32)), there.to(tl.pointer_type(tl.int32))
    block = tl.program_id(0)
    number = first + block * rounds * 2
    bad = 0
    for k in range(rounds):
        if leads:
            with ikp.range("put", number):
                send(there, block, base + k, number)
            with ikp.range("wait", number + 1):
                await_flag(here, block, base + k)
            bad += is_wrong(here, block, number + 1)
        else:
            with ikp.range("wait", number):
                await_flag(here, block, base + k)
            bad += is_wrong(here, block, number)
            with ikp.range("put", number + 1):
                send(there, block, base + k, number + 1)
        number += 2
    tl.atomic_add(wrong, bad)


@triton.jit(do_not_specialize=["base", "first", "rounds", "parity", "late", "late_ns"])
def planted(here, there, wrong, base, first, rounds, parity, late, late_ns, prof):
    """Even blocks send, each when the other rank's next block waits; one of them comes late."""
    ikp.init(prof)
    here, there = here.to(tl.pointer_type(tl.int32)), there.to(tl.pointer_type(tl.int32))
    block = tl.program_id(0)
    bad = 0
    if block % 2 == 0:
        number = first + ((block // 2) * 2 + parity) * rounds
        for k in range(rounds):
            await_flag(here, block, base + k)
            if block == late:
                began = globaltimer()
                while globaltimer() - began < late_ns:
                    pass
            with ikp.range("put", number + k):
                send(there, block + 1, base + k, number + k)
    else:
        number = first + ((block // 2) * 2 + 1 - parity) * rounds
        for k in range(rounds):
            send(there, block - 1, base + k, 0)
            with ikp.range("wait", number + k):
                await_flag(here, block, base + k)
            bad += is_wrong(here, block, number + k)
    tl.atomic_add(wrong, bad)


class Peer:
    """One rank: its memory, the other's memory, and the launches that both make alike."""

    def __init__(self, rank: int) -> None:
        self.rank, self.base, self.first = rank, 1, 0
        nbytes = 4 * 2 * BLOCKS * _WORDS
        torch.zeros(1, device="cuda")  # makes the context
        self.here = cuda_memory.allocate(nbytes)
        zeros = torch.zeros(nbytes, dtype=torch.uint8)
        _driver(
            "cuMemcpyHtoD_v2", _word(self.here), ctypes.c_void_p(zeros.data_ptr()), _word(nbytes)
        )
        own = (ctypes.c_char * _HANDLE)()
        _driver("cuIpcGetMemHandle", own, _word(self.here))
        handles: list[Any] = [None, None]
        dist.all_gather_object(handles, bytes(own))
        there = ctypes.c_uint64()
        other = _Handle.from_buffer_copy(handles[1 - rank])
        _driver("cuIpcOpenMemHandle_v2", ctypes.byref(there), other, _LAZY_PEER_ACCESS)
        self.there = there.value
        self.wrong = torch.zeros(1, dtype=torch.int32, device="cuda")
        self.size = segment_bytes(BLOCKS, 2 * ROUNDS)

    def volley(self, rounds: int, prof: Any) -> None:
        """Launch one, and wait for its end."""
        memory = self.here, self.there, self.wrong
        volley[(BLOCKS,)](*memory, self.base, self.first, rounds, 1 - self.rank, prof, num_warps=1)
        self._went_on(rounds, 2 * BLOCKS * rounds)

    def planted(self, rounds: int, late: int, prof: Any) -> None:
        """Launch one in which a block of this rank is late: -1 for none."""
        memory = self.here, self.there, self.wrong
        planted[(BLOCKS,)](
            *(*memory, self.base, self.first, rounds, self.rank, late, LATE_NS, prof), num_warps=1
        )
        self._went_on(rounds, BLOCKS * rounds)

    def _went_on(self, rounds: int, numbers: int) -> None:
        torch.cuda.synchronize()
        self.base += rounds
        self.first += numbers


class _Handle(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * _HANDLE),)


def _word(value: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(value)


def _driver(function: str, *arguments: Any) -> None:
    code = getattr(ctypes.CDLL("libcuda.so.1"), function)(*arguments)
    if code:
        raise SystemExit(f"{function} failed: {cuda.error_name(code)}. Both ranks need CUDA IPC.")


def one_rank(rank: int, folder: Path, seconds: float, one_gpu: bool) -> None:
    """Send and receive; leave ``volley.RANK.pftrace`` and ``planted.RANK.pftrace``."""
    torch.cuda.set_device(0 if one_gpu else rank)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=2
    )
    peer, launches = Peer(rank), 3 if one_gpu else round(LAUNCHES_S * seconds)
    rounds, of_planted = (8, 8) if one_gpu else (ROUNDS, PLANTED_ROUNDS)
    for make in (lambda prof: peer.volley(4, prof), lambda prof: peer.planted(4, -1, prof)):
        make(None)
        with ikp.profile() as prof:
            make(prof.buffer("warm up", size=peer.size))
    began = time.monotonic()
    with ikp.profile(folder / f"volley.{rank}.pftrace") as prof:
        for launch in range(launches):
            time.sleep(max(0.0, began + launch * seconds / launches - time.monotonic()))
            dist.barrier()
            peer.volley(rounds, prof.buffer(f"volley {launch}", size=peer.size))
    with ikp.profile(folder / f"planted.{rank}.pftrace") as prof:
        for trial in range(TRIALS):
            buffer = prof.buffer(f"trial {trial} on rank {rank}", size=peer.size)
            dist.barrier()
            peer.planted(of_planted, late_block(trial) if rank == trial % 2 else -1, buffer)
    wrong = int(peer.wrong.item())
    if wrong:
        raise SystemExit(f"rank {rank}: {wrong} numbers arrived that were not sent.")
    dist.barrier()
    dist.destroy_process_group()


def late_block(trial: int) -> int:
    """Return the block that is late, of rank ``trial % 2``: one that sends."""
    return 2 * (trial * 3 % (BLOCKS // 2))


def run_ranks(folder: Path, options: list[str]) -> None:
    """Run both ranks at once, to their end."""
    command = [sys.executable, "-m", "benchmarks.two_gpus", *options, "--folder", str(folder)]
    env = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    env["GLOO_SOCKET_IFNAME"] = "lo"  # they meet on this host: no name of it is looked up
    started = [subprocess.Popen([*command, "--rank", str(rank)], env=env) for rank in (0, 1)]
    try:
        while any(each.poll() is None for each in started):
            if any(each.poll() for each in started):  # the other one would wait for it for ever
                raise SystemExit("a rank failed: see above.")
            time.sleep(0.1)
    finally:
        for each in started:
            each.kill()
            each.wait()
    if any(each.returncode for each in started):
        raise SystemExit("a rank failed: see above.")


def ends_of(trace: ikp.Trace, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return a region's payloads, in order, with starts and ends, and the numbers of launches."""
    (region,) = (at for at, each in enumerate(trace.regions) if each.name == name)
    events = trace.events
    rows = np.flatnonzero(events.region == region)
    rows = rows[np.argsort(events.payload[rows], kind="stable")]
    launch = trace.slots.launch[events.slot[rows]]
    return events.payload[rows], events.start_ns[rows], events.end_ns[rows], launch


def check_clocks(folder: Path) -> bool:
    """Print how the two GPUs' times agree; return whether that is what is asked for."""
    traces = [ikp.load(folder / f"volley.{rank}.pftrace") for rank in (0, 1)]
    flights, early, begun, count = [], 0, 0, 0
    for sender, receiver in ((0, 1), (1, 0)):
        sent, begins, ends, launch = ends_of(traces[sender], "put")
        got, _, arrived, _ = ends_of(traces[receiver], "wait")
        if not np.array_equal(sent, got):
            raise SystemExit(f"rank {sender} put {len(sent)} messages, {len(got)} were waited for.")
        took = arrived - ends
        early, begun = early + int((took < 0).sum()), begun + int((arrived < begins).sum())
        count += len(sent)
        order = np.argsort(launch, kind="stable")
        first = np.flatnonzero(np.diff(launch[order], prepend=-1))
        flights.append(np.minimum.reduceat(took[order], first))
        print(
            f"rank {sender} to rank {receiver}: {len(sent):,} messages, from the end of the put to "
            f"that of the wait {np.median(took):,.0f} ns (median; {took.min():,} to {took.max():,})"
        )
    apart = (flights[0] - flights[1]) / 2
    within = [max(each.clock.unix_bound_ns or np.inf for each in one.launches) for one in traces]
    span = (traces[0].slots.end_ns.max() - traces[0].slots.start_ns.min()) / 1e9
    sd = float(apart.std())
    print(
        f"the clocks' difference in {len(apart)} launches over {span:.1f} s: mean "
        f"{apart.mean():,.0f} ns, sd {sd:,.0f} ns (asked for: at most {SD_NS}), most "
        f"{np.abs(apart).max():,.0f} ns; the traces say at most {sum(within):,.0f} ns"
    )
    print(
        f"{early} of {count:,} messages received before they were sent (asked for: 0), "
        f"{begun} of them before their put began"
    )
    return sd <= SD_NS and not early


def check_planted(folder: Path) -> bool:
    """Print to what the verdict lays the planted delays; return whether it is right each time."""
    parts, whole = [folder / f"planted.{rank}.pftrace" for rank in (0, 1)], folder / "all.pftrace"
    command = [sys.executable, "-m", "ikp", "merge", "--connect", "put:wait"]
    subprocess.run([*command, *map(str, parts), str(whole)], check=True)
    trace, right = ikp.load(whole), 0
    for trial in range(TRIALS):
        rank, block = trial % 2, late_block(trial)
        found = [
            (one.bound_ns, receiver, one)
            for receiver in (0, 1)
            for one in trace.explain(f"trial {trial} on rank {receiver}").findings
            if one.id == "late-message"  # late-launch: the ranks' launches began apart
        ]
        said = "no late message"
        if found:
            _, receiver, one = max(found, key=lambda each: each[0])
            said = one.title
            is_right = receiver != rank and one.where.regions == ("wait", "put")
            where = f"for rank {rank}'s SM", f"whose block {block} comes to put that late"
            right += is_right and all(each in said for each in where)
        print(f"trial {trial}, block {block} of rank {rank} late: {said}")
    print(f"{right} of {TRIALS} delays of 5 us laid to their rank, block and range")
    return right == TRIALS


def main() -> None:
    """Parse the command line, and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--one-gpu", action="store_true")
    parser.add_argument("--keep", type=Path, help="an empty folder, in which the traces are left")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        one_rank(given.rank, given.folder, given.seconds, given.one_gpu)
        return
    there = torch.cuda.device_count()
    if there < 2 - given.one_gpu:
        raise SystemExit(
            f"this needs two GPUs in one host, one with --one-gpu, and there are {there}."
        )
    with tempfile.TemporaryDirectory() as name:
        folder = given.keep or Path(name)
        run_ranks(folder, sys.argv[1:])
        checks = check_clocks(folder), check_planted(folder)
    if not all(checks) and not given.one_gpu:
        raise SystemExit("not all is as asked for.")


if __name__ == "__main__":
    main()
