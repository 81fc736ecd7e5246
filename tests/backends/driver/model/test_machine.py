"""Any program: what is launched is the code that it launches, or its copy with records."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests.backends.driver.model.building import Built
from tests.backends.driver.model.driven import Counting, Driven, Handle, driven

pytestmark = pytest.mark.any_pins

NAMES = st.sampled_from([b"a", b"b"])
WHICH = st.integers(0, 1 << 16)
CONTEXT, GREEN, LIBRARY, MODULE, KERNEL, FUNCTION = range(1, 7)


class Program(RuleBasedStateMachine):
    """Calls of the driver in any order, as far as a program may make them."""

    built: Built

    def __init__(self) -> None:
        super().__init__()
        self.launcher = Counting(most=4)
        self._around = driven(self.built, self.launcher)
        self.program: Driven = self._around.__enter__()
        self.held: list[tuple[int, int]] = []  # handles, and the numbers of what they stand for
        self.codes = 0

    def teardown(self) -> None:
        for library in self._living(LIBRARY):
            self.program.library.cuLibraryUnload(Handle(library))
        for context in self._living(CONTEXT):
            self.program.library.cuCtxDestroy_v2(Handle(context))
        self._around.__exit__(None, None, None)

    def _hold(self, handle: int) -> None:
        if handle:
            self.held.append((handle, self.program.thing(handle).number))

    def _living(self, *kinds: int) -> list[int]:
        self.held = [
            (handle, number)
            for handle, number in self.held
            if self.program.thing(handle).kind and self.program.thing(handle).number == number
        ]
        return [each for each, _ in self.held if self.program.thing(each).kind in kinds]

    def _one(self, which: int, *kinds: int) -> int:
        found = self._living(*kinds)
        return found[which % len(found)] if found else 0  # -1: the last

    def _make(self, call: str, *arguments: Any) -> None:
        self._hold(self.program.call(call, *arguments))

    @property
    def current(self) -> int:
        return int(self.program.model.model_current() or 0)

    @rule()
    def load(self) -> None:
        self.codes += 1
        self._hold(self.program.load(self.codes))

    @rule()
    def load_library(self) -> None:
        self.codes += 1
        self._hold(self.program.load_library(self.codes))

    @rule(which=WHICH, name=NAMES)
    def look_up(self, which: int, name: bytes) -> None:
        if holder := self._one(which, MODULE, LIBRARY):
            library = self.program.thing(holder).kind == LIBRARY
            self._make("cuLibraryGetKernel" if library else "cuModuleGetFunction", holder, name)

    @rule(which=WHICH)
    def function_of(self, which: int) -> None:
        if kernel := self._one(which, KERNEL):
            self._make("cuKernelGetFunction", kernel)

    @rule(which=WHICH)
    def module_of(self, which: int) -> None:
        if library := self._one(which, LIBRARY):
            self._make("cuLibraryGetModule", library)

    @rule(which=WHICH)
    def launch(self, which: int) -> None:
        if not (part := self._one(which, KERNEL, FUNCTION)):
            return
        thing = self.program.thing(part)
        if not self.current or (thing.kind == FUNCTION and thing.context != self.current):
            return
        self.launcher.failed.clear()  # kernels of the same name are chosen anew
        if which % 8:
            self.launcher.seen.clear()
        wanted = thing.code, thing.name.decode()
        times = self.program.times()
        assert self.program.launch(part)[:2] == wanted
        assert self.program.times() == times + 1

    @rule(name=NAMES, library=st.booleans(), stays=st.booleans(), times=st.integers(1, 4))
    def come_and_go(self, name: bytes, library: bool, stays: bool, times: int) -> None:
        """As programs do that compile a kernel, use it and drop it."""
        for _ in range(times):
            (self.load_library if library else self.load)()
            self.look_up(-1, name)
            self.launch(-1)
            if not stays:
                self.unload(-1)

    @rule(which=WHICH)
    def unload(self, which: int) -> None:
        holder = self._one(which, MODULE, LIBRARY)
        if holder and not self.program.thing(holder).of:
            library = self.program.thing(holder).kind == LIBRARY
            name = "cuLibraryUnload" if library else "cuModuleUnload"
            getattr(self.program.library, name)(Handle(holder))

    @rule()
    def go_on_in_the_devices_context(self) -> None:
        context = self.program.call("cuDevicePrimaryCtxRetain", ctypes.c_int(0))
        self.program.library.cuCtxSetCurrent(Handle(context))

    @rule(seen=st.booleans())
    def reset(self, seen: bool) -> None:
        library = self.program.library if seen else self.program.model
        library.cuDevicePrimaryCtxReset_v2(0)
        self.go_on_in_the_devices_context()
        self.launch(-1)

    @rule()
    def create_a_context(self) -> None:
        self._make("cuCtxCreate", ctypes.c_uint(0), ctypes.c_int(0))

    @rule(which=WHICH)
    def destroy_a_context(self, which: int) -> None:
        if context := self._one(which, CONTEXT):
            self.program.library.cuCtxDestroy_v2(Handle(context))

    @precondition(lambda self: self.current)
    @rule(calls=st.integers(1, 6))
    def fail(self, calls: int) -> None:
        """Have one of the next calls fail, whoever makes it, in a program's load."""
        self.program.model.model_fail(calls)
        self.load()
        self.program.model.model_fail(0)


def test_any_program(built: Built) -> None:
    kind = type("Built", (Program,), {"built": built})
    some = settings(stateful_step_count=40, suppress_health_check=list(HealthCheck), deadline=None)
    run_state_machine_as_test(kind, settings=some)
