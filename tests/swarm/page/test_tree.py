"""Calls come in the order of a reader: a branch after what it branches from."""

from __future__ import annotations

from swarm.server.page.tree import in_reading_order


def ask(*texts):
    return [{"role": "user", "content": text} for text in texts]


def shape(talk):
    return [
        (place.call.index, place.parent.index if place.parent else None, place.depth)
        for place in in_reading_order(talk.tree.calls)
    ]


def test_a_chain_stays_on_one_level(chain):
    assert shape(chain(3)) == [(0, None, 0), (1, 0, 0), (2, 1, 0)]


def test_branches_follow_what_they_branch_from(talk):
    root = talk.say(ask("a"), "one")
    other = talk.say(ask("other"), "x")
    left = talk.say([*ask("a"), root.reply, *ask("b")], "two")
    talk.say([*ask("a"), root.reply, *ask("c")], "three")
    talk.say([*ask("a"), root.reply, *ask("b"), left.reply, *ask("d")], "four")
    assert shape(talk) == [(0, None, 0), (2, 0, 1), (4, 2, 1), (3, 0, 1), (1, None, 0)]
    assert other.index == 1


def test_a_parent_that_was_not_recorded_is_found_by_tokens(chain):
    talk = chain(3)
    talk.tree.calls = [c.model_copy(update={"parent": None}) for c in talk.tree.calls]
    assert shape(talk) == [(0, None, 0), (1, 0, 0), (2, 1, 0)]


def test_a_recorded_parent_that_the_prompt_does_not_extend_is_no_parent(chain):
    talk = chain(2)
    second = talk.tree.calls[1]
    talk.tree.calls[1] = second.model_copy(
        update={"prompt_ids": second.prompt_ids[1:], "parent": 0}
    )
    assert shape(talk) == [(0, None, 0), (1, None, 0)]


def test_a_call_that_names_itself_or_a_later_one_as_parent_loses_nothing(chain):
    talk = chain(2)
    talk.tree.calls = [c.model_copy(update={"parent": 1}) for c in talk.tree.calls]
    assert sorted(index for index, _, _ in shape(talk)) == [0, 1]


def test_no_calls_are_no_places():
    assert in_reading_order([]) == []
