"""The tokenizer of the model that an episode was sampled from: an older run may have used another one."""

from __future__ import annotations

from swarm.protocol.errors import ConfigError
from swarm.server.model_files import resolve_model
from swarm.server.service.core import Core
from swarm.server.tracking.tokenizer import ChatTokenizer

KEEP = 2


class Tokenizers:
    """Loads tokenizers for reading traces and keeps the last few."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._loaded: dict[str, ChatTokenizer] = {}

    def of_episode(self, episode_id: str) -> ChatTokenizer | None:
        """Return it; None when the episode is unknown or its model's folder is not there any more."""
        core = self._core
        config = core.journal.config_of(episode_id)
        if config is None:
            return None
        path = config.model.path
        if core.chat_tokenizer is not None and core.config.model.path == path:
            return core.chat_tokenizer
        if path not in self._loaded:
            try:
                self._loaded[path] = ChatTokenizer.from_folder(resolve_model(path))
            except ConfigError:
                return None
            while len(self._loaded) > KEEP:
                del self._loaded[next(iter(self._loaded))]
        return self._loaded[path]
