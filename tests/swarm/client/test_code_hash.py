"""The code hash names what decides an agent's rewards, and nothing else."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swarm.client.code_hash import code_hash_of, hash_of_file, source_of


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "reward.py").write_text("def score(x):\n    return x\n")
    (tmp_path / "unrelated.py").write_text("X = 1\n")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text("")
    (tmp_path / "tools" / "web.py").write_text("from . import cache\n")
    (tmp_path / "tools" / "cache.py").write_text("TTL = 1\n")
    (tmp_path / "client.py").write_text(
        "import json\nfrom reward import score\n"
        "def agent(episode, task):\n    from tools import web\n    return score(web)\n"
    )
    return tmp_path


def edit(path: Path) -> None:
    path.write_text(path.read_text() + "# edited\n")


@pytest.mark.parametrize("name", ["client.py", "reward.py", "tools/web.py", "tools/cache.py"])
def test_an_edit_of_what_the_agent_imports_changes_the_hash(project: Path, name: str) -> None:
    before = hash_of_file(project / "client.py")
    edit(project / name)
    assert hash_of_file(project / "client.py") != before


def test_an_edit_of_anything_else_does_not(project: Path) -> None:
    before = hash_of_file(project / "client.py")
    edit(project / "unrelated.py")
    (project / "data.json").write_text("{}")
    assert hash_of_file(project / "client.py") == before
    assert len(before) == 16


def test_the_same_code_elsewhere_has_the_same_hash(project: Path, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("other place ü")
    for path in project.rglob("*.py"):
        copy = other / path.relative_to(project)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    assert hash_of_file(other / "client.py") == hash_of_file(project / "client.py")


def test_a_module_in_a_package_is_hashed_with_its_siblings(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "agent.py").write_text("from pkg.reward import score\nimport pkg.nowhere\n")
    (package / "reward.py").write_text("from pkg import agent\nscore = 1\n")  # a cycle
    before = hash_of_file(package / "agent.py")
    edit(package / "reward.py")
    assert hash_of_file(package / "agent.py") != before


def test_a_file_that_does_not_parse_counts_by_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def (")
    first = hash_of_file(tmp_path / "a.py")
    edit(tmp_path / "a.py")
    assert first != hash_of_file(tmp_path / "a.py")


def wrapped(agent: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(agent)
    def outer(*args: Any) -> Any:
        return agent(*args)

    return outer


def test_the_source_is_found_behind_wrappers(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "def agent(episode, task): ...\n"
        "class Agent:\n    def __call__(self, episode, task): ...\n    def play(self, episode, task): ...\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        import mine  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("mine", None)
    sys.modules["mine"] = mine  # classes find their file through their module
    try:
        agents = [
            mine.agent,
            mine.Agent(),
            mine.Agent().play,
            functools.partial(mine.agent, None),
            wrapped(mine.agent),
        ]
        assert {source_of(agent) for agent in agents} == {path.resolve()}
    finally:
        del sys.modules["mine"]


def test_code_without_a_file_has_no_hash() -> None:
    space: dict[str, Any] = {}
    exec("def agent(episode, task): ...", space)
    assert code_hash_of(space["agent"]) == ""
    assert code_hash_of(len) == ""
