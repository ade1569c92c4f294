"""On a real Ray of two machines: what a dead server left is freed, what is another's stays. Needs `make setup-verl`."""

import json
import sys

import pytest

from swarm.server.engine_verl.nonces import NONCE, PREFIX
from swarm.testing.ray_cluster import ray_cluster

pytestmark = [pytest.mark.verl, pytest.mark.timeout(600)]

LEAVE = f"""
import os, subprocess

@ray.remote(num_cpus=0, num_gpus=1)
class Server:
    def leave(self):
        # A process that outlives the actor: Ray ends the children of an actor with it, but not theirs.
        start = "setsid sleep 600 > /dev/null 2>&1 & echo $!"
        told = subprocess.run(["sh", "-c", start], stdout=subprocess.PIPE, check=True, text=True).stdout
        return ray.util.get_node_ip_address(), os.getpid(), int(told)

from ray.util import placement_group
left = {{}}
for nonce in ("dead", "alive"):
    group = placement_group([{{"CPU": 1}}], name="{PREFIX}" + nonce + "-0", lifetime="detached")
    ray.get(group.ready())
    servers = [
        Server.options(
            name=f"vllm_server_{{k}}", namespace="{PREFIX}" + nonce, lifetime="detached",
            scheduling_strategy="SPREAD", runtime_env={{"env_vars": {{"{NONCE}": nonce}}}},
        ).remote()
        for k in range(2)
    ]
    left[nonce] = ray.get([server.leave.remote() for server in servers])
import json; print(json.dumps(left))
"""
LOOK = """
import json, os
from ray.util import list_named_actors, placement_group_table

@ray.remote(num_cpus=0)
def living(pids):
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}")]

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
nodes = {n["NodeManagerAddress"]: n["NodeID"] for n in ray.nodes()}
def at(address, pids):
    pinned = NodeAffinitySchedulingStrategy(nodes[address], soft=False)
    return ray.get(living.options(scheduling_strategy=pinned).remote(pids))

left = json.loads(LEFT)
print(json.dumps({
    "processes": {n: {ip: at(ip, [actor, child]) for ip, actor, child in who} for n, who in left.items()},
    "groups": {r["name"]: r["state"] for r in placement_group_table().values()},
    "actors": sorted(a["namespace"] + "/" + a["name"] for a in list_named_actors(all_namespaces=True)),
}))
"""


def reap(cluster, nonce):
    command = [sys.executable, "-m", "swarm.cli", "reap", "--nonce", nonce, "--json"]
    return json.loads(cluster.at_head([*command, "--address", cluster.address]))


def test_what_a_dead_server_left_on_two_machines_is_freed_and_a_living_ones_stays():
    with ray_cluster(2, 2) as cluster:
        left = json.loads(cluster.ask(LEAVE))
        places = {nonce: {ip for ip, _, _ in who} for nonce, who in left.items()}
        both = {cluster.host, "127.0.0.2"}
        assert places == {"dead": both, "alive": both}

        freed = reap(cluster, "dead")
        again = reap(cluster, "dead")

        look = json.loads(cluster.ask(f"LEFT = {json.dumps(left)!r}\n{LOOK}"))
        assert look["groups"] == {f"{PREFIX}dead-0": "REMOVED", f"{PREFIX}alive-0": "CREATED"}
        assert look["actors"] == [f"{PREFIX}alive/vllm_server_{k}" for k in (0, 1)]
        assert not any(look["processes"]["dead"].values())
        assert all(len(pids) == 2 for pids in look["processes"]["alive"].values())

        assert freed["groups"] == [f"{PREFIX}dead-0"]
        assert sorted(freed["actors"]) == ["vllm_server_0", "vllm_server_1"]
        assert freed["silent"] == []
        if cluster.apart:
            killed = freed["processes"]
            assert set(killed) == both
            assert all(child in killed[ip] for ip, _, child in left["dead"])
        assert not any(again.values()), "a second time there is nothing to free"
