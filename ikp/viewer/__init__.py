"""``ikp view``: a trace file in the Perfetto UI: its server, its first view, parts cut out."""
