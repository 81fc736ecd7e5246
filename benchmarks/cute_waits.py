"""What recording every wait costs in CuTe kernels: ours, and NVIDIA's examples for Hopper.

    python benchmarks/cute_waits.py [--rounds N] [--trace FILE] [--iket] [EXAMPLE.py [its options]]

Without EXAMPLE.py: examples/gemm_cute.py. EXAMPLE.py is your copy of an example of NVIDIA's CUTLASS
repository, say examples/python/CuTeDSL/cute/hopper/kernel/dense_gemm/dense_gemm_persistent.py; its
own options choose the problem. It is changed in a temporary folder (cute_patch.py): a range around
each statement that waits. Each figure is the median over rounds of (kernel with records) / (plain
kernel just before it). Prints a Markdown table. Needs a Hopper GPU.

--iket also runs NVIDIA's IKET on the persistent GEMM (cute_iket.py).
"""

import argparse
import copy
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock

import cutlass
import numpy as np
import torch
from cuda.bindings import driver
from cute_patch import Ranges, patch, waits
from cutlass import cute
from ratios import Row, pairs, table

import ikp

WARM_UP = 10
KERNELS = "kernel_cutlass"  # how the names of CuTe's kernels start
BUFFER = 256 << 20
VARIANTS = {
    "ikp": {},
    "ikp, again": {},
    "ikp, not scheduled": {"schedule": False},
    "ikp, ring": {"overflow": "wrap"},
}


@dataclass(frozen=True)
class Example:
    """What an example compiles, and what it launches that with."""

    operation: Any
    compile_args: tuple[Any, ...]
    launch_args: tuple[Any, ...]

    def compile(self, module: ModuleType, *prof: Any) -> Callable[..., None]:
        """Compile the same operation as ``module`` has it, with ``prof`` as its last argument."""
        if isinstance(self.operation, FunctionType):
            operation = getattr(module, self.operation.__name__)
        else:
            operation = copy.copy(self.operation)
            operation.__class__ = getattr(module, type(operation).__name__)
        return cute.compile(operation, *self.compile_args, *prof)

    def read(self) -> dict[int, bytes]:
        """Return the bytes of every tensor that the kernel gets, by its place."""
        torch.cuda.synchronize()
        tensors = enumerate(self.launch_args)
        return {i: _read(tensor) for i, tensor in tensors if hasattr(tensor, "data_ptr")}

    def write(self, contents: dict[int, bytes]) -> None:
        """Put bytes back into tensors."""
        for i, data in contents.items():
            _check(driver.cuMemcpyHtoD(self.launch_args[i].data_ptr, data, len(data)))
        torch.cuda.synchronize()


class Captured(Exception):  # noqa: N818 - not an error
    """Raised to leave an example once it has shown what it launches."""

    def __init__(self, example: Example) -> None:
        self.example = example


def capture(module: ModuleType, options: list[str]) -> Example:
    """Run an example up to its first launch."""
    compile_ = cute.compile

    def recording(operation: Any, *compile_args: Any, **kwargs: Any) -> Any:
        owner = operation if isinstance(operation, FunctionType) else type(operation)
        if owner.__module__ != module.__name__:  # a library's own kernel
            return compile_(operation, *compile_args, **kwargs)

        def launch(*launch_args: Any) -> None:
            raise Captured(Example(operation, compile_args, launch_args))

        return launch

    command = [module.__file__, *options]
    with mock.patch.object(cute, "compile", recording), mock.patch.object(sys, "argv", command):
        try:
            module.main()
        except Captured as captured:
            return captured.example
    raise SystemExit(f"{module.__file__} launches nothing that it has compiled")


def load(path: Path, ranges: Ranges, folder: Path) -> ModuleType:
    """Import a copy of an example with ``ranges`` in it."""
    text = patch(path.read_text(), ranges)
    name = f"{path.stem}_{ranges.name.lower()}"
    copied = folder / f"{name}.py"
    copied.write_text(text)
    spec = importlib.util.spec_from_file_location(name, copied)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def measure(path: Path, options: list[str], rounds: int, trace: Path | None) -> list[Row]:
    """Return the rows of NVIDIA's example at ``path``."""
    sys.path[:0] = [str(p) for p in path.parents if (p / "helpers").is_dir()]
    with tempfile.TemporaryDirectory() as folder:
        plain = load(path, Ranges.NOTHING, Path(folder))
        example = capture(plain, options)
        patched = load(path, Ranges.IKP, Path(folder))
        places = waits(Path(patched.__file__).read_text())
        return rows(example, plain, patched, f"every wait ({places} places)", rounds, trace)


