"""``a3r host remove``: in order (attempts finish, the daemon does the rest) or at once (attempts are ended)."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a3r.core.errors import HostError, NotFound
from a3r.hosts.calling import ask
from a3r.hosts.options import HostOptions
from a3r.hub.client import HubClient, segment

Json = dict[str, Any]
Say = Callable[[str], None]

LOOK_S = 0.5
STOP_S = 150.0
DELETE_S = 900.0
"""More for an environment of some GB and the folders of attempts."""


@dataclass(frozen=True)
class Leaving:
    """One host that shall go."""

    name: str
    known_hosts: Path
    say: Say
    delete: bool = False
    """Its folder on the host too."""

    def in_order(self, hub: HubClient, *, wait: bool) -> Json:
        """Ask for it; with ``wait`` return when it has left.

        Raises:
            NotFound: there is no such host.
        """
        path = f"hosts/{segment(self.name)}"
        body = hub.post(f"{path}/state", {"state": "removed"})
        held = len(body["worker"]["attempts"]) if body["worker"] else 0
        if not wait:
            return {**body, "words": [f"{self.name} leaves when its {held} attempt(s) are done"]}
        self.say(
            f"{self.name} finishes {held} attempt(s) and leaves; Ctrl-C leaves that to the daemon"
        )
        told = ""
        while (now := _look(hub, path)) is not None:
            words = f"its link is {now['link']}: {now['detail']}" if now["link"] == "broken" else ""
            if words and words != told:
                self.say(f"{words}; --force does not wait for it")
            told = words
            body = now
            time.sleep(LOOK_S)
        stopped = self._stop(body, attempts=False) if self.delete else {}
        return {**body, "words": [f"{self.name} has left", *self._files(body, stopped)]}

    def at_once(self, hub: HubClient) -> Json:
        """End its attempts and its worker if the host can be reached; forget it in any case.

        Raises:
            NotFound: there is no such host.
        """
        path = f"hosts/{segment(self.name)}"
        body = hub.get(path)
        hub.post(f"{path}/state", {"state": "removed"})
        try:
            # The token is good till then: ended attempts can still be told of.
            stopped = self._stop(body, attempts=True)
            words = [] if stopped["ended"] else ["its worker did not end in time; see to it there"]
        except HostError as error:
            stopped = {}
            words = [f"could not be told: {error.message}", self._by_hand(body)]
        with suppress(NotFound):  # the daemon saw the worker leave, and was quicker
            hub.delete(path)
        return {**body, "words": [f"{self.name} is forgotten", *words, *self._files(body, stopped)]}

    def _stop(self, body: Json, *, attempts: bool) -> Json:
        options = HostOptions.model_validate(body["options"])
        if self.delete:
            self.say(f"deleting {options.folder} there; an environment of some GB takes a while")
        ssh = options.ssh(body["address"], self.known_hosts)
        spec: Json = {"folder": options.folder, "attempts": attempts, "delete": self.delete}
        return ask(ssh, "stop", spec, timeout_s=STOP_S + (DELETE_S if self.delete else 0.0))

    def _files(self, body: Json, stopped: Json) -> list[str]:
        if stopped.get("deleted"):
            return ["its files there are deleted"]
        return [f"its files stay there, in {body['options']['folder']}"]

    def _by_hand(self, body: Json) -> str:
        record = f"{body['options']['folder']}/.a3r/worker/worker.json"
        return (
            "its worker and attempts may still run there, their results will not be taken; end the worker with two "
            f"SIGTERMs to the pid in {record}"
        )


def _look(hub: HubClient, path: str) -> Json | None:
    try:
        return hub.get(path)
    except NotFound:
        return None
