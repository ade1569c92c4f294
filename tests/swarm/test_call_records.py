"""A record made from values is what pydantic would make of them."""

from __future__ import annotations

import copy
import pickle

from swarm.protocol.records import CallRecord
from swarm.server.call_records import call_record

VALUES = {
    "index": 3,
    "policy_version": 1,
    "messages": [{"role": "user", "content": "1+2"}],
    "reply": {"role": "assistant", "content": "3"},
    "finish_reason": "stop",
    "prompt_ids": [1, 2],
    "sampled_ids": [3],
    "logprobs": [-0.5],
    "temperature": 0.7,
    "max_tokens": 8,
}


def test_a_record_equals_the_validated_one_and_travels_like_it() -> None:
    made, validated = call_record(VALUES), CallRecord(**VALUES)
    assert made == validated
    assert made.model_dump_json() == validated.model_dump_json()
    assert made.model_dump(exclude_unset=True) == validated.model_dump(exclude_unset=True)
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made
    assert made.model_copy(update={"index": 4}).index == 4


def test_records_do_not_share_what_was_set() -> None:
    first, second = call_record(VALUES), call_record(VALUES | {"index": 9})
    first.messages.append({"role": "user", "content": "4"})
    assert (second.index, call_record({}).messages) == (9, [])
