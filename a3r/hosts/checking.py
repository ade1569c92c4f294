"""``a3r host check``: each thing that a night needs, proven on the host itself. Changes nothing there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from a3r.adapters.ssh import Ssh
from a3r.core.errors import HostError
from a3r.core.workspace import NETWORK_FILE_SYSTEMS
from a3r.hosts.calling import ask
from a3r.hosts.options import HostOptions
from a3r.hosts.wheel import own_tree

Json = dict[str, Any]
Say = Callable[[str], None]
State = Literal["ok", "failed", "not checked"]

PROBE_S = 90.0
EPISODE_S = 240.0
LITTLE_DISK = 2 * 2**30
SKEW_S = 5.0
"""More than this and times of one attempt, told by two clocks, no longer make sense."""
SILENT_S = 30.0


@dataclass(frozen=True)
class HostCheck:
    """One finding."""

    name: str
    state: State
    detail: str
    hint: str = ""

    def as_json(self) -> Json:
        """Plain JSON."""
        return asdict(self)


class Checking:
    """The checks of one host, in the order in which one rests on another."""

    def __init__(self, look: Callable[[], Json], known_hosts: Path, say: Say) -> None:
        """``look``: the host as the hub shows it now."""
        self._look, self._say = look, say
        self._host = host = look()
        self._options = HostOptions.model_validate(host["options"])
        self._known_hosts = known_hosts
        self._seen: Json = {}
        self._middle = self._took_s = 0.0

    @cached_property
    def _ssh(self) -> Ssh:
        return self._options.ssh(self._host["address"], self._known_hosts)

    def run(self, *, episode: bool = True) -> list[HostCheck]:
        """All findings; what can not be looked at without a connection is ``not checked``."""
        far: list[tuple[str, Callable[[], HostCheck]]] = [
            ("a3r", self._a3r),
            ("disk", self._disk),
            ("tmux", self._tmux),
            ("clock", self._clock),
            ("gpus", self._gpus),
            ("hub", self._hub),
            ("debug episode", self._episode),
        ]
        found = [self._guarded("ssh", self._connect)]
        for name, look in far:
            if found[0].state != "ok":
                found.append(HostCheck(name, "not checked", "there is no connection"))
            elif name == "debug episode" and not episode:
                found.append(HostCheck(name, "not checked", "--no-episode"))
            else:
                self._say(f"{self._host['name']}: {name}")
                found.append(self._guarded(name, look))
        self._host = self._look()  # it may have come back while the others were looked at
        return [*found, self._link(), self._worker()]

    def _guarded(self, name: str, look: Callable[[], HostCheck]) -> HostCheck:
        try:
            return look()
        except HostError as error:
            return HostCheck(name, "failed", error.message, error.hint)

    def _connect(self) -> HostCheck:
        begun, at = time.monotonic(), time.time()
        spec = {"folder": self._options.folder, "worker_python": self._options.python}
        self._seen = ask(self._ssh, "probe", spec, timeout_s=PROBE_S)
        self._took_s = time.monotonic() - begun
        self._middle = at + self._took_s / 2
        who = f"{self._seen['user']}@{self._seen['host']}"
        return HostCheck("ssh", "ok", f"{who}, {self._seen['system']}, in {self._took_s:.1f} s")

    def _a3r(self) -> HostCheck:
        theirs, own = self._seen["a3r"], own_tree()
        again = (
            f"a3r host add {self._host['address']} --name {self._host['name']} brings it up to date"
        )
        if theirs is None:
            return HostCheck("a3r", "failed", f"{self._options.python} has none", again)
        words = f"{theirs['version']} in {self._options.python}"
        if theirs["tree"] != own[1]:
            return HostCheck("a3r", "ok", f"{words}; it is not quite the one here: {again}")
        return HostCheck("a3r", "ok", f"{words}, the very one that runs here")

    def _disk(self) -> HostCheck:
        seen = self._seen
        words = f"{seen['disk_free_bytes'] / 2**30:.1f} GiB free in {seen['folder']}"
        words += f" ({seen['file_system'] or 'unknown file system'})"
        if not seen["writable"]:
            return HostCheck("disk", "failed", f"{words}, not writable", "See to its rights.")
        if seen["file_system"] in NETWORK_FILE_SYSTEMS:
            hint = "Add the host again with --folder on a local disk."
            return HostCheck("disk", "failed", words, hint)
        if seen["disk_free_bytes"] < LITTLE_DISK:
            return HostCheck("disk", "failed", words, "Free some: old attempts lie in .a3r/runs.")
        return HostCheck("disk", "ok", words)

    def _tmux(self) -> HostCheck:
        found = str(self._seen["tmux"])
        if found:
            return HostCheck("tmux", "ok", found)
        hint = "Attempts run without it, but 'a3r run attach' shows nothing: apt-get install tmux"
        return HostCheck("tmux", "failed", "there is none", hint)

    def _clock(self) -> HostCheck:
        skew = float(self._seen["time"]) - self._middle
        # The answer was written somewhere within the call: that much is not known.
        sure = max(0.0, abs(skew) - self._took_s / 2)
        words = f"{skew:+.1f} s from the clock here (give or take {self._took_s / 2:.1f} s)"
        if sure > SKEW_S:
            return HostCheck("clock", "failed", words, "Let both hosts follow NTP (timedatectl).")
        return HostCheck("clock", "ok", words)

    def _gpus(self) -> HostCheck:
        arguments = [self._options.gpus] if self._options.gpus else []
        said = self._far("a3r.hosts.gpu_trial", arguments, EPISODE_S)
        if "error" in said:
            return HostCheck("gpus", "failed", said["error"], "'nvidia-smi' there says more.")
        gpus = cast("list[Json]", said["gpus"])
        words = "; ".join(f"{g['index']} {g['name']}: {g['state']}, {g['detail']}" for g in gpus)
        if said["missing"]:
            lost = f"{words or 'none found'}; not there: {said['missing']}"
            return HostCheck("gpus", "failed", lost, "Add the host again with other --gpus.")
        if any(g["state"] == "failed" for g in gpus):
            hint = (
                "Driver and torch must fit: nvidia-smi shows the CUDA version that the driver can."
            )
            return HostCheck("gpus", "failed", words, hint)
        if not gpus and self._seen["nvidia"]:
            hint = "pip install nvidia-ml-py into the interpreter of the worker."
            return HostCheck("gpus", "failed", "nvidia-smi lists some, NVML none", hint)
        if not any(g["state"] == "ok" for g in gpus):
            return HostCheck("gpus", "not checked", words or "this host has none")
        return HostCheck("gpus", "ok", words)

    def _hub(self) -> HostCheck:
        options = self._options
        arguments = [options.hub_url or "unix:{folder}/hub.sock"]
        arguments += ["{folder}/hub-ca.pem"] if options.has_ca else []
        said = self._far("a3r.hosts.hub_trial", arguments, PROBE_S)
        way = options.hub_url or "the link"
        if said.get("ok"):
            return HostCheck("hub", "ok", f"answers through {way} in {said['ms']} ms")
        why = said.get("error") or f"status {said.get('status')}"
        hint = "The link comes back by itself; see the line 'link'."
        if options.hub_url:
            hint = "See 'workers_listen' here, and names, firewalls and certificates between."
        return HostCheck("hub", "failed", f"no answer through {way}: {why}", hint)

    def _episode(self) -> HostCheck:
        said = self._far("a3r.hosts.debug_episode", [], EPISODE_S)
        if said.get("ok"):
            words = f"a server trained {said['steps']} step on the CPU in {said['seconds']:.0f} s"
            return HostCheck("debug episode", "ok", words)
        hint = "The same there: PYTHON -m a3r.hosts.debug_episode"
        return HostCheck("debug episode", "failed", str(said.get("error", "no reason")), hint)

    def _far(self, module: str, arguments: list[str], timeout_s: float) -> Json:
        argv = [self._options.python, "-m", module, *arguments]
        spec: Json = {"folder": self._options.folder, "argv": argv, "timeout_s": timeout_s}
        done = ask(self._ssh, "run", spec, timeout_s=timeout_s + PROBE_S)
        lines = str(done["out"]).strip().splitlines()
        try:
            said: Any = json.loads(lines[-1])
        except (ValueError, IndexError):
            last = (str(done["err"]).strip().splitlines() or ["no output"])[-1]
            return {"error": last}
        return cast("Json", said)

    def _link(self) -> HostCheck:
        state, detail = self._host["link"], self._host["detail"]
        for_s = time.time() - float(self._host["link_at"])
        words = f"the daemon's is {state} since {for_s:.0f} s" + (f": {detail}" if detail else "")
        hint = "If ssh works from here: has the daemon the same keys? 'a3r daemon stop' lets it start anew."
        return HostCheck("link", "ok" if state == "up" else "failed", words, hint)

    def _worker(self) -> HostCheck:
        worker = self._host["worker"]
        hint = f"Its log: {self._options.folder}/worker.log"
        if worker is None:
            return HostCheck("worker", "failed", "it never came", hint)
        words = f"{worker['id']}: {worker['slots']} slots, {len(worker['attempts'])} attempts, "
        words += f"{worker['state']}, last word {worker['silent_s']} s ago"
        return HostCheck("worker", "ok" if worker["silent_s"] < SILENT_S else "failed", words, hint)
