"""What moved from one trace, or set of traces, to another, and how surely."""
