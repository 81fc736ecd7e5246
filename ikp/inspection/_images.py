"""Images of compiled kernels: their cubin, their PTX, and what the PTX says of their records.

Its marks give the names of regions, the tags, and the code that ikp inserted.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ikp import registry
from ikp.core.abi import KIND_SHIFT, REGION_MASK, Kind
from ikp.core.regions import fallback_name, merge, region_id
from ikp.core.trace import Trace
from ikp.errors import InspectError, UsageError
from ikp.named_files import MOST_CODE, read_named
from ikp.plugins import Image
from ikp.probes.kept_code import KEPT, MACHINE_MARK
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow.reading import code_of
from ikp.sass.disassembly.listing import Code, parse
from ikp.sass.disassembly.tools import assemble, disassemble
from ikp.targets.ptx import STORE_MARK
from ikp.targets.ptx_slot import SPEC_MARK

_MARK = re.compile(rf"^\s*{STORE_MARK} (?:(\d+) (\".*\")|.*)$", re.MULTILINE)
_TAG = re.compile(r"v[24]\.b32 \[[\w+]+\], \{(0x[0-9a-f]+),")
_TOTALS = re.compile(rf"^\s*{re.escape(SPEC_MARK)} .*\btotals=1\b", re.MULTILINE)
_MACHINE = re.compile(rf"^{MACHINE_MARK} (.*)$", re.MULTILINE)
_CONDITION = re.compile(r"setp\.ne\.u32 w,")
_PLAN = "marks in "
"""How facts of a trace begin that say where records of a kernel went: its label follows."""
_RUN_TIME = "(id known at run time)"


@dataclass(frozen=True, slots=True)
class PtxMarks:
    """The records that a PTX text stores."""

    names: dict[int, str]  # region id -> name
    tags: dict[int, str]  # tag of each record whose tag is a constant -> name of its region
    count: int
    ours: tuple[tuple[int, int], ...] = ()
    """With records in the machine code: the inserted code, as ranges of bytes (first, end)."""
    plain: tuple[int, int] = (0, 0)
    """The same: the part of it that copies the kernel's own code, for blocks that don't record."""
    kernel: str = ""
    """The same: the kernel's name. It may have no range but itself, which is no record."""
    shared: int | None = None
    """The same: bytes of shared memory that a block has, where that is known."""
    plain_registers: int | None = None
    """The same: registers of a thread of the plain kernel, where that is known."""
    named_by_code: bool = False  # ranges that ikp named, by what the machine code holds
    sometimes: frozenset[int | None] = frozenset()
    """Regions of records that are kept under a condition; None: a region known at run time only."""

    def always_kept(self, tag: int | None) -> bool:
        """Return whether each record of a tag's region is kept whenever it is reached."""
        return (None if tag is None else tag & REGION_MASK) not in self.sometimes

    def name(self, tag: int | None) -> str:
        """Return the name of the region of a tag."""
        if tag is None:
            return _RUN_TIME
        region = tag & REGION_MASK
        return self.names.get(region) or fallback_name(region)


def _kept_marks(text: str) -> PtxMarks:
    """Return the marks of machine code, from the JSON beside it."""
    try:
        return _of_machine(json.loads(text))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InspectError(
            f"the PTX beside this machine code is damaged: what it says of the records can't "
            f"be read ({error}). Record the kernel again."
        ) from error


def read_marks(ptx: str) -> PtxMarks:
    """Return the marks in a PTX text; none in a text without them.

    Raises:
        RegionError: two names share one id.
        InspectError: the facts of machine code in it are damaged.
    """
    if found := _MACHINE.search(ptx):
        return _kept_marks(found[1])
    places = list(_MARK.finditer(ptx))
    names = merge({int(m[1]): json.loads(m[2])} for m in places if m[1])
    ends = [*(m.start() for m in places[1:]), len(ptx)]
    tags: dict[int, str] = {}
    sometimes: set[int | None] = set()
    for mark, end in zip(places, ends, strict=False):
        if _CONDITION.search(ptx, mark.end(), end):
            sometimes.add(int(mark[1]) if mark[1] else None)
        if found := _TAG.search(ptx, mark.end(), end):
            tag = int(found[1], 16)
            tags[tag] = names.get(tag & REGION_MASK) or fallback_name(tag & REGION_MASK)
    return PtxMarks(names, tags, len(places), sometimes=frozenset(sometimes))


def _of_machine(said: dict[str, Any]) -> PtxMarks:
    names = merge({region_id(name): name} for name in said["names"])
    ours = tuple((first, last) for first, last in said["ours"])
    own, shared = said["names"][0], said.get("shared")
    first, last = said.get("plain") or (0, 0)
    registers, _ = said.get("registers") or (None, None)
    return PtxMarks(
        *(names, {}, len(names), ours, (first, last), own, shared, registers), named_by_code=True
    )


def keeps_totals(ptx: str) -> bool:
    """Return whether a PTX text keeps totals in registers: it has no records but totals."""
    return _TOTALS.search(ptx) is not None


def kind(tag: int | None, *, instant: bool) -> str:
    """Return ``"range"`` or ``"instant"``, by the tag or, without one, by the clock reads."""
    if tag is None:
        return "instant" if instant else "range"
    return Kind(tag >> KIND_SHIFT).name.lower()


