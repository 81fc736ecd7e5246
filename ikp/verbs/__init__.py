"""The verbs that kernels call in any language, and the protocol ``Dsl`` of languages' adapters."""
