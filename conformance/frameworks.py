"""Agent frameworks run the same task; what was captured must be the same tree for all of them."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.outcome import Outcome, Say, Verdict
from conformance.packages import NotInstalled, python_environment
from conformance.rig import AGENTS, Ran, Rig, keep_evidence
from conformance.scenario import Scenario, final_tool, plain_calls, spoken_calls
from conformance.tree import (
    LOOSE_TREE,
    ONE_TREE,
    SPOKEN_TREE,
    UNSPOKEN_TREE,
    Node,
    broken_ids,
    differences,
    tree_of,
)

GROUP = "frameworks"


Task = tuple[Scenario, list[Node]]
"""What the model says, and the tree that must come of it."""
TASKS: tuple[Task, ...] = ((plain_calls, ONE_TREE), (spoken_calls, SPOKEN_TREE))


@dataclass(frozen=True, slots=True)
class Agent:
    """One program below ``agents/``; it runs each task in an episode of its own."""

    script: str
    dialect: str
    tasks: tuple[Task, ...] = TASKS
    limit: str = ""
    """What the framework itself does that makes a tree another one; written into the report."""


@dataclass(frozen=True, slots=True)
class Framework:
    """What to install, and the agents that it is checked with."""

    name: str
    requirements: tuple[str, ...]
    agents: tuple[Agent, ...]


FRAMEWORKS = (
    Framework("raw-http", (), (Agent("raw_http", "chat"),)),
    Framework("sdk-anthropic", ("anthropic",), (Agent("anthropic_loop", "messages"),)),
    Framework(
        "langgraph",
        ("langgraph", "langchain", "langchain-openai", "langchain-anthropic"),
        (
            Agent("langgraph_agent", "chat"),
            Agent("langgraph_stream", "chat"),
            Agent("langgraph_responses", "responses"),
            Agent("langgraph_responses_stream", "responses"),
            Agent("langgraph_anthropic", "messages"),
            Agent("langgraph_anthropic_stream", "messages"),
        ),
    ),
    Framework(
        "openai-agents",
        ("openai-agents",),
        (
            Agent("openai_agents", "responses"),
            Agent("openai_agents_stream", "responses"),
            Agent("openai_agents_chat", "chat"),
        ),
    ),
    Framework(
        "pydantic-ai",
        ("pydantic-ai-slim[openai,anthropic]",),
        (
            Agent("pydantic_ai_agent", "chat"),
            Agent("pydantic_ai_stream", "chat"),
            Agent("pydantic_ai_responses", "responses"),
            Agent("pydantic_ai_anthropic", "messages"),
        ),
    ),
    Framework(
        "autogen",
        ("autogen-agentchat", "autogen-ext[openai]"),
        (Agent("autogen_agent", "chat"),),
    ),
    Framework(
        "crewai",
        ("crewai",),
        (
            Agent(
                "crewai_agent",
                "chat",
                (TASKS[0], (spoken_calls, UNSPOKEN_TREE)),
                "CrewAI drops the text beside tool calls when it sends them back, so the next call begins a path of its own",
            ),
        ),
    ),
    Framework(
        "agentscope",
        ("agentscope",),
        (Agent("agentscope_agent", "chat"), Agent("agentscope_stream", "chat")),
    ),
    Framework(
        "smolagents",
        ("smolagents[openai]",),
        (
            Agent(
                "smolagents_tools",
                "chat",
                ((final_tool, LOOSE_TREE),),
                "smolagents tells tool calls and results as text when it sends them back, so every call is a path of its own",
            ),
        ),
    ),
    Framework("metagpt", ("metagpt>=0.8",), (Agent("metagpt_agent", "chat"),)),
)


def check_frameworks(rig: Rig, only: set[str], say: Say) -> None:
    """Run every framework (or those named in ``only``)."""
    for framework in FRAMEWORKS:
        if not only or framework.name in only or GROUP in only:
            for outcome in _check(rig, framework):
                say(outcome)


def _check(rig: Rig, framework: Framework) -> list[Outcome]:
    try:
        environment = python_environment(framework.name, framework.requirements)
    except NotInstalled as error:
        wanted = ", ".join(framework.requirements)
        return [Outcome(GROUP, framework.name, Verdict.MISSING, wanted, str(error))]
    versions = environment.versions or "standard library"
    return [_run(rig, agent, str(environment.python), versions) for agent in framework.agents]


def _run(rig: Rig, agent: Agent, python: str, versions: str) -> Outcome:
    script, problems = str(AGENTS / f"{agent.script}.py"), list[str]()
    for scenario, expected in agent.tasks:
        ran = rig.run([python, script], scenario)
        found = _problems(agent, ran, expected)
        if found:
            keep_evidence(f"{agent.script}-{scenario.__name__}", ran)
            problems += [f"{scenario.__name__}: {problem}" for problem in found]
    verdict = Verdict.DIFFERS if agent.limit else Verdict.PASSED
    return Outcome(
        GROUP,
        f"{agent.script} ({agent.dialect})",
        Verdict.FAILED if problems else verdict,
        versions,
        "; ".join(problems) or agent.limit,
    )


def _problems(agent: Agent, ran: Ran, expected: list[Node]) -> list[str]:
    found = differences(tree_of(ran.trace), expected) + broken_ids(ran.trace)
    if ran.returncode != 0:
        found.insert(0, f"exit {ran.returncode}: {_last_line(ran.output)}")
    others = {call.dialect for call in ran.trace.calls} - {agent.dialect}
    return [*found, f"spoke {', '.join(sorted(others))}"] if others else found


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output"
