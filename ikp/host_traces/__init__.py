"""Other profilers' traces: read, matched with ikp's launches, and placed on one time axis."""
