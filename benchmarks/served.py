"""A served model under ``ikp run --idle``: does its server notice, and is every replay kept?

    python -m benchmarks.served [--replays 100] [--window 5] -- python serve.py --port {port}

The command is any server with OpenAI's ``/v1/completions``, as vLLM, SGLang and LightLLM have it.
It is started twice: as it is, and under ``ikp run``. Both are asked for the same tokens in turn,
one request at a time, and several; then ``ikp attach`` opens windows. Printed are tokens a second
of both, whether their tokens are equal, and what each process's trace of a window has.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import ikp

PATIENCE_S = 300.0
GRACE_S = 30.0
WRITTEN_S, QUIET_S = 120.0, 15.0
"""The longest wait for traces, which other processes write, and for the next one."""


@dataclass(slots=True)
class Served:
    """A server that was started."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def complete(self, prompt: str, tokens: int) -> tuple[str, int]:
        """Return the text that continues a prompt, and of how many tokens it is."""
        body = {"model": "default", "prompt": prompt, "max_tokens": tokens, "temperature": 0.0}
        body |= {"ignore_eos": True, "stream": False, "do_sample": False}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310
            found = json.load(answer)
        return found["choices"][0]["text"], int(found["usage"]["completion_tokens"])

    def wait(self) -> None:
        """Wait until it answers.

        Raises:
            SystemExit: it has ended, or does not answer in time.
        """
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(urllib.error.URLError, OSError, KeyError):
                self.complete("a", 2)
                return
            time.sleep(0.5)
        sys.exit(f"no server at port {self.port}: see {self.log}")

    def end(self) -> str:
        """End it as a service manager does; return its exit code and how long that took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        return f"{self.process.returncode} after {time.monotonic() - began:.1f} s"


def started(command: list[str], port: int, under: list[str], folder: Path, name: str) -> Served:
    """Start a server; its command has ``{port}`` where its port goes."""
    filled = [each.replace("{port}", str(port)) for each in command]
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen([*under, *filled], stdout=out, stderr=out)
    return Served(process, port, log)


def free_ports() -> tuple[int, int]:
    """Return two ports that nothing listens at."""
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1]), int(other.getsockname()[1])


def settled(folder: Path) -> list[Path]:
    """Return the traces of windows, once no further one has come for some seconds."""
    began, found = time.monotonic(), list[Path]()
    latest = began
    while (now := time.monotonic()) < min(began + WRITTEN_S, latest + QUIET_S):
        time.sleep(0.5)
        there = sorted(folder.glob("*.window*.pftrace"))
        if there != found or list(folder.glob(".*-draft")):
            found, latest = there, now
    print(f"{len(found)} traces, the last one {latest - began:.0f} s behind the end", flush=True)
    return found


def driven(
    server: Served, prompts: list[str], tokens: int, at_once: int
) -> tuple[float, list[str]]:
    """Ask for all prompts; return tokens a second, and the texts."""
    began = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        answers = list(pool.map(lambda each: server.complete(each, tokens), prompts))
    took = time.perf_counter() - began
    return sum(count for _, count in answers) / took, [text for text, _ in answers]


def in_turn(
    servers: tuple[Served, Served], prompts: list[str], tokens: int, at_once: int, rounds: int
) -> list[str]:
    """Print the rates of both in turn, and whether their texts are equal; return the first's."""
    rates: tuple[list[float], list[float]] = ([], [])
    texts: tuple[list[list[str]], list[list[str]]] = ([], [])
    for _ in range(rounds):
        for server, rate, text in zip(servers, rates, texts, strict=True):
            found = driven(server, prompts, tokens, at_once)
            rate.append(found[0])
            text.append(found[1])
    ratios = [other / one for one, other in zip(*rates, strict=True)]
    print(
        f"{at_once} at once, tokens/s: plain {statistics.median(rates[0]):.0f}, ikp "
        f"{statistics.median(rates[1]):.0f}, ratio {statistics.median(ratios):.4f} "
        f"({min(ratios):.3f} to {max(ratios):.3f}); {equal(texts[0][0], texts[1][0])} equal, plain "
        f"and plain again {equal(texts[0][0], texts[0][-1])}",
        flush=True,
    )
    return texts[0][0]


