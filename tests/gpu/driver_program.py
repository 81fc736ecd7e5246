"""Launches kernels that Triton does not: torch's own, torch.compile's, a graph's."""

import hashlib
import json
import os
import resource
import sys
import threading
import time
from pathlib import Path

import torch


def fingerprint(*tensors: torch.Tensor) -> str:
    digest = hashlib.sha256()
    for each in tensors:
        digest.update(each.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def own() -> str:
    """Torch's own kernels."""
    x = torch.randn(512, 1000, device="cuda")
    made = x.softmax(-1), torch.layer_norm(x, (1000,)), torch.cumsum(x, 1), x * 3 + 1
    return fingerprint(*made)


def reduced() -> str:
    """Torch's reductions: they leave one uniform register, and are refused none."""
    made = []
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        x = torch.randn(4096, 768, device="cuda").to(dtype)
        made += [x.sum(), x.sum(0), x.sum((0, 1)), x.amax(1), x.argmax(1), x.norm(), x.std(1)]
        made += [x.pow(2).mean(-1), x.prod(1), x.cumsum(1), torch.linalg.vector_norm(x, 3, 1)]
    x = torch.rand(1000, 1000, device="cuda")
    made += [torch.bernoulli(x), torch.nn.functional.dropout(x), torch.multinomial(x, 5)]
    made += [x.sort(1).values, x.topk(7, 1).indices, x.kthvalue(3, 1).values, x.unique()]
    return fingerprint(*(each for each in made))


def compiled() -> str:
    """What torch.compile generates, launched by a launcher of its own."""
    made = torch.compile(lambda x: (x * 2 + x.sin()).softmax(-1))
    x = torch.randn(256, 5000, device="cuda")
    return fingerprint(made(x), made(x))


def graph() -> str:
    """A kernel that a graph replays."""
    x, y = torch.randn(4096, device="cuda"), torch.zeros(4096, device="cuda")
    torch.mul(x, 3, out=y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(x, 3, out=y)
    for _ in range(3):
        y.zero_()
        graph.replay()
    return fingerprint(y)


def bursts() -> str:
    """Launches alike, of two threads on a stream of each, in bursts."""
    sums = [torch.zeros(4096, device="cuda") for _ in range(2)]
    torch.cuda.synchronize()

    def add(out: torch.Tensor) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(BURSTS):
                for _ in range(BURST):
                    torch.add(out, 1.0, out=out)
                torch.cuda.current_stream().synchronize()
                time.sleep(0.02)

    threads = [threading.Thread(target=add, args=(each,)) for each in sums]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert all(bool((each == BURSTS * BURST).all()) for each in sums)
    return fingerprint(*sums)


def until_recorded(wanted: bool, wrote: int) -> None:
    """Wait until a window is open, or written, where ``ikp run`` has started this process.

    A window that is being closed may still have replays: so what is waited for is its trace.

    Args:
        wanted: whether it is to be open.
        wrote: how many windows have been written by then.
    """
    found = [each.recording for each in sys.meta_path if hasattr(each, "recording")]
    over = time.monotonic() + 60
    while any((each.launcher.idle, each.wrote) != (not wanted, wrote) for each in found):
        assert time.monotonic() < over, "no window opens, or it never closes"
        time.sleep(0.01)


def windowed() -> str:
    """A graph that is captured before the window in which it is recorded: a file opens that."""
    switch = Path(os.environ["SWITCH"])
    x, y = torch.randn(4096, device="cuda"), torch.zeros(4096, device="cuda")
    torch.mul(x, 3, out=y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(x, 3, out=y)
        y.add_(x)
    for at, times in enumerate((5, 7, 4, 2)):
        there = at % 2 == 1
        switch.touch() if there else switch.unlink(missing_ok=True)
        until_recorded(there, at // 2)
        for _ in range(times):
            graph.replay()
        torch.cuda.synchronize()
    return fingerprint(y)


class Worker:
    """A worker of vLLM's (profiler "cuda") and a scheduler of SGLang's (activity "CUDA_PROFILER").

    It has their interface, and starts and stops CUDA's profiler as each of them does.
    """

    def profile(self, is_start: bool) -> None:
        """Do what vLLM's workers do at /start_profile and /stop_profile."""
        (torch.cuda.profiler.start if is_start else torch.cuda.profiler.stop)()

    def start_profile(self) -> None:
        """Do what SGLang's schedulers do at /start_profile."""
        torch.cuda.cudart().cudaProfilerStart()

    def stop_profile(self) -> None:
        """Do what SGLang's schedulers do at /stop_profile."""
        torch.cuda.cudart().cudaProfilerStop()


def endpoints() -> str:
    """A server's graph, replayed while its endpoints open and end windows."""
    x, y = torch.randn(4096, device="cuda"), torch.zeros(4096, device="cuda")
    torch.mul(x, 3, out=y)
    graph, worker = torch.cuda.CUDAGraph(), Worker()
    with torch.cuda.graph(graph):
        torch.mul(x, 3, out=y)
        y.add_(x)

    def replay(times: int) -> None:
        for _ in range(times):
            graph.replay()
        torch.cuda.synchronize()

    replay(5)
    worker.profile(is_start=True)
    replay(7)
    worker.profile(is_start=False)
    replay(4)
    worker.start_profile()
    replay(2)
    worker.stop_profile()
    replay(1)
    return fingerprint(y)


def overhead() -> str:
    """What torch.compile replays from graphs of its own, whose memory it watches."""
    made = torch.compile(
        lambda x: ((x * 2 + x.sin()).softmax(-1) @ x.T).relu(), mode="reduce-overhead"
    )
    x = torch.randn(256, 512, device="cuda")
    return fingerprint(*[made(x).clone() for _ in range(6)])


LEARNED = 12
BURSTS, BURST = 20, 50
"""Steps of ``trained``: the first warms up, the second captures and replays, others replay."""


def trained() -> str:
    """A model that learns, compiled so that graphs of its steps, there and back, are replayed."""
    model = torch.nn.Sequential(
        torch.nn.LayerNorm(256), torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 8)
    ).cuda()
    step = torch.optim.SGD(model.parameters(), lr=0.01)
    made = torch.compile(model, mode="reduce-overhead")
    losses = []
    for _ in range(LEARNED):
        torch.compiler.cudagraph_mark_step_begin()
        loss = made(torch.randn(64, 256, device="cuda")).square().mean()
        loss.backward()
        step.step()
        step.zero_grad(set_to_none=True)
        losses.append(loss.detach().clone())
    return fingerprint(*losses, *model.parameters())


def profiled() -> str:
    """Kernels of the CUDA runtime, seen by torch.profiler: how many, and what they compute."""
    from torch.profiler import ProfilerActivity, profile

    x = torch.randn(512, 768, device="cuda")
    x.softmax(-1)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        made = [(x * n).softmax(-1) for n in range(20)]
        torch.cuda.synchronize()
    seen = [
        each.name
        for each in prof.events()
        if each.device_type == torch.autograd.DeviceType.CUDA and "softmax" in each.name
    ]
    return f"{len(seen)} {len(set(seen))} {fingerprint(*made)}"


STEPS, NORMS = 200, 16


def steps() -> str:
    """Many steps of small kernels, by which the host is kept busy."""
    x = torch.randn(1024, 1024, device="cuda")
    layer = torch.nn.LayerNorm(1024, device="cuda")
    with torch.no_grad():
        layer(x)
        torch.cuda.synchronize()
        began, used = time.perf_counter(), time.thread_time()
        for _ in range(STEPS):
            for _ in range(NORMS):
                x = layer(x)
            torch.cuda.synchronize()
    took, used = time.perf_counter() - began, time.thread_time() - used
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"s": took, "cpu_s": used, "rss_mb": rss}), file=sys.stderr)
    return fingerprint(x)


def terminated() -> str:
    """Launches until a signal comes."""
    x = torch.randn(512, 768, device="cuda")
    for n in range(10**9):
        x = x.softmax(-1)
        if n == 20:
            print("ready", flush=True)
        torch.cuda.synchronize()
        time.sleep(0.001)
    return fingerprint(x)


def endless() -> str:
    """Waits for a kernel that does not end."""
    x = torch.randn(512, 768, device="cuda")
    for _ in range(20):
        x = x.softmax(-1)
    torch.cuda.synchronize()
    for _ in range(500):
        torch.cuda._sleep(10**10)
    print("ready", flush=True)
    torch.cuda.synchronize()
    return fingerprint(x)


PROGRAMS = (
    *(own, reduced, compiled, graph, bursts, windowed, endpoints, overhead),
    *(trained, profiled, steps, terminated, endless),
)

if __name__ == "__main__":
    torch.manual_seed(0)
    print({each.__name__: each for each in PROGRAMS}[sys.argv[1]]())
