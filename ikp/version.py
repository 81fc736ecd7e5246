"""The package version, read by the build, and written into traces."""

__version__ = "0.1.0"
