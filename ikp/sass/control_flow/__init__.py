"""Where control goes in a kernel, and where threads of a warp part."""
