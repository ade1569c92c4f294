"""Rows with and without pictures through FSDP2 on one and two ranks, against transformers alone. Needs `make setup-verl`; minutes."""

import msgspec
import pytest

from swarm.protocol.config import TrainConfig, VerlConfig
from swarm.server.ports import Span, TrainBatch, TrainRow
from swarm.testing.tiny_vision import IMAGE_ID, make_tiny_vision, picture

pytestmark = [
    pytest.mark.verl,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore"),  # Ray's and verl's own, in this process
]

ACTOR = "actor_rollout_ref.actor"
BENCHES = {
    "one": {},
    "two": {"gpus_per_node": 2},
    "packed": {"gpus_per_node": 2, "options": {f"{ACTOR}.ppo_max_token_len_per_gpu": 140}},
    "lora": {
        "gpus_per_node": 2,
        "options": {"actor_rollout_ref.model.lora_rank": 4},
    },
}
COLOURS = ["red"], [], ["blue", "red"], [], ["green"], [], ["blue"]


def row_of(index, colours):
    """A question with the pictures in it, two answers at two temperatures, and an observation between."""
    ids = [10, *(part for _ in colours for part in (IMAGE_ID, 20 + index)), 11, 12]
    start = len(ids)
    ids += [30 + index, 40, 13, 14, 41, 42]
    return TrainRow(
        key=f"s0.g{index // 2}/{index % 2}/0",
        episode_id=f"e{index}",
        ids=ids,
        spans=[Span(start, start + 2, 1.0), Span(start + 4, start + 6, 0.7 if index < 2 else 1.0)],
        logprobs=[0.0] * 4,
        advantage=1.0 if index % 2 else -0.5,
        weight=1 / (4 * len(COLOURS)),
        images=[picture(colour) for colour in colours],
    )


def with_logprobs(folder, rows):
    """The rows with log-probabilities that transformers gives them, one row at a time."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from swarm.server.engine_verl.pictures import decoded_all

    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(folder)
    told = []
    for row in rows:
        text = processor.tokenizer.decode(row.ids)
        images = decoded_all(row.images) or None
        made = processor(text=[text], images=images, return_tensors="pt")
        shift = made["input_ids"].shape[1] - len(row.ids)
        with torch.no_grad():
            logits = model(**made).logits[0]
        found = []
        for span in row.spans:
            for at in range(span.start + shift, span.end + shift):
                scaled = (logits[at - 1] / span.temperature).log_softmax(-1)
                found.append(float(scaled[made["input_ids"][0, at]]))
        told.append(msgspec.structs.replace(row, logprobs=found))
    return told


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_tiny_vision(tmp_path_factory.mktemp("vision") / "model")


@pytest.fixture(scope="module")
def seen(folder, tmp_path_factory, make_bench):
    """What each bench says of three updates: at rate 0, at a rate, and of text alone."""
    from swarm.server.engine_verl import placement
    from swarm.server.engine_verl.child import _variables

    rows = with_logprobs(folder, [row_of(*pair) for pair in enumerate(COLOURS)])
    text = [row for row in rows if not row.images]
    variables, out = _variables("cpu"), {}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        placement.join_ray(
            VerlConfig(gpus_per_node=2), "pictures", device="cpu", variables=variables
        )
        for name, verl in BENCHES.items():
            config = TrainConfig.model_validate(
                {
                    "engine": "verl",
                    "model": {"path": str(folder)},
                    "algorithm": {"minibatches": 2},
                    "verl": verl,
                }
            )
            bench = make_bench(config, f"pictures-{name}")
            try:
                began = bench.fingerprints()
                still = bench.trainer.apply(TrainBatch(1, 1, rows, lr=0.0))
                moved = bench.trainer.apply(TrainBatch(2, 2, rows, lr=1e-3))
                words = bench.trainer.apply(TrainBatch(3, 3, text, lr=1e-3))
                saved = bench.save(tmp_path_factory.mktemp(name) / "step")
                out[name] = {
                    "ranks": [began, bench.fingerprints()],
                    "still": still,
                    "moved": moved,
                    "words": words,
                    "saved": saved,
                }
            finally:
                bench.close()
        placement.leave_ray()
    return out


def weights(folder):
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("name", BENCHES)
def test_the_trainer_sees_the_pictures_as_transformers_does(seen, name):
    assert seen[name]["still"].logprob_gap_max < 1e-4
    assert seen[name]["still"].tokens == 4 * len(COLOURS)


@pytest.mark.parametrize("name", ["two", "packed"])
def test_loss_and_gradient_do_not_depend_on_which_rank_has_the_pictures(seen, name):
    mine, theirs = seen[name]["still"], seen["one"]["still"]
    assert theirs.grad_norm > 0
    for field in ("loss", "grad_norm", "entropy"):
        assert getattr(mine, field) == pytest.approx(getattr(theirs, field), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("name", BENCHES)
def test_weights_move_alike_on_every_rank(seen, name):
    began, ended = seen[name]["ranks"]
    assert len(set(began)) == len(set(ended)) == 1
    assert began != ended
    assert not seen[name]["moved"].rolled_back
    assert not seen[name]["words"].rolled_back


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_checkpoint_is_the_model_with_its_processor_and_the_vision_half_has_learned(
    seen, folder, name
):
    saved = seen[name]["saved"]
    before, after = weights(folder), weights(saved)
    assert set(before) == set(after)
    changed = {key for key in before if (before[key] != after[key]).any()}
    assert any("vision_tower" in key for key in changed)
    assert any("language_model" in key for key in changed)
    assert (saved / "processor_config.json").is_file()
