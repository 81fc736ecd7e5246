"""A trace's tables as chunks of checksummed, deflated columns; independent of any file format."""
