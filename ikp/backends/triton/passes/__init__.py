"""PTX passes between Triton's compiler and ptxas: entry and exits, callees, record scheduling."""
