from swarm.server.pictures.parts import content_of, digests, for_template, key_of, text_in

RED = {"type": "image", "sha256": "aa", "media_type": "image/png", "bytes": 1}
BLUE = {**RED, "sha256": "bb"}


def test_a_content_without_pictures_is_one_text():
    assert content_of([]) == ""
    assert content_of(["a", "", "b"]) == "ab"


def test_a_content_with_pictures_has_one_form_however_its_text_was_cut():
    assert content_of(["a", "b", RED, "", "c"]) == content_of(["ab", RED, "c"])
    assert content_of([RED]) == [RED]


def test_other_pictures_are_another_content_and_never_a_text():
    keys = {key_of(content_of(pieces)) for pieces in (["a", RED], ["a", BLUE], [RED, "a"], [RED])}
    assert len(keys) == 4
    assert all(isinstance(key, bytes) for key in keys)


def test_a_text_that_spells_a_digest_is_no_picture():
    assert key_of(content_of(["aa", RED])) != key_of(content_of([RED, RED]))


def test_pictures_are_told_in_the_order_of_the_conversation():
    messages = [
        {"role": "user", "content": [RED, {"type": "text", "text": "x"}, BLUE]},
        {"role": "assistant", "content": None},
        {"role": "tool", "content": [RED]},
    ]
    assert digests(messages) == ["aa", "bb", "aa"]
    assert text_in(messages[0]["content"]) == "x"


def test_a_template_sees_that_there_is_a_picture_and_nothing_else():
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [RED, {"type": "text", "text": "x"}]},
        {"role": "assistant", "content": ""},
    ]
    seen = for_template(messages, always_parts=False)
    assert seen[0] is messages[0]
    assert seen[1]["content"] == [{"type": "image"}, {"type": "text", "text": "x"}]
    lists = for_template(messages, always_parts=True)
    assert [m["content"] for m in lists] == [
        [{"type": "text", "text": "s"}],
        seen[1]["content"],
        [],
    ]
