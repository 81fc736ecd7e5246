"""Cubins: read, analysed and rewritten. Knows no language, and nothing of records."""
