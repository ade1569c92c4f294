"""An attempt whose evaluator is a sealed folder: unpacked beside the client, checked, scored in a process of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from a3r.blueprints.artifact import pack_tree
from a3r.blueprints.model import EvaluatorSpec
from a3r.blueprints.sealed import SealedTask
from a3r.core.errors import BlueprintError
from a3r.core.hashing import tree_hash
from a3r.core.types import FailureClass
from a3r.sandbox.host import host_walls
from a3r.worker.folder import AttemptFolder
from a3r.worker.prepare import unpack_client, unpack_evaluator

EVALUATION = """
def items(count, seed):
    return [
        {"item_id": f"h{i}", "payload": {"operands": [i, seed + i]}, "answer": seed + 2 * i}
        for i in range(count)
    ]
def score(item, trace):
    assert item["answer"] == sum(item["payload"]["operands"])
    %s
    return 0.25 + 0.5 * (trace["calls"][-1]["reply"].get("content") == str(item["answer"]))
"""


def sealed_blueprint(lab, tmp_path, trouble="pass", **arguments):
    folder = tmp_path / "evaluator"
    folder.mkdir()
    (folder / "evaluation.py").write_text(EVALUATION % trouble, encoding="utf-8")
    with SealedTask(folder) as task:
        evaluator = EvaluatorSpec(
            task="sums",
            items=4,
            item_seed=3,
            item_set_hash=task.item_set_hash(4, 3),
            source_hash=task.source_hash(),
            artifact=lab.hub.put_artifact(pack_tree(folder)),
        )
    return lab.blueprint(**arguments).model_copy(update={"evaluator": evaluator})


@pytest.mark.long
def test_a_run_is_scored_by_the_sealed_evaluator(lab, tmp_path):
    attempt = lab.queue(sealed_blueprint(lab, tmp_path, pry=True))
    lab.worker()
    assert lab.finished(attempt).outcome == "succeeded", lab.story(attempt)
    if not host_walls().missing:
        for mode, where in (("train", "work/client"), ("eval", "evals/final")):
            seen = json.loads((lab.folder().path / where / f"pry-{mode}.json").read_text())
            parts = {Path(name).parts[0] for name in seen}
            own = {"train": "client.token", "eval": "eval.token"}[mode]
            assert own in parts
            assert parts <= {"client", "client.json", own, "work", "evals"}
        walls = attempt.finish.summary["environments"]["scoring"]["sandbox"]
        assert {"files", "network", "processes"} <= set(walls["enforced"])
    final = attempt.rounds["final"]
    assert [i.item_id for i in final.items] == ["h0", "h1", "h2", "h3"]
    assert {i.reward for i in final.items} <= {0.25, 0.75}
    assert final.evaluator_hash == tree_hash(tmp_path / "evaluator")
    assert "answer" not in str(list(lab.folder().client.rglob("*")))


@pytest.mark.long
def test_an_evaluator_that_cannot_score_an_item_fails_the_attempt_and_gives_no_zero(lab, tmp_path):
    attempt = lab.queue(sealed_blueprint(lab, tmp_path, "1 / item['payload']['operands'][0]"))
    lab.worker()
    found = lab.finished(attempt)
    assert (found.outcome, found.failure) == ("failed", FailureClass.EVALUATOR_CRASH)
    assert "score_failed" in found.reason
    assert lab.folder().eval_round("initial").items[0].reward is None


def test_an_evaluator_that_is_not_the_reviewed_one_is_refused(lab, tmp_path):
    blueprint = sealed_blueprint(lab, tmp_path)
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "evaluator", other)
    (other / "evaluation.py").write_text("# always right", encoding="utf-8")
    evaluator = blueprint.evaluator.model_copy(
        update={"artifact": lab.hub.put_artifact(pack_tree(other))}
    )
    blueprint = blueprint.model_copy(update={"evaluator": evaluator})
    folder = AttemptFolder(tmp_path / "a-1")
    folder.path.mkdir()
    with pytest.raises(BlueprintError, match=r"evaluator.s code .* is not what was reviewed"):
        unpack_evaluator(folder, blueprint, lab.hub.artifact)
    assert not folder.evaluator.exists()


def test_a_revision_replaces_the_blueprints_client_and_is_checked_by_its_own_hash(lab, tmp_path):
    blueprint = lab.blueprint()
    code = tmp_path / "revised"
    shutil.copytree(Path(__file__).parent / "log_tails", code)
    changes = {
        "client_artifact": lab.hub.put_artifact(pack_tree(code)),
        "client_tree_hash": tree_hash(code),
        "revision": 1,
    }
    folder = AttemptFolder(tmp_path / "a-1")
    folder.path.mkdir()
    unpack_client(folder, lab.spec(blueprint), blueprint, lab.hub.artifact)
    revised = lab.spec(blueprint).model_copy(update=changes)
    unpack_client(folder, revised, blueprint, lab.hub.artifact)
    assert tree_hash(folder.client) == tree_hash(code)
    wrong = revised.model_copy(update={"client_tree_hash": "0" * 64})
    with pytest.raises(BlueprintError, match="is not what was reviewed"):
        unpack_client(folder, wrong, blueprint, lab.hub.artifact)
