"""Recording of unedited Triton and Gluon kernels: marks in source, IR, PTX or machine code."""
