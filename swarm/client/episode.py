"""One granted episode, as an agent sees it: chat, hand over to the OpenAI SDK or a program, finish or abort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from swarm.client import calls
from swarm.client.chat import ChatResult, chat_payload, read_chat
from swarm.protocol.messages import AbortRequest, FinishReply, FinishRequest, Grant
from swarm.protocol.states import EpisodeKind

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

    from swarm.client.openai_clients import OpenAIClients
    from swarm.client.transport_async import AsyncTransport
    from swarm.client.transport_sync import SyncTransport


class EpisodeBase:
    """What is known of an episode without asking the server."""

    def __init__(
        self, grant: Grant, *, task_id: str, task_set: str, kind: EpisodeKind, chat_timeout_s: float
    ) -> None:
        """Keep the grant; ``outcome`` stays None until the episode was finished or aborted through this object."""
        self.grant = grant
        self.task_id, self.task_set, self.kind = task_id, task_set, kind
        self.outcome: FinishReply | None = None
        self._chat_timeout_s = chat_timeout_s

    @property
    def id(self) -> str:
        """The episode's id on the server."""
        return self.grant.episode_id

    @property
    def step(self) -> int:
        """Server step of the grant."""
        return self.grant.step

    @property
    def base_url(self) -> str:
        """OpenAI-compatible address, ``.../v1``."""
        return self.grant.base_url

    @property
    def api_key(self) -> str:
        """Key that opens this episode only."""
        return self.grant.api_key

    def environ(self) -> dict[str, str]:
        """Environment variables that point an OpenAI-speaking program at this episode."""
        return {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_BASE": self.base_url,
            "OPENAI_API_KEY": self.api_key,
        }

    def __repr__(self) -> str:
        """The episode without its key."""
        return f"<{type(self).__name__} {self.id} {self.kind.value} {self.task_set}/{self.task_id} step {self.step}>"


class AsyncEpisode(EpisodeBase):
    """An episode of an ``AsyncSwarmClient``."""

    def __init__(
        self, grant: Grant, transport: AsyncTransport, sdks: OpenAIClients, **known: Any
    ) -> None:
        """Made by ``AsyncSwarmClient.episode``."""
        super().__init__(grant, **known)
        self._transport, self._sdks = transport, sdks

    async def chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | None = None,
        **sampling: Any,
    ) -> ChatResult:
        """Ask the model for one answer (``/v1/chat/completions`` on the light path); None values are left out.

        Raises:
            EpisodeGone: the episode ended or passed a deadline.
            RequestError: the request can never succeed (a parameter, the context length, too many calls).
            ServerUnreachable: no answer within the client's ``chat_timeout_s``.
        """
        payload = chat_payload(messages, tools, sampling)
        call = calls.chat(self.api_key, payload, self._chat_timeout_s)
        return read_chat(await self._transport.send(call))

    def async_openai(self) -> AsyncOpenAI:
        """An OpenAI SDK client for this episode; it shares the client's connections, so do not close it."""
        return self._sdks.asynchronous(self.base_url, self.api_key)

    async def finish(
        self, reward: float | None = None, metrics: dict[str, float] | None = None
    ) -> FinishReply:
        """End the episode with its reward (needed for train). Idempotent: the first finish wins.

        Raises:
            RewardError: the reward is not a finite number.
        """
        request = FinishRequest(reward=reward, metrics=metrics or {})
        self.outcome = await self._transport.send(calls.finish(self.id, request))
        return self.outcome

    async def abort(self, reason: str = "", *, deadline_s: float | None = None) -> FinishReply:
        """End the episode without a result. Idempotent."""
        call = calls.abort(self.id, AbortRequest(reason=reason[:500]))
        self.outcome = await self._transport.send(call.within(deadline_s) if deadline_s else call)
        return self.outcome


class Episode(EpisodeBase):
    """An episode of a ``SwarmClient``; may be used from any thread."""

    def __init__(
        self, grant: Grant, transport: SyncTransport, sdks: OpenAIClients, **known: Any
    ) -> None:
        """Made by ``SwarmClient.episode``."""
        super().__init__(grant, **known)
        self._transport, self._sdks = transport, sdks

    def chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | None = None,
        **sampling: Any,
    ) -> ChatResult:
        """Ask the model for one answer; as ``AsyncEpisode.chat``."""
        payload = chat_payload(messages, tools, sampling)
        call = calls.chat(self.api_key, payload, self._chat_timeout_s)
        return read_chat(self._transport.send(call))

    def openai(self) -> OpenAI:
        """An OpenAI SDK client for this episode; it shares the client's connections, so do not close it."""
        return self._sdks.sync(self.base_url, self.api_key)

    def finish(
        self, reward: float | None = None, metrics: dict[str, float] | None = None
    ) -> FinishReply:
        """End the episode with its reward (needed for train). Idempotent: the first finish wins."""
        request = FinishRequest(reward=reward, metrics=metrics or {})
        self.outcome = self._transport.send(calls.finish(self.id, request))
        return self.outcome

    def abort(self, reason: str = "", *, deadline_s: float | None = None) -> FinishReply:
        """End the episode without a result. Idempotent."""
        call = calls.abort(self.id, AbortRequest(reason=reason[:500]))
        self.outcome = self._transport.send(call.within(deadline_s) if deadline_s else call)
        return self.outcome
