"""``python -m a3r.testing.stand_in --script NAME``: an OpenAI-compatible provider that follows a script, until Ctrl-C.

It prints the settings with which a3r uses it.
"""

from __future__ import annotations

import argparse
import contextlib
import sys

from a3r.core.errors import NotFound
from a3r.testing.stand_in.moods import MOODS
from a3r.testing.stand_in.scripts import SCRIPTS, find_script
from a3r.testing.stand_in.server import StandIn


def main() -> int:
    """Serve until interrupted; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="a3r.testing.stand_in", description="A language model that follows a script."
    )
    names = ", ".join(SCRIPTS)
    parser.add_argument("--script", required=True, help=f"{names}, or module:function")
    parser.add_argument("--mood", default="good", choices=sorted(MOODS), help="what is wrong")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    given = parser.parse_args()
    try:
        script = find_script(given.script)
    except NotFound as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    server = StandIn(MOODS[given.mood]()(script), port=given.port)
    lines = [
        "export A3R_LLM=openai/stand-in",
        f"export A3R_LLM_BASE_URL={server.url}",
        "export A3R_LLM_PRICE=1,4",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
