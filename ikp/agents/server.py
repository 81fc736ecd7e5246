"""An MCP server whose tools are commands of ikp: run, explain, stats, diff, inspect, verify."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from ikp.agents.commands import ANSWER, READING_S, Ended, cut, ikp
from ikp.version import __version__

_READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_STARTS: Final = ToolAnnotations(read_only_hint=False, destructive_hint=True)
_SAID: Final = 4_000
"""Bytes that the program's own output has of an answer of ``run``, at most."""

_LIMITS: Final = {3: "a limit of fail_over is surely passed", 4: "a limit can't be decided"}
_NONE: Final[Mapping[int, str]] = {}

_Trace = Annotated[str, Field(description="A .pftrace file that ikp wrote.")]
_Kernel = Annotated[str | None, Field(description="Only kernels named so, as a pattern: '*gemm*'.")]

server = MCPServer(
    "ikp",
    version=__version__,
    log_level="WARNING",
    instructions=(
        "ikp shows what happens inside a GPU kernel: which warp did what, when, for how long. "
        "1. run a program: it ends with kernels by their time and findings on the hottest one. "
        "2. explain its trace: findings with bound, confidence, file and line. "
        "3. Change the source, run it again to another file (out). "
        "4. diff both traces. Bounds are upper limits: measure without ikp before you believe a "
        f"win. Answers have at most {ANSWER:,} bytes, and say where they are cut."
    ),
)


@server.tool(annotations=_STARTS, structured_output=False)
async def run(
    program: Annotated[
        list[str],
        Field(
            min_length=1,
            description="A Python script or -m and a module, then its arguments: "
            "['bench.py', '--size', '4096'].",
        ),
    ],
    folder: Annotated[
        str | None, Field(description="Where to run it; without it, the server's folder.")
    ] = None,
    detail: Annotated[
        Literal["kernel", "loops", "waits", "ops"],
        Field(description="What to record; ops for explain, loops costs the kernel least."),
    ] = "ops",
    kernel: _Kernel = None,
    launch: Annotated[str | None, Field(description="Launches of each kernel from 0: 3:8.")] = None,
    out: Annotated[
        str | None,
        Field(
            description="The .pftrace to write, replaced if there. Without it ikp-NAME.pftrace "
            "in the folder."
        ),
    ] = None,
    probe_addresses: Annotated[
        bool, Field(description="Also count sectors and bank conflicts (sm_90).")
    ] = False,
    timeout_s: Annotated[
        float, Field(gt=0, le=3600, description="Then the program is interrupted.")
    ] = 300.0,
) -> str:
    """Run a program with its GPU kernels recorded, unedited, and return what took the time.

    The answer has the program's exit code, the end of its output, the file of the trace, kernels
    by their time, and findings on the hottest one. It needs an NVIDIA GPU, or TRITON_INTERPRET=1
    in the server's environment, where times mean nothing.
    """
    words = ["run", f"--detail={detail}"]
    words += _options(kernel=kernel, launch=launch, out=out)
    words += ["--force"] if out else []
    words += ["--probe=addresses"] if probe_addresses else []
    ended = await _ended([*words, *program], folder, timeout_s)
    result = f"exit code {ended.code}"
    if not ended.in_time:
        result += f": it was interrupted after {timeout_s:g} s"
    printed = cut(ended.out.strip(), _SAID, end=True)
    said = cut(ended.said.strip(), ANSWER - _SAID - 200, end=True)
    answer = f"{result}\n\nstdout:\n{printed}\n\nstderr:\n{said}"
    if ended.code or not ended.in_time:
        raise ToolError(answer)
    return answer


@server.tool(annotations=_READS, structured_output=False)
async def explain(
    trace: _Trace,
    launch: Annotated[
        str | None, Field(description="A kernel's label, as a pattern, or a launch's number.")
    ] = None,
    as_json: Annotated[
        bool, Field(description="All numbers, in at most 8 KB; fields: `ikp schema explain`.")
    ] = False,
) -> str:
    """Return what takes a kernel's time, and what a change could win, at most.

    Findings are ranked by the time at stake. Each has a bound, a confidence (measured, likely,
    possible), where to look, and a suggestion. Without launch it is the kernel that took longest.
    """
    words = ["explain", *_options(launch=launch)]
    return await _answer([*words, *(["--format=json"] if as_json else []), "--", trace])


