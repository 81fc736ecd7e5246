"""Launches a kernel that is to be checked through the CUDA driver alone; prints what was found.

Run by ``test_checked.py`` in a process of its own. Torch is not needed for it: what is asked of its
allocator is said here.
"""

import ctypes
import json
import mmap
import os
import sys
import time
import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from ikp.backends import loaded
from ikp.backends.driver._library import install
from ikp.backends.driver.launches import stepping_in
from ikp.checking.process import _processes, end_all
from ikp.unedited.plan import plan
from tests.backends.driver.program import Launcher, Session
from tests.launch_config import Config

WORD = ctypes.c_uint64
OWN = (1 << 16) - 4096
"""Where the memory that the program has allocated itself begins."""
SEGMENT = 1 << 15
"""Where a segment of torch's allocator begins: a held block, a free one, two held ones."""
BLOCKS = (
    *((512, "active_allocated"), (512, "inactive"), (1024, "active_allocated")),
    (512, "active_allocated"),
)
"""The first three are pointed to by parameters, the last by memory."""


def records(nbytes: int) -> None:
    """Have memory where the session's buffers are."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000  # exactly there
    assert libc.mmap(RECORDS, nbytes, 3, flags, -1, 0) == RECORDS


RECORDS = 1 << 33
"""Where the session's buffers are; an old pointer that was left in memory leads there."""
PLACES = (SEGMENT + 16, SEGMENT + 1024, OWN + 8, SEGMENT + 2048 + 64)
"""What the kernel writes."""


class OneSession(Launcher):
    """Records in one session until it is told to begin another."""

    def begin(self) -> None:
        self.session = Session()

    def chosen(self, kernel: Any, capture: int | None = None) -> Session | None:
        return None if super().chosen(kernel, capture) is None else self.session


class Program:
    """A program that launches one kernel in many ways."""

    def __init__(self, launcher: OneSession, image: Path, name: str) -> None:
        self.launcher = launcher
        self.library = ctypes.CDLL("libcuda.so.1")
        os.environ |= {"FAKE_RUN": "1", "FAKE_PARENT": str(os.getpid()), "FAKE_CHILD": "runs"}
        self.library.fake_run(1)
        self.library.fake_log.restype = ctypes.c_char_p
        self.library.fake_memory.restype = ctypes.c_void_p
        handle = ctypes.c_void_p
        self.library.cuLaunchKernel.argtypes = [handle, *[ctypes.c_uint] * 7, *[handle] * 3]
        self.library.cuLaunchCooperativeKernel.argtypes = [
            *(handle, *[ctypes.c_uint] * 7, *[handle] * 2),
        ]
        self.library.cuLaunchKernelEx.argtypes = [handle] * 4
        self.memory: int = self.library.fake_memory()
        self.sizes = [size for size, _ in BLOCKS]
        module, self.function = handle(), handle()
        self.library.cuModuleLoadData(ctypes.byref(module), image.read_bytes())
        self.library.cuModuleGetFunction(ctypes.byref(self.function), module, name.encode())
        # A struct of four words and a byte, a byte, a pointer: as the driver takes them.
        self.values = (WORD * 6)(
            *(9, self.memory + SEGMENT + 16, self.memory + SEGMENT + 520, self.memory + OWN + 8),
            *(3, self.memory + SEGMENT + 1024),
        )
        table = WORD.from_address(self.memory + OWN + 8 + 32)
        table.value = self.memory + SEGMENT + 2048 + 64
        WORD.from_address(self.memory + OWN + 512).value = RECORDS + 64
        at = ctypes.addressof(self.values)
        self.each = (handle * 3)(at, at + 33, at + 40)
        self.size = ctypes.c_size_t(48)
        self.packed = (handle * 5)(1, at, 2, ctypes.addressof(self.size), 0)

    def snapshot(self) -> list[dict[str, Any]]:
        """Return what torch's allocator says of its memory."""
        states = [state for _, state in BLOCKS]
        blocks = [
            {"size": size, "state": state} for size, state in zip(self.sizes, states, strict=True)
        ]
        records = {"size": 1 << 20, "state": "active_allocated"}
        return [
            {"address": self.memory + SEGMENT, "blocks": blocks},
            {"address": RECORDS, "blocks": [records]},
        ]

    def launch(self) -> None:
        self.library.cuLaunchKernel(self.function, 12, 1, 1, 64, 1, 1, 0, 0, self.each, None)

    def launch_for(self, n: int) -> None:
        """Launch with another number for the kernel's second parameter."""
        ctypes.c_ubyte.from_address(self.each[1]).value = n
        self.launch()

    def launch_packed(self) -> None:
        self.library.cuLaunchKernel(self.function, 12, 1, 1, 64, 1, 1, 0, 0, None, self.packed)

    def launch_together(self) -> None:
        arguments = (self.function, 12, 1, 1, 64, 1, 1, 0, 0, self.each)
        self.library.cuLaunchCooperativeKernel(*arguments)

    def launch_with(self) -> None:
        """Launch with an attribute: so many blocks in a cluster."""
        attributes = (ctypes.c_uint * 18)(4, 0, 2, 1, 1)
        three = ctypes.c_uint * 3
        config = Config(three(12, 1, 1), three(64, 1, 1), 0, 5, ctypes.addressof(attributes), 1)
        self.library.cuLaunchKernelEx(ctypes.byref(config), self.function, self.each, None)

    def said(
        self, launch: Any, child: str = "", *, again: bool = False, **env: str
    ) -> dict[str, Any]:
        """Return what a launch in a new module comes to.

        ``child`` is what is to happen in the process that checks it: a new one then. ``again``
        launches once more, in another session.
        """
        if child or env:
            end_all()
            os.environ |= {"FAKE_CHILD": child or "runs", **env}
        loaded.modules._loaded.clear()
        self.launcher.begin()
        Session.facts.clear()
        self.launcher.failed.clear()
        self.launcher.plain.clear()
        places = [self.memory + at for at in PLACES]
        for place in places:
            ctypes.memset(place, 40, 32)
        self.library.fake_clear()
        began = time.monotonic()
        launch()
        later = dict[str, str]()
        if again:
            Session.facts.clear()
            self.launcher.begin()
            launch()
            later |= Session.facts
        if child or env:
            end_all()
            os.environ["FAKE_CHILD"] = "runs"
            [os.environ.pop(each) for each in env]
        return {
            "seconds": time.monotonic() - began,
            "log": self.library.fake_log().decode().splitlines(),
            "memory": {byte for place in places for byte in ctypes.string_at(place, 32)},
            "check": Session.facts.get("check of adds"),
            "later check": later.get("check of adds"),
            "arguments": json.loads(Session.facts.get("parameters of adds", "{}")),
            "plain": list(self.launcher.plain),
            "pid": [each._pid for each in _processes.values()],
        }


