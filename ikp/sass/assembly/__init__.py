"""Instructions as words: how each is encoded, when it may issue, and which chip has it."""
