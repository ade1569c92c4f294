"""Closed sets of the protocol: states, kinds, reasons."""

from __future__ import annotations

from enum import StrEnum


class EngineState(StrEnum):
    """Life of the server's engine; transitions are validated by ``swarm.server.service.lifecycle``."""

    OFFLINE = "OFFLINE"  # no model; config can be set
    BOOTING = "BOOTING"  # child process starts, loads weights, replays the journal
    ROLLING = "ROLLING"  # grants and calls are served
    ROLLING_POST = (
        "ROLLING_POST"  # the batch is complete; open train episodes may end, no new train grant
    )
    WEIGHT_SYNCING = "WEIGHT_SYNCING"  # the optimizer moves; calls are held
    WEIGHT_EXPORTING = "WEIGHT_EXPORTING"  # the new weights are written as a checkpoint; calls are held, no train grant
    TRAINED = "TRAINED"  # stop_at_step reached; weights frozen, eval goes on


class EpisodeKind(StrEnum):
    """What an episode may do."""

    TRAIN = "train"
    EVAL = "eval"  # never enters the pool


class EpisodeState(StrEnum):
    """Life of one episode; every state but OPEN is final."""

    OPEN = "open"
    FINISHED = "finished"
    ABORTED = "aborted"
    EXPIRED = "expired"  # idle or total deadline


class GrantOutcome(StrEnum):
    """Answer to a request for an episode."""

    GRANTED = "granted"
    WAIT = "wait"  # nothing is needed in this step now; ask again (or wait for step > s)
    TRAINING_COMPLETE = "training_complete"  # stop_at_step reached


class CollectionPolicy(StrEnum):
    """When the pool is ready to train on (paper section 3.3)."""

    C1 = "C1"  # B x N finished episodes
    C2 = "C2"  # B tasks with N finished episodes each
    C3 = "C3"  # B such tasks whose rewards are not all equal
    C4 = "C4"  # every active trainer agrees
    C5 = "C5"  # any active trainer agrees


class GroupRule(StrEnum):
    """What happens to a group that lost a member."""

    WAIT = "wait"  # the missing member is asked for again within this version
    RESAMPLE = "resample"  # the whole group is dropped and a new one opened
    PARTIAL = "partial"  # at least two members train; the missing are counted
    DROP = "drop"  # the group is dropped and not replaced


class TokenFate(StrEnum):
    """What became of a sampled token; every sampled token has exactly one."""

    TRAINED = "trained"
    MASKED = "masked"
    DROPPED = "dropped"


class FateReason(StrEnum):
    """Why a sampled token was masked or dropped (or ``NONE`` when it trained)."""

    NONE = ""
    ZERO_ADVANTAGE = "zero_advantage"  # masked: the group's rewards are all equal
    GREEDY = "greedy_sampling"  # masked: temperature 0 has no usable log-probability
    AGENT_NOT_TRAINED = "agent_not_trained"  # masked: its key was made with train=False
    EXCLUDED_CALL = "excluded_call"  # masked: the client tagged the call as not for training
    SAMPLING = "sampling_not_replayable"  # masked: sampled in a way whose log-probability cannot be replayed
    CLIENT_MASK = "client_mask"  # masked: the finish carried a mask or a zero weight for it
    GUARD = "episode_guard"  # masked (the call) or dropped (the episode): a rule of the config's guard found a broken answer
    ROLLED_BACK = "rolled_back"  # masked: it was in the batch, and the update was undone
    CODE_CHANGED = "code_changed"  # dropped: an older version of the client's code produced it
    STALE = "stale"  # dropped: sampled too many policy versions ago (asynchronous mode)
    ABANDONED = "abandoned"  # dropped: nobody filled its group any more (batch.abandon_after_s)
    NOT_COMMITTED = "not_committed"  # dropped: prepared in a swarm group and never committed
    ABORTED_CALL = "aborted_call"
    EPISODE_ABORTED = "episode_aborted"
    EPISODE_EXPIRED = "episode_expired"
    LEFTOVER = "leftover"  # finished, but not part of the batch that fired
    GROUP_DROPPED = "group_dropped"
    EVAL = "eval"


class ConfigEffect(StrEnum):
    """When a changed key of the configuration takes effect."""

    STEP = "step"  # at the next step boundary, while training goes on
    ENGINE = "engine"  # stop and start the engine: the run goes on
    RUN = "run"  # stop the engine: a new run (incarnation) begins at step 0


class Role(StrEnum):
    """What a registered client is for."""

    TRAINER = "trainer"
    EVALUATOR = "evaluator"


class FinishReason(StrEnum):
    """Why a generation ended (OpenAI's words)."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    ABORT = "abort"
