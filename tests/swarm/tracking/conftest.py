"""The shipped tiny model's tokenizer, once for all tests of this folder."""

from __future__ import annotations

import pytest

from swarm.server.model_files import resolve_model
from swarm.server.tracking.tokenizer import ChatTokenizer


@pytest.fixture(scope="session")
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer.from_folder(resolve_model("builtin:tiny-calc"))
