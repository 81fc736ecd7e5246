"""What the build adds to pyproject.toml: README with whole addresses, and compiled libraries."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class PrebuiltHook(BuildHookInterface[Any]):
    """Puts the libraries of ``IKP_PREBUILT`` into a wheel, with the tag ``IKP_WHEEL_TAG``."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files and the tag."""
        folder = os.environ.get("IKP_PREBUILT")
        if self.target_name != "wheel" or version == "editable" or not folder:
            return
        libraries = {str(each): f"ikp/prebuilt/{each.name}" for each in Path(folder).iterdir()}
        build_data["force_include"].update(libraries)
        build_data["tag"], build_data["pure_python"] = os.environ["IKP_WHEEL_TAG"], False


class ReadmeHook(MetadataHookInterface):
    """Sets ``readme``: links and pictures lead to the repository, at the release's tag."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field."""
        root = Path(self.root)
        version = re.search(
            r'"(.+)"', (root / "ikp" / "version.py").read_text("utf-8").split("=")[1]
        )
        if version is None:
            raise ValueError("ikp/version.py has no __version__: it is needed for README's links.")
        text = (root / "README.md").read_text("utf-8")
        home = f"{metadata['urls']['Repository']}/{{}}/v{version[1]}"
        metadata["readme"] = {"content-type": "text/markdown", "text": with_addresses(text, home)}


def with_addresses(text: str, home: str) -> str:
    """Return Markdown whose relative links begin with an address.

    Args:
        text: the Markdown.
        home: the address, with ``{}`` for how a file is shown: raw for pictures, else blob.
    """

    def placed(found: re.Match[str]) -> str:
        kind = "raw" if found[1].startswith("!") else "blob"
        return f"{found[1]}({home.format(kind)}/{found[2]})"

    pieces = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    link = re.compile(r"(!?\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)\)")
    return "".join(one if one.startswith("```") else link.sub(placed, one) for one in pieces)
