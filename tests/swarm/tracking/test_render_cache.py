"""Prompts rendered lately: equal ones are rendered once, and what a template sees tells them apart."""

from __future__ import annotations

from swarm.server.model_files import resolve_model
from swarm.server.tracking.render import render_ids
from swarm.server.tracking.render_cache import LARGEST, RenderCache
from swarm.server.tracking.tokenizer import ChatTokenizer


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_equal_prompts_are_rendered_once_and_others_never_mixed_up() -> None:
    tokenizer = ChatTokenizer.from_folder(resolve_model("builtin:tiny-calc"))
    first = render_ids(tokenizer, said("1+2"), [], {})
    assert render_ids(tokenizer, said("1+2"), [], {}).ids is first.ids
    tokenizer.renders = None
    assert render_ids(tokenizer, said("1+2"), [], {}) == first
    assert render_ids(tokenizer, said("1+3"), [], {}) != first


def test_the_oldest_goes_and_what_was_used_stays() -> None:
    cache: RenderCache[int] = RenderCache(entries=2)
    a, b, c = (cache.key(said(text)) for text in "abc")
    cache.put(a, 1)
    cache.put(b, 2)
    assert cache.get(a) == 1
    cache.put(c, 3)
    assert (cache.get(a), cache.get(b), cache.get(c)) == (1, None, 3)


def test_what_is_too_long_or_no_json_is_not_kept() -> None:
    cache: RenderCache[int] = RenderCache()
    for key in (cache.key(said("x" * LARGEST)), cache.key({"a": object()})):
        assert key == b""
        cache.put(key, 1)
        assert cache.get(key) is None
