"""Keeps the processes of one attempt as they should be: servers up, clients at work, each due evaluation round done."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

from a3r.blueprints.model import ClientSpec, ServerSpec
from a3r.core.errors import BlueprintError
from a3r.core.types import FailureClass
from a3r.sandbox.enclosure import SandboxMissing
from a3r.worker.collect import check_round
from a3r.worker.environments import SecretMissing, specs_of
from a3r.worker.events import EventLog
from a3r.worker.failures import classify
from a3r.worker.folder import AttemptFolder, Memo
from a3r.worker.members import Member, client_role, member_of, members, server_of
from a3r.worker.places import records
from a3r.worker.processes import ExitRecord, Launcher, Process, ProcessState
from a3r.worker.repair import AttemptOver, Repair, ended_well
from a3r.worker.roles import Starter
from a3r.worker.scrape.recorder import TrainerLog
from a3r.worker.server_watch import SILENT_LOOKS, SILENT_S, ServerWatch
from a3r.worker.stop_rules import broken_rule, rule_words
from swarm.protocol.config import TrainConfig
from swarm.protocol.messages import Status
from swarm.protocol.states import EngineState

ALIVE = (ProcessState.STARTING, ProcessState.RUNNING)
WORKING = (
    *(EngineState.ROLLING, EngineState.ROLLING_POST),
    *(EngineState.WEIGHT_SYNCING, EngineState.WEIGHT_EXPORTING, EngineState.TRAINED),
)
SETTLED_S = 10.0
"""A process that lives this long after a block has got past what blocked it."""


class Keeper:
    """Looks at the records and does the next thing that is missing; every method is safe to repeat.

    Methods raise ``AttemptOver`` when the attempt can not go on.
    """

    def __init__(
        self,
        folder: AttemptFolder,
        memo: Memo,
        events: EventLog,
        repair: Repair,
        starter: Starter,
        launcher: Launcher,
    ) -> None:
        """Share ``memo`` and ``events`` with the runner."""
        self._folder, self._memo, self._events = folder, memo, events
        self._repair, self._starter, self._launcher = repair, starter, launcher
        self._members = members(folder, starter.blueprint)
        self._watches = {member.name: ServerWatch(member) for member, _ in self._members}
        self._seen: dict[str, Status | None] = {}
        """What each server last said of itself."""
        self._doing: dict[str, str] = {}
        self._trainers: dict[str, TrainerLog] = {}

    @property
    def watch(self) -> ServerWatch:
        """The first server: the one that is evaluated, and whose steps are the run's."""
        return self._watches[""]

    @property
    def detail(self) -> str:
        """What the servers do, in words."""
        return "; ".join(f"{n}: {said}" if n else said for n, said in self._doing.items() if said)

    def close(self) -> None:
        """Let go of the servers' connections; the processes go on."""
        for watch in self._watches.values():
            watch.close()

    # -- servers ----------------------------------------------------------------------------------------------

    def server(self) -> Status | None:
        """Keep the servers running; returns the first one's status, or None when there is nothing to go on with now."""
        self._seen = {m.name: self._server(m, server) for m, server in self._members}
        others = [status for name, status in self._seen.items() if name]
        if any(status is None or status.state not in WORKING for status in others):
            return None
        return self._seen[""]

    def others_done(self) -> bool:
        """Whether each further server that is trained has made its steps; a run that a stop rule ended waits for none."""
        if self._memo.stopping_at is not None:
            return True
        for member, server in self._members[1:]:
            status = self._seen[member.name]
            if server.trains and not (status and status.state is EngineState.TRAINED):
                return False
        return True

    def end_of(self, name: str) -> tuple[TrainConfig, Status] | None:
        """A server's own config and last status; None when it does not answer."""
        config, status = self._watches[name].config(), self._seen.get(name)
        return (config, status) if config and status else None

    def _server(self, member: Member, server: ServerSpec) -> Status | None:
        start = functools.partial(self._starter.server, self._memo, server)
        process, watch = self._alive(member.role, start), self._watches[member.name]
        address = watch.address()
        if process is None or process.state() is not ProcessState.RUNNING or address is None:
            return None
        status = watch.status()
        if watch.is_dead(self._repair.clock.time(), status is not None):
            process.terminate()
            why = f"the server did not answer for {SILENT_S:g} s and {SILENT_LOOKS} looks"
            self._repair.ended(self._memo, process, FailureClass.SERVER_CRASH, why)
        if status is None:
            self._doing[member.name] = "the server does not answer"
            return None
        self._moved_to(member, *address)
        self.say(f"server_ready {member.name}".rstrip(), "server", url=address[0])
        if status.state is EngineState.OFFLINE and status.failure:
            # It lives, but its engine does not come back: only a new start helps.
            process.terminate()
            found = classify("server", ExitRecord(code=1, error=status.failure), b"")
            self._repair.ended(self._memo, process, found, status.failure)
            return None
        self._follow(member, process, status)
        return status

    def _moved_to(self, member: Member, url: str, port: int) -> None:
        """A server that came back elsewhere: the clients must be told, which costs them none of their restarts."""
        memo, known = self._memo, self._memo.where(member.name)
        for client in self._starter.blueprint.clients if known.url and known.url != url else ():
            role = client_role(self._starter.blueprint, client)
            process = self._folder.latest(role)
            if process is not None and process.state() in ALIVE:
                memo.free_starts[role] = memo.free_starts.get(role, 0) + 1
                memo.handled.append(process.name)
                what, why = f"the {role} was started again", f"the {member.role} moved to {url}"
                self._events.deviation(what, why)
                process.terminate()
        memo.moved(member.name, url, port)

    def _follow(self, member: Member, process: Process, status: Status) -> None:
        """Note how far a server is."""
        memo, of = self._memo, {"server": member.name} if member.name else {}
        for line in self._watches[member.name].record_steps(status.step):
            if line.get("rolled_back"):
                why = str(line["rolled_back"])
                self._events.deviation("an update was undone", why, step=line["step"], **of)
        if memo.stepped(member.name, status.step):
            memo.progress_at = self._repair.clock.time()
            if not member.name:
                self._check_rules()
                if status.step >= 1:
                    self.say("first_step", "server", step=status.step)
        if status.engine_restarts > memo.engine_restarts.get(process.name, 0):
            memo.engine_restarts[process.name] = status.engine_restarts
            why = status.failure or "the engine's process ended"
            times = status.engine_restarts
            self._events.add("server", "engine_restarted", times=times, why=why, **of)
            self._events.deviation("the engine was started again and replayed", why, **of)
        waits = f"; waits for {status.waiting_for}" if status.waiting_for else ""
        said = f"{status.state.value}, step {status.step} of {status.stop_at_step}{waits}"
        self._doing[member.name] = said

    def _check_rules(self) -> None:
        """Carry out the blueprint's stop rules over the steps on file."""
        memo, rules = self._memo, self._starter.blueprint.stop_rules
        if not rules or memo.stopping_at is not None:
            return
        rule = broken_rule(rules, self._folder.steps())
        if rule is None:
            return
        words = rule_words(rule)
        if rule.outcome == "fail":
            nan = rule.when == "not_finite"
            found = FailureClass.NAN if nan else FailureClass.STOP_RULE
            raise AttemptOver("failed", found, f"a stop rule of the blueprint: {words}")
        # The open step is bound: it is the last one.
        done = max(memo.step or 0, self.watch.steps)
        memo.stopping_at, memo.stop_rule = done + 1, words
        self._events.add("worker", "stop_rule", rule=words, last_step=memo.stopping_at)

    def ended_at(self, step: int) -> int | None:
        """The last step of a run that a stop rule ended, None without one. ``step``: where the server stands, now that it is done.

        Steps that it made before it heard of the rule are the run's too.
        """
        memo = self._memo
        if memo.stopping_at is not None:
            memo.stopping_at = max(memo.stopping_at, step)
        return memo.stopping_at

    def end_early(self) -> None:
        """Make the server end where a stop rule said; repeated until it has taken it."""
        at, planned = self._memo.stopping_at, self._starter.blueprint.servers[0].train.stop_at_step
        if at is None or at >= planned or "end_after" in self._memo.said:
            return
        if self.watch.end_after(at):
            self._memo.said.append("end_after")

    # -- clients ----------------------------------------------------------------------------------------------

    def clients(self, status: Status) -> None:
        """Keep the clients at work until training is complete. ``status``: the first server's."""
        for client in self._starter.blueprint.clients:
            self._client(client, status)
            self._scrape(client)

    def _scrape(self, client: ClientSpec) -> None:
        """Record the steps of a client that runs a foreign trainer; a step of it is progress."""
        if not client.trainer_log:
            return
        role = client_role(self._starter.blueprint, client)
        if role not in self._trainers:
            log, out = self._folder.log(role), self._folder.log(f"trainer-{client.name}")
            self._trainers[role] = TrainerLog(client.trainer_log, log, out)
        for step in self._trainers[role].record():
            self._memo.progress_at = self._repair.clock.time()
            if step.not_finite:
                names = " ".join(step.not_finite)
                self.say(f"trainer_not_finite {role}", "client", step=step.step, metrics=names)

    def _client(self, client: ClientSpec, status: Status) -> None:
        """A client whose server only answers is at work as long as the first server trains."""
        blueprint = self._starter.blueprint
        role, server = client_role(blueprint, client), server_of(blueprint, client)
        name = member_of(self._folder, blueprint, server).name if server.trains else ""
        status = self._seen.get(name) or status
        process = self._folder.latest(role)
        dead = process is not None and process.state() not in ALIVE
        if is_complete(status) and (process is None or dead):
            return
        failure = None
        if process is not None and dead and process.name not in self._memo.handled:
            if ended_well(process.exit()):
                fresh = self._watches[name].status()
                if fresh is None or is_complete(fresh):
                    return  # it knew before us that training is complete
                failure = FailureClass.CLIENT_CRASH  # it left too early
            if not _wanted_again(client, process):
                return
        self._alive(role, functools.partial(self._starter.client, self._memo, client), failure)

    def clients_left(self) -> bool:
        """Whether no client lives."""
        roles = (client_role(self._starter.blueprint, c) for c in self._starter.blueprint.clients)
        found = [self._folder.latest(role) for role in roles]
        return not any(process and process.state() in ALIVE for process in found)

    def rouse(self, why: str) -> bool:
        """Nothing moves: start the clients again, once at a step; False when that was tried or cannot help.

        A client can hang where a server waits for it. Nothing under study changes: the server keeps its step, and tasks are
        a function of it.
        """
        memo = self._memo
        step = memo.step or 0
        if memo.roused_at == step:
            return False
        roused = [
            process for client in self._starter.blueprint.clients if (process := self._hung(client))
        ]
        for process in roused:
            memo.roused_at = step
            process.terminate()
            self._repair.ended(memo, process, FailureClass.CLIENT_CRASH, f"it hung: {why}")
        return bool(roused)

    def _hung(self, client: ClientSpec) -> Process | None:
        """The client's process, where it may be started again."""
        role = client_role(self._starter.blueprint, client)
        process = self._folder.latest(role)
        if process is None or process.state() is not ProcessState.RUNNING:
            return None
        counted = process.generation - 1 - self._memo.free_starts.get(role, 0)
        spent = counted >= self._repair.budget("client") or process.name in self._memo.handled
        return None if spent else process

    # -- environments -----------------------------------------------------------------------------------------

    def environments(self) -> bool:
        """Make what the blueprint's processes run in; True once all of it is there."""
        found = self._starter.environments
        for number, (need, spec) in enumerate(specs_of(self._starter.blueprint), 1):
            try:
                recipe = found.recipe(spec, need)
            except BlueprintError as error:
                raise AttemptOver("failed", FailureClass.CONFIG, str(error)) from None
            if recipe is not None:
                role = f"environment-{number}"
                self._doing[""] = "an environment is being made"
                self._alive(role, functools.partial(self._starter.environment, role, recipe))
                return False
        return True

    # -- evaluator --------------------------------------------------------------------------------------------

    def round(self, name: str) -> bool:
        """Bring an evaluation round to its end; True once its complete record is there and its evaluator has left."""
        role = f"evaluator-{name}"
        process = self._folder.latest(role)
        if process is not None and process.state() is ProcessState.EXITED:
            found = self._folder.eval_round(name)
            if found is not None and ended_well(process.exit()):
                problems = check_round(found, name, self._starter.blueprint)
                if problems:
                    raise AttemptOver("failed", FailureClass.EVALUATOR_CRASH, "; ".join(problems))
                told = {"round": name, "step": found.step, "items": found.planned}
                if self.say(f"eval_round {name}", "evaluator", **told):
                    self._memo.progress_at = self._repair.clock.time()
                return True
        early = FailureClass.EVALUATOR_CRASH if process and ended_well(process.exit()) else None
        self._alive(role, lambda: self._starter.evaluator(self._memo, name), early)
        return False

    # -- all --------------------------------------------------------------------------------------------------

    def _alive(
        self, role: str, start: Callable[[], Process], failure: FailureClass | None = None
    ) -> Process | None:
        """The role's process if it lives. If it ended, its end is dealt with, and it is started (again) when it may be.

        ``failure``: what its end was, where the exit record does not tell.
        """
        memo, process = self._memo, self._folder.latest(role)
        if process is not None:
            state = process.state()
            if state is ProcessState.STARTING:
                self._launcher.nudge(process)
            if state in ALIVE:
                self._unblock(role, process)
                # One that was told to go is waited for.
                return process if process.name not in memo.handled else None
            self._repair.ended(memo, process, failure)
        if self._repair.clock.time() < memo.not_before.get(role, 0.0):
            return None
        if not self._repair.may_probe(memo, role):
            return None
        # What was decided must be on file before the start that follows from it.
        self._folder.save_memo(memo)
        try:
            started = start()
        except (BlueprintError, SecretMissing, SandboxMissing) as error:
            self._repair.not_started(memo, role, error)
            return None
        actor = role.partition("-")[0]
        self._events.add(actor, "process_started", process=started.name)
        placed = records(self._folder).get(role)
        if placed is not None:
            self.say(f"environment {role}", actor, role=role, **placed)
        return started

    def _unblock(self, role: str, process: Process) -> None:
        if self._memo.blocked_role == role and (process.age_s() or 0.0) > SETTLED_S:
            self._repair.unblock(self._memo)

    def say(self, what: str, actor: str, **data: object) -> bool:
        """Record a milestone once; True the first time."""
        if what in self._memo.said:
            return False
        self._memo.said.append(what)
        self._events.add(actor, what.partition(" ")[0], **data)
        return True

    def living(self) -> list[Process]:
        """Every process that lives or is about to."""
        return [p for p in self._folder.processes() if p.state() in ALIVE]

    def gone_within(self, timeout_s: float) -> bool:
        """Wait until no process lives, at most this long; returns whether that is so."""
        ends = time.monotonic() + timeout_s
        while self.living():
            if time.monotonic() > ends:
                return False
            time.sleep(0.1)
        return True


def _wanted_again(client: ClientSpec, process: Process) -> bool:
    """What the blueprint says of a client that ended."""
    if client.on_failure == "fail" and not ended_well(process.exit()):
        found = classify("client", process.exit(), process.log_tail())
        raise AttemptOver("failed", found, f"the client ended: {process.exit().words()}")
    return client.on_failure == "restart"


def is_complete(status: Status) -> bool:
    """Whether every step is done, also in the moment before the state says so."""
    stop = status.stop_at_step
    return status.state is EngineState.TRAINED or (stop is not None and status.step >= stop)
