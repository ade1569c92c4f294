"""``python -m a3r`` is the ``a3r`` command."""

from a3r.cli import main

if __name__ == "__main__":
    main()
