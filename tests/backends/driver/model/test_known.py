"""What is known of the driver's handles, and what of that is launched: by hand."""

import ctypes

import pytest

from ikp.driver import cuda
from ikp.session import leaving
from tests.backends.driver.model.building import Built
from tests.backends.driver.model.driven import Counting, Driven, Handle, driven, image
from tests.launch_config import Config

pytestmark = pytest.mark.any_pins


def again(program: Driven, what: str, code: int) -> tuple[int, int]:
    """Load, look up and return a holder and its function."""
    if what == "module":
        holder = program.load(code)
        return holder, program.call("cuModuleGetFunction", holder, b"a")
    holder = program.load_library(code)
    kernel = program.call("cuLibraryGetKernel", holder, b"a")
    if what == "kernel":
        return holder, kernel
    return holder, program.call("cuKernelGetFunction", kernel)


@pytest.mark.parametrize("what", ["module", "kernel", "function"])
def test_after_an_unload_the_new_kernel_is_launched(built: Built, what: str) -> None:
    """Though the driver gives it the old one's handle."""
    with driven(built, Counting()) as program:
        holder, first = again(program, what, 1)
        assert program.launch(first) == (1, "a", True)
        unload = (
            program.library.cuModuleUnload if what == "module" else program.library.cuLibraryUnload
        )
        assert unload(Handle(holder)) == 0
        for code in range(2, 6):
            holder, function = again(program, what, code)
            assert program.launch(function) == (code, "a", True)
            assert unload(Handle(holder)) == 0


@pytest.mark.parametrize("seen", [True, False])
def test_after_a_reset_no_module_of_the_old_context_is_launched(built: Built, seen: bool) -> None:
    with driven(built, Counting()) as program:
        library = program.load_library(1)
        kernel = program.call("cuLibraryGetKernel", library, b"a")
        assert program.launch(kernel) == (1, "a", True)
        (program.library if seen else program.model).cuDevicePrimaryCtxReset_v2(0)
        context = program.call("cuDevicePrimaryCtxRetain", ctypes.c_int(0))
        program.library.cuCtxSetCurrent(Handle(context))
        assert program.launch(kernel) == (1, "a", True)


@pytest.mark.parametrize(
    ("many", "of"),
    [("cuModuleEnumerateFunctions", "module"), ("cuLibraryEnumerateKernels", "library")],
)
def test_functions_that_are_enumerated_are_recorded(built: Built, many: str, of: str) -> None:
    with driven(built, Counting()) as program:
        holder = program.load(3) if of == "module" else program.load_library(3)
        made = (Handle * 2)()
        assert getattr(program.library, many)(made, 2, Handle(holder)) == 0
        assert [program.launch(each) for each in made] == [(3, "a", True), (3, "b", True)]


@pytest.mark.parametrize("what", ["configuration", "attributes", "functions", "kernels", "options"])
def test_what_a_call_lacks_is_for_the_driver_to_refuse(built: Built, what: str) -> None:
    """No pointer of a program's is followed where it is NULL: the program gets the error."""
    with driven(built, Counting()) as program:
        holder, function = again(program, "module", 3)
        library, made, invalid = program.library, Handle(), 400
        config = Config((ctypes.c_uint * 3)(1, 1, 1), (ctypes.c_uint * 3)(32, 1, 1), count=2)
        passed = ctypes.byref(config) if what == "attributes" else None
        code = {
            "configuration": lambda: library.cuLaunchKernelEx(passed, Handle(function), None, None),
            "attributes": lambda: library.cuLaunchKernelEx(passed, Handle(function), None, None),
            "functions": lambda: library.cuModuleEnumerateFunctions(None, 2, Handle(holder)),
            "kernels": lambda: library.cuLibraryEnumerateKernels(None, 2, Handle(holder)),
            "options": lambda: library.cuModuleLoadDataEx(
                ctypes.byref(made), image(3), 2, None, None
            ),
        }[what]()
        assert code == invalid
        assert program.launch(function) == (3, "a", True)


