"""What may be said of a pool of each kind, and what must be."""

from pathlib import Path
from typing import Any

import pytest

from a3r.core.errors import PoolRefused
from a3r.core.pools import PoolKind, PoolOptions
from a3r.pools.options import checked, ray_address

HUB = "https://hub:8443"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("ray://head", "http://head:8265"),
        ("ray://head:9000", "http://head:9000"),
        ("ray://[::1]:8265", "http://[::1]:8265"),
        ("http://head:8265/", "http://head:8265"),
        ("https://ray.example.com/cluster", "https://ray.example.com/cluster"),
    ],
)
def test_an_address_of_ray_becomes_the_one_of_its_job_server(text: str, url: str) -> None:
    assert ray_address(text) == url


@pytest.mark.parametrize("text", ["ray://", "ray://head:10001", "ray://head:x", "slurm://head", ""])
def test_an_address_that_takes_no_jobs_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(PoolRefused) as refused:
        ray_address(text)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (PoolKind.RAY, {"address": "ray://head", "folder": "/shared"}, "folder"),
        (PoolKind.LOCAL, {"address": "ray://head"}, "address"),
        (PoolKind.SLURM, {}, "--folder"),
        (PoolKind.SKYPILOT, {}, "task file"),
        (PoolKind.SKYPILOT, {"task_file": "/nowhere.yaml"}, "no file"),
        (PoolKind.LOCAL, {"ca_file": "/nowhere.pem"}, "no file"),
    ],
)
def test_options_that_do_not_belong_or_are_missing_are_refused(
    kind: PoolKind, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(PoolRefused, match=said) as refused:
        checked(kind, PoolOptions.model_validate(options), HUB)
    assert refused.value.hint


def test_a_cluster_of_other_machines_needs_a_hub_that_it_can_reach() -> None:
    options = PoolOptions(address="ray://head")
    with pytest.raises(PoolRefused, match="loopback") as refused:
        checked(PoolKind.RAY, options)
    assert "workers_listen" in refused.value.hint
    assert checked(PoolKind.RAY, options, HUB).hub_url == HUB
    own = options.model_copy(update={"hub_url": "https://other:1"})
    assert checked(PoolKind.RAY, own, HUB).hub_url == "https://other:1"


@pytest.mark.parametrize(
    "address", ["ray://127.0.0.1:8265", "ray://localhost", "http://[::1]:8265"]
)
def test_a_cluster_on_this_machine_needs_no_door(address: str) -> None:
    assert checked(PoolKind.RAY, PoolOptions(address=address)).hub_url == ""
    assert checked(PoolKind.LOCAL, PoolOptions()).hub_url == ""


def test_a_slurm_pool_goes_with_its_folder(tmp_path: Path) -> None:
    options = PoolOptions(folder=str(tmp_path), slurm={"partition": "gpu"})
    assert checked(PoolKind.SLURM, options, HUB).slurm == {"partition": "gpu"}
