"""What a server says reaches the terminal as text: nothing in it moves a cursor or changes a colour."""

import pytest

from swarm.cli.controller import holder_line
from swarm.cli.debug import trace_lines
from swarm.cli.edge import tell
from swarm.cli.status import render
from swarm.protocol.errors import SwarmError
from swarm.protocol.messages import Status
from swarm.protocol.records import CallRecord, EpisodeTrace
from swarm.protocol.states import EngineState, EpisodeKind, EpisodeState

HOSTILE = "\x1b[31mred\x1b[0m\rover\u202eturned"


def printable(lines) -> bool:
    return all(line.isprintable() for line in lines)


def test_a_status_with_hostile_names_is_shown_as_text():
    status = Status(
        state=EngineState.OFFLINE,
        step=0,
        failure=HOSTILE,
        controller=HOSTILE,
        model=HOSTILE,
        waiting_for=HOSTILE,
        warnings=[HOSTILE],
    )
    lines = render(status)
    assert printable(lines)
    assert sum("\\x1b[31mred" in line for line in lines) == 5


def test_a_hostile_holder_of_the_controller_lease_is_shown_as_text():
    assert holder_line("") == "Nobody."
    assert holder_line(HOSTILE).isprintable()


def test_what_a_model_and_its_tools_wrote_is_shown_as_text_with_its_line_ends():
    call = CallRecord(
        index=0,
        policy_version=0,
        messages=[{"role": HOSTILE, "content": f"one\ntwo {HOSTILE}"}],
        reply={"role": "assistant", "content": HOSTILE},
        finish_reason="stop",
        prompt_ids=[1],
        sampled_ids=[2],
        logprobs=[0.0],
        temperature=1.0,
        max_tokens=1,
    )
    trace = EpisodeTrace(
        episode_id="ep-1",
        kind=EpisodeKind.EVAL,
        state=EpisodeState.FINISHED,
        client_id="c",
        task_set="debug",
        task_id=HOSTILE,
        group_id="g",
        repeat_index=0,
        step=0,
        policy_version=0,
        granted_at=0.0,
        calls=[call],
        metrics={HOSTILE: 1.0},
    )
    text = trace_lines(trace)
    assert printable(text.split("\n"))
    assert "one\ntwo" in text


@pytest.mark.parametrize("as_json", [False, True])
def test_a_hostile_error_is_told_as_text(capsys, as_json):
    tell(SwarmError(HOSTILE, hint=HOSTILE), as_json=as_json)
    out, err = capsys.readouterr()
    assert printable((out + err).split("\n"))
