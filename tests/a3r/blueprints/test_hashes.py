"""What the two hashes see, and what they are blind to."""

from typing import Any

import pytest

from a3r.blueprints.model import Blueprint, Limits

BLIND = {
    "name": "other",
    "purpose": "other",
    "hypothesis": "other",
    "predicted_outcome": "other",
    "notes": "other",
    "seeds": (7, 8, 9),
    "limits": Limits(max_attempts=9),
    "secret_names": ("X",),
}
DECISIVE: dict[str, Any] = {
    "factors": {"train_batch_size": 8},
    "fixed": {},
    "clients": {"tree_hash": "u" * 64},
    "servers": {"gpus": 1},
    "evaluator": {"items": 299},
}


def _with(blueprint: Blueprint, name: str, value: Any) -> Blueprint:
    if name in ("clients", "servers"):
        value = (getattr(blueprint, name)[0].model_copy(update=value),)
    if name == "evaluator":
        value = blueprint.evaluator.model_copy(update=value)
    return blueprint.model_copy(update={name: value})


@pytest.mark.parametrize("name", BLIND)
def test_the_cell_hash_is_blind_to_what_does_not_move_results(
    blueprint: Blueprint, name: str
) -> None:
    other = _with(blueprint, name, BLIND[name])
    assert other.cell_hash() == blueprint.cell_hash()
    assert other.content_hash() != blueprint.content_hash()


@pytest.mark.parametrize("name", DECISIVE)
def test_both_hashes_see_what_decides_the_results(blueprint: Blueprint, name: str) -> None:
    other = _with(blueprint, name, DECISIVE[name])
    assert other.cell_hash() != blueprint.cell_hash()
    assert other.content_hash() != blueprint.content_hash()


def test_the_run_s_own_seed_and_name_are_not_part_of_the_cell(blueprint: Blueprint) -> None:
    train = blueprint.servers[0].train
    seeded = train.model_copy(update={"seed": 99, "run_name": "other"})
    other = _with(blueprint, "servers", {"train": seeded})
    assert other.cell_hash() == blueprint.cell_hash()
    faster = train.model_copy(update={"stop_at_step": 1})
    assert _with(blueprint, "servers", {"train": faster}).cell_hash() != blueprint.cell_hash()


def test_hashes_do_not_depend_on_the_order_of_factors(blueprint: Blueprint) -> None:
    turned = dict(reversed(blueprint.factors.items()))
    other = blueprint.model_copy(update={"factors": turned})
    assert other.content_hash() == blueprint.content_hash()


def test_hashes_survive_json_and_validation(blueprint: Blueprint) -> None:
    again = Blueprint.model_validate_json(blueprint.model_dump_json())
    assert again == blueprint
    assert again.content_hash() == blueprint.content_hash()
    assert again.cell_hash() == blueprint.cell_hash()


def test_the_cell_hash_stays_what_databases_hold(blueprint: Blueprint) -> None:
    """Moved by a new setting that is as by default: leave it out of the hash. By a changed default: count CELL_FORMAT up."""
    assert blueprint.cell_hash().startswith("08065ce2b47acd40")


def test_a_setting_that_says_its_default_is_the_same_cell(blueprint: Blueprint) -> None:
    told = Blueprint.model_validate(blueprint.model_dump())
    assert "verl" in told.servers[0].train.model_fields_set
    assert told.cell_hash() == blueprint.cell_hash()
