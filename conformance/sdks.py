"""The official SDKs in strict response mode, on every route and stream. Each check is a line of a program's output."""

from __future__ import annotations

import json

from conformance.outcome import Outcome, Say, Verdict
from conformance.packages import NotInstalled, python_environment
from conformance.rig import AGENTS, Rig, keep_evidence
from conformance.scenario import said_by_name

GROUP = "sdks"


def check_sdks(rig: Rig, only: set[str], say: Say) -> None:
    """Run the checks of both SDKs (or of the one named in ``only``)."""
    for package in ("openai", "anthropic"):
        if not only or package in only or GROUP in only:
            for outcome in _check(rig, package):
                say(outcome)


def _check(rig: Rig, package: str) -> list[Outcome]:
    try:
        environment = python_environment(f"sdk-{package}", (package,))
    except NotInstalled as error:
        return [Outcome(GROUP, package, Verdict.MISSING, package, str(error))]
    script = AGENTS / f"sdk_{package}.py"
    ran = rig.run([str(environment.python), str(script)], said_by_name, timeout_s=240)
    outcomes: list[Outcome] = []
    for line in ran.output.splitlines():
        if not line.startswith('{"check"'):
            continue
        found = json.loads(line)
        verdict = Verdict.FAILED if found["problem"] else Verdict.PASSED
        note = found["problem"]
        outcomes.append(Outcome(GROUP, found["check"], verdict, environment.versions, note))
    if ran.returncode != 0 or not outcomes:
        note = f"exit {ran.returncode}: {ran.output.strip()[-300:]}"
        outcomes.append(Outcome(GROUP, package, Verdict.FAILED, environment.versions, note))
    if any(outcome.verdict is Verdict.FAILED for outcome in outcomes):
        keep_evidence(f"sdk_{package}", ran)
    return outcomes
