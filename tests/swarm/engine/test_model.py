import json

import pytest
import torch

from swarm.protocol.errors import ConfigError
from swarm.server.engine.model import Llama, LlamaConfig
from swarm.server.engine.weights import fingerprint, load_model, save_weights
from swarm.server.model_files import builtin_models, resolve_model


@pytest.mark.filterwarnings("default")  # the other library's own warnings are not ours to fail on
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 4},
        {"attention_bias": True, "mlp_bias": True},
    ],
    ids=["gqa-untied", "tied", "full-heads", "biases"],
)
def test_logits_equal_those_of_transformers(tmp_path, small_config, change):
    transformers = pytest.importorskip("transformers")
    config = small_config | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    torch.manual_seed(1)
    model = Llama(LlamaConfig.from_dict(config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    save_weights(model, tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = torch.randint(0, 50, (3, 17))
    with torch.no_grad():
        expected = theirs(ids).logits
        ours = load_model(tmp_path)(ids)
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)


def test_both_spellings_of_rope_theta_are_read(small_config):
    new = {k: v for k, v in small_config.items() if k != "rope_theta"}
    new["rope_parameters"] = {"rope_theta": 5000.0, "rope_type": "default"}

    assert LlamaConfig.from_dict(new) == LlamaConfig.from_dict(small_config)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "mamba"}, "'mamba'"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn'"),
        ({"hidden_act": "gelu"}, "'gelu'"),
    ],
)
def test_what_is_not_built_is_refused_by_name_and_with_a_hint(small_config, change, named):
    with pytest.raises(ConfigError, match=named) as caught:
        LlamaConfig.from_dict(small_config | change)
    assert caught.value.hint


def test_a_config_without_a_needed_key_names_the_key(small_config):
    del small_config["intermediate_size"]
    with pytest.raises(ConfigError, match="intermediate_size"):
        LlamaConfig.from_dict(small_config)


def test_weights_that_do_not_fit_the_config_are_refused(small_folder, small_config):
    (small_folder / "config.json").write_text(json.dumps(small_config | {"hidden_size": 32}))
    with pytest.raises(ConfigError, match="do not fit"):
        load_model(small_folder)


def test_a_folder_without_weights_is_refused(small_folder):
    (small_folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"model\.safetensors"):
        load_model(small_folder)


def test_the_fingerprint_survives_a_round_trip_and_changes_with_one_bit(small_folder, tmp_path):
    model = load_model(small_folder)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "config.json").write_text((small_folder / "config.json").read_text())
    save_weights(model, copy)
    assert fingerprint(load_model(copy)) == fingerprint(model)

    before = fingerprint(model)
    with torch.no_grad():
        weight = model.model.norm.weight
        weight[0] = torch.nextafter(weight[0], torch.tensor(2.0))
    assert len(before) == 16
    assert fingerprint(model) != before


def test_the_built_in_model_is_found_and_its_vocabulary_is_the_tokenizers(tokenizer):
    folder = resolve_model("builtin:tiny-calc")

    assert builtin_models()["tiny-calc"] == folder
    config = json.loads((folder / "config.json").read_text())
    assert config["vocab_size"] == tokenizer.get_vocab_size()
    assert config["a3r_tool_parser"] == "expression"


def test_a_misspelt_built_in_model_gets_the_nearest_name_as_a_hint():
    with pytest.raises(ConfigError) as caught:
        resolve_model("builtin:tiny-clac")
    assert "builtin:tiny-calc" in caught.value.hint


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"config\.json"):
        resolve_model(str(tmp_path))
    with pytest.raises(ConfigError, match="does not exist"):
        resolve_model(str(tmp_path / "nowhere"))
