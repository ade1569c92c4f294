from swarm.server.engine.slots import SlotTable


def fill(table, prompt, affinity):
    """Take a slot, cache the whole prompt in it, give it back."""
    place = table.place(prompt, affinity)
    table.note(place.slot, prompt)
    table.release(place.slot, prompt)
    return place


def test_an_episode_comes_back_to_its_slot_and_keeps_the_common_prefix():
    table = SlotTable(4, 64)
    first = fill(table, list(range(20)), "a")
    fill(table, list(range(100, 120)), "b")

    again = table.place([*range(20), 55, 56], "a")

    assert again.slot == first.slot
    assert (again.ready, again.copied) == (20, 0)


def test_one_token_is_always_left_to_compute():
    table = SlotTable(2, 64)
    fill(table, list(range(20)), "a")
    assert table.place(list(range(20)), "a").ready == 19


def test_a_divergent_prompt_keeps_only_what_is_shared():
    table = SlotTable(2, 64)
    fill(table, list(range(20)), "a")
    assert table.place([0, 1, 2, 99, 4, 5], "a").ready == 3


def test_another_episodes_long_prefix_is_copied_from_its_slot():
    table = SlotTable(4, 64)
    first = fill(table, list(range(30)), "a")

    other = table.place([*range(25), 70, 71], "b")

    assert other.slot != first.slot
    assert (other.source, other.copied, other.ready) == (first.slot, 25, 25)


def test_the_least_recently_used_slot_is_given_up_first():
    table = SlotTable(2, 64)
    fill(table, [1] * 5, "a")
    fill(table, [2] * 5, "b")
    third = fill(table, [3] * 5, "c")
    assert third.slot == 1
    assert fill(table, [2] * 6, "b").ready == 5
    assert fill(table, [1] * 6, "a").ready == 0


def test_forgetting_leaves_nothing_to_reuse():
    table = SlotTable(2, 64)
    fill(table, list(range(30)), "a")
    table.forget()
    assert table.place(list(range(30)), "a").ready == 0
    assert table.free == 1
