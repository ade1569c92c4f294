"""Coding CLIs from npm: each completes a scripted session that writes a file with its shell tool, and the trace trains."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from conformance.outcome import Outcome, Say, Verdict
from conformance.packages import NotInstalled, npm_package
from conformance.rig import Ran, Rig, keep_evidence
from conformance.scenario import Scenario, call
from conformance.tree import broken_ids, tree_of

GROUP = "coding CLIs"
ASK = "Write the word hello into made.txt."
SHELL = "echo hello > made.txt; echo $((7000+731))"
PROOF = "7731"
"""What the shell prints; nothing else in a prompt says it."""
SPEAKS, ENDS = "Writing é.", "Done ✓."
SESSION_S = 150.0


@dataclass(frozen=True, slots=True)
class CodingCLI:
    """One package, how it is pointed at a server, and how its shell tool is called."""

    package: str
    command: Callable[[Path], list[str]]
    """Folder of commands -> what to run."""
    prepare: Callable[[Path, str], dict[str, str]]
    """Work folder and base URL -> variables; writes the settings that its user would write."""
    shell_call: str
    dialect: str


def _opencode(work: Path, base_url: str) -> dict[str, str]:
    options = {"baseURL": base_url, "apiKey": "{env:OPENAI_API_KEY}"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": {}}}
    settings = {
        "provider": {"swarm": provider},
        "model": "swarm/m",
        "autoupdate": False,
        "share": "disabled",
        "permission": {"bash": "allow"},
    }
    (work / "opencode.json").write_text(json.dumps(settings))
    return {}


def _codex(work: Path, base_url: str) -> dict[str, str]:
    home = work.parent / f"{work.name}-codex"
    home.mkdir()
    (home / "config.toml").write_text(
        'model = "m"\nmodel_provider = "swarm"\napproval_policy = "never"\n'
        'sandbox_mode = "danger-full-access"\n[model_providers.swarm]\nname = "swarm"\n'
        f'base_url = "{base_url}"\nenv_key = "OPENAI_API_KEY"\nwire_api = "responses"\n'
    )
    return {"CODEX_HOME": str(home)}


CLIS = (
    CodingCLI(
        "opencode-ai",
        lambda folder: [str(folder / "opencode"), "run", ASK],
        _opencode,
        call("bash", command=SHELL, description="Writes the file"),
        "chat",
    ),
    CodingCLI(
        "@openai/codex",
        lambda folder: [str(folder / "codex"), "exec", "--skip-git-repo-check", ASK],
        _codex,
        call("exec_command", cmd=SHELL),
        "responses",
    ),
)


def check_clis(rig: Rig, only: set[str], say: Say) -> None:
    """Run every CLI (or the one named in ``only``) in a group of two episodes."""
    for cli in CLIS:
        if not only or cli.package in only or GROUP in only or "clis" in only:
            say(_check(rig, cli))


def _check(rig: Rig, cli: CodingCLI) -> Outcome:
    name = f"{cli.package} ({cli.dialect})"
    try:
        folder, version = npm_package(cli.package)
    except NotInstalled as error:
        return Outcome(GROUP, name, Verdict.MISSING, cli.package, str(error))
    step, episodes, problems = rig.client.status().step, list[str](), list[str]()
    for number, reward in enumerate((1.0, 0.0)):
        work = rig.folder / f"{cli.package.replace('/', '-')}-{number}"
        work.mkdir()
        ran = _session(rig, cli, folder, work, reward)
        episodes.append(ran.trace.episode_id)
        found = _problems(cli, ran, work)
        if found:
            keep_evidence(cli.package.replace("/", "-"), ran)
        problems += found
    if not problems:
        rig.client.wait_step(step, timeout_s=60)
        problems = rig.untrained(episodes)
    verdict = Verdict.FAILED if problems else Verdict.PASSED
    return Outcome(GROUP, name, verdict, f"{cli.package} {version}", "; ".join(problems))


def _session(rig: Rig, cli: CodingCLI, folder: Path, work: Path, reward: float) -> Ran:
    return rig.run(
        cli.command(folder),
        _scenario(cli),
        timeout_s=SESSION_S,
        prepare=lambda base_url: cli.prepare(work, base_url),
        cwd=work,
        reward=reward,
        task=cli.package,
    )


def _scenario(cli: CodingCLI) -> Scenario:
    def answer(prompt: str) -> str:
        if "title generator" in prompt:
            return "Hello file"
        return ENDS if PROOF in prompt else SPEAKS + cli.shell_call

    return answer


def _problems(cli: CodingCLI, ran: Ran, work: Path) -> list[str]:
    problems: list[str] = []
    if ran.returncode != 0:
        problems.append(f"exit {ran.returncode}: {ran.output.strip()[-200:]}")
    made = work / "made.txt"
    if not made.exists() or made.read_text() != "hello\n":
        problems.append("it did not write the file")
    if ENDS not in ran.output:
        problems.append("it did not show the last answer")
    nodes = tree_of(ran.trace)
    asked = [i for i, node in enumerate(nodes) if node.calls]
    ended = [node for node in nodes if node.text == ENDS]
    if len(asked) != 1 or len(ended) != 1 or ended[0].parent != asked[0]:
        problems.append(f"the answer does not continue the call: {nodes}"[:400])
    if any(call.dialect != cli.dialect for call in ran.trace.calls):
        problems.append("it spoke another dialect")
    return problems + broken_ids(ran.trace)
