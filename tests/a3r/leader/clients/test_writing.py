"""A client that a language model writes: examined, sent back with what was found, and kept by hash once it is fit."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from a3r.blueprints.artifact import unpack_tree
from a3r.blueprints.sealed import SealedTask
from a3r.core.errors import A3RError
from a3r.core.hashing import tree_hash
from a3r.core.llm import ToolCall
from a3r.core.types import JobState
from a3r.leader.clients.references import pages_of
from a3r.leader.clients.shelf import Shelf
from a3r.leader.clients.writing import skill_text
from a3r.leader.goal import GoalSpec
from a3r.testing.stand_in.script import by_task, in_turn, said

_spec = importlib.util.spec_from_file_location("skill", Path(__file__).parent / "skill.py")
skill = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(skill)

OWN_TASK = {
    "task: calculator": "task: reverse words",
    "code: client\n": "",
    "planner: sweep": "planner: llm",
}


def write(study):
    """Do the job; its row."""
    job = study.store.ensure_job(
        f"{study.id}/write_client/reverse words", study.id, "write_client", {"task": "reverse words"}, 1.0
    )  # fmt: skip
    study.jobs().run_all()
    return study.store.job(job.id)


def test_the_model_gets_the_text_that_coding_assistants_get():
    assert skill_text() == skill.SKILL.read_text(encoding="utf-8")


@pytest.mark.long
def test_a_draft_with_a_fault_goes_back_and_the_next_one_is_kept_by_hash(bench, tmp_path):
    leaking = skill.training_rows() + json.dumps({"id": "held-out-3", "word": "x"}) + "\n"
    drafts = (said(skill.written(train=leaking)), said(skill.written()))
    study = bench(by_task({"write_client": in_turn(*drafts)}), edits=OWN_TASK)
    job = write(study)
    assert job.state is JobState.DONE, job.detail
    assert job.result["drafts"] == 2
    told = study.model.asked[1].messages[-1].content
    assert "holds the held-out item 'held-out-3'" in told
    client, evaluator = tmp_path / "c", tmp_path / "e"
    assert (
        unpack_tree(study.store.artifact(job.result["client_sha"]), client)
        == job.result["client_tree"]
    )
    unpack_tree(study.store.artifact(job.result["evaluator_sha"]), evaluator)
    assert tree_hash(evaluator) == job.result["evaluator_tree"]
    with SealedTask(evaluator) as task:
        assert task.item_set_hash(40, 0) == job.result["item_set_hash"]
    assert job.result["trial"]["problems"] == []
    assert not (client / "evaluation.py").exists()


@pytest.mark.long
def test_a_job_that_is_done_again_after_a_crash_pays_for_nothing_twice(bench):
    broken = skill.shown()[0].replace("return reward(", "return rewrad(")
    drafts = (said(skill.written(client=broken)), said(skill.written()))
    study = bench(by_task({"write_client": in_turn(*drafts)}), edits=OWN_TASK)
    job = write(study)
    assert job.state is JobState.DONE, job.detail
    assert "rewrad" in study.model.asked[1].messages[-1].content
    asked = len(study.model.asked)
    runner = study.jobs()
    again = runner.handlers["write_client"](runner.context(job))
    assert len(study.model.asked) == asked
    assert again == job.result


def test_a_page_under_reference_is_read_once_and_shown_as_a_file(bench):
    found = []

    def read_page(address: str) -> str:
        found.append(address)
        if "gone" in address:
            raise A3RError("404")
        return "Turn the words round."

    pages = "reference: ['https://example.org/a/tutorial.html', 'http://gone.example/x']\n"
    study = bench(by_task({}), edits={**OWN_TASK, "pilot:": f"{pages}pilot:"})
    runner = replace(study.jobs(), read_page=read_page)
    payload = {"task": "reverse words"}
    job = study.store.ensure_job(
        f"{study.id}/write_client/x", study.id, "write_client", payload, 1.0
    )
    context = runner.context(job)
    goal = GoalSpec.model_validate(context.campaign.goal_spec)
    first, files = pages_of(context, goal), pages_of(context, goal)
    assert first == files
    assert [p.name for p in files.values()] == [
        "page-1-example.org-a-tutorial.html.txt",
        "page-2-gone.example-x.txt",
    ]
    assert found == list(files) == list(goal.reference)
    shelf = Shelf(tuple(files.values()))
    call = ToolCall(
        id="1", name="read_file", arguments='{"path": "page-1-example.org-a-tutorial.html.txt"}'
    )
    assert "Turn the words round." in shelf.use(call)
    assert "could not be read: 404" in files["http://gone.example/x"].read_text("utf-8")


@pytest.mark.long
def test_drafts_that_never_fit_end_in_words_and_not_in_a_loop(bench):
    bad = said(skill.written(client="import socket\n"))
    study = bench(by_task({"write_client": in_turn(bad)}), edits=OWN_TASK)
    job = write(study)
    assert job.state is JobState.FAILED
    assert "not fit for review after 4 drafts" in job.detail
    assert "imports 'socket'" in job.detail
    assert len(study.model.asked) == 4


@pytest.mark.long
def test_a_client_of_the_users_own_brings_its_evaluator_in_a_subfolder(bench):
    study = bench(by_task({}), edits={"task: calculator": "task: reverse words"})
    client, evaluation = skill.shown()
    folder = study.goal_dir / "client"
    (folder / "client.py").write_text(client, encoding="utf-8")
    (folder / "data" / "train.jsonl").write_text(skill.training_rows(), encoding="utf-8")
    (folder / "evaluator").mkdir()
    (folder / "evaluator" / "evaluation.py").write_text(evaluation, encoding="utf-8")
    job = write(study)
    assert job.state is JobState.DONE, job.detail
    assert study.model.asked == []
    assert job.result["template"] == "code"
    assert job.result["evaluator_tree"] == tree_hash(folder / "evaluator")
