"""File formats, one package or module each; found by entry point."""
