"""Dataflow analyses of a kernel: liveness, hazards, uniformity, and free registers."""
