import pytest
import torch

from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.exports import aliases_of, write_export
from swarm.server.engine_verl.lora import Layer, check_untied, merged, plain_name

BASE = "base_model.model.model.layers.0.q_proj"
LAYER = Layer(
    f"{BASE}.base_layer.weight",
    f"{BASE}.lora_A.default.weight",
    f"{BASE}.lora_B.default.weight",
    scaling=2.0,
    transposed=False,
)


def state(kind=torch.float32):
    draw = torch.Generator().manual_seed(1)
    return {
        "base_model.model.model.norm.weight": torch.ones(3, dtype=kind),
        LAYER.base: torch.randn(4, 3, generator=draw).to(kind),
        LAYER.down: torch.randn(2, 3, generator=draw).to(kind),
        LAYER.up: torch.randn(4, 2, generator=draw).to(kind),
    }


def test_adapters_are_added_to_their_weight_under_its_plain_name():
    have = state()
    made = dict(merged(have, [LAYER], lambda t: t))
    assert list(made) == ["model.norm.weight", "model.layers.0.q_proj.weight"]
    want = have[LAYER.base] + 2.0 * have[LAYER.up] @ have[LAYER.down]
    assert torch.equal(made["model.layers.0.q_proj.weight"], want)


def test_bfloat16_is_rounded_once():
    have = state(torch.bfloat16)
    (_, weight) = list(merged(have, [LAYER], lambda t: t))[1]
    exact = have[LAYER.base].double() + 2.0 * have[LAYER.up].double() @ have[LAYER.down].double()
    assert weight.dtype == torch.bfloat16
    assert torch.equal(weight, exact.to(torch.bfloat16))


def test_a_weight_that_is_stored_the_other_way_round_gets_the_product_so():
    have = state()
    have[LAYER.base] = have[LAYER.base].T.contiguous()
    turned = Layer(LAYER.base, LAYER.down, LAYER.up, scaling=1.0, transposed=True)
    made = dict(merged(have, [turned], lambda t: t))["model.layers.0.q_proj.weight"]
    assert torch.equal(made, have[LAYER.base] + (have[LAYER.up] @ have[LAYER.down]).T)


def test_an_adapter_that_is_no_product_is_refused_by_name():
    have = state() | {f"{BASE}.lora_magnitude_vector.default.weight": torch.ones(4)}
    with pytest.raises(ConfigError, match="magnitude") as refused:
        list(merged(have, [LAYER], lambda t: t))
    assert "target_modules" in refused.value.hint


def test_a_weight_that_is_two_cannot_be_adapted_as_one():
    head, other = torch.ones(1), torch.ones(1)
    check_untied([LAYER], [(LAYER.base, other), ("embed", head), ("head", head)])
    with pytest.raises(ConfigError, match=r"q_proj\.weight and head"):
        check_untied([LAYER], [(LAYER.base, head), ("head", head)])


def test_a_name_without_adapters_is_its_own():
    assert plain_name("model.norm.weight") == "model.norm.weight"


def test_an_export_is_read_back_in_one_file_or_in_shards(tmp_path):
    from safetensors.torch import load_file

    weights = {f"w{i}": torch.full((64, 64), float(i)) for i in range(4)}
    write_export(tmp_path / "one", weights)
    write_export(tmp_path / "many", weights, shard="20KB")
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["model.safetensors"]
    parts = sorted((tmp_path / "many").glob("*.safetensors"))
    assert len(parts) == 4
    assert (tmp_path / "many" / "model.safetensors.index.json").is_file()
    for found in (
        load_file(tmp_path / "one" / "model.safetensors"),
        {k: v for path in parts for k, v in load_file(path).items()},
    ):
        assert all(torch.equal(found[name], weights[name]) for name in weights)


def test_a_parameter_under_a_second_name_is_an_alias():
    shared = torch.ones(2)
    assert aliases_of([("embed", shared), ("norm", torch.ones(1)), ("head", shared)]) == {"head"}
