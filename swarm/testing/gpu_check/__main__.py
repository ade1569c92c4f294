"""``python -m swarm.testing.gpu_check [NAME ...]``: run the checks one after the other, write gpu-check.json and gpu-check.md."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from swarm.testing.gpu_check.cases import CASES, Case, chosen
from swarm.testing.gpu_check.machine import gpus, versions
from swarm.testing.gpu_check.report import Outcome, as_json, as_markdown

EXIT_FAILED, EXIT_USAGE = 1, 2
ENOUGH_S = 600.0
"""All checks together; those that would begin later are skipped, and the report says so."""


def main() -> int:
    """Run what was asked for; returns 0 when nothing failed, 1 when something did, 2 when nothing could be run."""
    arguments = _arguments()
    found = gpus()
    if not found and not arguments.without_gpu:
        print("gpu-check: nvidia-smi reports no GPU.", file=sys.stderr)  # noqa: T201
        return EXIT_USAGE
    try:
        cases, left_out = chosen(arguments.names, max(len(found), 1))
    except KeyError as error:
        known = ", ".join(case.name for case in CASES)
        print(f"gpu-check: no check {error}; there are: {known}", file=sys.stderr)  # noqa: T201
        return EXIT_USAGE
    until = time.monotonic() + arguments.limit_s
    outcomes = [_outcome(case, arguments.model, until) for case in cases]
    outcomes += [Outcome(case.name, case.says, "skipped", 0.0, why) for case, why in left_out]
    record = as_json(outcomes, {"gpus": found, "versions": versions()})
    arguments.report.mkdir(parents=True, exist_ok=True)
    (arguments.report / "gpu-check.json").write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    (arguments.report / "gpu-check.md").write_text(as_markdown(record), "utf-8")
    print(as_markdown(record))  # noqa: T201
    return 0 if record["ok"] else EXIT_FAILED


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu-check", description="First contact with a GPU.")
    parser.add_argument("names", nargs="*", help="checks to run; none = all")
    parser.add_argument("--model", default="builtin:tiny-calc", help="model folder to boot")
    parser.add_argument("--report", type=Path, default=Path("build"), help="folder of the report")
    parser.add_argument("--limit-s", type=float, default=ENOUGH_S, help="begin no check after this")
    parser.add_argument(
        "--without-gpu", action="store_true", help="run on the CPU, to try the checks themselves"
    )
    return parser.parse_args()


def _outcome(case: Case, model: str, until: float) -> Outcome:
    if time.monotonic() >= until:
        return Outcome(case.name, case.says, "skipped", 0.0, "no time was left")
    print(f"gpu-check: {case.name} ...", file=sys.stderr, flush=True)  # noqa: T201
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "swarm.testing.gpu_check.probe", case.name, model, folder]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=case.timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return Outcome(case.name, case.says, "timeout", case.timeout_s, "it took too long")
    seconds = time.monotonic() - began
    try:
        findings = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        last = " ".join(done.stderr.strip().splitlines()[-3:])
        return Outcome(case.name, case.says, "failed", seconds, last)
    bad = [finding["name"] for finding in findings if not finding["ok"]]
    told = ", ".join(bad) or next((f["detail"] for f in findings if f["detail"]), "")
    return Outcome(case.name, case.says, "failed" if bad else "ok", seconds, told, findings)


if __name__ == "__main__":
    sys.exit(main())
