"""The package version, read by the build and by the traces it writes."""

__version__ = "0.1.0"
