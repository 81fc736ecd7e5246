"""``python -m ikp``: the ``ikp`` command, run by this Python."""

from ikp.cli.main import main

if __name__ == "__main__":
    main()
