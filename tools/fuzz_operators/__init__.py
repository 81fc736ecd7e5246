"""Run other people's kernels with and without records, and compare what they compute."""
