"""``python -m swarm.testing.gpu_check [NAME ...]``: run the checks one after the other, write gpu-check.json and gpu-check.md."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from swarm.testing.gpu_check.cases import CASES, chosen
from swarm.testing.gpu_check.machine import gpus, versions
from swarm.testing.gpu_check.report import as_markdown
from swarm.testing.gpu_check.runner import Runner

EXIT_FAILED, EXIT_USAGE, EXIT_ENDED = 1, 2, 143
ENOUGH_S = 570.0
"""All checks together, with one GPU; with more there are more checks."""
MORE_S = 300.0
REFUSAL = (
    "gpu-check: nvidia-smi reports no GPU, so nothing was run and no report written.\n"
    "hint: run it on a machine with a GPU and its driver; --rehearse tries the checks themselves on a CPU."
)


def main() -> int:
    """Run what was asked for; returns 0 when nothing failed, 1 when something did, 2 when nothing could be run."""
    arguments = _arguments()
    found = gpus()
    if not found and not arguments.rehearse:
        print(REFUSAL, file=sys.stderr)  # noqa: T201
        return EXIT_USAGE
    # A rehearsal pretends GPUs, as many as any check wants, and packages: it only composes what needs one.
    most = max(case.gpus for case in CASES)
    try:
        cases, left_out = (
            chosen(arguments.names, most, lambda _: "pretended")
            if arguments.rehearse
            else chosen(arguments.names, len(found))
        )
    except KeyError as error:
        known = ", ".join(case.name for case in CASES)
        print(f"gpu-check: no check {error}; there are: {known}", file=sys.stderr)  # noqa: T201
        return EXIT_USAGE
    # So that what runs is ended too; the report is up to date in any case.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_ENDED))
    runner = Runner(
        arguments.report,
        {"gpus": found, "versions": versions()},
        arguments.limit_s or ENOUGH_S + (MORE_S if len(found) > 1 else 0),
        rehearsal=arguments.rehearse,
        slower=arguments.slower,
        model=arguments.model,
    )
    record = runner.run(cases, left_out)
    print(as_markdown(record))  # noqa: T201
    return 0 if record["ok"] else EXIT_FAILED


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu-check", description="First contact with a GPU.")
    parser.add_argument("names", nargs="*", help="checks to run; none = all")
    parser.add_argument("--model", default="builtin:tiny-calc", help="model folder to boot")
    parser.add_argument("--report", type=Path, default=Path("build"), help="folder of the report")
    parser.add_argument(
        "--limit-s", type=float, help=f"all checks together (default {ENOUGH_S:g}, one GPU)"
    )
    parser.add_argument("--slower", type=float, default=1.0, help="times each check's own limit")
    parser.add_argument(
        "--rehearse", action="store_true", help="on the CPU, to try the checks themselves"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
