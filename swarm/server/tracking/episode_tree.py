"""The calls of one episode as a tree of conversations: which call continues which, and with which ids.

A node is a conversation of one agent (tools and template arguments, then messages one by one); calls hang on the node of
their prompt, and the node after their reply remembers that the server sampled it. Not thread-safe; calls of one episode may
overlap in time (prepare, prepare, commit, commit).
"""

from __future__ import annotations

import zlib
from array import array
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from swarm.protocol.errors import RequestError
from swarm.protocol.records import CallRecord
from swarm.server.call_records import call_record
from swarm.server.pictures.intake import Picture
from swarm.server.pictures.parts import digests
from swarm.server.tracking.merge import goes_on
from swarm.server.tracking.render import (
    MessageKey,
    Rendered,
    message_key,
    normal_message,
    render_ids,
    render_onto,
    tools_key,
)
from swarm.server.tracking.tokenizer import ChatTokenizer

PROMPT_ROLE = "prompt"
"""Role of the only message of a bare prompt; no chat message has it."""
BARE = b"bare prompt"
"""Root of the conversations of bare prompts."""


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
    """Names this call within its episode by its place in the tree and its prompt, never by timing: ``<index path>-<crc of the ids>``,
    for an agent of several ``<agent>~<index path>-<crc of the ids>``."""
    diverged: bool
    """True when the messages hold something that the server sampled, but the prompt does not extend it."""
    parent: int | None
    """Index of the call that this prompt continues."""
    index_path: str
    """``0.0.1``: the parent's path, then how many calls with the same prompt were prepared before."""
    node: _Node = field(repr=False)
    agent: str = ""
    guarded: int = 0
    """Control tokens that messages spelled, in what was rendered for this prompt."""
    begun: str = ""
    """Text of the assistant's that the answer continues; message and answer are one conversation step."""
    pictures: list[str] = field(default_factory=list[str])
    """Digest of the picture behind each image token of the prompt, in order."""


class _Found(NamedTuple):
    """What a conversation continues, and its prompt."""

    rendered: Rendered
    node: _Node
    parent: int | None
    diverged: bool


