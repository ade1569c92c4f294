import pytest

from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.options import dotted, overlaid

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
