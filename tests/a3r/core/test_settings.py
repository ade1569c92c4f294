"""Where a setting's value comes from."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from a3r.core.errors import WorkspaceError
from a3r.core.settings import Settings, resolve_settings


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text, "utf-8")
    return path


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = _file(tmp_path, "lease_s: 20\nlost_after_s: 1e2\ntick_s: 1\n")
    env = {"A3R_LEASE_S": "30", "A3R_LOST_AFTER_S": "200", "A3R_HOME": "/x", "A3R_NONCE": "n"}
    flags = {"lease_s": 40.0, "slots": None}
    settings = resolve_settings(flags=flags, env=env, file=file)
    assert (settings.lease_s, settings.lost_after_s, settings.tick_s) == (40.0, 200.0, 1.0)
    explained = {key: (value, source) for key, value, source in settings.explain()}
    assert explained["lease_s"] == (40.0, "flag")
    assert explained["lost_after_s"] == (200.0, "A3R_LOST_AFTER_S")
    assert explained["tick_s"] == (1.0, str(file))
    assert explained["slots"] == (None, "default")
    assert [key for key, _, _ in settings.explain()] == list(Settings.model_fields)


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    settings = resolve_settings(file=tmp_path / "missing.yaml")
    assert settings == Settings()
    assert settings.lease_s == 15.0
    assert {source for _, _, source in settings.explain()} == {"default"}
    assert resolve_settings(file=_file(tmp_path, "")) == settings


def test_yaml_words_and_numbers_are_read_as_yaml_1_2(tmp_path: Path) -> None:
    settings = resolve_settings(file=_file(tmp_path, "tick_s: 5e-1\ntmux: false\n"))
    assert (settings.tick_s, settings.tmux) == (0.5, False)
    with pytest.raises(WorkspaceError, match=r"log_level.*'no'"):  # YAML 1.1 would read False
        resolve_settings(file=_file(tmp_path, "log_level: no\n"))


@pytest.mark.parametrize(
    ("given", "words", "hint"),
    [
        ({"flags": {"lease_s": -1}}, "lease_s.*-1.*flag", "config show"),
        ({"env": {"A3R_LOG_LEVEL": "loud"}}, "log_level.*'loud'.*A3R_LOG_LEVEL", "config show"),
        ({"flags": {"leese_s": 1}}, "no setting 'leese_s'", "did you mean 'lease_s'"),
    ],
)
def test_a_bad_value_says_where_it_came_from(given: Any, words: str, hint: str) -> None:
    with pytest.raises(WorkspaceError, match=words) as caught:
        resolve_settings(**given)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("leases: 1\n", "no setting 'leases'"),
        ("- 1\n", "holds no settings"),
        ("a: [1\n", "cannot be read"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(WorkspaceError, match=words) as caught:
        resolve_settings(file=_file(tmp_path, text))
    assert "config.yaml" in caught.value.message


def test_settings_do_not_change_after_they_were_resolved() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        resolve_settings().lease_s = 1.0  # type: ignore[misc]


def test_settings_and_rows_are_known_without_sql_or_yaml() -> None:
    script = (
        "import sys, a3r.core.settings, a3r.core.workspace, a3r.store.rows;"
        "heavy = {'sqlmodel', 'sqlalchemy', 'ruamel.yaml', 'torch'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_setting_is_used_by_something() -> None:
    code = "".join(
        path.read_text("utf-8")
        for path in (Path(__file__).parents[3] / "a3r" / "cli").rglob("*.py")
    )
    unused = [
        key for key in Settings.model_fields if not re.search(rf"\b(settings|given)\.{key}\b", code)
    ]
    assert unused == []
