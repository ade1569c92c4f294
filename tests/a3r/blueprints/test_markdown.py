"""Blueprint <-> blueprint.md."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from a3r.blueprints.markdown import from_markdown, read_blueprint, to_markdown, write_blueprint
from a3r.blueprints.model import Blueprint
from a3r.blueprints.yaml import YamlProblem, dump_yaml, load_yaml
from a3r.core.errors import BlueprintError

TRAPS = [
    *("no", "on", "yes", "NO", "true", "null", "~", "", " ", "1e-3", "1", "0x1f", "0o17", "012", "1_000", ".5", "+1"),
    *("2020-01-01", "12:30:45", "<<", "=", "---", "...", "- a", "a: b", "a #b", "#", "'", '"', "|", ">", "%", "@x", "`"),
    *("&a", "*a", "!tag", "[1", "{a", "\t", "a\n", "\na", " a\nb", "a \nb", "a\n\n", "a\r\nb", "\u2028", "\x85", "\ufeff", "\x00", "\x7f", "é🙂"),
    *(".inf", ".nan", "-", "?", "x" * 300, "a\n---\nb", "---\na"),
]  # fmt: skip
texts = st.one_of(st.sampled_from(TRAPS), st.text(st.characters(codec="utf-8"), max_size=20))
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70)
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
quick = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    # Whole blueprints take long to shrink; the test of YAML alone does it with small values.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


def _same(one: Any, two: Any) -> bool:
    """Equal with types: 1 is not 1.0 and not True."""
    return repr(one) == repr(two)


@pytest.mark.parametrize("text", TRAPS)
def test_a_text_stays_that_text_as_key_and_as_value(text: str) -> None:
    value = {text: text, "list": [text], "in": {text: [text]}}
    assert _same(load_yaml(dump_yaml(value)), value)


@settings(max_examples=100, deadline=None)
@given(value=st.dictionaries(texts, values, max_size=4))
def test_any_json_value_survives_yaml_with_its_types(value: dict[str, Any]) -> None:
    assert _same(load_yaml(dump_yaml(value)), value)


@quick
@given(
    factors=st.dictionaries(texts, values, max_size=3),
    purpose=texts,
    notes=texts,
    seeds=st.lists(st.integers(), max_size=3),
)
def test_any_blueprint_survives_its_file(
    blueprint: Blueprint, factors: Any, purpose: str, notes: str, seeds: list[int]
) -> None:
    changes = {"factors": factors, "purpose": purpose, "notes": notes, "seeds": tuple(seeds)}
    given_one = blueprint.model_copy(update=changes)
    text = to_markdown(given_one)
    found = from_markdown(text)
    assert _same(found.model_dump(mode="json"), given_one.model_dump(mode="json"))
    assert found.content_hash() == given_one.content_hash()
    assert found.cell_hash() == given_one.cell_hash()
    assert to_markdown(found) == text


def test_a_file_is_written_and_read_byte_for_byte(blueprint: Blueprint, tmp_path: Path) -> None:
    path = tmp_path / "größe.md"
    write_blueprint(path, blueprint)
    first = path.read_bytes()
    assert read_blueprint(path) == blueprint
    write_blueprint(path, read_blueprint(path))
    assert path.read_bytes() == first


def test_numbers_are_written_so_that_they_are_read_as_numbers(blueprint: Blueprint) -> None:
    text = to_markdown(blueprint)
    assert "lr: 0.001\n" in text
    assert "text: '1e-3'\n" in text
    edited = text.replace("lr: 0.001\n", "lr: 1e-3\n")
    found = from_markdown(edited).factors
    assert _same(found, blueprint.factors)


def test_the_prose_says_what_the_front_matter_says(blueprint: Blueprint) -> None:
    prose = to_markdown(blueprint).split("\n---\n")[1]
    for words in ("# Blueprint s1-b16-cap10", "16 groups a step", "| lr | 0.001 |", "300 held-out"):
        assert words in prose
    assert blueprint.content_hash() in prose


def test_an_edit_of_the_front_matter_is_read(blueprint: Blueprint) -> None:
    text = to_markdown(blueprint).replace("train_batch_size: 16\n", "train_batch_size: 8  # less\n")
    found = from_markdown(text)
    assert found.factors["train_batch_size"] == 8
    assert found.content_hash() != blueprint.content_hash()


def test_windows_line_ends_and_a_byte_order_mark_are_the_same_file(blueprint: Blueprint) -> None:
    text = to_markdown(blueprint)
    assert from_markdown("\ufeff" + text.replace("\n", "\r\n")) == blueprint


def test_an_edit_of_the_prose_alone_is_not_lost_without_a_word(blueprint: Blueprint) -> None:
    text = to_markdown(blueprint).replace("It trains: the gain", "It fails: the gain")
    front = text.replace("hypothesis: 'It fails", "hypothesis: 'It trains")
    assert front != to_markdown(blueprint)
    with pytest.raises(BlueprintError, match="changes nothing") as caught:
        from_markdown(front)
    line = caught.value.details["line"]
    assert front.split("\n")[line - 1].startswith("It fails")


def _line(text: str, start: str) -> int:
    return next(n for n, line in enumerate(text.split("\n"), 1) if line.strip().startswith(start))


@pytest.mark.parametrize(
    ("old", "new", "words", "hint"),
    [
        ("purpose:", "porpuse:", "porpuse", "did you mean 'purpose'"),
        ("lr: 1e-05", "lr: -1", "servers\\[0\\].train.optimizer.lr", ""),
        ("lr: 1e-05", "lr: fast", "valid number", ""),
        ("items: 300", "itms: 300", "evaluator", ""),
        ("tasks: 8", "task: 8", "servers\\[0\\].train.batch.task: unknown key", "'tasks'"),
        ("items: 300", "items: [300", "flow sequence", ""),
        ("items: 300", "items: 300\n  items: 300", "duplicate", ""),
        ("train_batch_size: 16", "train_batch_size: 2020-01-01", "is a date", ""),
        ("train_batch_size: 16", "train_batch_size: .nan", "no finite number", ""),
        ("train_batch_size: 16", "train_batch_size: {1: 2}", "the key 1 is no text", ""),
    ],
)
def test_a_mistake_in_an_edited_file_is_named_with_its_line(
    blueprint: Blueprint, old: str, new: str, words: str, hint: str
) -> None:
    text = to_markdown(blueprint)
    assert old in text
    with pytest.raises(BlueprintError, match=words) as caught:
        from_markdown(text.replace(old, new, 1), "b.md")
    line = caught.value.details["line"]
    assert caught.value.message.startswith(f"b.md:{line}: ")
    assert hint in caught.value.hint
    if "itms" not in new:  # a missing key has the line of its section
        assert _line(text, old) <= line <= _line(text, old) + 1
    else:
        assert _line(text, "evaluator:") <= line <= _line(text, "items: 300")


@pytest.mark.parametrize(
    ("text", "line"), [("# hello\n", 1), ("", 1), ("---\nname: x\n", 3), ("---\n---\n", 1)]
)
def test_a_file_without_front_matter_is_refused(text: str, line: int) -> None:
    with pytest.raises(BlueprintError) as caught:
        from_markdown(text)
    assert caught.value.details["line"] in (line, None)


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "b.md"
    path.write_bytes(b"---\nname: x\npurpose: \xff\n---\n")
    with pytest.raises(BlueprintError, match=":3: not UTF-8"):
        read_blueprint(path)
    with pytest.raises(BlueprintError, match="cannot be read"):
        read_blueprint(tmp_path / "missing.md")


def test_a_blueprint_with_nan_is_not_written(blueprint: Blueprint) -> None:
    with pytest.raises(BlueprintError, match="cannot be written"):
        to_markdown(blueprint.model_copy(update={"factors": {"lr": float("nan")}}))


def test_a_blueprint_holds_json_values_only(blueprint: Blueprint) -> None:
    for value in (float("inf"), {1, 2}):
        body = blueprint.model_dump() | {"fixed": {"x": [value]}}
        with pytest.raises(ValidationError, match="JSON values only"):
            Blueprint.model_validate(body)


def test_yaml_that_is_no_mapping_is_refused() -> None:
    assert load_yaml("") == {}
    with pytest.raises(YamlProblem, match="contains itself"):
        load_yaml("a: &a [*a]\n")
    with pytest.raises(YamlProblem, match="key: value"):
        load_yaml("- 1\n")
