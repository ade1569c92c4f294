"""``python -m swarm.cli``: the same as the ``swarm`` command."""

from swarm.cli import main

main()
