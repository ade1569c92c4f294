"""What a client knows for certain: one line before each finish is sent and one after it was answered, synced to disk."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from swarm.protocol.episodes import FinishReply


@dataclass(frozen=True, slots=True)
class Claim:
    """One episode as its client saw it."""

    episode_id: str
    reward: float
    """As sent; of the newest sending."""
    answered: bool = False
    accepted: bool = False
    reason: str = ""


@dataclass(slots=True)
class Ledger:
    """An append-only file of one client; a later process goes on in the same one."""

    path: Path

    def sending(self, episode_id: str, reward: float) -> None:
        """Note that a finish is about to be sent. On disk when this returns."""
        append_line(self.path, {"episode_id": episode_id, "reward": reward})

    def answered(self, reply: FinishReply) -> None:
        """Note what the server answered. On disk when this returns."""
        body = {"accepted": reply.accepted, "reason": reply.reason, "step": reply.step}
        append_line(self.path, {"episode_id": reply.episode_id, **body})


def append_line(path: Path, line: Mapping[str, object]) -> None:
    """Append one JSON line; it is on disk when this returns."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
        os.fsync(file)
    finally:
        os.close(file)


def read_claims(path: Path) -> dict[str, Claim]:
    """Return the claims of a ledger by episode id, in order of sending; a torn last line is left out."""
    claims: dict[str, Claim] = {}
    raw = path.read_bytes() if path.exists() else b""
    for text in raw.split(b"\n")[:-1]:
        line = json.loads(text)
        episode_id = str(line["episode_id"])
        if "reward" in line:
            claims[episode_id] = Claim(episode_id, float(line["reward"]))
        else:
            sent = claims[episode_id].reward
            claims[episode_id] = Claim(
                episode_id, sent, True, bool(line["accepted"]), line["reason"]
            )
    return claims


def answers(path: Path) -> int:
    """Return how many finishes were answered so far; cheap enough to be asked often."""
    return path.read_bytes().count(b'"accepted"') if path.exists() else 0