class EpisodeTree:
    """All calls of one episode, in order of commitment in ``calls``."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._roots: dict[tuple[str, bytes], _Node] = {}
        self._paths: list[str] = []
        self._continued: list[int] = []  # calls prepared on top of each call
        self._replies: set[tuple[str, MessageKey]] = set()
        self.calls: list[CallRecord] = []
        self.divergences = 0
        """Prepared prompts with ``diverged``."""
        self.pictures: dict[str, Picture] = {}
        """Of the calls, by digest; put in by whoever commits, and taken out once they are journaled."""

    def prepare(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        template_kwargs: dict[str, Any],
        agent: str = "",
        *,
        continue_final: bool = False,
    ) -> PreparedPrompt:
        """Find what the conversation continues and build its prompt ids: captured ids, then what is new.

        Each agent continues only its own calls. What another agent said is text to it.
        A prepared prompt that is never committed only leaves a gap in the numbering of same-prompt calls.

        Raises:
            RequestError: messages that the template refuses, or that are not text.
        """
        found = self._find(messages, tools, template_kwargs, agent, continue_final=continue_final)
        begun = normal_message(messages[-1])["content"] if continue_final else ""
        return self._place(messages, tools, found, agent, begun)

    def again(self, prepared: PreparedPrompt) -> PreparedPrompt:
        """Prepare the same prompt once more, for another answer to it; nothing is rendered."""
        found = _Found(
            Rendered(prepared.prompt_ids, 0), prepared.node, prepared.parent, prepared.diverged
        )
        return self._place(prepared.messages, prepared.tools, found, prepared.agent, prepared.begun)

    def prompt_ids(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        template_kwargs: dict[str, Any],
        agent: str = "",
        *,
        continue_final: bool = False,
    ) -> list[int]:
        """Return the ids that ``prepare`` would give, without preparing: later prompts are named as if nobody had asked."""
        found = self._find(messages, tools, template_kwargs, agent, continue_final=continue_final)
        return found.rendered.ids

    def _find(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        template_kwargs: dict[str, Any],
        agent: str,
        *,
        continue_final: bool,
    ) -> _Found:
        normals = [normal_message(message) for message in messages]
        before = normals[:-1] if continue_final else normals
        root = (agent, tools_key(tools, template_kwargs))
        node, parent, position, diverged = self._walk(root, before)
        if continue_final:
            whole = self._whole_answer(node, normals[-1])
            if whole is not None:
                return self._going_on(node, whole)
        rendered: Rendered | None = None
        if parent is not None:
            captured = self._captured(parent)
            rendered = render_onto(
                self._tokenizer,
                captured,
                normals,
                position,
                tools,
                template_kwargs,
                open_end=continue_final,
            )
            if rendered is None:
                parent, diverged = None, True
        if rendered is None:
            rendered = render_ids(
                self._tokenizer, normals, tools, template_kwargs, open_end=continue_final
            )
        return _Found(rendered, node, parent, diverged)

    def _whole_answer(self, node: _Node, said: dict[str, Any]) -> CallRecord | None:
        """Return the call whose sampled text is exactly ``said``, so that its ids can go on as they are."""
        child = node.children.get(message_key(said))
        for index in child.captured if child is not None else ():
            call = self.calls[index]
            if self._tokenizer.answer_text(call.sampled_ids) == said["content"]:
                return call
        return None

    def _going_on(self, node: _Node, call: CallRecord) -> _Found:
        """Go on inside an answer; the end token that it may have had is taken back."""
        ids, ended = self._captured(call.index), call.sampled_ids[-1] in self._tokenizer.eos_texts
        rendered = Rendered(ids[:-1] if ended else ids, 0)
        return _Found(rendered, node, None if ended else call.index, diverged=False)

    def _captured(self, index: int) -> list[int]:
        call = self.calls[index]
        return call.prompt_ids + call.sampled_ids

    def prepare_text(self, prompt: str | list[int], agent: str = "") -> PreparedPrompt:
        """Take a bare prompt: its text as it stands (no template), or ids as they are.

        A text that begins with an earlier prompt of the episode and the answer to it goes on from the captured ids.

        Raises:
            RequestError: it holds the model's image token.
        """
        if isinstance(prompt, str):
            text = prompt
            parent, ids = self._continued_text(text, agent)
        else:
            text = self._tokenizer.decode(prompt)
            parent, ids = None, list(prompt)
        image_token = self._tokenizer.image_token
        if image_token is not None and image_token in ids:
            raise RequestError(
                "a bare prompt cannot hold the token that stands for a picture",
                hint="send pictures in the messages of a chat",
            )
        message = {"role": PROMPT_ROLE, "content": text}
        root = self._roots.setdefault((agent, BARE), _Node())
        node = root.child((PROMPT_ROLE, text, ()))
        found = _Found(Rendered(ids, 0), node, parent, diverged=False)
        return self._place([message], [], found, agent)

    def text_ids(self, prompt: str | list[int], agent: str = "") -> list[int]:
        """Return the ids of a bare prompt without preparing it."""
        return self._continued_text(prompt, agent)[1] if isinstance(prompt, str) else list(prompt)

    def _continued_text(self, text: str, agent: str) -> tuple[int | None, list[int]]:
        """Return the bare call with the longest text that ``text`` goes on from, and the ids.

        Nothing is added that the text does not have: an end token that was sampled is left out, and the prompt then is no
        continuation of that call's row.
        """
        best, length, captured = None, 0, list[int]()
        for call in self.calls:
            if call.agent != agent or not self._is_bare_parent(call):
                continue
            ended = call.sampled_ids[-1] in self._tokenizer.eos_texts
            # All of what was sampled: an answer that was cut at a stop string goes on after it.
            known = call.messages[0]["content"] + self._tokenizer.answer_text(call.sampled_ids)
            if length < len(known) < len(text) and text.startswith(known):
                best, length = None if ended else call.index, len(known)
                captured = call.prompt_ids + call.sampled_ids[: -1 if ended else None]
        return best, captured + self._tokenizer.encode(text[length:])

    def _place(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        found: _Found,
        agent: str,
        begun: str = "",
    ) -> PreparedPrompt:
        """Give a prompt its place in the tree, and its name."""
        (ids, guarded), node, parent, diverged = found
        prefix = "" if parent is None else f"{self._paths[parent]}."
        index_path = f"{prefix}{node.prepared}"
        node.prepared += 1
        self.divergences += diverged
        if parent is not None:
            self._continued[parent] += 1
        digest = zlib.crc32(array("q", ids).tobytes())
        pictures = digests(messages) if self._tokenizer.image_token is not None else []
        if pictures:
            digest = zlib.crc32("".join(pictures).encode(), digest)
        owner = f"{agent}~" if agent else ""
        return PreparedPrompt(
            messages=messages,
            tools=tools,
            prompt_ids=ids,
            path=f"{owner}{index_path}-{digest:08x}",
            diverged=diverged,
            parent=parent,
            index_path=index_path,
            node=node,
            agent=agent,
            guarded=guarded,
            begun=begun,
            pictures=pictures,
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
        token_versions: list[int] | None = None,
        more: dict[str, Any] | None = None,
    ) -> CallRecord:
        """Record a call under the next index. Call once a prepared prompt.

        ``more`` are further fields of the record. Only an answer that ``goes_on`` becomes a parent.

        Raises:
            ValueError: not one log-probability a sampled token.
        """
        if len(logprobs) != len(sampled_ids):
            msg = f"{len(sampled_ids)} sampled tokens came with {len(logprobs)} log-probabilities"
            raise ValueError(msg)
        values: dict[str, Any] = {
            "index": len(self.calls),
            "policy_version": policy_version,
            "messages": prepared.messages,
            "tools": prepared.tools,
            "reply": reply,
            "finish_reason": finish_reason,
            "prompt_ids": prepared.prompt_ids,
            "sampled_ids": sampled_ids,
            "logprobs": logprobs,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "requested": requested or {},
            "agent": prepared.agent,
            "parent": prepared.parent,
            "guarded": prepared.guarded,
            "token_versions": token_versions or [],
        }
        record = call_record(values | more if more else values)
        self.calls.append(record)
        self._paths.append(prepared.index_path)
        self._continued.append(0)
        if goes_on(record, self._tokenizer.image_token):
            said = normal_message(reply)
            said["content"] = prepared.begun + said["content"]
            key = message_key(said)
            prepared.node.answered = True
            prepared.node.child(key).captured.append(record.index)
            self._replies.add((prepared.agent, key))
        return record

    def _walk(
        self, root: tuple[str, bytes], normals: list[dict[str, Any]]
    ) -> tuple[_Node, int | None, int, bool]:
        """Follow a conversation; return its node, the deepest captured call on the way and its position, and whether it diverged.

        It diverged when the server answered a prompt and the conversation goes on with another assistant message, or
        when a reply to this agent turns up where the server did not give it.
        """
        node = self._roots.get(root)
        if node is None:
            node = self._roots[root] = _Node()
        parent, position, diverged = None, -1, False
        for i, normal in enumerate(normals):
            key = message_key(normal)
            before, node = node, node.child(key)
            if key[0] != "assistant":
                continue
            if node.captured:
                parent, position, diverged = self._captured_call(node, normal), i, False
            elif before.answered or (root[0], key) in self._replies:
                diverged = True
        return node, parent, position, diverged

    def _captured_call(self, node: _Node, said: dict[str, Any]) -> int:
        """Of calls with equal prompt and reply take the one that a client means.

        That whose thinking it sent back, if it did (thinking is no part of a message's identity: many clients leave it out);
        of several the one with fewest continuations, so that n agents in lockstep stay n chains.
        """
        captured, thought = node.captured, said.get("reasoning_content")
        if thought and len(captured) > 1:
            same = [i for i in captured if self.calls[i].reply.get("reasoning_content") == thought]
            captured = same or captured
        return min(captured, key=self._continued.__getitem__)

    def _is_bare_parent(self, call: CallRecord) -> bool:
        """Whether a bare prompt may go on from the call: one of a bare prompt itself, whole and not empty."""
        bare = len(call.messages) == 1 and call.messages[0]["role"] == PROMPT_ROLE
        return bare and goes_on(call, self._tokenizer.image_token)
