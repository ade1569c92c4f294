from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.protocol.errors import AuthError, ConfigError
from swarm.server.keys import KEY_PREFIX, EpisodeKeys, KeyHolder, Power, Tokens

KEYS = EpisodeKeys("a signing secret")
KEY = KEYS.sign("ep-1", 1000.0)


def test_minted_tokens_are_kept_private_and_read_back(tmp_path: Path) -> None:
    minted = Tokens.load(tmp_path / "state")
    file = tmp_path / "state" / "tokens.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text()) == {
        "admin": minted.admin,
        "client": minted.client,
        "eval": minted.eval,
        "signing": minted.signing,
    }
    assert Tokens.load(tmp_path / "state") == minted
    assert [p.name for p in file.parent.iterdir()] == ["tokens.json"]


def test_each_token_carries_its_power_and_the_signing_secret_none() -> None:
    tokens = Tokens.mint()
    assert tokens.power_of(tokens.admin) is Power.ADMIN
    assert tokens.power_of(tokens.client) is Power.CLIENT
    assert tokens.power_of(tokens.eval) is Power.EVAL
    for wrong in (tokens.signing, "", None, "é", tokens.admin[:-1]):
        with pytest.raises(AuthError) as caught:
            tokens.power_of(wrong)
        assert not wrong or wrong not in str(caught.value)


def test_tokens_do_not_show_in_their_repr() -> None:
    tokens = Tokens.mint()
    assert tokens.admin not in repr(tokens)
    assert tokens.signing not in repr(tokens)


@pytest.mark.parametrize(
    "body", ["", "[]", '{"admin": "a"}', '{"admin":"","client":"c","eval":"e","signing":"s"}']
)
def test_a_damaged_token_file_is_refused_and_left_as_it_is(tmp_path: Path, body: str) -> None:
    file = tmp_path / "tokens.json"
    file.write_text(body)
    with pytest.raises(ConfigError) as caught:
        Tokens.load(tmp_path)
    assert "delete" in caught.value.hint
    assert file.read_text() == body


def test_a_key_opens_its_episode_until_it_expires() -> None:
    assert KEY.startswith(KEY_PREFIX)
    assert KEYS.verify(KEY, 999.9) == KeyHolder("ep-1")
    with pytest.raises(AuthError, match="expired"):
        KEYS.verify(KEY, 1000.0)
    assert KEYS.verify(KEY, 0.0) == KeyHolder("ep-1")  # the clock is the caller's


@given(st.integers(0, len(KEY) - 1), st.sampled_from("AZaz09-_.~"))
def test_a_key_with_any_character_changed_is_refused_without_being_quoted(
    position: int, letter: str
) -> None:
    changed = KEY[:position] + letter + KEY[position + 1 :]
    if changed == KEY:
        return
    with pytest.raises(AuthError) as caught:
        KEYS.verify(changed, 0.0)
    assert changed not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "key", ["", KEY_PREFIX, "sk-other", KEY[:-5], KEY.removeprefix(KEY_PREFIX), KEY + "x"]
)
def test_what_is_not_a_key_is_refused(key: str) -> None:
    with pytest.raises(AuthError):
        KEYS.verify(key, 0.0)


def test_a_key_of_another_server_is_refused() -> None:
    with pytest.raises(AuthError):
        EpisodeKeys("another secret").verify(KEY, 0.0)


def test_a_key_may_name_an_agent_and_cannot_be_turned_into_another_agents() -> None:
    seer = KEYS.sign("ep-1", 1000.0, "seer")
    assert EpisodeKeys("a signing secret").verify(seer, 0.0) == KeyHolder("ep-1", "seer")
    assert seer != KEY
    wolf = KEYS.sign("ep-1", 1000.0, "wolf")
    forged = wolf.partition(".")[0] + "." + seer.partition(".")[2]
    with pytest.raises(AuthError):
        KEYS.verify(forged, 0.0)
