"""What the headers of a request, and the optional ``swarm`` object in its body, say about a call."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from swarm.server.routes.dialects.common.fields import Fields
from swarm.server.service.calls import ChatCall

TAG_HEADER, TRAIN_HEADER = "x-swarm-tag", "x-swarm-train"
RETRY_HEADER = "x-stainless-retry-count"
MAX_TAG = 64
MAX_COUNT_DIGITS = 9


def mark(call: ChatCall, headers: Mapping[str, str], raw: bytes, swarm: Any, part: int = 0) -> None:
    """Fill in tag, exclusion and retry marks of ``call``; a tag of the body wins over one of the header.

    ``part`` tells the calls of one request apart. ``raw`` is the body as it came: an SDK's retry repeats it byte for byte (RFC 9110 leaves retries to the client; the OpenAI
    and Anthropic SDKs count them in ``x-stainless-retry-count``).
    """
    tag = headers.get(TAG_HEADER, "")
    told = headers.get(TRAIN_HEADER, "")
    trains = not told or told.strip().lower() not in ("false", "0", "no")
    if swarm is not None:
        own = Fields(swarm, "swarm")
        tag = own.text("tag") or tag
        trains = own.flag("train", default=trains)
    call.tag, call.exclude = tag[:MAX_TAG], not trains
    count = headers.get(RETRY_HEADER, "")
    if count:
        digest = hashlib.blake2b(raw, digest_size=16, person=call.dialect.encode())
        call.retry_key = f"{digest.hexdigest()}/{part}"
    counted = count.isascii() and count.isdigit()
    call.retry_count = int(count[-MAX_COUNT_DIGITS:]) if counted else 0
