"""``python -m a3r.testing.trust``: measure the trust figures and print them as a table.

Exit code 0 when every goal is met, 1 when one is missed, 2 when a measurement itself failed.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from a3r.testing.trust.figure import Figure, table
from a3r.testing.trust.figures import FIGURES, Measure


def main(arguments: Sequence[str] | None = None, measures: Mapping[str, Measure] = FIGURES) -> int:
    """Measure what was asked for and report."""
    given = _parse(arguments, measures)
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    figures: list[Figure] = []
    broken: list[str] = []
    for name in given.only or list(measures):
        began = time.monotonic()
        try:
            found = measures[name](given.scale)
        except Exception as error:
            logging.getLogger(__name__).exception("%s could not be measured", name)
            broken.append(f"{name}: {type(error).__name__}: {error}")
            continue
        figures += found
        if not given.quiet:
            sys.stderr.write(f"trust: {name} {time.monotonic() - began:.0f} s\n")
    missed = [f.name for f in figures if f.met is False]
    if given.json:
        body = {"scale": given.scale, "figures": [asdict(f) for f in figures], "broken": broken}
        given.json.write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n", "utf-8")
    verdict = f"figures {len(figures)}, missed {len(missed)}, not measured {len(broken)}"
    sys.stdout.write("\n".join([table(figures), *broken, verdict]) + "\n")
    return 2 if broken else 1 if missed else 0


def _parse(arguments: Sequence[str] | None, measures: Mapping[str, Measure]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m a3r.testing.trust", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=sorted(measures), help="only these")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of the simulations, for a quick look"
    )
    parser.add_argument("--json", type=Path, help="write the result here too")
    parser.add_argument("--quiet", action="store_true", help="do not tell each measurement")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
