"""A ``Terminal`` for hosts without a terminal multiplexer: processes run without windows, and their logs can be followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


class NoTerminal:
    """Implements ``a3r.core.ports.Terminal``."""

    def __init__(self, runs: Path) -> None:
        """``runs``: folder of the attempts' folders."""
        self._runs = runs

    def available(self) -> bool:
        """Never."""
        return False

    def open_window(
        self, session: str, name: str, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]
    ) -> bool:
        """Never possible."""
        _ = session, name, argv, cwd, env
        return False

    def close_session(self, session: str) -> None:
        """There is none."""

    def attach_argv(self, session: str) -> list[str]:
        """``tail -F`` of the attempt's logs; the session's name ends like the attempt's id."""
        end = session.removeprefix("a3r-")
        folders = sorted(p for p in self._runs.glob(f"*{end}") if p.is_dir())
        folder = folders[-1] if folders else self._runs / f"*{end}"
        names = ("server", "client", "evaluator")
        return ["tail", "-F", *(str(folder / "logs" / f"{name}.log") for name in names)]
