"""A program that a signal ends while it has a session open: ``python terminated.py MODE PATH``."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ikp
from ikp import registry
from ikp.profiling import _life
from ikp.session import wishes
from tests.host import Host, ModelBackend, work


def installed() -> Host:
    """Have sessions take buffers for kernels of the tests' own."""
    backend, load = ModelBackend(), registry.load
    registry.load = lambda *key: backend if key == (registry.BACKENDS, "model") else load(*key)
    wishes._installed_backend = lambda: "model"
    return Host(backend)


def _caught() -> int:
    status = Path("/proc/self/status").read_text()
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return int(mask, 16)


def handlers() -> list[str]:
    """Return what Python knows of each signal, and which have a handler."""
    mask = _caught()
    known = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)]
    caught = [bool(mask >> each - 1 & 1) for each in (signal.SIGTERM, signal.SIGHUP)]
    return [f"{one == signal.SIG_DFL}/{other}" for one, other in zip(known, caught, strict=True)]


def stuck() -> None:
    """Wait in C, as for a kernel that does not end: Python's handlers never run."""
    read, _ = os.pipe()
    ctypes.CDLL(None).read(read, ctypes.create_string_buffer(1), 1)


def forked(number: int) -> int:
    """Return how a child ends that gets a signal."""
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(3)
    os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def compiles(folder: Path) -> None:
    """Compile a kernel, which no cache has: LLVM sets its handlers then."""
    os.environ["TRITON_CACHE_DIR"] = str(folder)
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as built

    @triton.jit
    def adds(n):
        n + 1

    before = _caught()
    built(ASTSource(adds, {"n": "i32"}), target=GPUTarget("cuda", 90, 32))
    new = _caught() & ~before
    print("LLVM has them" if new >> signal.SIGXCPU - 1 & 1 else "LLVM has nothing")


def prepare(mode: str, path: str) -> None:
    if mode == "ignored":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if mode == "before":
        signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))
    if mode == "slow":
        slow()
    if mode == "compiled":
        compiles(Path(path).parent / "cache")


def slow() -> None:
    """Have a session take a second to write its trace."""
    write = _life.save

    def slowly(*args: Any, **options: Any) -> str:
        print("writing", flush=True)
        time.sleep(1)
        return write(*args, **options)

    _life.save = slowly


def main(mode: str, path: str) -> None:
    host = installed()
    prepare(mode, path)
    with ikp.profile(path) as prof:
        buffer = prof.buffer("k")
        host.run(buffer, work())
        if mode == "compiles":
            compiles(Path(path).parent / "cache")
        if mode == "after":
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        if mode == "child":
            print(forked(signal.SIGTERM), Path(path).exists(), *handlers())
        if mode == "popen":
            code = (
                "import signal, time; print(signal.getsignal(15) == 0, flush=True); time.sleep(60)"
            )
            with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
                assert child.stdout is not None
                print(child.stdout.readline())
                child.terminate()
            print(child.returncode, Path(path).exists())
        if mode in ("twice", "over"):
            with ikp.profile(f"{path}.inner.pftrace"):
                pass
        if mode == "closed":
            os.closerange(3, 1000)
            others = [os.open("/dev/null", os.O_RDONLY) for _ in range(600)]
            print(max(others) - min(others))
            time.sleep(1)
        print("ready", *handlers(), flush=True)
        if mode == "stuck":
            stuck()
        if mode not in ("over", "closed"):
            sys.stdin.read()
    print("over", *handlers(), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
