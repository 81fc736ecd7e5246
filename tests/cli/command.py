"""The ``ikp`` command of this checkout, started as the script that pip installs would start it."""

import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])

if __name__ == "__main__":
    sys.path.insert(0, ROOT)
    from ikp.cli.main import main

    sys.path.remove(ROOT)  # programs don't find ikp there
    main()
