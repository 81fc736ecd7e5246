"""``ikp skill``: prints the skill file for coding agents."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

import ikp.agents

FILE: Final = Path(ikp.agents.__path__[0]) / "skills" / "ikp" / "SKILL.md"


@click.command("skill", short_help="Print the skill file for coding agents.")
def command() -> None:
    """Print SKILL.md: when a coding agent uses ikp, the loop, the commands, fields and pitfalls.

    It goes into a folder named ikp where your agent looks for skills:

    \b
      mkdir -p .agents/skills/ikp && ikp skill > .agents/skills/ikp/SKILL.md
    """  # noqa: D301 - \b is click's
    click.echo(FILE.read_text(encoding="utf-8"), nl=False)
