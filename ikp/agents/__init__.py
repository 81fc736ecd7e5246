"""What coding agents use: a skill file, and the commands as tools of an MCP server."""
