"""Probe placement: where in a kernel each probe is inserted, and with which registers."""
