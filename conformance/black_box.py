"""``swarm exec``: a program that was told nothing but environment variables is trained."""

from __future__ import annotations

import json
import sys

from conformance.outcome import Outcome, Say, Verdict
from conformance.rig import AGENTS, Rig, program_environ, run_program
from conformance.scenario import plain_calls
from conformance.tree import ONE_TREE, differences, tree_of

GROUP = "exec"
REWARDS = ("1.0", "0.0")
"""Two episodes make a group; their rewards must differ, or there is nothing to learn."""


def check_exec(rig: Rig, only: set[str], say: Say) -> None:
    """Run one group of two episodes through the command, and see that the step trained every token of them."""
    if only and GROUP not in only:
        return
    problems = _problems(rig)
    verdict = Verdict.FAILED if problems else Verdict.PASSED
    name = "swarm exec trains a program by its environment alone"
    say(Outcome(GROUP, name, verdict, "this repository", "; ".join(problems)))


def _problems(rig: Rig) -> list[str]:
    rig.model.scenario = plain_calls
    step = rig.client.status().step
    episodes: list[str] = []
    for reward in REWARDS:
        code, output = _exec(rig, reward)
        last = output.strip().splitlines()[-1] if output.strip() else ""
        if code != 0 or not last.startswith("{"):
            return [f"exit {code}: {output[-300:]}"]
        episodes.append(json.loads(last)["episode_id"])
    rig.client.wait_step(step, timeout_s=60)
    problems: list[str] = []
    for episode in episodes:
        problems += differences(tree_of(rig.client.trace(episode)), ONE_TREE)
    return problems + rig.untrained(episodes)


def _exec(rig: Rig, reward: str) -> tuple[int, str]:
    program = [sys.executable, str(AGENTS / "black_box.py"), reward]
    command = [sys.executable, "-m", "swarm.cli", "exec", "--task-id", "black-box", "--json"]
    environ = program_environ(rig.folder) | {
        "SWARM_URL": rig.server.url,
        "SWARM_TOKEN": rig.server.tokens.client,
    }
    return run_program([*command, "--", *program], environ, 120, rig.folder)
