"""A trace as one HTML page (``trace.report()``), or as pictures: files that need no others."""
