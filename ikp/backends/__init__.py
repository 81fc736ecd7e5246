"""The verbs of each DSL, one package per DSL, and the region names they share."""
