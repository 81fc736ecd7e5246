"""Sessions' memory for records: sized, handed out, read back. Torch is imported at first use."""
