"""``python -m ikp``: the ``ikp`` command of this very Python."""

from ikp.cli.main import main

if __name__ == "__main__":
    main()
