"""Launches kernels by the CUDA driver's own functions, and cuFFT's: what only the driver sees."""

import ctypes
import sys
import threading

import torch

from tests.gpu.driver_program import fingerprint
from tests.launch_config import Config
from tests.sass.assembled import cubin

Handle = ctypes.c_void_p


def checked(code: int) -> None:
    if code:
        raise RuntimeError(f"the driver says {code}")


def launch(
    function: Handle,
    out: torch.Tensor,
    *,
    blocks: int = 1,
    threads: int = 32,
    overlaps: bool = False,
) -> None:
    """Launch a kernel that takes one pointer, on torch's stream."""
    three = ctypes.c_uint * 3
    attributes = (ctypes.c_uint * 18)(6, 0, 1)  # programmatic stream serialization
    stream = torch.cuda.current_stream().cuda_stream
    address = ctypes.addressof(attributes)
    config = Config(three(blocks, 1, 1), three(threads, 1, 1), 0, stream, address, int(overlaps))
    value = ctypes.c_uint64(out.data_ptr())
    params = (Handle * 1)(ctypes.addressof(value))
    checked(
        ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx(ctypes.byref(config), function, params, None)
    )


def of_module(code: bytes, name: str) -> Handle:
    driver, module, function = ctypes.CDLL("libcuda.so.1"), Handle(), Handle()
    checked(driver.cuModuleLoadData(ctypes.byref(module), code))
    checked(driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
    return function


def unloads() -> str:
    """Libraries that are unloaded: the driver gives the handles of their kernels out again."""
    driver, out = ctypes.CDLL("libcuda.so.1"), torch.zeros(1, dtype=torch.int32, device="cuda")
    results = []
    for number in range(12):
        code = cubin(
            ".visible .entry writes(.param .u64 p) { .reg .u64 a; ld.param.u64 a, [p]; "
            f"st.global.u32 [a], {number}; ret; }}",
            "sm_90a",
        )
        library, kernel = Handle(), Handle()
        none = (None, None, 0, None, None, 0)
        checked(driver.cuLibraryLoadData(ctypes.byref(library), code, *none))
        checked(driver.cuLibraryGetKernel(ctypes.byref(kernel), library, b"writes"))
        launch(kernel, out)
        results.append(int(out.item()))
        checked(driver.cuLibraryUnload(library))
    return str(results)


SPINS = """
.visible .entry first(.param .u64 p)
{
 .reg .u64 a, t, u; .reg .pred q;
 ld.param.u64 a, [p];
 griddepcontrol.launch_dependents;
 mov.u64 t, %globaltimer; add.u64 t, t, 20000000;
again: mov.u64 u, %globaltimer; setp.lt.u64 q, u, t; @q bra again;
 st.global.u64 [a], u; ret;
}
.visible .entry second(.param .u64 p)
{
 .reg .u64 a, t;
 ld.param.u64 a, [p];
 mov.u64 t, %globaltimer; st.global.u64 [a+8], t;
 griddepcontrol.wait; ret;
}
"""


def overlaps() -> str:
    """A kernel that begins while the one before it runs (programmatic dependent launch)."""
    code = cubin(SPINS, "sm_90a")
    first, second = of_module(code, "first"), of_module(code, "second")
    out = torch.zeros(2, dtype=torch.int64, device="cuda")
    overlapped = False
    for _ in range(6):  # a host that is late by 20 ms launches the second when the first has ended
        launch(first, out)
        launch(second, out, overlaps=True)
        torch.cuda.synchronize()
        ended, begun = out.tolist()
        overlapped |= begun < ended
    return "overlaps" if overlapped else "waits"


READS = """
.visible .entry reads(.param .u64 p)
{
 .reg .u64 a, b; .reg .u32 i, n, x, s, t; .reg .pred q;
 ld.param.u64 a, [p]; mov.u32 t, %tid.x; mov.u32 s, 0; mov.u32 n, 0;
outer: mov.u32 i, 0;
inner: mad.lo.u32 x, i, 1024, t; mul.wide.u32 b, x, 4; add.u64 b, b, a;
 ld.global.ca.u32 x, [b+4096]; add.u32 s, s, x; add.u32 i, i, 1;
 setp.lt.u32 q, i, 40; @q bra inner;
 add.u32 n, n, 1; setp.lt.u32 q, n, 400; @q bra outer;
 mul.wide.u32 b, t, 4; add.u64 b, b, a; st.global.u32 [b], s; ret;
}
"""


def caches() -> str:
    """160 KB that each block reads again and again: with much shared memory, from L2.

    Prints microseconds: with no preference, and where the program prefers shared memory.
    """
    function = of_module(cubin(READS, "sm_90a"), "reads")
    out = torch.zeros(1 << 20, dtype=torch.int32, device="cuda")

    def timed() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        launch(function, out, blocks=132, threads=1024)
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1000

    def median() -> float:
        return sorted(timed() for _ in range(9))[4]

    none = median()
    checked(ctypes.CDLL("libcuda.so.1").cuFuncSetCacheConfig(function, 1))
    return f"{none:.1f} {median():.1f}"


def fft() -> str:
    """What cuFFT launches: it has its functions from a table that no header shows."""
    x = torch.randn(64, 1024, dtype=torch.complex64, device="cuda")
    return fingerprint(torch.view_as_real(torch.fft.fft(x)), torch.view_as_real(torch.fft.ifft(x)))


SCALES = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 factor = 7;
.visible .entry scales(.param .u64 p)
{
 .reg .u64 a, b; .reg .u32 i, n, t, x; .reg .pred q;
 ld.param.u64 a, [p]; mov.u32 t, %tid.x; mul.wide.u32 b, t, 4; add.u64 a, a, b;
 ld.global.u32 n, [a]; mov.u32 i, 0;
again: ld.volatile.global.u32 x, [factor]; mad.lo.u32 n, x, t, n;
 add.u32 i, i, 1; setp.lt.u32 q, i, 5; @q bra again;
 st.global.u32 [a], n; ret;
}
"""


def compiled() -> str:
    """What the driver compiles: PTX by each way to load it, with options and without."""
    driver, out = ctypes.CDLL("libcuda.so.1"), torch.zeros(32, dtype=torch.int32, device="cuda")
    launch(of_module(SCALES, "scales"), out)
    module, function, log = Handle(), Handle(), ctypes.create_string_buffer(4096)
    numbers = (ctypes.c_uint * 3)(0, 3, 4)  # most registers; a log, and its size
    values = (Handle * 3)(24, ctypes.addressof(log), len(log))
    checked(driver.cuModuleLoadDataEx(ctypes.byref(module), SCALES, 3, numbers, values))
    checked(driver.cuModuleGetFunction(ctypes.byref(function), module, b"scales"))
    launch(function, out)
    library, kernel = Handle(), Handle()
    none = (None, None, 0, None, None, 0)
    checked(driver.cuLibraryLoadData(ctypes.byref(library), SCALES, *none))
    address, size = ctypes.c_uint64(), ctypes.c_size_t()
    checked(
        driver.cuLibraryGetGlobal(ctypes.byref(address), ctypes.byref(size), library, b"factor")
    )
    checked(driver.cuMemcpyHtoD_v2(address, ctypes.byref(ctypes.c_uint32(11)), size))
    checked(driver.cuLibraryGetKernel(ctypes.byref(kernel), library, b"scales"))
    launch(kernel, out)
    return str(out.tolist())


ADDS = """
.visible .entry adds(.param .u64 p)
{
 .reg .u64 a, b; .reg .u32 n, t;
 ld.param.u64 a, [p]; mov.u32 t, %tid.x; mul.wide.u32 b, t, 4; add.u64 a, a, b;
 ld.global.u32 n, [a]; mad.lo.u32 n, n, 3, t; st.global.u32 [a], n; ret;
}
"""
NODES = 3


def captures() -> str:
    """Graphs that the driver's own functions make: a clone, a parent, an update, two threads."""
    driver, stream = ctypes.CDLL("libcuda.so.1"), torch.cuda.Stream()
    function, out = of_module(cubin(ADDS, "sm_90a"), "adds"), torch.zeros(2, 32).int().cuda()
    there, relaxed, nothing = Handle(stream.cuda_stream), 2, ctypes.c_uint64(0)
    torch.cuda.synchronize()

    def captured(row: int) -> Handle:
        graph = Handle()
        checked(driver.cuStreamBeginCapture_v2(there, relaxed))
        with torch.cuda.stream(stream):
            for _ in range(NODES):
                launch(function, out[row])
        checked(driver.cuStreamEndCapture(there, ctypes.byref(graph)))
        return graph

    def executable(graph: Handle) -> Handle:
        made = Handle()
        checked(driver.cuGraphInstantiateWithFlags(ctypes.byref(made), graph, nothing))
        return made

    def replayed(executed: Handle, times: int) -> str:
        for _ in range(times):
            checked(driver.cuGraphLaunch(executed, there))
        checked(driver.cuStreamSynchronize(there))
        return fingerprint(out)

    graph = captured(0)
    first = executable(graph)
    made = [replayed(first, 20)]
    clone, parent, child = Handle(), Handle(), Handle()
    checked(driver.cuGraphClone(ctypes.byref(clone), graph))
    made.append(replayed(executable(clone), 2))
    checked(driver.cuGraphCreate(ctypes.byref(parent), 0))
    checked(driver.cuGraphAddChildGraphNode(ctypes.byref(child), parent, None, nothing, graph))
    made.append(replayed(executable(parent), 3))
    result = (ctypes.c_uint64 * 4)()
    code = driver.cuGraphExecUpdate_v2(first, captured(1), ctypes.byref(result))
    made.append(replayed(first, 2))
    checked(driver.cuGraphDestroy(graph))
    threads = [threading.Thread(target=replayed, args=(first, 10)) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return f"{made} {code} {fingerprint(out)}"


RUNS = 5


def conditional() -> str:
    """A graph whose node has a body, captured into it, which runs at each launch of the graph."""
    driver, stream = ctypes.CDLL("libcuda.so.1"), torch.cuda.Stream()
    function, out = of_module(cubin(ADDS, "sm_90a"), "adds"), torch.zeros(32).int().cuda()
    there, relaxed, nothing = Handle(stream.cuda_stream), 2, ctypes.c_uint64(0)
    graph, context, node, ended, made = (Handle() for _ in range(5))
    condition, is_set_by_default = ctypes.c_uint64(), 1
    torch.cuda.synchronize()
    checked(driver.cuGraphCreate(ctypes.byref(graph), 0))
    checked(driver.cuCtxGetCurrent(ctypes.byref(context)))
    checked(
        driver.cuGraphConditionalHandleCreate(
            ctypes.byref(condition), graph, context, 1, is_set_by_default
        )
    )
    conditional_node, one_body = 13, 1 << 32
    about = (conditional_node, 0, condition.value, one_body, 0, context.value)
    params = (ctypes.c_uint64 * 32)(*about)
    checked(driver.cuGraphAddNode(ctypes.byref(node), graph, None, nothing, params))
    body = Handle.from_address(params[4])
    checked(driver.cuStreamBeginCaptureToGraph(there, body, None, None, nothing, relaxed))
    with torch.cuda.stream(stream):
        for _ in range(NODES):
            launch(function, out)
    checked(driver.cuStreamEndCapture(there, ctypes.byref(ended)))
    checked(driver.cuGraphInstantiateWithFlags(ctypes.byref(made), graph, nothing))
    for _ in range(RUNS):
        checked(driver.cuGraphLaunch(made, there))
    checked(driver.cuStreamSynchronize(there))
    return fingerprint(out)


PROGRAMS = (unloads, overlaps, caches, fft, compiled, captures, conditional)

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.zeros(1, device="cuda")
    print({each.__name__: each for each in PROGRAMS}[sys.argv[1]]())
