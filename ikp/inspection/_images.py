"""Images of compiled kernels, from objects, files, folders and traces: cubin and PTX."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from ikp import registry
from ikp.core.trace import Trace
from ikp.errors import InspectError, UsageError
from ikp.inspection import _ptx_names as ptx_names
from ikp.named_files import MOST_CODE, read_named
from ikp.plugins import Image
from ikp.probes.kept_code import KEPT, MACHINE_MARK
from ikp.sass.disassembly.listing import Code, parse
from ikp.sass.disassembly.tools import assemble, disassemble
from ikp.targets.ptx import STORE_MARK


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


def codes(image: Image) -> Iterator[Code]:
    """Yield the code of an image's kernels, without the plain copy that other blocks run."""
    marks = ptx_names.read(image.ptx)
    for code in parse(disassemble(image.cubin)):
        yield code.without(*marks.plain) if code.name == marks.kernel else code


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
        raise InspectError(
            "this trace names no machine code: its kernels were compiled with their records "
            "(ikp.init in them) and lie in Triton's cache. "
            "ikp inspect without a path looks there."
        )
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