def images(kernel: Any) -> Iterator[Image]:
    """Yield the images of a compiled kernel, of a file or folder of them, or of a trace.

    Raises:
        UsageError: it is none of these.
        InspectError: it has no machine code, or there is no such file.
    """
    if isinstance(kernel, (str, PathLike)):
        return _of_path(Path(kernel))
    if isinstance(kernel, Trace):
        return _of_trace(kernel)
    for backend in registry.imported():
        found: Image | None = backend.image(kernel) if hasattr(backend, "image") else None
        if found is not None:
            return iter([found])
    compiled = " or ".join(each.compiled for each in registry.languages() if each.compiled)
    raise UsageError(
        f"ikp.inspect takes a compiled kernel or a path, not {kernel!r}. A compiled kernel is what "
        f"{compiled} returned."
    )


def codes(image: Image, file: Cubin | None = None) -> Iterator[Code]:
    """Yield the code of an image's kernels, without the plain copy that other blocks run.

    Of a cubin with a patched kernel, yield that one: a library's cubin may have thousands.

    Args:
        image: the image.
        file: its cubin, if it is parsed already.
    """
    marks = read_marks(image.ptx)
    file = file or (Cubin.read(image.cubin) if marks.kernel else None)
    if file is None or marks.kernel not in file.kernels:
        yield from parse(disassemble(image.cubin))
    else:
        yield code_of(image.cubin, file, marks.kernel).without(*marks.plain)


def _of_path(path: Path) -> Iterator[Image]:
    if path.is_dir():
        return _of_folder(path)
    if not path.exists():
        raise InspectError(f"no such file or directory: {path}.")
    if path.suffix == ".ptx":
        return iter([_of_ptx(path)])
    if path.suffix == ".cubin":
        return iter([_of_cubin(path)])
    raise UsageError(f"{path} is neither a .cubin nor a .ptx file, nor a directory.")


def _of_trace(trace: Trace) -> Iterator[Image]:
    """Yield the images whose paths a trace's provenance names."""
    kept = [
        (name.removeprefix(KEPT), path)
        for name, paths in trace.provenance.items()
        if name.startswith(KEPT)
        for path in paths.splitlines()
    ]
    if not kept:
        why, remedy = why_none(trace)
        raise InspectError(f"this trace names no machine code: {why}. {remedy}")
    for name, path in kept:
        try:
            yield kept_image(path)
        except FileNotFoundError as error:
            raise InspectError(
                f"the machine code of {name} that this trace was recorded with is not there: "
                f"{path}. Copy it from the machine that recorded it, or record again."
            ) from error
        except OSError as error:
            raise InspectError(
                f"the machine code of {name} can't be read where this trace says that it is: "
                f"{path}: {error.strerror or error}. Copy the trace again, or record again."
            ) from error


def why_none(trace: Trace) -> tuple[str, str]:
    """Return why a trace names no machine code that records went into, and what to do."""
    if trace.launches and all(each.clock.kind == "host" for each in trace.launches):
        return "its kernels ran in Triton's interpreter, which makes none", "Record on a GPU."
    plans = [plan for name, plan in trace.provenance.items() if name.startswith(_PLAN)]
    if any("level=machine" in plan or "level=ptx" in plan for plan in plans):
        why = "where that was kept has been taken out of it, as of the traces that ship with ikp"
        return why, "Record the kernel again."
    why = (
        "its kernels were compiled with their records (ikp.init in them) and lie in Triton's cache"
    )
    return why, "ikp inspect without a path looks there."


def kept_image(path: str) -> Image:
    """Return the image at a path that a trace names; the trace is not trusted.

    Raises:
        OSError: there is no file, or none of the kind that ikp keeps.
    """
    if not path.endswith(".cubin"):
        raise OSError(errno.EINVAL, "it is no .cubin file", path)
    code = read_named(path, MOST_CODE)
    try:
        ptx = read_named(Path(path).with_suffix(".ptx"), MOST_CODE)
    except FileNotFoundError:
        ptx = b""
    return Image(code, ptx.decode(errors="replace"), path)


def _of_cubin(path: Path) -> Image:
    try:
        return kept_image(str(path))
    except OSError as error:
        raise InspectError(f"{path} can't be read: {error.strerror or error}.") from error


def _of_ptx(path: Path) -> Image:
    if path.with_suffix(".cubin").exists():
        return _of_cubin(path.with_suffix(".cubin"))
    note = "assembled from PTX for this report: a program may assemble it with other options."
    ptx = _text(path)
    return Image(assemble(ptx, str(path)), ptx, str(path), (note,))


def _of_folder(folder: Path) -> Iterator[Image]:
    """Yield the images with ikp's records below a folder, the latest first.

    Of kernels with one name for one GPU, only the latest: a cache has one for each edit and each
    set of arguments.
    """
    seen: set[tuple[str, str]] = set()
    for path in sorted(folder.rglob("*.ptx"), key=_time, reverse=True):
        text = _text(path)
        if any(mark in text for mark in (STORE_MARK, MACHINE_MARK)):
            key = path.stem, _target(text)
            if key not in seen:
                seen.add(key)
                yield _of_ptx(path)
    if not seen:
        raise InspectError(
            f"no kernel below {folder} has ikp's records: no .ptx file there has their marks. For "
            "Triton, the folder is its cache (TRITON_CACHE_DIR, or ~/.triton/cache); for CuTe, set "
            "CUTE_DSL_KEEP=ptx,cubin and CUTE_DSL_DUMP_DIR."
        )


def _target(ptx: str) -> str:
    return next((line for line in ptx.splitlines() if line.startswith(".target")), "")


def _time(path: Path) -> float:
    return path.stat().st_mtime


def _text(path: Path) -> str:
    try:
        return read_named(path, MOST_CODE).decode(errors="replace")
    except OSError as error:
        raise InspectError(f"{path} can't be read: {error.strerror or error}.") from error
