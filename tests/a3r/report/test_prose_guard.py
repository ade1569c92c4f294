from __future__ import annotations

import random

import pytest

from a3r.report.interpretation import (
    Remark,
    interpretation_faults,
    interpretation_text,
    remark_faults,
)
from a3r.report.prose_guard import hedge_fault, prose_faults, reserved_names

SPEC = {
    "task": "calculator",
    "model": "builtin:tiny-calc",
    "factors": {
        "train_batch_size": {"levels": [1, 4, 16]},
        "algorithm.name": {"levels": ["grpo", "Qwen3-8B"]},
    },
}
NAMES = reserved_names(SPEC, ["s1-b16"])
HONEST = [
    "Small groups of tasks may give noisy gradients, so that chance could decide what is reinforced.",
    "The held-out problems come from the same generator as the practice problems.",
    "Whether a longer horizon would change this picture is unclear.",
    "It may be worth reading traces of episodes that end early; a café-style naïve agent might behave alike.",
    "Someone could repeat the study with a larger model, a topic that often comes up.",
]
NUMBERS = "zero one two three four five six seven eight nine ten twenty thirty ninety"
WORDS = NUMBERS.split()


@pytest.mark.parametrize("text", HONEST)
def test_prose_about_mechanisms_and_limits_may_stand(text):
    assert prose_faults(text, NAMES) == []


def test_none_of_a_thousand_invented_percentages_is_accepted():
    rng = random.Random(7)
    frames = ["it may have come to {}", "{} of them", "perhaps {} more", "({})", "x{}y"]
    for _ in range(1000):
        value = f"{rng.uniform(0, 100):.1f}"
        shape = rng.choice([value, f"{value} %", f"{value} percent", value.replace(".", ",")])
        assert prose_faults(rng.choice(frames).format(shape), NAMES)


def test_no_number_written_in_words_is_accepted():
    rng = random.Random(8)
    for _ in range(500):
        count = rng.randint(1, 3)
        number = rng.choice(["-", " ", ""]).join(rng.choice(WORDS) for _ in range(count))
        assert prose_faults(f"It may be {number}{rng.choice(['', 'fold', 's'])}.", NAMES)


@pytest.mark.parametrize(
    "text",
    [
        "perhaps a third",
        "twice as much",
        "half of it",
        "level IV",
        "level Ⅳ",
        "perhaps 一",
        "circled ④",
        "raised ² high",
        "fo ur points",
        "f-our points",
        "f o u r points",
        "f\u200bour points",
        "f\u043eur points",
        "\uff46\uff4f\uff55\uff52 points",
        "\U0001d7d7\U0001d7d1 points",
        "a dozen points",
        "twenty-second",
        "ninety percent",
        "about fortytwopointthree points",
        "about sixpercent of them",
    ],
)
def test_a_number_in_disguise_is_refused(text):
    assert prose_faults(text, NAMES)


@pytest.mark.parametrize(
    "text",
    [
        "the train_batch_size may matter",
        "the Train Batch Size may matter",
        "perhaps the batch sizes matter",
        "perhaps GRPO helps",
        "perhaps qwen3 8b",
        "perhaps the tiny-calc model",
        "trainbatchsize",
    ],
)
def test_conditions_and_factors_can_not_be_named(text):
    assert any("name" in fault for fault in prose_faults(text, NAMES))


@pytest.mark.parametrize(
    "text",
    [
        "the larger setting wins",
        "this proves it",
        "the best choice may be the cheap one",
        "it outperforms the rest",
        "the effect is significant",
        "every run succeeded",
        "learning clearly improves",
        "the cheap variant is superior",
        "the failures show it",
        "the treatment beats the control",
    ],
)
def test_a_verdict_can_not_be_spoken(text):
    assert any("states a result" in fault for fault in prose_faults(text, NAMES))


@pytest.mark.parametrize(
    "text", ["see https://x", "**bold**", "a | b", "<b>", "[a](b)", "a\tb", "`x`", "", "  "]
)
def test_markup_addresses_and_nothing_are_refused(text):
    assert prose_faults(text, NAMES)


def test_long_text_is_refused_for_its_length():
    assert "characters" in prose_faults("may " * 200, NAMES)[0]


def test_an_explanation_must_be_put_as_a_possibility():
    assert hedge_fault("Noise decides what is reinforced.")
    assert hedge_fault("Noise might decide what is reinforced.") == ""
    told = Remark(kind="explanation", about=("c1",), text="Noise decides what is reinforced.")
    assert remark_faults(told, {"c1"}, NAMES)


def test_an_interpretation_is_framed_by_code_and_reads_back():
    remarks = [
        Remark(kind="explanation", about=("c1", "c3"), text=HONEST[0]),
        Remark(kind="caveat", about=("c2",), text=HONEST[1]),
    ]
    text = interpretation_text(remarks)
    assert text.startswith("Possible explanation (c1, c3): Small groups")
    assert interpretation_faults(text, {"c1", "c2", "c3"}, NAMES) == []
    assert interpretation_faults("", set(), NAMES) == []


@pytest.mark.parametrize(
    ("change", "with_"),
    [("Caveat", "Result"), ("(c2)", "(c9)"), ("held-out", "16"), ("held-out", "best"), (": ", " ")],
)
def test_a_changed_interpretation_is_refused(change, with_):
    remarks = [Remark(kind="caveat", about=("c2",), text=HONEST[1])]
    text = interpretation_text(remarks).replace(change, with_)
    assert interpretation_faults(text, {"c2"}, NAMES)
