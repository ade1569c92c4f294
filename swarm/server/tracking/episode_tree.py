"""The calls of one episode as a tree of conversations: which call continues which, and with which ids.

A node is a conversation (tools and template arguments, then messages one by one); calls hang on the node of their
prompt, and the node after their reply remembers that the server sampled it. Not thread-safe; calls of one episode may
overlap in time (prepare, prepare, commit, commit).
"""

from __future__ import annotations

import zlib
from array import array
from dataclasses import dataclass, field
from typing import Any

from swarm.protocol.messages import CallRecord
from swarm.protocol.states import FinishReason
from swarm.server.tracking.render import (
    MessageKey,
    message_key,
    normal_message,
    render_ids,
    render_onto,
    tools_key,
)
from swarm.server.tracking.tokenizer import ChatTokenizer


class _Node:
    """One conversation so far."""

    __slots__ = ("answered", "captured", "children", "prepared")

    def __init__(self) -> None:
        self.children: dict[MessageKey, _Node] = {}
        self.captured: list[int] = []  # calls whose prompt plus reply is this conversation
        self.prepared = 0  # calls with exactly this prompt
        self.answered = False  # one of them sampled something

    def child(self, key: MessageKey) -> _Node:
        node = self.children.get(key)
        if node is None:
            node = self.children[key] = _Node()
        return node


@dataclass(slots=True)
class PreparedPrompt:
    """A prompt ready to be sampled from; hand it back to ``EpisodeTree.commit``."""

    messages: list[dict[str, Any]]
    """As the caller sent them."""
    tools: list[dict[str, Any]]
    prompt_ids: list[int]
    path: str
    """Names this call within its episode by its place in the tree and its prompt, never by timing: ``<index path>-<crc of the ids>``."""
    diverged: bool
    """True when the messages hold something that the server sampled, but the prompt does not extend it."""
    parent: int | None
    """Index of the call that this prompt continues."""
    index_path: str
    """``0.0.1``: the parent's path, then how many calls with the same prompt were prepared before."""
    node: _Node = field(repr=False)


class EpisodeTree:
    """All calls of one episode, in order of commitment in ``calls``."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._roots: dict[bytes, _Node] = {}
        self._paths: list[str] = []
        self._continued: list[int] = []  # calls prepared on top of each call
        self._replies: set[MessageKey] = set()
        self.calls: list[CallRecord] = []
        self.divergences = 0
        """Prepared prompts with ``diverged``."""

    def prepare(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        template_kwargs: dict[str, Any],
    ) -> PreparedPrompt:
        """Find what the conversation continues and build its prompt ids: captured ids, then what is new.

        A prepared prompt that is never committed only leaves a gap in the numbering of same-prompt calls.

        Raises:
            RequestError: messages that the template refuses, or that are not text.
        """
        normals = [normal_message(message) for message in messages]
        keys = [message_key(normal) for normal in normals]
        node, parent, position, diverged = self._walk(tools_key(tools, template_kwargs), keys)
        ids: list[int] | None = None
        if parent is not None:
            call = self.calls[parent]
            captured = call.prompt_ids + call.sampled_ids
            ids = render_onto(self._tokenizer, captured, normals, position, tools, template_kwargs)
            if ids is None:
                parent, diverged = None, True
        if ids is None:
            ids = render_ids(self._tokenizer, normals, tools, template_kwargs)
        prefix = "" if parent is None else f"{self._paths[parent]}."
        index_path = f"{prefix}{node.prepared}"
        node.prepared += 1
        self.divergences += diverged
        if parent is not None:
            self._continued[parent] += 1
        digest = zlib.crc32(array("q", ids).tobytes())
        return PreparedPrompt(
            messages=messages,
            tools=tools,
            prompt_ids=ids,
            path=f"{index_path}-{digest:08x}",
            diverged=diverged,
            parent=parent,
            index_path=index_path,
            node=node,
        )

    def commit(
        self,
        prepared: PreparedPrompt,
        *,
        sampled_ids: list[int],
        logprobs: list[float],
        reply: dict[str, Any],
        finish_reason: str,
        policy_version: int,
        temperature: float,
        max_tokens: int,
        requested: dict[str, Any] | None = None,
    ) -> CallRecord:
        """Record a call under the next index. Call once a prepared prompt.

        An answer without tokens and an aborted one never become parents: nothing can continue them exactly.

        Raises:
            ValueError: not one log-probability a sampled token.
        """
        if len(logprobs) != len(sampled_ids):
            msg = f"{len(sampled_ids)} sampled tokens came with {len(logprobs)} log-probabilities"
            raise ValueError(msg)
        # Built without validation: every value comes from the server itself, and this is on the path of each call.
        record = CallRecord.model_construct(
            index=len(self.calls),
            policy_version=policy_version,
            messages=prepared.messages,
            tools=prepared.tools,
            reply=reply,
            finish_reason=finish_reason,
            prompt_ids=prepared.prompt_ids,
            sampled_ids=sampled_ids,
            logprobs=logprobs,
            temperature=temperature,
            max_tokens=max_tokens,
            requested=requested or {},
        )
        self.calls.append(record)
        self._paths.append(prepared.index_path)
        self._continued.append(0)
        if sampled_ids and finish_reason != FinishReason.ABORT:
            key = message_key(normal_message(reply))
            prepared.node.answered = True
            prepared.node.child(key).captured.append(record.index)
            self._replies.add(key)
        return record

    def _walk(self, root_key: bytes, keys: list[MessageKey]) -> tuple[_Node, int | None, int, bool]:
        """Follow a conversation; return its node, the deepest captured call on the way and its position, and whether it diverged.

        It diverged when the server answered a prompt and the conversation goes on with another assistant message, or
        when a reply of this episode turns up where the server did not give it.
        """
        node = self._roots.get(root_key)
        if node is None:
            node = self._roots[root_key] = _Node()
        parent, position, diverged = None, -1, False
        for i, key in enumerate(keys):
            before, node = node, node.child(key)
            if key[0] != "assistant":
                continue
            if node.captured:
                parent, position, diverged = self._least_continued(node.captured), i, False
            elif before.answered or key in self._replies:
                diverged = True
        return node, parent, position, diverged

    def _least_continued(self, captured: list[int]) -> int:
        """Of calls with equal prompt and reply take the one with fewest continuations, so that n agents in lockstep stay n chains."""
        return min(captured, key=self._continued.__getitem__)
