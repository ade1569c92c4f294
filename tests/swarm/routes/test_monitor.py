"""The overview and the Prometheus metrics over HTTP."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

from swarm.protocol.episodes import AbortRequest
from swarm.protocol.overview import Overview
from swarm.protocol.records import StepMetrics
from swarm.server.routes.gauges import LAST_STEP
from swarm.testing import retry_until
from swarm.testing.server_fixture import play_step

GUIDE = Path(__file__).parents[3] / "docs/guides/monitoring.md"


async def scraped(rig, **headers):
    """Families by name, as Prometheus' own parser reads them."""
    answer = await rig.ask("GET", "/metrics", rig.tokens.client, headers=headers)
    assert answer.status_code == 200
    return answer, {family.name: family for family in parse(answer.text)}


async def test_the_overview_is_for_admins_and_trainers_and_hides_evaluation_from_the_latter(rig):
    held_out = await rig.grant("eval", rig.tokens.eval, client_id="judge")
    own = await rig.grant()
    whole = (await rig.ask("GET", "/swarm/overview", rig.tokens.admin)).text
    assert {one.episode_id for one in Overview.model_validate_json(whole).running} == {
        held_out["episode_id"],
        own["episode_id"],
    }
    mine = await rig.ask("GET", "/swarm/overview", rig.tokens.client)
    assert [one["episode_id"] for one in mine.json()["running"]] == [own["episode_id"]]
    assert held_out["episode_id"] not in mine.text
    assert (await rig.ask("GET", "/swarm/overview", rig.tokens.eval)).status_code == 403
    assert (await rig.ask("GET", "/swarm/overview")).status_code == 401


async def test_a_new_server_has_metrics_without_a_configuration(offline):
    _, families = await scraped(offline)
    states = {s.labels["state"]: s.value for s in families["swarm_engine_state"].samples}
    assert (states["OFFLINE"], sum(states.values())) == (1.0, 1.0)
    assert "swarm_policy_version" not in families  # missing, not 0
    assert "swarm_last_step" not in families


async def test_metrics_have_prometheus_types_and_labels(rig):
    await play_step(rig.service, 4)
    await retry_until(lambda: rig.service.status().step == 1)
    lost = await rig.grant()
    await rig.service.abort(lost["episode_id"], AbortRequest())
    answer, families = await scraped(rig)
    assert answer.headers["content-type"].startswith("text/plain; version=")
    types = {name: family.type for name, family in families.items()}
    assert types["swarm_step"] == types["swarm_open_episodes"] == "gauge"
    assert types["swarm_sampled_tokens"] == types["swarm_calls"] == "counter"
    assert types["swarm_call_duration_seconds"] == "histogram"
    ended = {
        (s.labels["kind"], s.labels["outcome"]): s.value
        for s in families["swarm_episodes_ended"].samples
    }
    assert ended == {("train", "finished"): 4.0, ("train", "aborted"): 1.0}
    (last,) = rig.service.metrics(0)
    assert families["swarm_last_step"].samples[0].value == 1.0
    assert families["swarm_last_step_reward_mean"].samples[0].value == last.reward_mean
    booked = {
        (s.labels["fate"], s.labels["reason"]): s.value
        for s in families["swarm_tokens_booked"].samples
    }
    assert booked == {("trained", ""): last.tokens["trained"]} | {
        tuple(key.split(":")): count for key, count in last.tokens.items() if ":" in key
    }
    buckets = [s for s in families["swarm_call_duration_seconds"].samples if "le" in s.labels]
    counts = [s.value for s in buckets]
    assert counts == sorted(counts)
    assert counts[-1] == 8.0
    assert "process_cpu_seconds" in families


async def test_a_scraper_that_asks_for_openmetrics_gets_it(rig):
    accept = "application/openmetrics-text; version=1.0.0"
    answer, _ = await scraped(rig, accept=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in parse_open(answer.text)}
    assert {"swarm_step", "swarm_sampled_tokens"} <= names


async def test_hostile_labels_cannot_break_the_format(offline):
    config = {"engine": "toy", "model": {"path": "builtin:tiny-calc"}}
    await offline.ask("PUT", "/swarm/config", offline.tokens.admin, json=config)
    core = offline.service._core
    core.configured = core.configured.model_copy(
        update={"model": core.configured.model.model_copy(update={"path": 'a"} 1\nevil 1\\'})}
    )
    _, families = await scraped(offline)
    assert "evil" not in families
    assert families["swarm_server_info"].samples[0].labels["model"] == 'a"} 1\nevil 1\\'


async def test_every_metric_of_the_last_step_is_a_field_and_every_name_is_in_the_guide(rig):
    assert set(LAST_STEP) <= set(StepMetrics.model_fields)
    await play_step(rig.service, 4)
    await retry_until(lambda: rig.service.status().step == 1)
    _, families = await scraped(rig)
    guide = GUIDE.read_text("utf-8")
    documented = set(re.findall(r"`(swarm_\w+)", guide))
    served = {
        f"{name}_total" if family.type == "counter" else name
        for name, family in families.items()
        if name.startswith("swarm_")
    }
    assert served <= documented
