"""The calculator game as a relay: several models take turns in one episode, each going on from what the others said.

The messages are OpenAI's, so each server renders the others' tool calls with its own template and tokenizer. All roles get
the same reward: whether the last one's answer is the sum.
"""

from __future__ import annotations

from swarm.client.group_episode import AsyncGroupEpisode
from swarm.client.tasks import Task
from swarm.tasks.calculator import MAX_TURNS, TOOLS, next_messages, question, score

Scored = tuple[float, dict[str, float]]


async def run_relay(episode: AsyncGroupEpisode, task: Task) -> Scored:
    """Play one game, the trained and untrained roles of servers in turn; returns the reward and ``turns``."""
    messages, roles = question(task), episode.server_roles
    for turn in range(MAX_TURNS):
        answer = await episode.role(roles[turn % len(roles)]).chat(messages, tools=TOOLS)
        messages.append(answer.message)
        calls = [(str(c.get("id")), str(c["function"]["arguments"])) for c in answer.tool_calls]
        said = next_messages(answer.text, calls, answer.finish_reason)
        messages.extend(said)
        if not said:
            break
    return score(task, messages), {"turns": float(sum(m["role"] == "assistant" for m in messages))}