def equal(some: list[str], others: list[str]) -> str:
    """Return how many texts are equal."""
    return f"{sum(a == b for a, b in zip(some, others, strict=True))} of {len(some)}"


def windowed(servers: tuple[Served, Served], asked: argparse.Namespace, prompts: list[str]) -> None:
    """Open a window; ask both servers in turn while it is open, and while its end is written."""
    attach = [sys.executable, "-m", "ikp", "attach", str(servers[1].process.pid)]
    attached = subprocess.Popen([*attach, "--for", str(asked.window)])
    until = time.monotonic() + asked.window + asked.behind
    ratios = defaultdict[str, list[float]](list)
    same = 0
    while time.monotonic() < until:
        one = driven(servers[0], prompts, asked.tokens, asked.at_once)
        state = "open" if attached.poll() is None else "over"
        other = driven(servers[1], prompts, asked.tokens, asked.at_once)
        ratios[state].append(other[0] / one[0])
        same += sum(a == b for a, b in zip(one[1], other[1], strict=True))
    for state, some in ratios.items():
        print(f"window {state}: ratios {', '.join(f'{each:.3f}' for each in some)}")
    print(f"{same} of {len(prompts) * sum(map(len, ratios.values()))} equal", flush=True)
    attached.wait(PATIENCE_S)


def replays(path: Path) -> str:
    """Return what a trace has, in words: launches, kernels, and replays of each graph."""
    trace = ikp.load(path)
    of_graph: dict[str, set[str]] = defaultdict(set)
    nodes: Counter[str] = Counter()
    for each in trace.launches:
        if found := re.match(r"CUDA graph (\d+), replay (\d+)", each.replay):
            of_graph[found[1]].add(found[2])
            nodes[found[1]] += 1
    graphs = ", ".join(
        f"graph {name}: {len(kept)} replays of {nodes[name] / len(kept):g} nodes"
        for name, kept in sorted(of_graph.items(), key=lambda each: int(each[0]))
    )
    labels = Counter(each.label for each in trace.launches)
    finished = f"{int(trace.slots.finished.sum())} of {len(trace.slots)} warps finished"
    return (
        f"{path.name}: {len(trace.launches)} launches of {len(labels)} kernels, {finished}, "
        f"{sum(each.dropped for each in trace.launches)} records dropped\n    {graphs}\n"
        f"    {labels}"
    )


def main() -> None:
    """Start both servers, compare them, and say what the window's traces have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replays", default="100", help="of each graph in the window")
    parser.add_argument("--options", default="", help="more of ikp run's, as one text")
    parser.add_argument("--windows", type=int, default=2, help="the first patches kernels")
    parser.add_argument("--window", type=float, default=5.0, help="seconds of each")
    parser.add_argument("--behind", type=float, default=5.0, help="seconds behind it")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--folder", type=Path, default=Path("served"))
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    prompts = [
        f"w{each} w{each * 7 + 3} w{each * each + 1}" for each in range(1, asked.prompts + 1)
    ]
    out = asked.folder / "x.pftrace"
    under = [sys.executable, "-m", "ikp", "run", "--idle", "--replays", asked.replays, "--force"]
    under += ["--out", str(out), *shlex.split(asked.options)]
    began = time.monotonic()
    ports = free_ports()
    plain = started(asked.command, ports[0], [], asked.folder, "plain")
    recorded = started(asked.command, ports[1], under, asked.folder, "ikp")
    try:
        for each in (plain, recorded):
            each.wait()
            print(f"{each.log.stem} answers after {time.monotonic() - began:.1f} s", flush=True)
        both = plain, recorded
        in_turn(both, prompts[:4], asked.tokens, 1, 2)
        in_turn(both, prompts, asked.tokens, asked.at_once, asked.rounds)
        for _ in range(asked.windows):
            windowed(both, asked, prompts)
        in_turn(both, prompts, asked.tokens, asked.at_once, asked.rounds)
    finally:
        ends = ", ".join(each.end() for each in (plain, recorded))
        print(f"exit codes by SIGTERM, of the plain one first: {ends}", flush=True)
    for path in settled(asked.folder):
        print(replays(path))


if __name__ == "__main__":
    main()
