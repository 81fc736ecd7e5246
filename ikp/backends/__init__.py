"""ikp's own backends, a package each (Triton, Gluon, CuTe DSL, the driver), and code they share."""
