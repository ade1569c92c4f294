"""What was captured of an episode, as far as it must not depend on who asked: calls, parents, ends, texts and tool calls."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from conformance.scenario import PRODUCT, SAYS_FIRST, SAYS_LAST
from swarm.protocol.records import CallRecord, EpisodeTrace

Calls = tuple[tuple[str, str], ...]
"""(name, arguments as sorted JSON) of each tool call."""


@dataclass(frozen=True, slots=True)
class Node:
    """One captured call."""

    parent: int | None
    finish_reason: str
    text: str
    calls: Calls = ()


def tree_of(trace: EpisodeTrace) -> list[Node]:
    """Return the calls of an episode in the order of their commitment."""
    return [_node(call) for call in trace.calls]


def _node(record: CallRecord) -> Node:
    calls = tuple(_call(call["function"]) for call in record.reply.get("tool_calls") or ())
    return Node(record.parent, record.finish_reason, record.reply.get("content") or "", calls)


def _call(function: dict[str, Any]) -> tuple[str, str]:
    return function["name"], _sorted(json.loads(function["arguments"]))


def _sorted(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, sort_keys=True)


_ADDS = tuple(("add", _sorted({"a": a, "b": b})) for a, b in ((1701, 2533), (31415, 27182)))
_MULTIPLY = ("multiply", _sorted({"a": 4234, "b": 58597}))
_FINAL = ("final_answer", _sorted({"answer": PRODUCT}))
ONE_TREE = [
    Node(None, "tool_calls", "", _ADDS),
    Node(0, "tool_calls", "", (_MULTIPLY,)),
    Node(1, "stop", SAYS_LAST),
]
"""The tree that every framework must leave behind."""
SPOKEN_TREE = [replace(ONE_TREE[0], text=SAYS_FIRST), *ONE_TREE[1:]]
"""The same where the model speaks beside its calls."""
UNSPOKEN_TREE = [SPOKEN_TREE[0], replace(SPOKEN_TREE[1], parent=None), SPOKEN_TREE[2]]
"""What is left when a framework drops the text beside calls: its history is another one from there on."""
LOOSE_TREE = [
    ONE_TREE[0],
    replace(ONE_TREE[1], parent=None),
    Node(None, "tool_calls", "", (_FINAL,)),
]
"""What is left when a framework tells calls and results as text: no call continues another."""


def differences(found: list[Node], expected: list[Node]) -> list[str]:
    """Return what is different, in words; empty when the trees are equal."""
    if len(found) != len(expected):
        return [f"{len(found)} calls, expected {len(expected)}"]
    return [
        f"call {i}: {name} {getattr(mine, name)!r}, expected {getattr(theirs, name)!r}"
        for i, (mine, theirs) in enumerate(zip(found, expected, strict=True))
        for name in ("parent", "finish_reason", "text", "calls")
        if getattr(mine, name) != getattr(theirs, name)
    ]


def broken_ids(trace: EpisodeTrace) -> list[str]:
    """Return where token ids contradict the tree: a child must begin with its parent's prompt and answer, ids have logprobs."""
    wrong = [
        f"call {call.index}: {len(call.sampled_ids)} ids, {len(call.logprobs)} log-probabilities"
        for call in trace.calls
        if len(call.sampled_ids) != len(call.logprobs)
    ]
    for call in trace.calls:
        if call.parent is None:
            continue
        before = trace.calls[call.parent]
        begin = before.prompt_ids + before.sampled_ids
        if call.prompt_ids[: len(begin)] != begin:
            wrong.append(f"call {call.index} does not begin with call {call.parent}")
    return wrong
