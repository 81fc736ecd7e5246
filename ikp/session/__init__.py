"""Sessions: which one records a launch, its buffer, read-back. Torch is imported at first use."""
