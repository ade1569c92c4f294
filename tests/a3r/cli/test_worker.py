"""`a3r worker start` and `token` refuse what cannot be meant before they do anything."""

import stat
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "gpu3.token"
    path.write_text("a-token")
    return path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--hub", "ftp://hub"], "no address of a hub"),
        (["--hub", "127.0.0.1:8443"], "no address of a hub"),
        (["--hub", "http://hub.example.org:8443"], "clear text"),
        (["--hub", "https://hub:1", "--ca-file", "nowhere.pem"], "no certificate"),
        (["--hub", "https://hub:1", "--ca-file", "TOKEN"], "no certificate"),
        (["--hub", "https://hub:1", "--gpus", "3-0"], "--gpus"),
    ],
)
def test_a_hub_that_cannot_be_dialled_is_refused_at_once(
    a3r: Any, project: Path, token_file: Path, options: list[str], said: str
) -> None:
    given = [str(token_file) if o == "TOKEN" else o for o in options]
    refused = a3r("worker", "start", "--token-file", str(token_file), "--workspace", "far", *given)
    assert refused.code == 2
    assert said in refused.err
    assert "hint:" in refused.err
    assert "a-token" not in refused.err


@pytest.mark.parametrize(
    ("name", "to"),
    [("a b", "x.token"), ("a/b", "x.token"), ("gpu1", "nowhere/x.token"), ("gpu1", ".")],
)
def test_no_token_is_made_that_nobody_gets(
    a3r: Any, workspace: Any, project: Path, name: str, to: str
) -> None:
    refused = a3r("worker", "token", name, "--to", to)
    assert refused.code == 2
    assert "hint:" in refused.err
    assert not (project / "x.token").exists()
    # The name is free, and no daemon was needed to say so.
    assert not (workspace.daemon / "ready.json").exists()


def test_a_token_that_could_not_be_written_is_taken_back(
    a3r: Any, workspace: Any, project: Path, tmp_path: Path
) -> None:
    file = tmp_path / "gpu1.token"
    too_long = tmp_path / ("x" * 250)  # its draft's name is longer than a file system takes
    refused = a3r("worker", "token", "gpu1", "--to", str(too_long))
    assert refused.code == 2
    assert "No token was made" in refused.err
    assert a3r("worker", "token", "gpu1", "--to", str(file)).code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
