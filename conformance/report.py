"""The report: ``docs/conformance.md``, written anew by each whole run."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from pathlib import Path

from conformance.outcome import Outcome, Verdict

PATH = Path("docs/conformance.md")
INTRODUCTION = """\
# Conformance

What others' software finds when it meets the endpoint. `make conformance` writes this page: it installs each package from
PyPI or npm into `.conformance/`, runs it against a real server with a scripted model, and prints a line a check. Nothing
is vendored, nothing of a package is patched; an agent is told no more than a base URL and a key.

- **SDKs**: the official clients in strict response mode, so that a missing field or an unknown event is an error.
- **Frameworks**: each runs the same task twice: two tool calls at once, one that needs both results, an answer; the second
  time the model also speaks beside its calls. What the server captured must be *the same tree* for all of them: three calls,
  each continuing the one before it by its own token ids, with the same texts, tool calls and finish reasons. *differs*: the
  program works, and its tree is another one for a reason of its own, which the note states and the check insists on.
- **Exec and coding CLIs**: a group of two episodes with different rewards; every captured call must have trained.
- **Fuzzing**: schemathesis on the OpenAPI document; no answer may be a 5xx.
"""
TITLES = {
    "sdks": "SDKs",
    "frameworks": "Agent frameworks",
    "exec": "swarm exec",
    "coding CLIs": "Coding CLIs",
    "fuzzing": "Fuzzing",
}
ENGINES = """\
## Both engines

The model of these checks is scripted, so they hold whatever engine serves. What an engine itself must do is tested apart:

| | embedded (`torch`) | `verl` |
|---|---|---|
| contract of an engine: `swarm.testing.engine_kit` | `make test-long` | `make test-verl` |
| service, routes, client: the tests marked `every_engine` | `make test-long` | `make test-verl` |
| a killed engine, a killed server, `--resume` to the same weights | `tests/swarm/test_learning.py` | `tests/swarm/engine_verl/test_live.py` |
| loss and advantages | hand-computed cases | the same numbers: `tests/swarm/engine_verl/parity` |
| tokens sampled with top-p, top-k, min-p, penalties, a bias or a grammar | train under that distribution | sampled as asked, masked `sampling_not_replayable` |
| the same batch on the same weights gives the same bits | on one device | on one CPU worker; on GPUs `make gpu-check` tells |
| an update beside sampling (`asynchronous`) | on the same device | a rollout on GPUs of its own |
| tests that hold the engine's answer back, or break it on purpose | the toy engine stands for both | the toy engine stands for both |
"""
LIMITS = """\
## Known limits

- The openai SDK's strict mode refuses the stream of `/v1/completions`, OpenAI's own as well: its type wants a finish reason in
  every chunk, and the protocol says null until the last. That stream is checked without strict mode.
- A framework that changes what the model said before it sends it back makes a new path of the episode's tree. Every token still
  trains once, on more rows. The lines marked *differs* say which frameworks do that, and how.
- Tools that OpenAI itself runs (web search, file search, code interpreter) are left out of a Responses request and listed in
  the trace as unknown; the coding CLI above sends one in every request.
- The fuzzer leaves out the event stream, which never ends, and starting and stopping the engine: without one, 503 is the right
  answer. It looks for server errors only. Long-polling requests (`wait_s`) outlast its patience; that is no finding.
- Some agents need settings that their users would write as well: a provider in a file (opencode, codex), a permission to run
  tools (AgentScope), no tracing of their own.
- The model is scripted: these checks say nothing about sampling, which has its own tests.
"""


def write_report(outcomes: list[Outcome], path: Path = PATH) -> None:
    """Write it: a table for each group, in the order of the checks."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    told = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])
    parts = [INTRODUCTION, f"Last run: {told}.\n"]
    for group, members in groupby(outcomes, lambda outcome: outcome.group):
        rows = [
            f"| {_cell(o.name)} | {o.verdict.value} | {_cell(o.what)} | {_cell(o.note)} |"
            for o in members
        ]
        head = ["| check | verdict | with | note |", "|---|---|---|---|"]
        parts.append("\n".join([f"## {TITLES.get(group, group)}", "", *head, *rows, ""]))
    path.write_text("\n".join([*parts, ENGINES, LIMITS]), encoding="utf-8")


def failures(outcomes: list[Outcome]) -> int:
    """Return how many checks failed."""
    return sum(outcome.verdict is Verdict.FAILED for outcome in outcomes)


def _cell(text: str) -> str:
    """The text as a table can hold it: one line, no bars, no paths of this machine."""
    one_line = " ".join(text.replace(str(Path.cwd()), ".").split())
    return one_line.replace("|", "/").replace("<", "&lt;")[:300]
