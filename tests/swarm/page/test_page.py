"""The page as a document: what it says of each token, how long episodes are cut, and that foreign text stays text."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from swarm.protocol.states import EpisodeState, FateReason, TokenFate
from swarm.server.page.render import CSP, render_page
from swarm.server.page.tokens import REASONS, sampled_tokens, token_text
from swarm.server.page.view import TOKENS_A_PAGE, Choice, page_view

WHOLE = Choice(budget=None)
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x1b[31m\u202egnp\x00{{ 7*7 }}"


class Document(HTMLParser):
    """All tags and attributes, and the tables' rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self._cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data):
        self.text += data
        if self._cell:
            self.rows[-1][-1] += data


def link(call, part, first):
    return f"?ticket=a&b&call={call}&part={part}&first={first}"


def trained(call, advantage=1.5):
    return {
        "fate": TokenFate.TRAINED,
        "advantages": [advantage] * len(call.sampled_ids),
    }


def test_each_sampled_token_says_id_logprob_mask_why_author_and_advantage(talk):
    call = talk.say([{"role": "user", "content": "2+2"}], "4")
    mask = [True] + [False] * (len(call.sampled_ids) - 1)
    talk.tree.calls[0] = call.model_copy(update=trained(call) | {"token_mask": mask})
    document = Document(render_page(talk.trace(), talk.tokenizer, WHOLE))
    rows = [row for row in document.rows if "sampled" in row]
    eos = talk.tokenizer.eos_ids[0]
    start = len(call.prompt_ids)
    assert rows[0] == [
        str(start), str(call.sampled_ids[0]), "4", "sampled", "-0.25", "trained", "", "1.5", "3",
    ]  # fmt: skip
    assert rows[-1][1] == str(eos)
    assert rows[-1][5:7] == ["masked", REASONS[FateReason.CLIENT_MASK]]
    context = [row for row in document.rows if row[3] == "user"]
    assert "".join(row[2] for row in context) == "2+2"
    assert {tuple(row[4:8]) for row in context} == {
        ("-", "context", "part of the prompt: never trained here", "-")
    }


def test_the_head_tells_reward_agents_and_why_it_does_not_count(talk):
    talk.say([{"role": "user", "content": "a"}], "b", agent="seer")
    trace = talk.trace(
        rewards={"seer": 0.25}, agents={"seer": False}, reason="leftover", consumed_step=None
    )
    text = Document(render_page(trace, talk.tokenizer, WHOLE)).text
    for words in ("0.5", "reward of seer", "0.25", "never trains", REASONS[FateReason.LEFTOVER]):
        assert words in text


@pytest.mark.parametrize("reason", [reason for reason in FateReason if reason])
def test_every_reason_has_words(talk, reason):
    call = talk.say([{"role": "user", "content": "a"}], "b")
    call = call.model_copy(update={"fate": TokenFate.DROPPED, "fate_reason": reason})
    assert REASONS[reason] in {token.why for token in sampled_tokens(call, 0, 9, talk.tokenizer)}


def test_an_open_episode_is_undecided_and_swapped_weights_show_by_token(talk):
    call = talk.say([{"role": "user", "content": "a"}], "bcd")
    versions = [3, *([4] * (len(call.sampled_ids) - 1))]
    call = call.model_copy(update={"token_versions": versions})
    tokens = list(sampled_tokens(call, 0, 99, talk.tokenizer))
    assert [token.version for token in tokens] == versions
    assert {token.mask for token in tokens} == {"undecided"}


def test_foreign_text_is_never_markup_and_never_unprintable(talk):
    messages = [
        {"role": "system", "content": HOSTILE},
        {"role": "user", "content": HOSTILE, "name": HOSTILE},
    ]
    tools = [{"type": "function", "function": {"name": HOSTILE}}]
    odd = {"finish_reason": HOSTILE, "agent": HOSTILE}
    call = talk.say(messages, HOSTILE, tools=tools, **odd)
    messages.append({"role": HOSTILE, "content": "x"})  # no template takes it; the page must
    talk.tree.calls[0] = call.model_copy(update={"messages": messages})
    trace = talk.trace(
        task_id=HOSTILE,
        client_id=HOSTILE,
        reason=HOSTILE,
        metrics={HOSTILE: 1.0},
        code_hash=HOSTILE,
        agents={HOSTILE: True},
        rewards={HOSTILE: 1.0},
        group_id=HOSTILE,
    )
    page = render_page(trace, talk.tokenizer, WHOLE, link)
    document = Document(page)
    assert not {"script", "img", "iframe", "object", "form"} & set(document.tags)
    assert not [name for _, name, _ in document.attributes if name.startswith("on")]
    assert {char for char in page if not char.isprintable()} <= {"\n", "\t"}
    assert "<script>alert(1)</script>" in document.text  # shown, as text
    assert "{{ 7*7 }}" in document.text
    assert "49" not in document.rows[0]


