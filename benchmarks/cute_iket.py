"""What NVIDIA's IKET costs on the persistent GEMM for Hopper, beside ikp in the same process.

    python benchmarks/cute_iket.py dense_gemm_persistent.py [--rounds N] [--output FOLDER]

IKET has aborted in a process with PyTorch and its profiler, so this one has neither: memory is the
driver's, and a launch's duration is what the kernel itself has read from the global timer, from
ikp's first anchor to its last. All variants have these anchors; two have every wait in a range of
ikp or of IKET. run-iket starts the process twice, first to count. Needs a Hopper GPU.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from cute_patch import Ranges, patch

M = N = K = 4096
TILE = (128, 256)
SEGMENT = 32 << 20
VARIANTS = (Ranges.ANCHORS, Ranges.IKP, Ranges.IKET)
GEMM = "HopperWgmmaGemmPersistentKernel"
IN_PROCESS = "--in-process"
RUN_IKET = "import sys; from iket.cli.main import entrypoint; sys.exit(entrypoint())"


class Memory:
    """Device memory that looks enough like a tensor to be a buffer of ikp."""

    def __init__(self, size: int) -> None:
        from cuda.bindings import driver

        self.size, self._driver = size, driver
        start = int(check(driver.cuMemAlloc(2 * size)))
        # A buffer of ikp never crosses a multiple of 4 GiB.
        crosses = start >> 32 != (start + size - 1) >> 32
        self.address = (start >> 32) + 1 << 32 if crosses else start
        check(driver.cuMemsetD8(self.address, 0, size))

    def data_ptr(self) -> int:
        """Return the address."""
        return self.address

    def write(self, data: bytes) -> None:
        check(self._driver.cuMemcpyHtoD(self.address, data, len(data)))

    def read(self) -> np.ndarray:
        """Return the bytes, after all work is done."""
        check(self._driver.cuCtxSynchronize())
        found = np.empty(self.size, np.uint8)
        check(self._driver.cuMemcpyDtoH(found.ctypes.data, self.address, self.size))
        return found


def check(result: tuple[Any, ...]) -> Any:
    """Return what a call of the driver returned, or end."""
    status, *values = result
    if status.value != 0:
        sys.exit(f"the CUDA driver says {status.name}")
    return values[0] if values else None


def compile_variant(module: Any, addresses: list[int], prof: Any, stream: Any, blocks: int) -> Any:
    """Compile the example's GEMM for matrices at ``addresses``; call it with ``launch_args``."""
    from cuda.bindings.driver import CUstream
    from cutlass import Float16, Float32, cute

    gemm = getattr(module, GEMM)(Float32, TILE, (1, 1), 1, True)

    @cute.jit
    def launch(a: cute.Pointer, b: cute.Pointer, c: cute.Pointer, stream: CUstream, prof):
        left = cute.make_tensor(a, cute.make_layout((M, K, 1), stride=(K, 1, M * K)))
        right = cute.make_tensor(b, cute.make_layout((N, K, 1), stride=(K, 1, N * K)))
        out = cute.make_tensor(c, cute.make_layout((M, N, 1), stride=(N, 1, M * N)))
        gemm(left, right, out, blocks, stream, prof)

    pointers = [
        cute.runtime.make_ptr(Float16, at, cute.AddressSpace.gmem, assumed_align=16)
        for at in addresses
    ]
    return cute.compile(launch, *pointers, stream, prof), (*pointers, stream, prof)


