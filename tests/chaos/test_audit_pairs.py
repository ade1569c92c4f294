"""What two servers made of the same episodes: a refusal that was overruled is found, a commit that nobody could send is counted."""

from swarm.testing.chaos.audit import audit_pairs


def pair(one, two, *, refused=False):
    return {"ids": {"one": one, "two": two}, "refused": refused, "why": "server 'two' refused"}


def test_an_episode_that_one_server_refused_and_another_trained_on_is_found(played):
    folder, claims = played
    taken = next(iter(claims))
    wrong, split = audit_pairs(
        [pair(taken, "ep-elsewhere", refused=True)], {"one": folder, "two": folder}
    )
    assert len(wrong) == 1
    assert taken in wrong[0]
    assert split == 0


def test_what_both_trained_on_or_neither_is_right(played):
    folder, claims = played
    first, second, *_ = claims
    pairs = [pair(first, second), pair("ep-a", "ep-b"), pair("ep-c", "ep-d", refused=True)]
    assert audit_pairs(pairs, {"one": folder, "two": folder}) == ([], 0)


def test_what_only_one_trained_on_without_a_refusal_is_counted(played):
    folder, claims = played
    pairs = [pair(next(iter(claims)), "ep-never-committed")]
    assert audit_pairs(pairs, {"one": folder, "two": folder}) == ([], 1)
