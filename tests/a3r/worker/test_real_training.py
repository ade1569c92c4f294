"""One attempt as a campaign runs it: the torch engine and the client that the leader generates."""

import os
import shutil
import sys

import psutil
import pytest
from libtmux import Server

from a3r.adapters.tmux import TmuxTerminal
from a3r.leader.experiment import client_bundle
from a3r.leader.model_files import find_model, weights_fingerprint
from a3r.testing.waiting import retry_until as until
from a3r.worker.processes import count_owned


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_generated_client_trains_the_tiny_model_through_an_engine_crash(lab, tmp_path):
    bundle = client_bundle("calculator")
    base = lab.blueprint(engine="torch", steps=12, items=12)
    client = base.clients[0].model_copy(
        update={
            "tree_hash": bundle.tree_hash,
            "arguments": {"parallel": 8, "held_out_items": 12, "held_out_seed": 0},
        }
    )
    train = base.servers[0].train
    sampling = train.sampling.model_copy(update={"max_response_tokens": 16})
    server = base.servers[0].model_copy(
        update={
            "train": train.model_copy(update={"sampling": sampling}),
            "model_fingerprint": weights_fingerprint(find_model("builtin:tiny-calc", tmp_path)),
        }
    )
    blueprint = base.model_copy(update={"clients": (client,), "servers": (server,)})
    artifact = lab.hub.put_artifact(bundle.data)
    attempt = lab.queue(blueprint, client_artifact=artifact)
    socket = f"a3r-test-{os.urandom(4).hex()}"
    lab.worker(terminal=TmuxTerminal(socket))
    try:
        until(lambda: "client" in {p.name.partition(".")[0] for p in lab.folder().processes()}, 60)
        if shutil.which("tmux"):
            names = [w.window_name for s in Server(socket_name=socket).sessions for w in s.windows]
            assert "server" in names
        until(lambda: lab.folder().steps(), 60)
        (engine,) = psutil.Process(lab.pid("server")).children()
        engine.kill()
        report = lab.finished(attempt, 120)
    finally:
        tmux = Server(socket_name=socket)
        if tmux.is_alive():
            tmux.kill()
    assert report.outcome == "succeeded", lab.story(attempt)
    assert report.summary["engine_restarts"] == 1
    assert "engine_restarted" in attempt.kinds()
    assert report.summary["generations"]["server"] == 1
    assert report.summary["generations"]["client"] == 1
    assert report.summary["initial_fingerprint"] == server.model_fingerprint
    assert sorted(attempt.steps) == list(range(1, 13))
    for found in attempt.rounds.values():
        assert [item.reason for item in found.items] == [""] * 12
        assert {item.reward for item in found.items} <= {0.0, 1.0}
    assert count_owned(lab.nonce) == 0
