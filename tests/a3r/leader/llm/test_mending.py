"""What can be read out of a reply as it came, and what must be asked again."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, TypeAdapter

from a3r.leader.llm.mending import Misfit, read_answer


class Colour(StrEnum):
    DEEP_RED = "deep-red"
    BLUE = "blue"


class Step(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: Literal["go", "stop"]
    colour: Colour = Colour.BLUE
    notes: tuple[str, ...] = ()


STEP = TypeAdapter(Step)
GOOD = '{"kind": "go", "notes": ["a, ]", "b}"]}'


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"  \n{GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        f"Sure! Here it is:\n\n```json\n{GOOD}\n```\nLet me know if [anything] {{else}} helps.",
        f"Here you are: {GOOD} Good luck!",
        f'<think>maybe {{"kind": "stop"}}?</think>{GOOD}',
        '{"kind": "go", "notes": ["a, ]", "b}",],}',
        f'{{"answer": {GOOD}}}',
        f"I use {{braces}} first. {GOOD}",
        f"{GOOD}\n{GOOD}",
        '{"kind": "GO", "notes": ["a, ]", "b}"]}',
        f"```json\n{GOOD}",
    ],
)
def test_a_slip_of_form_is_mended_here(text: str) -> None:
    assert read_answer(text, STEP) == Step(kind="go", notes=("a, ]", "b}"))


def test_a_known_word_in_another_spelling_is_that_word() -> None:
    found = read_answer('{"kind": "Stop", "colour": "Deep Red"}', STEP)
    assert found == Step(kind="stop", colour=Colour.DEEP_RED)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no complete JSON"),
        ("I would rather not.", "no complete JSON"),
        (GOOD[:-8], "no complete JSON"),
        (f"Here: {GOOD[:-1]}", "no complete JSON"),
        ('{"kind": "go", "notes": [{"kind": "stop"}, ', "no complete JSON"),
        ('{"kind": "wait"}', "kind.*'go' or 'stop'.*'wait'"),
        ('{"notes": []}', "kind: Field required"),
        ('{"kind": "go", "more": 1}', "more: Extra inputs"),
        ("[1, 2]", "the whole"),
        ('{"kind": "go"} or rather {"kind": "stop"}', "several answers"),
        ('{"kind": "go", "notes": [NaN]}', "no complete JSON"),
        ("[" * 100_000, "no complete JSON"),
        ("{ " * 50_000, "no complete JSON"),
    ],
)
def test_what_is_not_there_is_not_guessed(text: str, words: str) -> None:
    with pytest.raises(Misfit, match=words):
        read_answer(text, STEP)


def test_faults_are_listed_briefly() -> None:
    class Wide(BaseModel):
        items: list[int]

    bad = json.dumps({"items": ["x" * 500] * 40})
    with pytest.raises(Misfit) as caught:
        read_answer(bad, TypeAdapter(Wide))
    assert "and 32 more" in str(caught.value)
    assert len(str(caught.value)) < 2000


@given(
    st.lists(st.text(max_size=30), max_size=4),
    st.sampled_from(["{}", "```json\n{}\n```", "So:\n{}\nThat is all."]),
)
def test_any_text_in_an_answer_survives(notes: list[str], form: str) -> None:
    step = Step(kind="go", notes=tuple(notes))
    assert read_answer(form.replace("{}", step.model_dump_json()), STEP) == step


@given(st.integers(min_value=0, max_value=200))
def test_an_answer_that_was_cut_off_is_never_taken_for_one(cut: int) -> None:
    whole = json.dumps({"kind": "go", "notes": ["one", '{"kind": "stop"}', "three"]})
    if cut >= len(whole):
        return
    with pytest.raises(Misfit):
        read_answer(whole[:cut], STEP)


@given(st.text(alphabet='{}[]",:ab1 \n`', max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        found = read_answer(text, STEP)
    except Misfit:
        return
    assert isinstance(found, Step)
