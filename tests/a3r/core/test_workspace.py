"""Finding and making the workspace."""

import re
from pathlib import Path

import pytest

from a3r.core.errors import WorkspaceError
from a3r.core.workspace import Workspace, file_system, find_workspace


def test_the_nearest_workspace_above_is_found(tmp_path: Path) -> None:
    outer, inner = tmp_path / ".a3r", tmp_path / "a b ü" / ".a3r"
    Workspace.create(outer)
    Workspace.create(inner)
    deep = tmp_path / "a b ü" / "c" / "d"
    deep.mkdir(parents=True)
    assert find_workspace(deep, {}).root == inner
    assert find_workspace(tmp_path, {}).root == outer
    assert find_workspace(deep, {}).project == tmp_path / "a b ü"


def test_the_environment_overrides_where_one_stands(tmp_path: Path) -> None:
    Workspace.create(tmp_path / ".a3r")
    Workspace.create(tmp_path / "elsewhere")
    env = {"A3R_HOME": str(tmp_path / "elsewhere")}
    assert find_workspace(tmp_path, env).root == tmp_path / "elsewhere"
    with pytest.raises(WorkspaceError, match="does not exist") as caught:
        find_workspace(tmp_path, {"A3R_HOME": str(tmp_path / "nowhere")})
    assert caught.value.details["missing"] is True


def test_no_workspace_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="no workspace yet") as caught:
        find_workspace(tmp_path, {})
    assert "a3r campaign start" in caught.value.hint


def test_creating_twice_keeps_what_is_there(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / ".a3r")
    workspace.database.write_bytes(b"rows")
    assert Workspace.create(tmp_path / ".a3r") == workspace
    assert workspace.database.read_bytes() == b"rows"
    assert (workspace.root / ".gitignore").read_text() == "*\n"
    assert sorted(p.name for p in workspace.root.iterdir()) == [".gitignore", "a3r.db"]


def test_every_path_lies_inside_the_workspace(tmp_path: Path) -> None:
    w = Workspace(tmp_path / ".a3r")
    inside = [w.database, w.daemon, w.runs, w.worker, w.artifacts, w.logs, w.config]
    assert {p.parent for p in inside} == {w.root}
    assert len({p.name for p in inside}) == len(inside)


def test_a_place_where_nothing_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(WorkspaceError, match=re.escape(str(tmp_path / "file"))) as caught:
        Workspace.create(tmp_path / "file" / ".a3r")
    assert "A3R_HOME" in caught.value.hint


def test_a_pseudo_file_system_takes_no_workspace() -> None:
    with pytest.raises(WorkspaceError, match="cannot be"):
        Workspace.create(Path("/proc/a3r"))


def test_the_file_system_of_a_path_is_told(tmp_path: Path) -> None:
    if not Path("/proc/self/mountinfo").exists():
        pytest.skip("the system does not tell")
    assert file_system(Path("/proc/self")) == "proc"
    assert file_system(tmp_path) not in ("", "proc")
