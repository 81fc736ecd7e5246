"""Timelines for viewers, independent of the file format: tracks, blocks, batches of events."""
