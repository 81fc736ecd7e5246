"""One cause a file: each a function from a launch's prepared columns to findings."""
