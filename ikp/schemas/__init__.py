"""The JSON Schemas of what ``ikp`` prints, as files that ``python -m tools.schemas`` makes."""
