"""schemathesis on the OpenAPI document: whatever is sent, no answer is a server error."""

from __future__ import annotations

import re

from conformance.outcome import Outcome, Say, Verdict
from conformance.packages import NotInstalled, python_environment
from conformance.rig import Rig, evidence, program_environ, run_program
from conformance.scenario import said_by_name

GROUP = "fuzzing"
BUDGET_S = 420.0
NEVER_ENDS = "/swarm/events"
ENGINE = "/swarm/engine/(start|stop)$"
"""Left out: without an engine the right answer to everything else is 503."""
SETTINGS = "/swarm/(config|controller)$"
"""Comes last: whoever holds the controller's lease keeps all others out."""


def check_fuzzing(rig: Rig, only: set[str], say: Say) -> None:
    """Fuzz the routes of agents with an episode's key, then all others with the admin token."""
    if only and GROUP not in only:
        return
    try:
        environment = python_environment("schemathesis", ("schemathesis",))
    except NotInstalled as error:
        say(Outcome(GROUP, "schemathesis", Verdict.MISSING, "schemathesis", str(error)))
        return
    rig.model.scenario = said_by_name
    with rig.client.episode("fuzz", kind="eval") as episode:
        agents = [*_bearer(episode.api_key), "--include-path-regex", "^(/v1|/e)/"]
        say(_fuzz(rig, str(environment.python), environment.versions, "routes of agents", agents))
    control = [
        *_bearer(rig.server.tokens.admin),
        *("--include-path-regex", "^/(swarm|health|metrics)"),
        *("--exclude-path-regex", f"{NEVER_ENDS}|{ENGINE}|{SETTINGS}"),
    ]
    settings = [*_bearer(rig.server.tokens.admin), "--include-path-regex", SETTINGS]
    for name, selection in (("control routes", control), ("settings", settings)):
        say(_fuzz(rig, str(environment.python), environment.versions, name, selection))


def _bearer(key: str) -> list[str]:
    return ["--header", f"Authorization: Bearer {key}"]


def _fuzz(rig: Rig, python: str, versions: str, name: str, selection: list[str]) -> Outcome:
    command = [
        *(python, "-m", "schemathesis.cli", "run", f"{rig.server.url}/openapi.json"),
        *(
            "--checks",
            "not_a_server_error",
            "--max-examples",
            "20",
            "--phases",
            "examples,coverage,fuzzing",
        ),
        *("--request-timeout", "20", "--suppress-health-check", "all", "--warnings", "off"),
        *("--continue-on-failure", "--max-time", "120", "--seed", "1", "--no-color"),
        *selection,
    ]
    code, output = run_program(command, program_environ(rig.folder), BUDGET_S, rig.folder)
    cases = re.search(r"(\d+) generated", output)
    problems = _findings(output)
    if code not in (0, 1) or cases is None:
        problems.append(f"exit {code}: {output.strip()[-200:]}")
    if not problems:
        return Outcome(GROUP, name, Verdict.PASSED, versions, f"{cases[1] if cases else 0} cases")
    evidence(f"fuzz-{name}.log", output)
    return Outcome(GROUP, name, Verdict.FAILED, versions, "; ".join(problems))


def _findings(output: str) -> list[str]:
    """Return the operations that a server error (or no answer) was found for.

    A request that asks to be held by ``wait_s`` may outlast the client's patience; that is no finding.
    """
    parts = re.split(r"^_{4,} (.+?) _{4,}$", output, flags=re.MULTILINE)
    blocks = zip(parts[1::2], parts[2::2], strict=False)
    return [
        f"{operation}: {'server error' if 'Server error' in block else 'no answer'}"
        for operation, block in blocks
        if "Server error" in block or ("Network Error" in block and "wait_s" not in block)
    ]
