"""The training half for real: FSDP2 over one and two ranks (gloo) on the CPU, without replicas. Needs `make setup-verl`; minutes.

Each bench boots once, does all that the tests ask about, and ends; the tests then compare.
"""

import copy
import json
import math
from functools import partial

import numpy as np
import pytest

from swarm.protocol.config import TrainConfig, VerlConfig
from swarm.server.ports import TrainBatch

pytestmark = [
    pytest.mark.verl,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore"),  # Ray's and verl's own, in this process
]

LOSSES = ("vanilla", "gspo", "cispo", "dppo_tv", "dppo_kl", "gpg", "dro")
"""clip_cov and kl_cov are left out: they choose tokens among those of a micro batch, so that its size matters by design."""
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
MODEL = "actor_rollout_ref.model"
PLAIN = {
    "one": {},
    "two": {"gpus_per_node": 2},
    "packed": {"options": {f"{ACTOR}.ppo_max_token_len_per_gpu": 128}},
    "rows": {
        "options": {
            f"{ACTOR}.use_dynamic_bsz": False,
            f"{ACTOR}.ppo_micro_batch_size_per_gpu": 2,
            f"{ROLLOUT}.log_prob_use_dynamic_bsz": False,
            f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 2,
        }
    },
}
LORA = {f"{MODEL}.lora_rank": 4, f"{MODEL}.lora_alpha": 8}
GAE = {"critic.optim.lr": 1.0e-3, "algorithm.lam": 0.9}
OTHERS = {
    "lora": {"gpus_per_node": 2, "options": LORA},
    "critic": {"gpus_per_node": 2, "adv_estimator": "gae", "options": GAE},
    "rloo": {"adv_estimator": "rloo", "options": {f"{ACTOR}.entropy_coeff": 0.01}},
}
BENCHES = PLAIN | OTHERS


class Rows:
    """The batches of a scenario; eleven rows, so that two ranks need padding."""

    def __init__(self, make_rows):
        self._make = make_rows

    def batch(self, step=1, lr=None, **broken):
        rows = self._make()[:11]
        for index, row in enumerate(rows):
            row.reward = float(index % 3)
        for name, value in broken.items():
            setattr(rows[3], name, value)
        return TrainBatch(step=step, policy_version=step, rows=rows, lr=lr)


def exported(folder):
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


def losses(bench, batch):
    """What an update at rate 0 says of each of verl's losses."""
    from verl.utils.config import omega_conf_to_dataclass

    from swarm.server.engine_verl.losses import weighted_policy_loss

    section = copy.deepcopy(bench.composed.actor_rollout_ref.actor)
    section.policy_loss.dro_beta = 0.1
    found = {}
    for name in (*LOSSES, "vanilla"):
        section.policy_loss.loss_mode = name
        actor = omega_conf_to_dataclass(section)
        bench.group.set_loss_fn(partial(weighted_policy_loss, actor))
        found[name] = bench.trainer.apply(batch)
    return found


def scenario(bench, rows, folder, *, plain):
    """Everything that is asked of a bench, in order."""
    seen = {"began": bench.fingerprints(), "folder": folder}
    seen["losses"] = losses(bench, rows.batch(lr=0.0)) if plain else {}
    seen["nan"] = bench.trainer.apply(rows.batch(advantages=[math.nan] * tokens_of(rows)))
    seen["huge"] = bench.trainer.apply(rows.batch(weight=1e30))
    seen["refused"] = bench.fingerprints()
    seen["first"] = bench.trainer.apply(rows.batch(1))
    seen["saved"] = bench.fingerprints()
    bench.save(folder)
    seen["next"] = bench.trainer.apply(rows.batch(2))
    seen["second"] = bench.fingerprints()
    bench.load(folder)
    seen["loaded"] = bench.fingerprints()
    seen["later"] = bench.trainer.apply(rows.batch(weight=1e30))
    seen["again_next"] = bench.trainer.apply(rows.batch(2))
    seen["again"] = bench.fingerprints()
    return seen


def tokens_of(rows):
    return len(rows.batch().rows[3].logprobs)