def duration_us(memory: Memory) -> tuple[float, int]:
    """Return the time from the first warp's init to the last one's finish, and the records."""
    from ikp.core import abi

    data = memory.read()
    header = data[: abi.LAUNCH_HEADER_BYTES].view(abi.LAUNCH_HEADER)[0]
    warps = int(np.prod(header["grid"])) * int(header["warps_per_block"])
    step = int(header["slot_bytes"])
    slots = data[abi.LAUNCH_HEADER_BYTES :][: warps * step].reshape(warps, step)
    heads = np.ascontiguousarray(slots[:, : abi.SLOT_HEADER_BYTES]).view(abi.SLOT_HEADER)[:, 0]
    if not (heads["state"] == abi.SlotState.FINISHED).all():
        sys.exit("a warp never reached ikp.finish")
    span = heads["finish_ns"].max() - heads["init_ns"].min()
    return float(span) / 1000, int(heads["attempted"].sum())


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    """Launch the variants in turn; return their ratios to the first."""
    from importlib import import_module

    from cuda.bindings import driver

    from ikp.backends.argument import Argument
    from ikp.core import abi
    from ikp.core.segment import Spec
    from ikp.session.wishes import revision

    check(driver.cuInit(0))
    device = check(driver.cuDeviceGet(0))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))
    count = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    blocks = check(driver.cuDeviceGetAttribute(count, device))
    matrices = [Memory(2 * size) for size in (M * K, N * K, M * N)]
    random = np.random.default_rng(0)
    for matrix in matrices[:2]:
        matrix.write(random.standard_normal(matrix.size // 2).astype(np.float16).tobytes())
    stream = check(driver.cuStreamCreate(0))
    spec = str(Spec(revision=revision()))
    buffer = Memory(SEGMENT)
    prof = Argument(buffer, SEGMENT - abi.LAUNCH_HEADER_BYTES, spec)
    sys.path.insert(0, str(folder))
    compiled = {
        ranges: compile_variant(
            import_module(f"gemm_{ranges.name.lower()}"),
            [matrix.address for matrix in matrices],
            prof,
            stream,
            blocks,
        )
        for ranges in VARIANTS
    }
    times: dict[str, list[float]] = {ranges.name: [] for ranges in VARIANTS}
    records: dict[str, int] = {}
    results: set[bytes] = set()
    for _ in range(rounds + 2):
        for ranges, (launch, args) in compiled.items():
            launch(*args)
            taken, records[ranges.name] = duration_us(buffer)
            times[ranges.name].append(taken)
            results.add(hashlib.sha256(matrices[2].read()).digest())
    plain = times[Ranges.ANCHORS.name][2:]
    return {
        "torch": "torch" in sys.modules,
        "plain_us": statistics.median(plain),
        "records": records,
        "identical": len(results) == 1,
        "ratios": {
            name: [t / p for t, p in zip(found[2:], plain, strict=True)]
            for name, found in times.items()
            if name != Ranges.ANCHORS.name
        },
    }


def rows(title: str, output: str) -> list[str]:
    """Return the table's lines for what a process printed last."""
    found = [line for line in output.splitlines() if line.startswith("{")]
    if not found:
        print(*output.strip().splitlines()[-12:], sep="\n    ")
        return [f"| {title} | failed: see above | | |"]
    result = json.loads(found[-1])
    made = []
    for name, ratios in result["ratios"].items():
        low, middle, high = statistics.quantiles(ratios, n=4)
        plain = f"{result['plain_us']:.1f}"
        made.append(f"| {title}: {name} | {middle:.4f} | {low:.4f} to {high:.4f} | {plain} |")
    if not result["identical"]:
        made.append(f"| {title}: RESULTS DIFFER | | | |")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("example", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--output", type=Path, help="keep what run-iket writes here")
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(IN_PROCESS, action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.torch:
        import torch

        torch.cuda.init()
    if args.in_process:
        print(json.dumps(measure(args.example, args.rounds)), flush=True)
        return
    source = args.example.read_text()
    if GEMM not in source:
        sys.exit(f"{args.example} has no {GEMM}: this script knows how to launch that one alone")
    with tempfile.TemporaryDirectory() as folder:
        for ranges in VARIANTS:
            text = patch(source, ranges)
            Path(folder, f"gemm_{ranges.name.lower()}.py").write_text(text)
        child = [sys.executable, __file__, folder, "--rounds", str(args.rounds), IN_PROCESS]
        output = args.output or Path(folder, "iket")
        profiler = [sys.executable, "-c", RUN_IKET, "--log-level", "info", "--clobber"]
        profiler += ["--output-dir", str(output), "profile", "--postprocess", "none", "--"]
        lines = ["| process | ratio | quartiles | plain, us |", "| --- | --- | --- | --- |"]
        for title, command, options in (
            ("alone, IKET idle", child, "iket"),
            ("alone, IKET compiled out", child, ""),
            ("under run-iket", [*profiler, *child], ""),
            ("under run-iket, with PyTorch", [*profiler, *child, "--torch"], ""),
        ):
            environment = {**os.environ, "CUTE_DSL_COMPILER_OPT": options}
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            print(f"{title}: exit status {done.returncode}")
            lines += rows(title, done.stdout + done.stderr)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
