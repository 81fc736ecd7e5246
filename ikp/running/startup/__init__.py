"""The folder that ``ikp run`` puts into ``PYTHONPATH``: it holds ``sitecustomize`` and no more."""