class Seen(dict):
    """What each bench showed; a bench boots when it is first asked for, and one that fails fails alone."""

    def __init__(self, make_bench, make_rows, folders):
        super().__init__()
        self._make_bench, self._rows, self._folders = make_bench, Rows(make_rows), folders

    def __missing__(self, name):
        config = TrainConfig.model_validate(
            {
                "engine": "verl",
                "optimizer": {"lr": 1e-3},
                "algorithm": {"minibatches": 2, "epochs": 2},
                "verl": BENCHES[name],
            }
        )
        bench = self._make_bench(config, f"training-{name}")
        try:
            folder = self._folders / name / "step-000001"
            self[name] = scenario(bench, self._rows, folder, plain=name in PLAIN)
        finally:
            bench.close()
        return self[name]


@pytest.fixture(scope="module")
def seen(tmp_path_factory, make_rows, make_bench):
    from swarm.server.engine_verl import placement
    from swarm.server.engine_verl.child import _variables

    variables = _variables("cpu")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        placement.join_ray(
            VerlConfig(gpus_per_node=2), "training", device="cpu", variables=variables
        )
        yield Seen(make_bench, make_rows, tmp_path_factory.mktemp("training"))
        placement.leave_ray()


@pytest.mark.parametrize("name", BENCHES)
def test_every_rank_names_the_same_weights(seen, name):
    for moment in ("began", "saved", "second", "loaded"):
        assert len(set(seen[name][moment])) == 1
    assert seen[name]["began"][0] == seen["one"]["began"][0] != seen[name]["saved"][0]


@pytest.mark.parametrize("name", [name for name in PLAIN if name != "one"])
@pytest.mark.parametrize("loss", LOSSES)
def test_loss_and_gradient_do_not_depend_on_ranks_nor_on_micro_batches(seen, name, loss):
    mine, theirs = seen[name]["losses"][loss], seen["one"]["losses"][loss]
    assert theirs.grad_norm > 0
    for field in ("loss", "grad_norm", "entropy", "clip_fraction", "logprob_gap_max"):
        assert getattr(mine, field) == pytest.approx(getattr(theirs, field), rel=1e-4, abs=1e-7)
    assert mine.tokens == theirs.tokens


@pytest.mark.parametrize("name", [name for name in PLAIN if name != "one"])
def test_an_update_moves_the_weights_as_on_one_rank(seen, name):
    before = exported_model()
    mine, theirs = exported(seen[name]["folder"]), exported(seen["one"]["folder"])
    assert set(mine) == set(theirs) == set(before)
    moved = sum(np.abs(theirs[key] - before[key]).sum() for key in before)
    apart = sum(np.abs(theirs[key] - mine[key]).sum() for key in before)
    assert apart < 1e-2 * moved


def exported_model():
    from swarm.server.model_files import resolve_model

    return exported(resolve_model("builtin:tiny-calc"))


@pytest.mark.parametrize("name", BENCHES)
def test_what_is_not_finite_is_undone_on_every_rank(seen, name):
    assert "loss" in seen[name]["nan"].rolled_back
    assert seen[name]["huge"].rolled_back
    assert seen[name]["refused"] == seen[name]["began"]


@pytest.mark.parametrize("name", BENCHES)
def test_a_checkpoint_brings_back_weights_and_moments_and_a_refused_update_leaves_them(seen, name):
    assert seen[name]["loaded"] == seen[name]["saved"]
    assert seen[name]["later"].rolled_back
    assert seen[name]["again"] == seen[name]["second"]
    assert seen[name]["again_next"] == seen[name]["next"]


def test_a_lora_export_is_the_merged_model_and_loads_without_adapters(seen):
    import torch
    from transformers import AutoModelForCausalLM

    from swarm.server.engine_verl.weights import checksum

    folder = seen["lora"]["folder"]
    found, before = exported(folder), exported_model()
    assert set(found) == set(before)
    assert any(np.abs(found[key] - before[key]).max() > 1e-4 for key in before)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert checksum(model.state_dict().items()) == seen["lora"]["saved"][0]
    shards = sorted(path.name for path in (folder / "verl").iterdir())
    assert "model_world_size_2_rank_1.pt" in shards
    assert json.loads((folder / "swarm_state.json").read_text())["fingerprint"]


def test_an_estimator_of_verl_and_a_critic_give_other_advantages_than_the_front(seen):
    losses = {name: seen[name]["first"].loss for name in ("one", "rloo", "critic")}
    assert len(set(losses.values())) == 3
    assert all(math.isfinite(loss) for loss in losses.values())


def test_a_value_model_is_part_of_the_checkpoint(seen):
    files = [path.name for path in (seen["critic"]["folder"] / "verl" / "critic").iterdir()]
    assert {"model_world_size_2_rank_0.pt", "optim_world_size_2_rank_1.pt"} <= set(files)
