"""Secrets in what is shown: hidden by value, by the name of their variable, and always when they are ours."""

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.server.keys import EpisodeKeys, Tokens
from swarm.server.redaction import (
    HIDDEN,
    RedactingFormatter,
    Redactor,
    redact_logs,
    secret_variables,
)

TOKENS = Tokens.mint()
SECRET = "hunter2-hunter2"
REDACTOR = Redactor.of_server(TOKENS, {"DB_PASS": SECRET, "PIN": "1234"})


@pytest.mark.parametrize(
    "text",
    [
        f"login with {SECRET} now",
        f"DB_PASS={SECRET}",
        "export PIN=1234",
        'PIN: "1234"',
        '{"PIN": "1234", "x": 1}',
        json.dumps(json.dumps({"PIN": "1234"})),
        "curl -u me:$PIN  PIN='1234'",
        f"Bearer {TOKENS.admin}",
        TOKENS.signing,
    ],
    ids=range(9),  # the texts hold fresh secrets: no name of a test may
)
def test_a_secret_does_not_show(text):
    shown = REDACTOR.text(text)
    assert HIDDEN in shown
    for secret in (SECRET, "1234", TOKENS.admin, TOKENS.signing):
        assert secret not in shown


def test_a_key_of_any_episode_does_not_show():
    key = EpisodeKeys(TOKENS.signing).sign("e1", 1e9, "alice")
    assert REDACTOR.text(f"api_key='{key}'.") == f"api_key='{HIDDEN}'."


def test_what_is_no_secret_stays_the_same_object():
    value = {"messages": [{"role": "user", "content": "call 1234 or set PINS=5"}], "n": 1}
    assert REDACTOR.value(value) is value
    assert REDACTOR.text("PIN") == "PIN"


def test_a_short_value_goes_by_its_name_only():
    assert REDACTOR.text("12345678") == "12345678"
    assert REDACTOR.value({"env": {"PIN": "1234"}}) == {"env": {"PIN": HIDDEN}}


@given(st.text(max_size=30), st.text(max_size=30))
def test_every_token_that_holds_part_of_a_secret_is_hidden(before, after):
    pieces = [*before, *(SECRET[i : i + 3] for i in range(0, len(SECRET), 3)), *after]
    hidden = REDACTOR.hidden(pieces)
    first = len(before)
    assert set(range(first, first + 5)) <= hidden
    shown = "".join(HIDDEN if i in hidden else piece for i, piece in enumerate(pieces))
    assert SECRET not in shown


def test_variables_that_are_called_secret_are_found():
    environment = {"OPENAI_API_KEY": "a", "HF_TOKEN": "b", "KEYBOARD": "c", "PATH": "d"}
    assert secret_variables(environment, ["PATH", "OTHER"]) == {
        "OPENAI_API_KEY": "a",
        "HF_TOKEN": "b",
        "PATH": "d",
        "OTHER": "",
    }


def test_logs_hide_secrets_in_messages_arguments_and_tracebacks():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    known = {one: one.formatter for one in root.handlers}
    try:
        redact_logs(REDACTOR)
        redact_logs(REDACTOR)
        assert not isinstance(handler.formatter.inner, RedactingFormatter)
        log = logging.getLogger("swarm.test_redaction")
        log.warning("it is %s", SECRET)
        try:
            raise ValueError(TOKENS.client)
        except ValueError:
            log.exception("failed")
    finally:
        root.removeHandler(handler)
        for one, formatter in known.items():
            one.setFormatter(formatter)
    text = stream.getvalue()
    assert text.startswith(f"WARNING it is {HIDDEN}\n")
    assert "ValueError" in text
    assert TOKENS.client not in text
