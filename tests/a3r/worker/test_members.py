"""Attempts with several servers and clients: who is told of whom, what is waited for, which GPUs are whose."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from a3r.blueprints.model import Blueprint
from a3r.core.errors import BlueprintError
from a3r.core.hashing import bytes_hash, tree_hash
from a3r.testing.waiting import retry_until as until
from a3r.worker.folder import AttemptFolder, Memo, role_of
from a3r.worker.members import code_of, share_gpus
from a3r.worker.prepare import prepare
from a3r.worker.processes import Process, count_owned, read_json

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def team(lab, *, critic_steps=3, arguments=None, **options):
    """A policy, a critic that is trained too, a judge that only answers; a client for each of the trained ones."""
    plain = lab.blueprint(**options)
    policy, client = plain.servers[0], plain.clients[0]

    def server(name, steps, **changes):
        train = policy.train.model_copy(update={"stop_at_step": steps})
        return policy.model_copy(update={"name": name, "train": train, **changes})

    coach = {"name": "coach", "server": "critic"}
    coach["arguments"] = {**client.arguments, "trouble": {}, **(arguments or {})}
    body = plain.model_copy(
        update={
            "servers": (policy, server("critic", critic_steps), server("judge", 9, trains=False)),
            "clients": (client, client.model_copy(update=coach)),
        }
    )
    return Blueprint.model_validate(body.model_dump())


@linux
@pytest.mark.timeout(150)
def test_a_run_of_several_servers_ends_when_each_that_is_trained_has_made_its_steps(lab):
    attempt = lab.queue(team(lab, peek=True, arguments={"peek": True}))
    lab.worker()
    report = lab.finished(attempt, 90)
    assert report.outcome == "succeeded", lab.story(attempt)
    roles = ("server", "server-critic", "server-judge", "client", "client-coach")
    assert {role: report.summary["generations"][role] for role in roles} == dict.fromkeys(roles, 1)
    assert sorted(attempt.steps) == [1, 2]
    critic = [json.loads(line)["step"] for line in attempt.logs["steps-critic"].splitlines()]
    assert critic == [1, 2, 3]
    others = report.summary["servers"]
    assert {n: (s["steps"], s["seed"], s["trains"]) for n, s in others.items()} == {
        "critic": (3, 5, True),
        "judge": (0, 5, False),
    }
    folder = lab.folder()
    for mode, where in (("train", "work/client"), ("train", "work/coach"), ("eval", "evals/final")):
        seen = read_json(folder.path / where / f"peek-{mode}.json")
        assert seen is not None
        assert set(seen) == {"policy", "critic", "judge"}
        assert seen["judge"] == 0
    told = read_json(folder.path / "client-coach.json")
    assert told["url"] == told["servers"]["critic"]["url"] != told["servers"]["policy"]["url"]
    # Nobody but an evaluator may use what only answers.
    kinds = {n: Path(s["token_file"]).name for n, s in told["servers"].items()}
    expected = {"policy": "client.token", "critic": "client-critic.token"}
    assert kinds == {**expected, "judge": "eval-judge.token"}
    assert {"server-critic", "server-judge", "client-coach"} <= set(attempt.logs)
    assert count_owned(lab.nonce) == 0


@linux
@pytest.mark.timeout(150)
def test_a_further_server_that_dies_comes_back_alone_with_its_steps(lab):
    attempt = lab.queue(team(lab, critic_steps=4, arguments={"trouble": {"2": "hang"}}))
    lab.worker()
    until(lambda: (lab.folder().path / "work" / "coach" / "misbehaved.2").exists(), 60)
    before = lab.folder().memo().where("critic")
    os.kill(lab.pid("server-critic"), signal.SIGKILL)
    until(lambda: len(lab.folder().generations("server-critic")) == 2)
    os.kill(lab.pid("client-coach"), signal.SIGKILL)
    report = lab.finished(attempt, 90)
    assert report.outcome == "succeeded", lab.story(attempt)
    generations = report.summary["generations"]
    assert (generations["server"], generations["server-critic"], generations["client"]) == (1, 2, 1)
    assert generations["client-coach"] == 2
    assert lab.folder().memo().where("critic").url == before.url
    assert report.summary["servers"]["critic"]["steps"] == 4


def test_gpus_are_shared_out_disjointly_and_the_rest_is_the_first_servers(lab):
    plain = team(lab)
    assert share_gpus(plain, [3, 5]) == {"policy": [3, 5], "critic": [], "judge": []}
    wants = dict(zip(("policy", "critic", "judge"), (2, 1, 0), strict=True))
    servers = [s.model_copy(update={"gpus": wants[s.name]}) for s in plain.servers]
    asked = plain.model_copy(update={"servers": tuple(servers)})
    assert share_gpus(asked, [0, 1, 2, 7]) == {"policy": [0, 1, 7], "critic": [2], "judge": []}
    with pytest.raises(BlueprintError, match="want 3 GPUs, the attempt has 2"):
        share_gpus(asked, [0, 1])


def test_clients_of_one_tree_share_a_folder_and_other_code_must_have_been_sent(lab, tmp_path):
    blueprint = team(lab)
    folder = AttemptFolder(tmp_path / "a-1")
    folder.path.mkdir()
    prepare(folder, lab.spec(blueprint), blueprint, lab.hub.artifact)
    assert code_of(folder, blueprint, blueprint.clients[1]) == folder.client

    first, coach = blueprint.clients
    other = blueprint.model_copy(
        update={"clients": (first, coach.model_copy(update={"tree_hash": "f" * 64}))}
    )
    with pytest.raises(BlueprintError, match=r"'coach' .* was not sent"):
        prepare(folder, lab.spec(other), other, lab.hub.artifact)
    # An artifact whose code is another than the blueprint's is refused, whoever sent it.
    sent = lab.spec(other).model_copy(update={"artifacts": {"client:coach": lab.artifact}})
    assert bytes_hash(lab.hub.artifacts[lab.artifact]) == lab.artifact
    with pytest.raises(BlueprintError, match="is not what was reviewed"):
        prepare(folder, sent, other, lab.hub.artifact)
    assert tree_hash(folder.client) == lab.tree


def test_a_repair_changes_all_entries_of_the_repaired_folder(lab):
    changed = team(lab).with_client("e" * 64)
    assert {c.tree_hash for c in changed.clients} == {"e" * 64}


def test_names_that_do_not_tell_apart_or_lead_nowhere_are_refused(lab):
    body = team(lab).model_dump()
    for change, words in (
        (lambda b: b["servers"][1].update(name="policy"), "names of their own"),
        (lambda b: b["clients"][1].update(name="client"), "names of their own"),
        (lambda b: b["clients"][1].update(name="CLIENT"), "names of their own"),
        (lambda b: b["clients"][1].update(server="nobody"), "names none of the servers"),
        (lambda b: b["servers"][0].update(trains=False), "is trained and evaluated"),
        (lambda b: b["servers"][1].update(name="a/b"), "pattern"),
    ):
        bad = json.loads(json.dumps(body))
        change(bad)
        with pytest.raises(ValidationError, match=words):
            Blueprint.model_validate(bad)


@pytest.mark.parametrize("section", ["stop_rules", "evaluator"])
def test_a_rule_or_an_evaluator_of_another_server_is_refused_in_words(lab, section):
    rule = {"metric": "entropy", "when": "below", "value": 0.1, "server": "critic"}
    body = lab.blueprint().model_dump(mode="json")
    told = [rule] if section == "stop_rules" else {**body["evaluator"], "server": "critic"}
    with pytest.raises(ValidationError, match=r"the first server .* cannot name another .'critic'"):
        Blueprint.model_validate({**body, section: told})


def test_a_start_is_known_by_its_role_whatever_its_name():
    names = ("server.1", "server-a.2", "client.1", "client-b.1", "environment-2.1")
    found = [role_of(Process(Path(name))) for name in names]
    assert found == ["server", "server", "client", "client", "environment"]
    memo = Memo()
    memo.moved("critic", "http://x", 7)
    assert memo.stepped("critic", 3)
    assert not memo.stepped("critic", 3)
    assert (memo.where("critic").port, memo.where("critic").step, memo.port) == (7, 3, None)
