"""Records of calls, made from values that come from the server itself: nothing is validated, every default is in place.

One is made for each call of each agent; pydantic's own ways cost two (``model_copy``) to fifty (``model_construct``) times as much.
"""

from __future__ import annotations

from typing import Any

from swarm.protocol.records import CallRecord

_BLANK: dict[str, Any] = dict(
    CallRecord(
        index=0,
        policy_version=0,
        messages=[],
        reply={},
        finish_reason="",
        prompt_ids=[],
        sampled_ids=[],
        logprobs=[],
        temperature=1.0,
        max_tokens=0,
    ).__dict__
)
_set = object.__setattr__


def call_record(values: dict[str, Any]) -> CallRecord:
    """Return the record of ``values``, by field name; others have their defaults, whose empty lists are shared and never changed."""
    record = CallRecord.__new__(CallRecord)
    # What pydantic documents of an instance, as its ``model_construct`` fills it in.
    _set(record, "__dict__", _BLANK | values)
    _set(record, "__pydantic_fields_set__", set(values))
    _set(record, "__pydantic_extra__", None)
    _set(record, "__pydantic_private__", None)
    return record
