"""On a real Ray: what a dead server left is freed, what is another's stays. Needs `make setup-verl`."""

import pytest

from swarm.server.engine_verl.placement import PREFIX, reap

pytestmark = [pytest.mark.verl, pytest.mark.timeout(600)]


@pytest.fixture
def ray():
    import ray

    ray.init(address="local", num_cpus=4, include_dashboard=False, object_store_memory=100_000_000)
    yield ray
    ray.shutdown()


@pytest.mark.filterwarnings("ignore")
def test_only_what_carries_the_nonce_is_freed(ray):
    @ray.remote(num_cpus=0)
    class Server:
        def ready(self):
            return True

    from ray.util import placement_group, placement_group_table

    names = [f"{PREFIX}dead-0", f"{PREFIX}alive-0"]
    groups = [placement_group([{"CPU": 1}], name=name) for name in names]
    ray.get([group.ready() for group in groups])
    servers = {
        nonce: Server.options(name="vllm_server_0_0", namespace=PREFIX + nonce).remote()
        for nonce in ("dead", "alive")
    }
    ray.get([server.ready.remote() for server in servers.values()])

    freed = reap("dead", address="local")

    assert (freed["groups"], freed["actors"]) == ([names[0]], ["vllm_server_0_0"])
    states = {row["name"]: row["state"] for row in placement_group_table().values()}
    assert states == {names[0]: "REMOVED", names[1]: "CREATED"}
    assert ray.get(servers["alive"].ready.remote())
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(servers["dead"].ready.remote())
    assert reap("dead", address="local")["groups"] == []
