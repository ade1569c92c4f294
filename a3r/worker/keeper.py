"""Keeps the processes of one attempt as they should be: server up, client at work, each due evaluation round done."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

from a3r.core.errors import BlueprintError
from a3r.core.types import FailureClass
from a3r.sandbox.enclosure import SandboxMissing
from a3r.worker.collect import check_round
from a3r.worker.environments import SecretMissing, specs_of
from a3r.worker.events import EventLog
from a3r.worker.failures import classify
from a3r.worker.folder import AttemptFolder, Memo
from a3r.worker.places import records
from a3r.worker.processes import ExitRecord, Launcher, Process, ProcessState
from a3r.worker.repair import AttemptOver, Repair, ended_well
from a3r.worker.roles import Starter
from a3r.worker.server_watch import SILENT_LOOKS, SILENT_S, ServerWatch
from a3r.worker.stop_rules import broken_rule, rule_words
from swarm.protocol.messages import Status
from swarm.protocol.states import EngineState

ALIVE = (ProcessState.STARTING, ProcessState.RUNNING)
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
        self.watch = ServerWatch(folder)
        self.detail = ""
        """What the server does, in words."""
        self._folder, self._memo, self._events = folder, memo, events
        self._repair, self._starter, self._launcher = repair, starter, launcher

    # -- server -----------------------------------------------------------------------------------------------

    def server(self) -> Status | None:
        """Keep the server running; returns its status, or None when there is nothing to go on with now."""
        process = self._alive("server", lambda: self._starter.server(self._memo))
        address = self.watch.address()
        if process is None or process.state() is not ProcessState.RUNNING or address is None:
            return None
        status = self.watch.status()
        if self.watch.is_dead(self._repair.clock.time(), status is not None):
            process.terminate()
            why = f"the server did not answer for {SILENT_S:g} s and {SILENT_LOOKS} looks"
            self._repair.ended(self._memo, process, FailureClass.SERVER_CRASH, why)
        if status is None:
            self.detail = "the server does not answer"
            return None
        self._moved_to(*address)
        self.say("server_ready", "server", url=address[0])
        if status.state is EngineState.OFFLINE and status.failure:
            # It lives, but its engine does not come back: only a new start helps.
            process.terminate()
            found = classify("server", ExitRecord(code=1, error=status.failure), b"")
            self._repair.ended(self._memo, process, found, status.failure)
            return None
        self._follow(process, status)
        return status

    def _moved_to(self, url: str, port: int) -> None:
        """A server that came back elsewhere: the client must be told, which costs it none of its restarts."""
        memo, client = self._memo, self._folder.latest("client")
        if memo.url and memo.url != url and client is not None and client.state() in ALIVE:
            memo.free_starts["client"] = memo.free_starts.get("client", 0) + 1
            memo.handled.append(client.name)
            self._events.deviation("the client was started again", f"the server moved to {url}")
            client.terminate()
        memo.url, memo.port = url, port

    def _follow(self, process: Process, status: Status) -> None:
        """Note how far the server is."""
        memo = self._memo
        for line in self.watch.record_steps(status.step):
            if line.get("rolled_back"):
                why = str(line["rolled_back"])
                self._events.deviation("an update was undone", why, step=line["step"])
        if status.step != memo.step:
            memo.step, memo.progress_at = status.step, self._repair.clock.time()
            self._check_rules()
            if status.step >= 1:
                self.say("first_step", "server", step=status.step)
        if status.engine_restarts > memo.engine_restarts.get(process.name, 0):
            memo.engine_restarts[process.name] = status.engine_restarts
            why = status.failure or "the engine's process ended"
            self._events.add("server", "engine_restarted", times=status.engine_restarts, why=why)
            self._events.deviation("the engine was started again and replayed", why)
        waits = f"; waits for {status.waiting_for}" if status.waiting_for else ""
        self.detail = f"{status.state.value}, step {status.step} of {status.stop_at_step}{waits}"

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
        memo.stopping_at, memo.stop_rule = (memo.step or 0) + 1, words
        self._events.add("worker", "stop_rule", rule=words, last_step=memo.stopping_at)

    def end_early(self) -> None:
        """Make the server end where a stop rule said; repeated until it has taken it."""
        at, planned = self._memo.stopping_at, self._starter.blueprint.servers[0].train.stop_at_step
        if at is None or at >= planned or "end_after" in self._memo.said:
            return
        if self.watch.end_after(at):
            self._memo.said.append("end_after")

    # -- client -----------------------------------------------------------------------------------------------

    def client(self, status: Status) -> None:
        """Keep the client at work until training is complete."""
        process = self._folder.latest("client")
        dead = process is not None and process.state() not in ALIVE
        if is_complete(status) and (process is None or dead):
            return
        failure = None
        if process is not None and dead and process.name not in self._memo.handled:
            if ended_well(process.exit()):
                fresh = self.watch.status()
                if fresh is None or is_complete(fresh):
                    return  # it knew before us that training is complete
                failure = FailureClass.CLIENT_CRASH  # it left too early
            if not self._wanted_again(process):
                return
        self._alive("client", lambda: self._starter.client(self._memo), failure)

    def _wanted_again(self, process: Process) -> bool:
        """What the blueprint says of a client that ended."""
        policy = self._starter.blueprint.clients[0].on_failure
        if policy == "fail" and not ended_well(process.exit()):
            found = classify("client", process.exit(), process.log_tail())
            raise AttemptOver("failed", found, f"the client ended: {process.exit().words()}")
        return policy == "restart"

    def rouse(self, why: str) -> bool:
        """Nothing moves: start the client again, once at a step; False when that was tried or cannot help.

        A client can hang where the server waits for it. Nothing under study changes: the server keeps its step, and tasks are
        a function of it.
        """
        memo, process = self._memo, self._folder.latest("client")
        step = memo.step or 0
        if process is None or process.state() is not ProcessState.RUNNING or memo.roused_at == step:
            return False
        counted = process.generation - 1 - memo.free_starts.get("client", 0)
        if counted >= self._repair.budget("client") or process.name in memo.handled:
            return False
        memo.roused_at = step
        process.terminate()
        self._repair.ended(memo, process, FailureClass.CLIENT_CRASH, f"it hung: {why}")
        return True

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
                self.detail = "an environment is being made"
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


def is_complete(status: Status) -> bool:
    """Whether every step is done, also in the moment before the state says so."""
    stop = status.stop_at_step
    return status.state is EngineState.TRAINED or (stop is not None and status.step >= stop)
