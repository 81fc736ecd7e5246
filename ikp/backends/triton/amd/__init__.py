"""Adapter and compiler passes for AMD GPUs: loaded when the first AMD kernel is compiled."""
