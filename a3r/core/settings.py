"""Settings of a3r, resolved once at the edge: flag > environment (``A3R_...``) > ``.a3r/config.yaml`` > default.

Inner code is given a ``Settings`` (or single values) and never reads the environment. Secrets are no settings.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from a3r.core.errors import WorkspaceError

PREFIX = "A3R_"


class Settings(BaseModel):
    """Frozen; times in seconds. ``resolve_settings`` makes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slots: int | None = Field(default=None, ge=0)
    """Attempts at once of the local worker; None = as many as it has cores (or GPUs)."""
    tick_s: float = Field(default=0.5, gt=0)
    """How often the leader looks again."""
    heartbeat_s: float = Field(default=2.0, gt=0)
    lease_s: float = Field(default=15.0, gt=0)
    """A worker that is silent for so long is unreachable; a few heartbeats at least."""
    lost_after_s: float = Field(default=60.0, ge=0)
    """Time after the lease's end, with the hub up, until an unreachable attempt is given up."""
    workers_listen: str = ""
    """``host:port`` on which workers of other hosts may come, with tokens of their own; empty = only through a tunnel."""
    workers_tls_cert: str = ""
    workers_tls_key: str = ""
    """PEM files; needed unless ``workers_listen`` is loopback."""
    pools_s: float = Field(default=5.0, gt=0)
    """How often clusters are looked at that workers are asked of."""
    tmux: bool = True
    """Show processes in tmux windows when tmux is there; off changes nothing about the runs."""
    llm: str = ""
    """``provider/model`` of litellm for the leader; empty = no language model. Keys come from the provider's own variables."""
    llm_fallbacks: str = ""
    """More models, comma-separated, tried in order when the first is unavailable."""
    llm_base_url: str = ""
    """Address of an OpenAI-compatible provider; empty = the provider's own."""
    llm_price: str = ""
    """USD a million prompt tokens and a million completion tokens, e.g. ``3,15``: for a model whose price litellm does not know."""
    llm_timeout_s: float = Field(default=300.0, gt=0)
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    _sources: dict[str, str] = PrivateAttr(default_factory=dict[str, str])

    def with_sources(self, sources: Mapping[str, str]) -> Settings:
        """Remember where each value came from; used once, by ``resolve_settings``. Returns self."""
        self._sources.update(sources)
        return self

    def explain(self) -> list[tuple[str, Any, str]]:
        """(key, value, source) for each setting in order of definition; source: ``flag``, a variable, a file or ``default``."""
        values = self.model_dump(mode="json")
        return [(key, values[key], self._sources.get(key, "default")) for key in values]


def resolve_settings(
    *,
    flags: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """Return the settings; a flag that is None was not given, a ``file`` that does not exist says nothing.

    Raises:
        WorkspaceError: the file is unreadable, or a key is unknown or a value out of range (the message says where from).
    """
    found: dict[str, tuple[Any, str]] = {}
    if file is not None and file.exists():
        for key, value in _read(file).items():
            _refuse_unknown(key, str(file))
            found[key] = (value, str(file))
    for key in Settings.model_fields:
        variable = PREFIX + key.upper()
        text = (env or {}).get(variable, "").strip()
        if text:
            found[key] = (text, variable)
    for key, value in (flags or {}).items():
        _refuse_unknown(key, "flag")
        if value is not None:
            found[key] = (value, "flag")
    return _validated(found)


def _validated(found: Mapping[str, tuple[Any, str]]) -> Settings:
    try:
        settings = Settings.model_validate({key: value for key, (value, _) in found.items()})
    except ValidationError as err:
        fault = err.errors(include_url=False)[0]
        key = str(fault["loc"][0])
        value, source = found[key]
        raise WorkspaceError(
            f"setting {key!r} cannot be {value!r} (from {source}): {fault['msg']}",
            hint="`a3r config show` lists the settings and where each value comes from",
            key=key,
        ) from err
    return settings.with_sources({key: source for key, (_, source) in found.items()})


def _read(file: Path) -> dict[str, Any]:
    from ruamel.yaml import YAML  # noqa: PLC0415  (costs time that --help does not have)
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415

    yaml: Any = YAML(typ="safe", pure=True)
    try:
        value: Any = yaml.load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError) as err:
        raise WorkspaceError(
            f"the settings file {str(file)!r} cannot be read: {err}",
            hint="it holds 'key: value' lines in YAML, UTF-8; remove it to use the defaults",
        ) from err
    if value is not None and not isinstance(value, dict):
        raise WorkspaceError(
            f"the settings file {str(file)!r} holds no settings", hint="write 'key: value' lines"
        )
    given = cast("dict[Any, Any]", value or {})
    return {str(key): item for key, item in given.items()}


def _refuse_unknown(key: str, source: str) -> None:
    if key in Settings.model_fields:
        return
    near = difflib.get_close_matches(key, Settings.model_fields, n=1)
    known = ", ".join(Settings.model_fields)
    raise WorkspaceError(
        f"there is no setting {key!r} (from {source})",
        hint=f"did you mean {near[0]!r}?" if near else f"settings: {known}",
        key=key,
    )
