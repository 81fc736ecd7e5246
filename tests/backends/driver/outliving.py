"""A program that has kernels checked, and ends in a way of its own; prints what it saw.

Run by ``test_outliving.py`` in a process of its own. There is no kernel to check: the process that
would check it answers what it is asked.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ikp.checking.process import Process, _processes, process_for
from ikp.driver import cuda


def begun() -> Process:
    """Return the process, which has a context by now."""
    cuda.call("cuInit", 0, to="begin")
    with process_for(cuda.identity()) as made:
        return made


def returns() -> dict[str, Any]:
    """End as programs do."""
    return {}


def waits() -> dict[str, Any]:
    """Wait for all children: there is none."""
    try:
        return {"waited": os.waitpid(-1, 0)}
    except ChildProcessError:
        return {"waited": None}


def forks() -> dict[str, Any]:
    """End at once, and leave a child behind that lives on."""
    if os.fork() == 0:
        os.close(1), os.close(2)
        time.sleep(30)
    else:
        print(json.dumps({"pid": begun()._pid}), flush=True)
    os._exit(0)


def forked() -> dict[str, Any]:
    """Fork: the child has no process, and a new one where it needs one."""
    mine, its = os.pipe()
    if (child := os.fork()) == 0:
        had = bool(_processes)
        pid = begun()._pid
        os.write(its, json.dumps([had, pid]).encode())
        _processes.clear()
        os._exit(0)
    had, pid = json.loads(os.read(mine, 1000))
    os.waitpid(child, 0)
    return {"had": had, "other": pid, "gone": begun().gone}


def interrupted() -> dict[str, Any]:
    """Be interrupted from the keyboard, with all that is in the group."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.killpg(0, signal.SIGINT)
    time.sleep(0.2)
    return {"gone": begun().gone, "pid again": begun()._pid}


def loses() -> dict[str, Any]:
    """Lose the process: another one is there at the next kernel."""
    first = begun()
    os.kill(first._pid, signal.SIGKILL)
    while not first.gone:
        time.sleep(0.01)
    return {"other": begun()._pid}


def killed() -> dict[str, Any]:
    """Be killed."""
    print(json.dumps({"pid": begun()._pid}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


WAYS: dict[str, Callable[[], dict[str, Any]]] = {
    each.__name__: each for each in (returns, waits, forks, forked, interrupted, loses, killed)
}


def main(way: str) -> None:
    """Start the process, and end."""
    os.setpgrp()
    os.environ["FAKE_PARENT"] = str(os.getpid())
    before = begun()._pid
    names = [str(Path(f"/proc/{before}/fd/{each}").readlink()) for each in "012"]
    environment = Path(f"/proc/{before}/environ").read_bytes().split(b"\0")
    lines = Path(f"/proc/{before}/maps").read_text().splitlines()
    highest = max(int(line.partition("-")[0], 16) for line in lines if ".so" in line)
    said = WAYS[way]()
    served = b"CUDA_MPS_PIPE_DIRECTORY=/dev/null" in environment
    print(
        json.dumps({"pid": before, "highest": highest, "streams": names, "served": served, **said})
    )


if __name__ == "__main__":
    main(sys.argv[2])