def measure_ours(rounds: int, trace: Path | None) -> list[Row]:
    """Return the rows of examples/gemm_cute.py, whose plain kernel is the one that is off."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from cutlass.cute.runtime import from_dlpack

    from examples import gemm_cute

    a, b = torch.randn(2, 4096, 4096, device="cuda").half()
    tensors = tuple(from_dlpack(x, assumed_align=16) for x in (a, b.t(), torch.empty_like(a)))
    blocks = torch.cuda.get_device_properties("cuda").multi_processor_count

    ours = Example(gemm_cute.matmul, (*tensors, blocks), tensors)
    return rows(ours, gemm_cute, gemm_cute, "every wait, copy and MMA", rounds, trace, (None,))


def rows(
    example: Example,
    plain: ModuleType,
    patched: ModuleType,
    what: str,
    rounds: int,
    trace: Path | None,
    off: tuple[None, ...] = (),
) -> list[Row]:
    """Measure the plain kernel against itself, with records, and with records off.

    ``off`` is what the plain kernel, too, takes as ``prof``, where it takes it.
    """
    reference = example.compile(plain, *off)

    def launch() -> None:
        reference(*example.launch_args, *off)

    given = example.read()
    launch()
    expected = {i: data for i, data in example.read().items() if data != given[i]}

    def against(recorded: Callable[[], None]) -> tuple[list[float], float]:
        example.write({i: given[i] for i in expected})
        recorded()
        found = example.read()
        if any(found[i] != data for i, data in expected.items()):
            sys.exit("the kernel with records wrote another result than the plain one")
        for _ in range(WARM_UP):
            launch()
        return pairs(launch, recorded, rounds, KERNELS)

    made = [Row("plain against itself", *against(launch), "")]
    for name, options in VARIANTS.items():
        path = trace if name == "ikp" else None
        with ikp.profile(path, force=True, buffer_size=BUFFER, **options) as prof:
            buffer = prof.buffer(plain.__name__)
            torch.cuda.synchronize()  # the example may launch on a stream of its own
            recorded = example.compile(patched, buffer)
            measured = against(lambda: recorded(*example.launch_args, buffer))  # noqa: B023
            recording = prof.trace
        (told,) = recording.launches
        most = np.bincount(recording.events.slot).max()
        kept = f"{told.kept:,} of {told.attempted:,} ranges, up to {most:,} per warp"
        made.append(Row(f"{name}: {what}", *measured, kept))
        if name == "ikp":
            print(recording.stats())
    silent = example.compile(patched, None)
    measured_off = against(lambda: silent(*example.launch_args, None))
    made.append(Row("ikp, off (`None`)", *measured_off, ""))
    print("all results are bit-identical")
    return made


def _read(tensor: Any) -> bytes:
    elements = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride, strict=True))
    found = np.empty(elements * tensor.element_type.width // 8, np.uint8)
    _check(driver.cuMemcpyDtoH(found.ctypes.data, tensor.data_ptr, found.nbytes))
    return found.tobytes()


def _check(result: tuple[Any, ...]) -> None:
    if result[0] != driver.CUresult.CUDA_SUCCESS:
        sys.exit(f"a tensor can't be copied: {result[0].name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=80)
    parser.add_argument("--trace", type=Path, help="write the trace of the last launch")
    parser.add_argument("--iket", action="store_true", help="NVIDIA's IKET too")
    parser.add_argument("example", type=Path, nargs="?")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="the example's own")
    args = parser.parse_args()
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        sys.exit("these kernels need a GPU of compute capability 9.0 (H100, H200)")
    if args.example is None:
        found = measure_ours(args.rounds, args.trace)
    else:
        found = measure(args.example.resolve(), args.options, args.rounds, args.trace)
    print(
        f"{torch.cuda.get_device_name()}, nvidia-cutlass-dsl {cutlass.__version__}, "
        f"torch {torch.__version__}, ikp {ikp.__version__}, {args.rounds} pairs each\n"
    )
    print(table(found))
    if args.iket:
        script = Path(__file__).with_name("cute_iket.py")
        subprocess.run([sys.executable, script, args.example], check=False)


if __name__ == "__main__":
    main()
