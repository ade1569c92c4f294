"""The last things that went wrong, for a person who looks; the journal's events have all of them for good."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from swarm.protocol.messages import Event
from swarm.protocol.overview import RecentError
from swarm.protocol.states import EpisodeKind, EpisodeState, FateReason
from swarm.server.service.clock import Clock
from swarm.server.service.episodes import Episode

KEEP = 20
TEXT_LIMIT = 300

_FROM_EVENT = {
    "failed": "training ended at step {step}: {why}",
    "engine_restart": "the engine was restarted (attempt {attempt}): {reason}",
    "weights_unchanged": "the optimizer moved in step {step} and the weights did not change",
    "eval_round_missed": "the evaluation of step {step} was not closed in time",
    "client_lost": "client {client_id} left {episodes} open episodes: {why}",
    "code_changed": "episode {episode_id} was granted to code {old!r} and finished by code {new!r}",
    "code_replaced": "{groups_dropped} groups of code {old!r} were dropped for code {new!r}, {groups_kept} kept",
    "group_dropped": "group {group_id} was dropped (rule {rule}): it lost {because_of}",
}
"""Kinds of events that tell of something wrong, with the words for it."""
_NOT_ITS_OWN = frozenset({FateReason.LEFTOVER.value, FateReason.GROUP_DROPPED.value})


@dataclass(slots=True)
class _Entry:
    at: float
    kind: str
    cause: str
    """What makes it the same thing as the next one."""
    text: str
    about_eval: bool
    times: int = 1


class RecentErrors:
    """A ring of ``KEEP``; things of the same kind and cause in a row are one entry with a count."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ring: deque[_Entry] = deque(maxlen=KEEP)

    def note(self, kind: str, text: str, *, cause: str = "", about_eval: bool = False) -> None:
        """Take something in; ``text`` may be anything, also of a hostile client. ``cause`` is the text unless told."""
        cause = (cause or text)[:TEXT_LIMIT]
        last = self._ring[-1] if self._ring else None
        if last is not None and (last.kind, last.cause, last.about_eval) == (
            kind,
            cause,
            about_eval,
        ):
            last.times += 1
            last.at = self._clock.time()
            return
        self._ring.append(
            _Entry(self._clock.time(), kind, cause, text[: TEXT_LIMIT + 1], about_eval)
        )

    def see(self, event: Event) -> None:
        """Take an event in when its kind tells of something wrong."""
        words = _FROM_EVENT.get(event.kind)
        told_already = event.kind == "group_dropped" and not event.data.get("because_of")
        if words is not None and not told_already:
            self.note(event.kind, words.format_map(_Known(event.data)))

    def lost(self, episode: Episode) -> None:
        """Take in an episode that was aborted or expired by itself: not one that its step or its group left behind."""
        if episode.state not in (EpisodeState.ABORTED, EpisodeState.EXPIRED):
            return
        if episode.reason in _NOT_ITS_OWN:
            return
        task = f"{episode.task_set}/{episode.task_id}"
        why = episode.reason or "no reason was given"
        self.note(
            f"episode_{episode.state.value}",
            f"{task} of client {episode.client_id}: {why}",
            cause=why,
            about_eval=episode.kind is EpisodeKind.EVAL,
        )

    def newest(self, *, evals: bool) -> list[RecentError]:
        """Return them newest first; without ``evals`` those about evaluation episodes are left out."""
        return [
            RecentError(at=e.at, kind=e.kind, text=_with_count(e))
            for e in reversed(self._ring)
            if evals or not e.about_eval
        ]


def _with_count(entry: _Entry) -> str:
    text = entry.text if entry.times == 1 else f"{entry.times} times, the first: {entry.text}"
    return text if len(text) <= TEXT_LIMIT else f"{text[: TEXT_LIMIT - 1]}…"


class _Known(dict[str, Any]):
    """Event data for ``format_map``: a key that an older event lacks reads as a question mark."""

    def __missing__(self, key: str) -> str:
        return "?"
