import pytest

from swarm.server.engine_verl.balance import Balance


def test_calls_of_one_episode_go_to_one_replica():
    balance = Balance(3)
    first = balance.take("e1")
    assert [balance.take(name) for name in ("e2", "e3", "e1")] == [1, 2, first]


def test_a_new_episode_goes_to_the_least_busy():
    balance = Balance(2)
    assert [balance.take(e) for e in ("a", "b")] == [0, 1]
    balance.give(1)
    assert balance.take("c") == 1


def test_episodes_of_a_lost_replica_go_elsewhere():
    balance = Balance(2)
    assert balance.take("a") == 0
    balance.lose(0)
    assert balance.take("a") == 1
    balance.give(0)
    balance.gain(0)
    assert balance.take("b") == 0


def test_without_a_replica_there_is_nothing_to_take():
    balance = Balance(1)
    balance.lose(0)
    with pytest.raises(LookupError):
        balance.take("a")
