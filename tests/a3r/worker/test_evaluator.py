import json
from pathlib import Path

import pytest

from a3r.blueprints.tasks import scored_task
from a3r.core.errors import BlueprintError
from a3r.core.hashing import bytes_hash, tree_hash
from a3r.worker.evaluator import EvaluatorSpec, Round, missing, read_played, refusal
from swarm.protocol.records import CallRecord, EpisodeTrace
from swarm.protocol.states import EpisodeKind, EpisodeState
from swarm.tasks import calculator

ITEMS = calculator.held_out(3, 0)


def call(version=0, text="5"):
    return CallRecord(
        index=0,
        policy_version=version,
        messages=[],
        reply={"role": "assistant", "content": text},
        finish_reason="stop",
        prompt_ids=[1],
        sampled_ids=[2],
        logprobs=[-0.1],
        temperature=1.0,
        max_tokens=8,
    )


def trace(**changes):
    base = EpisodeTrace(
        episode_id="e-1",
        kind=EpisodeKind.EVAL,
        state=EpisodeState.FINISHED,
        client_id="c",
        task_set="eval",
        task_id=ITEMS[0].task_id,
        group_id="e0.x",
        repeat_index=0,
        step=0,
        policy_version=0,
        granted_at=0.0,
        calls=[call()],
    )
    return base.model_copy(update=changes)


def why(found, tries=1):
    return refusal(found, ITEMS[0], 0, {c.policy_version for c in found.calls}, tries)


def test_a_complete_episode_of_the_rounds_version_counts():
    assert why(trace()) == ""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"calls": [call(0), call(1)]}, "mixed_versions"),
        ({"calls": [call(1)]}, "mixed_versions"),
        ({"calls": []}, "no_calls"),
        ({"kind": EpisodeKind.TRAIN}, "not_this_item"),
        ({"task_id": ITEMS[1].task_id}, "not_this_item"),
        ({"state": EpisodeState.EXPIRED}, "episode_expired"),
        ({"repeat_index": 1}, "repeated_episode"),
    ],
)
def test_an_episode_that_is_not_the_items_own_in_this_round_is_missing(changes, reason):
    assert why(trace(**changes)) == reason


def test_a_second_episode_counts_after_the_agent_was_asked_twice():
    assert why(trace(repeat_index=1), tries=2) == ""


def test_a_missing_item_has_no_reward_rather_than_zero():
    row = missing(ITEMS[0], "")
    assert (row.reward, row.policy_version, row.reason) == (None, None, "no_episode")


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: {"step": 0, "episodes": rows}])
def test_the_agents_list_is_read_bare_or_wrapped_and_only_its_episode_ids_count(tmp_path, wrap):
    rows = [
        {"item_id": "a", "episode_id": "e-1", "reward": 1.0},
        {"item_id": "b", "episode_id": None, "reason": "TimeoutError"},
        "nonsense",
    ]
    path = tmp_path / "out.json"
    path.write_text(json.dumps(wrap(rows)))
    played = read_played(path, 0)
    assert played.episodes == {"a": "e-1"}
    assert played.reasons["b"] == "TimeoutError"


@pytest.mark.parametrize("text", ["", "{", "3", '{"episodes": 4}'])
def test_a_damaged_list_says_nothing(tmp_path, text):
    path = tmp_path / "out.json"
    path.write_text(text)
    assert read_played(path, 1).episodes == {}


CODE = Path(__file__).parent / "log_tails"
"""Any folder of files stands for the client's code here."""


def spec(tmp_path, **changes):
    task = scored_task("calculator")
    base = EvaluatorSpec(
        url="http://127.0.0.1:1",
        token_file="t",
        round="initial",
        close_gate=True,
        fencing_token=1,
        task="calculator",
        items=3,
        item_seed=0,
        item_set_hash=task.items_hash(ITEMS),
        source_hash=task.source_hash(),
        client_dir=str(CODE),
        client_tree_hash=tree_hash(CODE),
        entry="client.py",
        arguments={},
        seed=1,
        work_dir=str(tmp_path),
        out_file="o",
    )
    return base.model_copy(update=changes)


def test_the_prompts_hold_no_answers(tmp_path):
    found = Round(spec(tmp_path), client=None)
    assert [found.task.prompt(i) for i in found.items] == [
        {"operands": i.payload["operands"]} for i in ITEMS
    ]


def test_the_scoring_code_is_named_by_its_source():
    source = open(calculator.__file__, "rb")  # noqa: PTH123, SIM115
    with source:
        assert scored_task("calculator").source_hash() == bytes_hash(source.read())


@pytest.mark.parametrize("changes", [{"item_set_hash": "0"}, {"source_hash": "0"}, {"items": 4}])
def test_items_or_scoring_code_of_another_blueprint_are_refused(tmp_path, changes):
    with pytest.raises(BlueprintError, match="are not those of the blueprint"):
        Round(spec(tmp_path, **changes), client=None)


def test_an_agent_that_was_changed_after_the_review_is_refused(tmp_path):
    code = tmp_path / "client"
    code.mkdir()
    (code / "client.py").write_text("# as reviewed")
    told = spec(tmp_path, client_dir=str(code), client_tree_hash=tree_hash(code))
    Round(told, client=None)
    (code / "client.py").write_text("# tampered")
    with pytest.raises(BlueprintError, match="changed after the review"):
        Round(told, client=None)


def test_an_unknown_task_is_told_with_the_nearest_name(tmp_path):
    with pytest.raises(BlueprintError, match=r"(?s)'calculater'.*Did you mean 'calculator'"):
        Round(spec(tmp_path, task="calculater"), client=None)


def test_tries_are_counted_across_restarts_of_the_evaluator(tmp_path):
    assert Round(spec(tmp_path), client=None).count_try() == 1
    assert Round(spec(tmp_path), client=None).count_try() == 2
