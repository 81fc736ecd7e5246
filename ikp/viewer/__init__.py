"""A trace file in the Perfetto UI: where that is, what it is served, what it shows first."""
