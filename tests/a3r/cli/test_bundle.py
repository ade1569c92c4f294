"""``campaign export``, ``campaign verify FILE`` and ``campaign show --trace`` as a person types them."""

from pathlib import Path
from typing import Any

from a3r.core.types import ReviewMode
from a3r.core.workspace import Workspace
from a3r.store.store import Store
from a3r.testing.stored import StoredCampaign, blueprint


def study(workspace: Workspace) -> str:
    """A campaign under way, one run done; returns its id."""
    from a3r.blueprints.artifact import pack_tree
    from a3r.core.hashing import tree_hash

    client = workspace.project / "client"
    client.mkdir()
    (client / "client.py").write_text("print('hello')\n")
    with Store.open(workspace.database) as store:
        made = StoredCampaign(store, store.put_artifact(pack_tree(client)))
        (row,) = made.stage("coarse", [blueprint(4, (1,), tree_hash(client))])
        (run,) = store.ensure_runs(row.id)
        made.succeed(run.id, run.seed, 8)
        return made.id


def test_export_makes_one_file_that_verifies_where_there_is_no_workspace(
    a3r: Any, workspace: Workspace, tmp_path: Path, monkeypatch: Any
) -> None:
    campaign = study(workspace)
    file = tmp_path / "so far.tar.gz"
    made = a3r("campaign", "export", campaign[:6], "--to", str(file), "--json")
    assert (made.code, made.json["campaign"], made.json["cut_logs"]) == (0, campaign, [])
    again = a3r("campaign", "export", campaign, "--to", str(file), "--json")
    assert (again.code, again.json["error"]["code"]) == (3, "conflict")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.delenv("A3R_HOME", raising=False)
    told = a3r("campaign", "verify", str(file), "--json")
    assert (told.code, told.json["level"]) == (0, "self-consistent")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    torn = a3r("campaign", "verify", str(file), "--json")
    assert (torn.code, torn.json["error"]["code"]) == (5, "verification_failed")


def test_trace_is_told_without_a_daemon(a3r: Any, workspace: Workspace) -> None:
    campaign = study(workspace)
    told = a3r("campaign", "show", campaign, "--trace")
    assert told.code == 0
    assert "campaign started" in told.out
    assert "gain +0.600" in told.out
    lines = a3r("campaign", "show", campaign, "--trace", "--json").json["trace"]
    assert [x["at"] for x in lines] == sorted(x["at"] for x in lines)
    assert a3r("campaign", "show", "nobody", "--trace").code == 2


def test_trace_of_a_goal_that_nobody_has_read_yet(a3r: Any, workspace: Workspace) -> None:
    with Store.open(workspace.database) as store:
        store.create_campaign("prose", "Find out.", "/g", {}, ReviewMode.NONE, "llm", 1.0)
    told = a3r("campaign", "show", "prose", "--trace")
    assert (told.code, "campaign started" in told.out) == (0, True)
