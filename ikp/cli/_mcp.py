"""``ikp mcp``: an MCP server on stdin and stdout, whose tools are commands of ikp."""

from __future__ import annotations

import click

from ikp.errors import UsageError


@click.command("mcp", short_help="Serve run, explain, stats, diff, ... to a coding agent.")
def command() -> None:
    """Serve commands of ikp as tools of the Model Context Protocol, on stdin and stdout.

    An agent's program starts it: name the command `ikp mcp` in its list of MCP servers. The tools
    are run, explain, stats, diff, inspect and verify. Each answer has at most 16,000 bytes.
    """
    try:
        from ikp.agents.server import server
    except ImportError as error:
        raise UsageError(
            f"`ikp mcp` needs the package mcp, 2 or newer ({error}). Do: pip install 'ikp[mcp]'"
        ) from error
    server.run()
