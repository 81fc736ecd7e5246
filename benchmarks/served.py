"""A served model under ``ikp run --idle``: does its server notice, and is every replay kept?

    python -m benchmarks.served [--replays 100] [--window 5] -- python serve.py --port {port}

The command is any server with OpenAI's ``/v1/completions``, as vLLM, SGLang and LightLLM have it.
It is started twice: as it is, and under ``ikp run``. Both are asked for the same tokens in turn,
one request at a time, and several. Then each is kept busy with streams, while ``ikp attach`` opens
windows of the second. Printed are tokens a second of both, whether their tokens are equal; of each
window, its tokens a second over those before and behind it, and its longest pause between two
tokens; medians of these and of single steps, with how much the seconds without a window differ; and
what each process's trace of a window has.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import re
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import ikp

PATIENCE_S = 300.0
GRACE_S = 30.0
WRITTEN_S, QUIET_S = 120.0, 15.0
"""The longest wait for traces, which other processes write, and for the next one."""
SETTLES_S, ENDS_S, TURNS_S = 1.0, 1.0, 0.5
"""What is not measured of a server that gets busy, how long the end of a window takes, and what is
not measured before a window."""


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

    def stream(self, prompt: str, tokens: int) -> Iterator[str]:
        """Yield the texts of tokens that continue a prompt, as they come."""
        body = {"model": "default", "prompt": prompt, "max_tokens": tokens, "temperature": 0.0}
        body |= {"ignore_eos": True, "stream": True, "do_sample": False}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310
            for line in answer:
                if line.startswith(b"data: {"):
                    choices = json.loads(line.removeprefix(b"data: "))["choices"]
                    yield from (str(each["text"]) for each in choices)  # of the last line, none

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


@dataclass(slots=True)
class Streams:
    """A server that several clients keep busy: when its tokens came, and its answers."""

    server: Served
    prompts: list[str]
    tokens: int  # of each answer
    times: list[float] = field(default_factory=list)
    steps: list[tuple[float, float]] = field(default_factory=list)  # and how long after the last
    answers: list[tuple[str, str]] = field(default_factory=list)  # prompts and texts
    over: threading.Event = field(default_factory=threading.Event)

    def ask(self, first: int, step: int) -> None:
        """Ask for one answer after the other, as one client of ``step``, until it is over."""
        number = first
        while not self.over.is_set():
            prompt, texts = self.prompts[number % len(self.prompts)], list[str]()
            latest = 0.0
            for text in self.server.stream(prompt, self.tokens):
                now = time.monotonic()
                self.times.append(now)
                if latest:
                    self.steps.append((now, now - latest))
                texts.append(text)
                latest = now
            self.answers.append((prompt, "".join(texts)))
            number += step

    @contextlib.contextmanager
    def kept_busy(self, at_once: int) -> Iterator[None]:
        """Ask meanwhile; when the context is left, all has been answered."""
        clients = [threading.Thread(target=self.ask, args=(n, at_once)) for n in range(at_once)]
        for each in clients:
            each.start()
        try:
            yield
        finally:
            self.over.set()
            for each in clients:
                each.join()
            self.times.sort()

    def rate(self, begin: float, end: float) -> float:
        """Return tokens a second in a time."""
        return sum(begin <= at < end for at in self.times) / (end - begin)

    def step(self, begin: float, end: float) -> float:
        """Return the median time from one token of an answer to its next, in seconds."""
        return statistics.median(took for at, took in self.steps if begin <= at < end)

    def pause(self, begin: float, end: float) -> float:
        """Return the longest time without a token, in seconds, that ends in a time."""
        both = itertools.pairwise(self.times)
        return max((b - a for a, b in both if begin <= b < end), default=end - begin)


def windowed(servers: tuple[Served, Served], asked: argparse.Namespace, prompts: list[str]) -> None:
    """Keep the plain server busy, then the other one, and open windows of that."""
    plain, recorded = (Streams(each, prompts, asked.tokens) for each in servers)
    with plain.kept_busy(asked.at_once):
        began = time.monotonic()
        time.sleep(SETTLES_S + asked.behind)
    begin, end = began + SETTLES_S, began + SETTLES_S + asked.behind
    pause = plain.pause(begin, end)
    print(f"plain: {plain.rate(begin, end):.0f} tokens/s, longest pause {pause:.3f} s")
    attach = [sys.executable, "-m", "ikp", "attach", str(recorded.server.process.pid)]
    windows = list[tuple[float, float]]()
    with recorded.kept_busy(asked.at_once):
        time.sleep(SETTLES_S + asked.behind)
        for _ in range(asked.windows):
            attached = subprocess.Popen(
                [*attach, "--for", str(asked.window)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            assert attached.stdout is not None
            attached.stdout.readline()  # it is open
            opened = time.monotonic()
            attached.communicate()
            windows.append((opened, time.monotonic()))
            time.sleep(asked.behind)
    compare(recorded, windows, asked.behind)
    texts = dict(plain.answers)
    same = sum(texts[prompt] == text for prompt, text in recorded.answers)
    print(f"{same} of {len(recorded.answers)} streams equal", flush=True)


def compare(recorded: Streams, windows: list[tuple[float, float]], beside: float) -> None:
    """Print what a server did in its windows, over some seconds before and behind each."""
    rates, steps, plainly = list[float](), list[float](), list[float]()
    for number, (opened, closed) in enumerate(windows, 1):
        ends = closed + ENDS_S  # what is recorded is copied, and handed on
        before = opened - beside + ENDS_S, opened - TURNS_S
        behind = ends, closed + beside - TURNS_S
        apart = statistics.mean([recorded.rate(*before), recorded.rate(*behind)])
        pauses = max(recorded.pause(*before), recorded.pause(*behind))
        around = statistics.mean([recorded.step(*before), recorded.step(*behind)])
        rates.append(recorded.rate(opened, closed) / apart)
        steps.append(around / recorded.step(opened, closed))
        plainly.append(recorded.rate(*behind) / recorded.rate(*before))
        print(
            f"window {number}: {recorded.rate(opened, closed) / apart:.3f} of the {apart:.0f} "
            f"tokens/s before and behind it, its end {recorded.rate(closed, ends) / apart:.3f}; "
            f"longest pause {recorded.pause(opened, closed):.3f} s, at its end "
            f"{recorded.pause(closed, ends):.3f}, before and behind {pauses:.3f}"
        )
    for name, some in (
        ("tokens/s in a window over those around it", rates),
        ("steps/s, by the median step, likewise", steps),
        ("tokens/s behind a window over those before it", plainly),
    ):
        print(f"{name}: {statistics.median(some):.3f} ({min(some):.3f} to {max(some):.3f})")


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
    parser.add_argument("--windows", type=int, default=3)
    parser.add_argument("--window", type=float, default=5.0, help="seconds of each")
    parser.add_argument("--behind", type=float, default=5.0, help="seconds before and behind")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--folder", type=Path, default=Path("served"))
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    if asked.behind < 2 * ENDS_S:
        parser.error(
            f"--behind {asked.behind}: rates are taken from {ENDS_S} s behind a window on, until "
            f"{TURNS_S} s before the next; ask for {2 * ENDS_S} s at least."
        )
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
        windowed(both, asked, prompts)
        in_turn(both, prompts, asked.tokens, asked.at_once, asked.rounds)
    finally:
        ends = ", ".join(each.end() for each in (plain, recorded))
        print(f"exit codes by SIGTERM, of the plain one first: {ends}", flush=True)
    for path in settled(asked.folder):
        print(replays(path))


if __name__ == "__main__":
    main()