def test_the_module_of_a_librarys_function_is_a_part_of_the_library(built: Built) -> None:
    with driven(built, Counting()) as program:
        library = program.load_library(4)
        kernel = program.call("cuLibraryGetKernel", library, b"a")
        function = program.call("cuKernelGetFunction", kernel)
        module = program.call("cuFuncGetModule", function)
        other = program.call("cuModuleGetFunction", module, b"b")
        assert program.launch(other) == (4, "b", True)
        assert program.library.cuLibraryUnload(Handle(library)) == 0
        assert program.hook.about(other) is None and program.hook.about(module) is None


def test_a_librarys_function_that_ended_unseen_is_not_taken_for_another(built: Built) -> None:
    """Its handle is a function's of the same name, of a module that was loaded unseen, too."""
    with driven(built, Counting()) as program:
        model, primary = program.model, program.model.model_current()
        module, made = Handle(), Handle()
        assert model.cuModuleLoadData(ctypes.byref(module), image(2)) == 0
        kernel = program.call("cuLibraryGetKernel", program.load_library(1), b"b")
        context = program.call("cuCtxCreate", ctypes.c_uint(0), ctypes.c_int(0))
        stale = program.call("cuKernelGetFunction", kernel)
        assert model.cuCtxDestroy_v2(Handle(context)) == 0
        program.library.cuCtxSetCurrent(Handle(primary))
        for name in (b"a", b"b"):
            assert model.cuModuleGetFunction(ctypes.byref(made), module, name) == 0
        assert made.value == stale
        assert program.launch(stale)[:2] == (2, "b")


def begin_anew(program: Driven) -> None:
    """End the primary context, which tests before have used, and begin another one."""
    assert program.library.cuDevicePrimaryCtxRelease_v2(0) == 0
    assert not is_active(program)
    context = program.call("cuDevicePrimaryCtxRetain", ctypes.c_int(0))
    program.library.cuCtxSetCurrent(Handle(context))


def is_active(program: Driven) -> bool:
    flags, active = ctypes.c_uint(), ctypes.c_int()
    program.model.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active))
    return bool(active.value)


