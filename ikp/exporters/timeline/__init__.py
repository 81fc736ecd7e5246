"""A trace as rows over time, whatever viewer shows it."""
