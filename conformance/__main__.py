"""``python -m conformance [NAME ...]``: run the outside checks (or those named), print a line each, write the report."""

from __future__ import annotations

import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from conformance.black_box import check_exec
from conformance.clis import check_clis
from conformance.frameworks import check_frameworks
from conformance.fuzz import check_fuzzing
from conformance.outcome import Outcome, Verdict
from conformance.packages import ROOT
from conformance.report import failures, write_report
from conformance.rig import open_rig
from conformance.sdks import check_sdks


def main(names: list[str]) -> int:
    """Return 1 when something that could be installed failed, else 0."""
    outcomes: list[Outcome] = []
    shutil.rmtree(ROOT / "failed", ignore_errors=True)

    def say(outcome: Outcome) -> None:
        outcomes.append(outcome)
        print(outcome.line(), flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="conformance-") as folder,
        open_rig(Path(folder)) as rig,
    ):
        for check in (check_sdks, check_frameworks, check_exec, check_clis, check_fuzzing):
            try:
                check(rig, set(names), say)
            except Exception as error:
                traceback.print_exc()
                say(
                    Outcome("runner", check.__name__, Verdict.FAILED, "this repository", str(error))
                )
    if not names:
        write_report(outcomes)
    failed, missing = failures(outcomes), sum(o.verdict is Verdict.MISSING for o in outcomes)
    passed = len(outcomes) - failed - missing
    print(f"{passed} passed, {failed} failed, {missing} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