def test_a_primary_context_ends_with_the_programs_last_use_of_it(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is recorded is read before; the program may begin another one."""
    left: list[tuple[int, bool]] = []
    with driven(built, Counting()) as program:
        monkeypatch.setattr(
            leaving, "leave", lambda number: left.append((number, is_active(program)))
        )
        begin_anew(program)
        _, function = again(program, "module", 3)
        for _ in range(2):  # of two threads of ikp's
            cuda.retain(ctypes.c_int(0), to="use a device")
        program.call("cuDevicePrimaryCtxRetain", ctypes.c_int(0))
        assert program.launch(function) == (3, "a", True)
        assert program.library.cuDevicePrimaryCtxRelease_v2(0) == 0
        assert is_active(program) and not left
        assert program.library.cuDevicePrimaryCtxRelease_v2(0) == 0
        assert not is_active(program) and left == [(0, True)]

        context = program.call("cuDevicePrimaryCtxRetain", ctypes.c_int(0))
        program.library.cuCtxSetCurrent(Handle(context))
        assert program.launch(again(program, "module", 4)[1])[:2] == (4, "a")
        assert program.library.cuDevicePrimaryCtxRelease_v2(0) == 0
        assert not is_active(program)


def test_a_context_with_uses_that_were_not_seen_does_not_end(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []
    monkeypatch.setattr(leaving, "leave", left.append)
    with driven(built, Counting()) as program:
        assert program.library.cuDevicePrimaryCtxRelease_v2(0) == 0
        program.model.cuDevicePrimaryCtxRetain(ctypes.byref(Handle()), 0)
        program.call("cuDevicePrimaryCtxRetain", ctypes.c_int(0))
        cuda.retain(ctypes.c_int(0), to="use a device")
        left.clear()
        assert program.library.cuDevicePrimaryCtxRelease_v2(0) == 0
        assert is_active(program) and not left


def test_what_was_made_of_kernels_that_are_gone_is_let_go(built: Built) -> None:
    with driven(built, Counting()) as program:
        for code in range(400):
            holder, function = again(program, "module", code)
            assert program.launch(function) == (code, "a", True)
            assert program.library.cuModuleUnload(Handle(holder)) == 0
        from ikp.backends import loaded

        assert len(program.launches.seen._kernels) < 300
        assert len(loaded.modules._patches) < 300 and len(loaded.modules._loaded) < 300


def test_a_kernel_of_which_no_more_is_recorded_is_asked_of_no_more(built: Built) -> None:
    launcher = Counting(most=2)
    with driven(built, launcher) as program:
        _, function = again(program, "kernel", 5)
        assert [program.launch(function)[2] for _ in range(3)] == [True, True, False]
        asked = launcher.seen.total()
        launcher.during = lambda: pytest.fail("it is asked of")
        assert [program.launch(function)[2] for _ in range(100)] == [False] * 100
    assert launcher.seen.total() == asked
    assert launcher.plain == ["a: over"] * 101


@pytest.mark.parametrize("what", ["module", "kernel", "function"])
def test_the_copy_has_what_was_set_for_the_plain_one(built: Built, what: str) -> None:
    with driven(built, Counting()) as program:
        _, function = again(program, what, 6)
        for attribute in (8, 9, 11, 12, 13, 14, 15):
            if what == "kernel":
                program.library.cuKernelSetAttribute(attribute, 40 + attribute, Handle(function), 0)
            else:
                program.library.cuFuncSetAttribute(Handle(function), attribute, 40 + attribute)
        for cache in (2, 1):  # it may be set anew between two launches
            if what == "kernel":
                program.library.cuKernelSetCacheConfig(Handle(function), cache, 0)
            else:
                program.library.cuFuncSetCacheConfig(Handle(function), cache)
                program.library.cuFuncSetSharedMemConfig(Handle(function), cache)
            assert program.launch(function) == (6, "a", True)
            copy = program.thing(program.model.model_ran().contents.function)
            assert copy.cache == cache
            assert what == "kernel" or copy.banks == cache
            if what != "kernel":  # the model's kernels keep theirs to themselves
                assert [copy.attributes[each] for each in (8, 9, 11, 12, 13, 14, 15)] == [
                    40 + each for each in (8, 9, 11, 12, 13, 14, 15)
                ]


def test_a_node_that_a_program_adds_runs_plain_and_that_is_told(built: Built) -> None:
    launcher = Counting()
    with driven(built, launcher) as program:
        _, function = again(program, "module", 7)
        node = (Handle * 9)(function)
        for _ in range(3):
            made = Handle()
            assert (
                program.library.cuGraphAddKernelNode_v2(
                    ctypes.byref(made), None, None, ctypes.c_size_t(0), node
                )
                == 0
            )
        assert program.launch(function) == (7, "a", True)
    assert len(launcher.plain) == 3 and all("graph" in each for each in launcher.plain)


def test_a_captured_node_shows_what_the_program_launched(built: Built) -> None:
    with driven(built, Counting()) as program:
        _, function = again(program, "module", 8)
        assert program.launch(function)[2]
        node, shown = Handle(program.model.model_ran().contents.function), (Handle * 16)()
        assert program.library.cuGraphKernelNodeGetParams_v2(ctypes.byref(node), shown) == 0
        assert shown[0] == function != node.value


def test_a_function_that_was_got_in_an_unknown_way_is_recorded(built: Built) -> None:
    """As cuFFT gets its own, from a table of the driver's that no header shows."""
    with driven(built, Counting()) as program:
        for code in (1, 2, 3):
            module, function = program.load(code), Handle()
            program.model.cuModuleGetFunction(ctypes.byref(function), Handle(module), b"a")
            assert program.launch(function.value or 0) == (code, "a", True)
            assert program.library.cuModuleUnload(Handle(module)) == 0