def stub_torch() -> Any:
    """Return a torch of the program's, as much as is asked of it."""
    stub: Any = ModuleType("torch")
    stub.backends = SimpleNamespace(cuda=SimpleNamespace(is_built=lambda: True))
    stub.version = SimpleNamespace(cuda="13.0")
    stub.cuda = SimpleNamespace(stream=lambda _: nullcontext())
    stub.distributed = sys.modules["torch.distributed"] = ModuleType("torch.distributed")
    stub.distributed.is_available = bool
    sys.modules["torch"] = stub
    return stub


def main(image: Path, name: str) -> None:
    """Launch a kernel in many ways."""
    install()
    launcher, said = OneSession(), dict[str, Any]()
    stub = stub_torch()
    launcher.plan = plan("kernel", level="machine", check=True)
    records(1 << 20)
    with stepping_in(launcher), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        program = Program(launcher, image, name)
        stub.cuda.memory_snapshot = program.snapshot
        said["first"] = program.said(program.launch)
        said["twice"] = program.said(lambda: (program.launch_for(5), program.launch_for(6)))
        said["two sessions"] = program.said(program.launch, again=True)
        said["packed"] = program.said(program.launch_packed)
        said["together"] = program.said(program.launch_together)
        made = loaded.modules._patches
        kept = dict(made)
        made |= {key: replace(patch, fewer_blocks=True) for key, patch in kept.items()}  # type: ignore[type-var]
        said["fewer"] = program.said(program.launch_together)
        made |= kept
        said["attributes"] = program.said(program.launch_with)
        program.library.fake_capture(1)
        said["captured"] = program.said(program.launch)
        program.library.fake_capture(0)
        program.sizes[2] = 3 << 30
        said["large"] = program.said(program.launch)
        program.sizes[2] = 1024
        refusals = ("no room", "taken", "other device", "no context", "fault plain", "die plain")
        for child in ("claims", *refusals):
            said[child] = program.said(program.launch, child)
        stub.cuda.memory_snapshot = lambda: [{"unknown": 1}]
        said["unknown"] = program.said(program.launch)
        stub.cuda.memory_snapshot = program.snapshot
        said["after a fault"] = program.said(program.launch)
        told.clear()
        recorded = launcher.recorded["adds"]
        for child in ("fault patched", "die patched", "hang patched"):
            said[child] = program.said(program.launch, child)
        said["differs"] = program.said(program.launch, FAKE_OFF="5")
        twice = lambda: (program.launch(), launcher.failed.clear(), program.launch())  # noqa: E731
        said["differs twice"] = program.said(twice, FAKE_OFF="5")
        counted = launcher.recorded["adds"]
        said["last"] = program.said(program.launch)
    said["counted"] = counted - recorded
    said["buffers"] = len(Session.asked) - recorded - 1
    said["told"] = [str(each.message) for each in told]
    print(json.dumps(said, default=list))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
