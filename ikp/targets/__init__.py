"""Device code of ikp's verbs, as PTX generated from the ABI, for any kernel language."""