def test_the_document_loads_nothing_and_its_policy_knows_its_style(talk):
    talk.say([{"role": "user", "content": "see https://example.com/x.png"}], "b")
    page = render_page(talk.trace(), talk.tokenizer, WHOLE)
    document = Document(page)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in CSP
    assert "default-src 'none'" in CSP
    addresses = [v for _, name, v in document.attributes if name in ("src", "href", "action")]
    assert {address.partition(":")[0] for address in addresses if address[0] != "#"} == {"data"}


def test_a_long_episode_comes_in_pages_that_together_show_every_token_once(chain):
    talk = chain(40)
    whole = page_view(talk.trace(), talk.tokenizer, WHOLE)
    total = sum(view.prompt.total + view.answer.total for view in whole.calls)
    seen: list[tuple[int, int]] = []

    def note(view):
        for one in view.calls:
            for block in (one.prompt, one.answer):
                seen.extend((one.call.index, t.position) for fold in block.folds for t in fold)

    first = page_view(talk.trace(), talk.tokenizer, Choice(budget=100))
    note(first)
    assert len(seen) == 100
    for one in first.calls:
        for block in (one.prompt, one.answer):
            while block.next_first is not None:
                choice = Choice(one.call.index, block.part, block.next_first, budget=7)
                more = page_view(talk.trace(), talk.tokenizer, choice)
                note(more)
                block = getattr(more.calls[0], block.part)
    assert len(seen) == len(set(seen)) == total


def test_answers_are_shown_before_prompts_when_not_all_fits(chain):
    view = page_view(chain(5).trace(), None, Choice(budget=12))
    assert [one.answer.shown > 0 for one in view.calls[:2]] == [True, True]
    assert sum(one.prompt.shown for one in view.calls) == 0
    assert view.calls[0].prompt.next_first == 0


def test_further_pages_are_linked_and_a_file_has_no_links(chain):
    talk = chain(3)
    page = render_page(talk.trace(), talk.tokenizer, Choice(budget=5), link)
    assert "?ticket=a&amp;b&amp;call=0&amp;part=prompt&amp;first=0" in page
    alone = render_page(talk.trace(), talk.tokenizer, Choice(call=1, budget=5), link)
    assert "Back to the whole episode" in alone
    assert "#call-0" in alone
    assert 'id="call-0"' not in alone
    assert "?ticket" not in render_page(talk.trace(), talk.tokenizer, WHOLE)


@pytest.mark.parametrize("choice", [Choice(call=99), Choice(call=0, first=10**9)])
def test_tokens_that_do_not_exist_are_an_empty_page(chain, choice):
    talk = chain(1)
    assert render_page(talk.trace(), talk.tokenizer, choice, link)


def test_without_calls_the_page_says_why(talk):
    none = render_page(talk.trace(), talk.tokenizer, WHOLE)
    assert "No calls." in none
    forgotten = render_page(talk.trace(call_count=3), talk.tokenizer, WHOLE)
    assert "forgotten" in forgotten
    still_open = talk.trace(state=EpisodeState.OPEN, ended_at=None, reward=None)
    assert "open" in render_page(still_open, talk.tokenizer, WHOLE)


def test_without_a_tokenizer_tokens_are_shown_by_id(talk):
    call = talk.say([{"role": "user", "content": "a"}], "b")
    page = render_page(talk.trace(), None, WHOLE)
    assert f"[{call.sampled_ids[0]}]" in page


def test_bytes_that_are_no_text_are_spelled_out(tokenizer):
    halves = [token_text(i, tokenizer) for i in tokenizer.encode("é")]
    assert "".join(halves) in ("é", "\\xc3\\xa9")


def test_a_time_that_no_calendar_has_is_a_number(talk):
    assert "1e+300" in render_page(talk.trace(granted_at=1e300), talk.tokenizer, WHOLE)


def test_a_page_is_bounded_whatever_the_episode(chain):
    talk = chain(120)
    page = render_page(talk.trace(), talk.tokenizer, Choice(), link)
    assert Document(page).tags.count("td") <= TOKENS_A_PAGE * 9
