import pytest

from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.options import dotted, overlaid, value_at

TREE = {
    "actor": {"_target_": "verl.Actor", "lr": 1e-6, "clip": {"low": 0.2, "high": 0.2}},
    "rollout": {"name": None, "engine_kwargs": {"vllm": {}}},
}


def test_nested_and_dotted_options_mean_the_same():
    assert overlaid(TREE, {"actor": {"lr": 1}}) == overlaid(TREE, {"actor.lr": 1})


def test_defaults_stay_where_nothing_is_said_and_the_tree_itself_is_not_changed():
    out = overlaid(TREE, {"actor.clip.low": 0.1})
    assert out["actor"]["clip"] == {"low": 0.1, "high": 0.2}
    assert TREE["actor"]["clip"]["low"] == 0.2


def test_an_unknown_key_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"no key 'actor\.clip\.lwo'") as refused:
        overlaid(TREE, {"actor.clip.lwo": 1})
    assert "'actor.clip.low'" in refused.value.hint


def test_an_unknown_section_is_refused_with_what_there_is():
    with pytest.raises(ConfigError, match="'zzz'") as refused:
        overlaid(TREE, {"zzz.a": 1})
    assert "actor, rollout" in refused.value.hint


def test_a_field_of_the_class_that_a_section_becomes_is_known_too():
    fields = {"verl.Actor": frozenset({"mixed_precision"})}
    out = overlaid(TREE, {"actor.mixed_precision": {"p": 1}}, lambda t: fields.get(t, frozenset()))
    assert out["actor"]["mixed_precision"] == {"p": 1}


def test_below_an_empty_section_any_key_goes():
    out = overlaid(TREE, {"rollout.engine_kwargs.vllm": {"a": 1, "b": {"c": 2}}})
    assert out["rollout"]["engine_kwargs"]["vllm"] == {"a": 1, "b": {"c": 2}}


def test_a_value_has_no_keys():
    with pytest.raises(ConfigError, match="is a value"):
        overlaid(TREE, {"actor.lr.x": 1})


def test_an_empty_mapping_is_a_value():
    assert dotted({"a": {}, "b": {"c": [1]}}) == {"a": {}, "b.c": [1]}


@pytest.mark.parametrize("value", [3, {}, "x", None])
def test_a_section_takes_no_value(value):
    with pytest.raises(ConfigError, match="is a section"):
        overlaid(TREE, {"actor": value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("actor.lr", "1e-6"),
        ("actor.lr", True),
        ("actor.clip.low", [0.2]),
        ("flags.on", 1),
        ("flags.on", "yes"),
        ("flags.names", "q_proj"),
        ("flags.mode", 3),
    ],
)
def test_a_value_of_another_kind_is_refused_with_the_default(key, value):
    flags = {"on": False, "names": ["a"], "mode": "sync"}
    with pytest.raises(ConfigError, match="takes") as refused:
        overlaid({**TREE, "flags": flags}, {key: value})
    assert "The default is" in refused.value.hint


def test_numbers_go_for_numbers_names_may_be_lists_and_what_tells_nothing_takes_anything():
    tree = {"lr": 1.0, "targets": "all-linear", "where": "${other}", "unset": None}
    said = {"lr": 2, "targets": ["q_proj"], "where": 3, "unset": {"a": 1}}
    assert overlaid(tree, said) == said


def test_a_key_said_twice_is_refused():
    with pytest.raises(ConfigError, match=r"'actor\.lr' twice"):
        dotted({"actor": {"lr": 1}, "actor.lr": 2})


def test_a_value_is_found_by_its_dotted_key():
    assert value_at(TREE, "actor.clip.low") == 0.2
    assert value_at(TREE, "actor.lr.x") is None
