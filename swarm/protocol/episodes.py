"""The life of an episode in messages: grant, keys of agents, prepare, finish, abort."""

from __future__ import annotations

from pydantic import Field

from swarm.protocol.clients import TaskCursor
from swarm.protocol.messages import Message, PolicyVersion
from swarm.protocol.states import EpisodeKind, EpisodeState, GrantOutcome


class GrantRequest(Message):
    """Body of ``POST /swarm/episodes``."""

    client_id: str = Field(min_length=1, max_length=128)
    kind: EpisodeKind = EpisodeKind.TRAIN
    task_set: str = Field(default="default", max_length=128)
    task_id: str = Field(default="", max_length=4096)
    """Empty: the server chooses from the shared queue of ``task_set`` (``PUT /swarm/task_sets/{name}``), train only."""
    wait_s: float = Field(default=0.0, ge=0.0, le=60.0)
    """Hold the request up to this long when nothing is needed at the moment."""
    step: int | None = None
    """Grant only in this server step; None = whichever is open. (run_episodes pins the step it planned for.)"""
    idle_deadline_s: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    """Shorter or longer than the config's, for this episode; None = the config's. Debug episodes pass a very large one."""
    request_id: str = Field(default="", max_length=64)
    """Names this asking. The same one again (its answer was lost) gets the same episode while that is open; empty = always a new one."""
    code_hash: str = Field(default="", max_length=64)
    """As in ``ClientRegistration``; empty = that of the registration."""
    throttle: float | None = Field(default=None, ge=1.0)
    """Wait while this client has taken more than ``throttle`` x its fair share of the open step and another client could take what is left; None = never."""
    reserve_s: float | None = Field(default=None, gt=0.0, le=60.0)
    """The grant is a reservation: it ends after this unless ``POST episodes/{id}/confirm`` or a call comes first. None = no reservation."""
    cursor: TaskCursor | None = None
    """Kept for this client when the episode is granted."""
    instance: str = Field(default="", max_length=64)
    """As in ``ClientRegistration``. Once another instance registered under the same id, this one is answered 409 (``client_replaced``)."""


class Grant(Message):
    """Answer of ``POST /swarm/episodes``."""

    outcome: GrantOutcome
    step: int
    policy_version: PolicyVersion | None = None
    episode_id: str = ""
    task_id: str = ""
    """The task that was asked for, or that the shared queue gave."""
    api_key: str = ""
    base_url: str = ""
    """``http(s)://<address the client dialled>/v1``."""
    group_id: str = ""
    repeat_index: int = 0
    """0..N-1 within the group."""
    reason: str = ""
    """Why WAIT was answered."""


class FinishRequest(Message):
    """Body of ``POST /swarm/episodes/{id}/finish``. Idempotent: the first finish wins, a repeat gets the same reply."""

    reward: float | None = None
    """Required for train episodes; must be finite (422 otherwise). Eval episodes may leave it out."""
    metrics: dict[str, float] = Field(default_factory=dict[str, float])
    rewards: dict[str, float] = Field(default_factory=dict[str, float])
    """Per agent (``AgentKeyRequest``), finite; an agent that is not named has ``reward``. Needed for each trained agent that made a call, unless ``reward`` is there."""
    tokens: list[CallTokens] = Field(default_factory=list["CallTokens"])
    """The client's own advantages, weights and masks; calls not named train by the group's advantage."""
    code_hash: str = Field(default="", max_length=64)
    """When it differs from the grant's the episode is not accepted (``code_changed``). Empty = the grant's."""


class CallTokens(Message):
    """What a client decided for the sampled tokens of one call; each list is empty (not told) or as long as its ``sampled_ids``.

    Wrong lengths, unknown calls and values that are not finite are answered 422, and nothing is recorded.
    """

    call_index: int
    advantages: list[float] = Field(default_factory=list[float])
    """Instead of the group's advantage."""
    weights: list[float] = Field(default_factory=list[float])
    """Multiply each token's loss weight; 0 or more. Normalisers count tokens, not weights."""
    mask: list[bool] = Field(default_factory=list[bool])
    """True = trains. A masked token is booked ``masked:client_mask``."""


class AgentKeyRequest(Message):
    """Body of ``POST /swarm/episodes/{id}/agents``: a key for one agent of a multi-agent episode. Idempotent."""

    agent: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")
    train: bool = True
    """False: its calls are recorded and never trained (``agent_not_trained``). The first word on an agent stands; another is answered 409."""


class AgentKey(Message):
    """A key that opens the episode as ``agent``; calls with the episode's own key belong to the agent ``""``."""

    episode_id: str
    agent: str
    train: bool
    api_key: str
    base_url: str


class PrepareReply(Message):
    """Answer of ``POST /swarm/episodes/{id}/prepare``: the first half of a finish over several servers.

    Prepared = validated, journalled, and promised: until ``commit_within_s`` has passed a commit will be accepted.
    """

    episode_id: str
    prepared: bool
    reason: str = ""
    commit_within_s: float = 0.0


class FinishReply(Message):
    """What became of the episode."""

    episode_id: str
    state: EpisodeState
    accepted: bool
    """True when the episode entered the pool (train) or the eval record."""
    reason: str = ""
    """Why it was not accepted, with the version it missed."""
    step: int


class AbortRequest(Message):
    """Body of ``POST /swarm/episodes/{id}/abort``. Idempotent."""

    reason: str = ""
