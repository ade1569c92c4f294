"""One look at a server as text: lines and table rows for ``swarm watch``. Pure; every string in it is safe to show."""

from __future__ import annotations

import time
from typing import NamedTuple

from swarm.cli.columns import aligned
from swarm.plain import plain
from swarm.protocol.clients import ClientInfo
from swarm.protocol.overview import GroupView, Overview, RecentError, RunningEpisode

NAME_WIDTH = 28
TEXT_WIDTH = 200
BAR_WIDTH = 30


class Row(NamedTuple):
    """A table's row: what it is about (stays the same from look to look), and its cells."""

    key: str
    cells: tuple[str, ...]


class Table(NamedTuple):
    """A table of a look."""

    title: str
    columns: tuple[str, ...]
    rows: list[Row]


def headline(view: Overview) -> str:
    """State, step, version and model on one line."""
    status = view.status
    of = f"/{status.stop_at_step}" if status.stop_at_step else ""
    version = status.policy_version.n if status.policy_version else "-"
    update = ", an update runs" if status.updating else ""
    parts = [
        f"{status.state.value}{update}",
        f"step {status.step}{of}",
        f"version {version}",
        plain(status.model or "no model", NAME_WIDTH),
        f"weights {plain(status.fingerprint or '-', 16)}",
    ]
    return " · ".join(parts)


def progress_line(view: Overview) -> str:
    """The policy's progress as a bar and in words."""
    filled = round(view.progress * BAR_WIDTH)
    bar = "#" * filled + "." * (BAR_WIDTH - filled)
    return f"[{bar}] {view.progress:4.0%} {view.policy}: {plain(view.progress_text, TEXT_WIDTH)}"


def numbers_line(view: Overview) -> str:
    """What flows, what waits and what drifts."""
    parts = [
        f"{view.tokens_per_s:.0f} tokens/s",
        f"{view.calls_in_flight} calls in the engine",
        f"{view.calls_held} held",
        f"{view.running_total} episodes open",
        f"{view.divergences} diverged prompts",
        f"step open for {duration(view.step_age_s)}",
        f"{view.status.engine_restarts} engine restarts",
    ]
    return " · ".join(parts)


def waiting_line(view: Overview) -> str:
    """What the server waits for; empty when it says nothing."""
    words = view.status.waiting_for
    return f"waiting for {plain(words, TEXT_WIDTH)}" if words else ""


def trouble_lines(view: Overview) -> list[str]:
    """What a person should see at once: the last failure and the warnings."""
    status = view.status
    failure = [f"failure: {plain(status.failure, TEXT_WIDTH)}"] if status.failure else []
    return failure + [f"warning: {plain(warning, TEXT_WIDTH)}" for warning in status.warnings]


def tables(view: Overview, now: float | None = None) -> list[Table]:
    """Return the four tables; ``now`` (unix seconds) dates the errors, None = this machine's clock."""
    at = time.time() if now is None else now
    more = view.running_total - len(view.running)
    running = "Running episodes, longest idle first" + (f" ({more} more)" if more > 0 else "")
    return [
        Table(running, EPISODE_COLUMNS, [_episode(one) for one in view.running]),
        Table("Groups of the open step", GROUP_COLUMNS, [_group(one) for one in view.groups]),
        Table("Clients", CLIENT_COLUMNS, [_client(one) for one in view.clients]),
        Table("Recent errors", ERROR_COLUMNS, _errors(view.errors, at)),
    ]


def lines(view: Overview) -> list[str]:
    """Return a whole look as lines for a pipe or ``--once``; tables without rows are left out."""
    head = [headline(view), progress_line(view), numbers_line(view), waiting_line(view)]
    out = [line for line in (*head, *trouble_lines(view)) if line]
    for table in tables(view):
        if table.rows:
            out += ["", table.title, *aligned([table.columns, *(row.cells for row in table.rows)])]
    return out


def duration(seconds: float) -> str:
    """Return seconds as people say them: ``0.4 s``, ``12 s``, ``3 min``, ``2.5 h``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


EPISODE_COLUMNS = ("episode", "task", "client", "group", "calls", "idle", "left", "age")
GROUP_COLUMNS = ("group", "task", "finished", "open", "missing", "reward", "")
CLIENT_COLUMNS = (
    "client", "role", "open", "done", "used", "failed", "calls", "latency", "heard", "code",
)  # fmt: skip
ERROR_COLUMNS = ("ago", "kind", "what")


def _episode(one: RunningEpisode) -> Row:
    pending = one.pending_calls > 0
    kind = "" if one.kind.value == "train" else f" ({one.kind.value})"
    cells = (
        plain(one.episode_id, NAME_WIDTH) + kind,
        _task(one.task_set, one.task_id),
        plain(one.client_id, NAME_WIDTH),
        f"{plain(one.group_id, NAME_WIDTH)}/{one.repeat_index}",
        f"{one.calls}+{one.pending_calls}" if pending else str(one.calls),
        "in a call" if pending else "prepared" if one.prepared else duration(one.idle_s),
        "-" if one.idle_left_s is None else duration(one.idle_left_s),
        duration(one.age_s),
    )
    return Row(one.episode_id, cells)


def _group(one: GroupView) -> Row:
    reward = "-"
    if one.reward_mean is not None:
        reward = f"{one.reward_mean:.3g} ± {one.reward_std or 0.0:.2g}"
    cells = (
        plain(one.group_id, NAME_WIDTH),
        _task(one.task_set, one.task_id),
        str(one.finished),
        str(one.open),
        str(one.missing),
        reward,
        "dropped" if one.dropped else "",
    )
    return Row(one.group_id, cells)


def _client(one: ClientInfo) -> Row:
    cells = (
        plain(one.client_id, NAME_WIDTH),
        one.role.value,
        str(one.open),
        str(one.finished),
        str(one.contributed),
        str(one.failed),
        str(one.calls),
        "-" if one.latency_mean_s is None else duration(one.latency_mean_s),
        duration(one.last_seen_s),
        plain(one.code_hash, 10) or "-",
    )
    return Row(one.client_id, cells)


def _errors(errors: list[RecentError], now: float) -> list[Row]:
    """Return the rows; two episodes of one task that a lease ended in the same instant are told apart by their number."""
    rows: dict[str, Row] = {}
    for one in errors:
        key, number = f"{one.at}/{one.kind}/{one.text}", 0
        while f"{key}/{number}" in rows:
            number += 1
        ago = duration(max(0.0, now - one.at))
        cells = (ago, plain(one.kind, NAME_WIDTH), plain(one.text, TEXT_WIDTH))
        rows[f"{key}/{number}"] = Row(f"{key}/{number}", cells)
    return list(rows.values())


def _task(task_set: str, task_id: str) -> str:
    return plain(f"{task_set}/{task_id}", NAME_WIDTH)
