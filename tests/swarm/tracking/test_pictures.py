"""Prompts and rows with pictures: what counts as the same, and what a template must show."""

import itertools

import pytest

from swarm.protocol.errors import RequestError
from swarm.server.model_files import resolve_model
from swarm.server.pictures.parts import content_of
from swarm.server.tracking.account import call_fate
from swarm.server.tracking.episode_tree import EpisodeTree
from swarm.server.tracking.merge import build_rows
from swarm.server.tracking.tokenizer import ChatTokenizer
from swarm.testing.pictured_model import TEMPLATE, make_pictured_model

LISTS_ONLY = """\
{% for message in messages %}<|im_start|>{{ message.role }}
{% for part in message.content | selectattr('type', 'equalto', 'image') %}<image>{% endfor %}\
{% for part in message.content | selectattr('type', 'equalto', 'text') %}{{ part.text }}{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
BLIND = """\
{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def picture(name):
    return {"type": "image", "sha256": name * 32, "media_type": "image/png", "bytes": 1}


RED, BLUE = picture("aa"), picture("bb")


def user(*pieces):
    return {"role": "user", "content": content_of(pieces)}


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    names = itertools.count()

    def made(template=None):
        folder = tmp_path_factory.mktemp("models") / f"m{next(names)}"
        path = make_pictured_model(folder, template) if template else make_pictured_model(folder)
        return ChatTokenizer.from_folder(path)

    return made


@pytest.fixture(scope="module")
def tokenizer(make):
    return make()


@pytest.fixture
def tree(tokenizer):
    return EpisodeTree(tokenizer)


def say(tree, messages, text="ok", *, ids=None):
    """Prepare, and commit an answer; returns the prompt and the reply."""
    prompt = tree.prepare(messages, [], {})
    eos = next(iter(tree._tokenizer.eos_texts))
    ids = [*tree._tokenizer.encode(text), eos] if ids is None else ids
    reply = {"role": "assistant", "content": text}
    tree.commit(
        prompt,
        sampled_ids=ids,
        logprobs=[-1.0] * len(ids),
        reply=reply,
        finish_reason="stop",
        policy_version=0,
        temperature=1.0,
        max_tokens=9,
    )
    return prompt, reply


def test_the_prompt_has_one_token_a_picture(tree, tokenizer):
    prompt = tree.prepare([user("left ", RED, " right ", BLUE, RED)], [], {})
    assert prompt.prompt_ids.count(tokenizer.image_token) == 3
    assert prompt.pictures == ["aa" * 32, "bb" * 32, "aa" * 32]


def test_the_word_for_a_picture_is_text_whoever_spells_it(tree, tokenizer):
    said = {"role": "assistant", "content": "<image>", "reasoning_content": "<image>"}
    prompt = tree.prepare([user("<image>", RED, "<image>"), said, user("<image>")], [], {})
    assert prompt.prompt_ids.count(tokenizer.image_token) == 1
    assert prompt.guarded == 4
    assert tokenizer.decode(prompt.prompt_ids).count("<image>") == 5


def test_equal_ids_over_other_pictures_are_other_prompts(tree):
    red, blue = (tree.prepare([user("see ", one)], [], {}) for one in (RED, BLUE))
    assert red.prompt_ids == blue.prompt_ids
    assert red.path != blue.path
    again = tree.prepare([user("see ", RED)], [], {})
    assert (again.index_path, blue.index_path) == ("1", "0")


def test_a_conversation_goes_on_from_the_captured_ids_of_its_own_picture(tree):
    questions = [[user("see ", one)] for one in (RED, BLUE)]
    first, reply = say(tree, questions[0])
    for question, parent in zip(questions, (0, None), strict=True):
        prompt = tree.prepare([*question, reply, user("and ", BLUE)], [], {})
        assert prompt.parent == parent
        assert len(prompt.pictures) == 2
    goes_on = tree.prepare([*questions[0], reply, user("and?")], [], {})
    captured = first.prompt_ids + tree.calls[0].sampled_ids
    assert goes_on.prompt_ids[: len(captured)] == captured
    assert not goes_on.diverged


def test_rows_of_equal_ids_and_other_pictures_do_not_merge(tree):
    _, reply = say(tree, [user("see ", RED)])
    say(tree, [user("see ", BLUE)])
    say(tree, [user("see ", BLUE), reply, user("and ", RED)])
    rows = build_rows(tree.calls, image_token=tree._tokenizer.image_token).rows
    assert [row.pictures for row in rows] == [["aa" * 32], ["bb" * 32, "aa" * 32]]
    assert [row.call_indices for row in rows] == [[0], [1, 2]]


@pytest.mark.parametrize("match", ["token", "text"])
def test_each_row_names_a_picture_for_each_of_its_image_tokens(tree, tokenizer, match):
    _, reply = say(tree, [user("see ", RED)])
    for one in (RED, BLUE):
        say(tree, [user("see ", RED), reply, user(one, "?")])
    merged = build_rows(
        tree.calls,
        match,
        token_bytes=tokenizer.token_bytes,
        image_token=tokenizer.image_token,
    )
    for row in merged.rows:
        assert row.ids.count(tokenizer.image_token) == len(row.pictures) == 2
    assert sum(len(row.logprobs) for row in merged.rows) == sum(
        len(call.sampled_ids) for call in tree.calls
    )


def test_a_sampled_image_token_ends_the_row_before_it_and_nothing_goes_on_from_it(tree, tokenizer):
    token = tokenizer.image_token
    ids = [*tokenizer.encode("ok"), token]
    prompt, reply = say(tree, [user("see ", RED)], ids=ids)
    call = tree.calls[0].model_copy(update={"token_mask": [True] * (len(ids) - 1) + [False]})
    assert call_fate(call).fate == "trained"
    (row,) = build_rows([call], image_token=token).rows
    assert row.ids == prompt.prompt_ids + ids[:-1]
    assert len(row.logprobs) == len(ids) - 1
    follows = tree.prepare([user("see ", RED), reply, user("and?")], [], {})
    assert follows.parent is None
    assert follows.prompt_ids.count(token) == 1


def test_a_row_never_holds_a_sampled_image_token_even_unmasked(tree, tokenizer):
    token = tokenizer.image_token
    say(tree, [user("see")], ids=[5, token, 6])
    (row,) = build_rows(tree.calls, image_token=token).rows
    assert token not in row.ids
    assert len(row.logprobs) == 1


def test_a_template_that_reads_lists_only_gets_lists_and_loses_no_text(make):
    tree = EpisodeTree(make(LISTS_ONLY))
    messages = [{"role": "system", "content": "be brief"}, user("see ", RED)]
    prompt, reply = say(tree, messages, "yes")
    text = tree._tokenizer.decode(prompt.prompt_ids)
    assert "be brief" in text
    assert "<image>see " in text  # this one shows pictures first
    follows = tree.prepare([*messages, reply, user("why?")], [], {})
    assert follows.parent == 0
    assert "why?" in tree._tokenizer.decode(follows.prompt_ids)


def test_a_template_that_does_not_show_a_picture_is_an_error_and_not_a_lost_picture(make):
    tree = EpisodeTree(make(BLIND))
    with pytest.raises(RequestError, match="does not show the 1 pictures"):
        tree.prepare([user("see ", RED)], [], {})
    assert tree.prepare([user("see")], [], {}).prompt_ids


def test_a_bare_prompt_cannot_hold_a_picture(tree, tokenizer):
    for prompt in ("see <image>", [5, tokenizer.image_token]):
        with pytest.raises(RequestError, match="bare prompt"):
            tree.prepare_text(prompt)
    assert tree.prepare_text("see").prompt_ids


def test_a_model_without_an_image_token_reads_as_before():
    plain = ChatTokenizer.from_folder(resolve_model("builtin:tiny-calc"))
    assert plain.image_token is None
    prompt = EpisodeTree(plain).prepare([user("<image>")], [], {})
    assert (prompt.pictures, prompt.guarded) == ([], 0)


def test_a_picture_that_a_template_drops_in_a_later_turn_is_an_error_too(make):
    drops = "{% if part.type == 'image' and message.role == 'user' %}<image>{% elif part.type == 'text' %}"
    template = TEMPLATE.replace(
        "{{ '<image>' if part.type == 'image' else part.text }}",
        drops + "{{ part.text }}{% endif %}",
    )
    tree = EpisodeTree(make(template))
    _, reply = say(tree, [user("see ", RED)])
    shown = {"role": "tool", "content": content_of(["see ", BLUE])}
    with pytest.raises(RequestError, match="does not show the 2 pictures"):
        tree.prepare([user("see ", RED), reply, shown], [], {})
