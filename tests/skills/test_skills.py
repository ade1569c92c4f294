"""Skills say only what is true: front matter by the format, commands that exist, code that runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from swarm.client import SwarmClient
from swarm.testing.server_process import server_process

ROOT = Path(__file__).parents[2]
SKILLS = sorted((ROOT / "skills").glob("*/SKILL.md"))
ENTRY = {"a3r": "from a3r.cli import main; main()", "swarm": "from swarm.cli import main; main()"}


def front_matter(skill):
    _, head, body = skill.read_text(encoding="utf-8").split("---\n", 2)
    return YAML(typ="safe").load(head), body


def quoted_commands():
    for skill in SKILLS:
        yield from re.findall(r"`((?:a3r|swarm) [^`]*--help)`", skill.read_text(encoding="utf-8"))


@pytest.mark.parametrize("skill", SKILLS, ids=lambda p: p.parent.name)
def test_front_matter_names_the_folder_and_says_when_to_use_it(skill):
    head, body = front_matter(skill)
    assert head["name"] == skill.parent.name
    assert "Use when" in head["description"]
    assert len(head["description"]) <= 1024
    assert len(body.splitlines()) < 300


@pytest.mark.parametrize("command", sorted(set(quoted_commands())))
def test_every_quoted_command_answers_help(command):
    program, *arguments = shlex.split(command)
    done = subprocess.run(
        [sys.executable, "-c", ENTRY[program], *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout


@pytest.mark.parametrize("skill", SKILLS, ids=lambda p: p.parent.name)
def test_every_named_file_exists(skill):
    text = skill.read_text(encoding="utf-8")
    paths = re.findall(r"`((?:examples|swarm|campaigns|a3r)/[\w/.]+)`", text)
    assert paths
    assert [p for p in paths if not (ROOT / p).exists()] == []


def test_the_client_in_the_skill_trains(tmp_path):
    skill = ROOT / "skills/write-swarm-client/SKILL.md"
    (code,) = re.findall(r"```python\n(.*?)```", skill.read_text(encoding="utf-8"), re.S)
    with server_process(tmp_path / "state") as server:
        code = code.replace('"http://127.0.0.1:8377"', repr(server.url))
        code = code.replace('"stop_at_step": 20', '"stop_at_step": 2')
        scope = {"token": server.token()}
        exec(compile(code, str(skill), "exec"), scope)
        with SwarmClient(server.url, server.token()) as client:
            status = client.status()
    assert status.state == "TRAINED"
    assert scope["summary"].finished == 2 * 8 * 4