@server.tool(annotations=_READS, structured_output=False)
async def stats(
    trace: _Trace,
    by: Annotated[
        Literal["rank", "sm", "block", "warp", "role", "iteration", "window"] | None,
        Field(description="A row for each of these."),
    ] = None,
    region: Annotated[str | None, Field(description="Only ranges named so: 'load*'.")] = None,
    launch: Annotated[str | None, Field(description="Only launches labelled so.")] = None,
    top: Annotated[int, Field(ge=1, description="The rows with the most time.")] = 30,
    addresses: Annotated[
        bool,
        Field(description="Accesses to memory, of a run with probe_addresses, and nothing else."),
    ] = False,
) -> str:
    """Return how long each range took: count, share, self time, percentiles, cycles."""
    if addresses:
        return await _answer(["stats", "--addresses", "--", trace])
    words = ["stats", f"--top={top}", *_options(by=by, region=region, launch=launch)]
    return await _answer([*words, "--", trace])


@server.tool(annotations=_READS, structured_output=False)
async def diff(
    before: Annotated[str, Field(description="A .pftrace, or a folder of several runs.")],
    after: Annotated[str, Field(description="The same of the changed program.")],
    fail_over: Annotated[
        list[str], Field(description="Limits: 'duration=+1%', 'dot.p50=+3%'.")
    ] = [],  # noqa: B006 - the SDK shows it as the default
    old: Annotated[str | None, Field(description="Only launches labelled so, before.")] = None,
    new: Annotated[str | None, Field(description="Only launches labelled so, after.")] = None,
) -> str:
    """Return what moved between two traces, and how surely, by the variation of their launches."""
    words = ["diff", *_options(old=old, new=new), *(f"--fail-over={each}" for each in fail_over)]
    return await _answer([*words, "--", before, after], meaning=_LIMITS)


@server.tool(annotations=_READS, structured_output=False)
async def inspect(
    path: Annotated[
        str, Field(description="A trace of ikp run on this machine, a .cubin, .ptx, or a folder.")
    ],
    kernel: _Kernel = None,
    code: Annotated[
        str | None, Field(description="List the instructions of ranges named so.")
    ] = None,
) -> str:
    """Return which machine instructions lie in each range of a compiled kernel; no GPU needed."""
    return await _answer(["inspect", *_options(kernel=kernel, code=code), "--", path])


@server.tool(annotations=_READS, structured_output=False)
async def verify(trace: _Trace) -> str:
    """Verify each patched kernel of a trace against the plain one: the same but for its records."""
    return await _answer(["verify", "--", trace], meaning={1: "not all kernels are verified"})


def _options(**given: str | None) -> list[str]:
    return [f"--{name}={value}" for name, value in given.items() if value is not None]


async def _ended(words: list[str], folder: str | None = None, limit_s: float = READING_S) -> Ended:
    try:
        return await ikp(words, folder=Path(folder) if folder else None, limit_s=limit_s)
    except (OSError, ValueError) as error:
        raise ToolError(f"ikp {words[0]} can't be started: {error}") from error


async def _answer(words: list[str], *, meaning: Mapping[int, str] = _NONE) -> str:
    """Return what a command printed, and the meaning of an exit code that is a result.

    Raises:
        ToolError: it ended with another exit code, or printed nothing.
    """
    ended = await _ended(words)
    if not ended.in_time:
        raise ToolError(f"ikp {words[0]} took over {READING_S:g} s, and was ended.")
    if ended.code and (ended.code not in meaning or not ended.out.strip()):
        raise ToolError(cut(ended.said.strip() or f"exit code {ended.code}", end=True))
    result = f"\n\nexit code {ended.code}: {meaning[ended.code]}" if ended.code else ""
    return cut(ended.out.strip("\n"), ANSWER - len(result)) + result
