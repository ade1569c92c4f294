from types import SimpleNamespace

import torch

from swarm.server.engine_verl.snapshots import Snapshot, finite, modules_of


def engine(chunks=1):
    """What a snapshot needs of verl's engine: modules and an optimizer over them, as a list when there are several."""
    made = [torch.nn.Linear(3, 2) for _ in range(chunks)]
    made[0].bias.requires_grad_(False)
    optimizers = [torch.optim.AdamW([p for p in m.parameters() if p.requires_grad]) for m in made]
    if chunks == 1:
        return SimpleNamespace(module=made[0], optimizer=optimizers[0])
    inner = [SimpleNamespace(optimizer=one) for one in optimizers]
    return SimpleNamespace(module=made, optimizer=SimpleNamespace(chained_optimizers=inner))


def move(engine, by=1.0):
    optimizer = engine.optimizer
    chained = getattr(optimizer, "chained_optimizers", None)
    for module in modules_of(engine):
        (module(torch.full((1, 3), by)).sum() ** 2).backward()
    for one in [inner.optimizer for inner in chained] if chained else [optimizer]:
        one.step()
        one.zero_grad()


def weights(engine):
    return [p.detach().clone() for module in modules_of(engine) for p in module.parameters()]


def alike(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_move_is_undone_with_its_moments_and_the_next_one_goes_as_if_it_had_not_been():
    for chunks in (1, 2):
        torch.manual_seed(4)
        undone, straight = engine(chunks), engine(chunks)
        for to, of in zip(weights_of(straight), weights_of(undone), strict=True):
            to.data.copy_(of.data)
        for one in (undone, straight):
            move(one)
        kept, before = Snapshot(undone), weights(undone)
        move(undone, by=50.0)
        assert not alike(weights(undone), before)
        kept.put_back(undone)
        assert alike(weights(undone), before)
        for one in (undone, straight):
            move(one, by=2.0)
        assert alike(weights(undone), weights(straight))


def weights_of(engine):
    return [p for module in modules_of(engine) for p in module.parameters()]


def test_moments_of_a_first_move_are_forgotten():
    made = engine()
    kept = Snapshot(made)
    move(made)
    kept.put_back(made)
    assert not any(made.optimizer.state[p] for p in made.optimizer.param_groups[0]["params"])


def test_a_weight_that_is_not_finite_is_seen_if_it_trains():
    made = engine()
    assert finite(made)
    made.module.bias.data[0] = float("nan")
    assert finite(made)
    made.module.weight.data[0, 0] = float("inf")
    assert not finite(made)
