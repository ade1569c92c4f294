"""Environments for what is checked: one each, made from PyPI by uv, or from npm, below ``.conformance/``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(".conformance")
INSTALL_S = 900.0
DONE = "requirements.txt"


class NotInstalled(Exception):
    """A registry does not have it, or its build fails on this machine; the text is the installer's last line."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python environment with some packages."""

    python: Path
    versions: str
    """``name version`` of the packages that were asked for."""


def python_environment(name: str, requirements: tuple[str, ...]) -> Environment:
    """Make (or reuse) ``.conformance/<name>`` with ``requirements``.

    Raises:
        NotInstalled: it cannot be had.
    """
    uv, folder = _uv(), (ROOT / name).absolute()
    python, mark = folder / "bin" / "python", folder / DONE
    wanted = "\n".join(requirements)
    if not mark.exists() or mark.read_text() != wanted:
        _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)])
        if requirements:
            _run([uv, "pip", "install", "--quiet", "--python", str(python), *requirements])
        mark.write_text(wanted)
    listed = _run([uv, "pip", "list", "--format", "json", "--python", str(python)])
    installed = {item["name"].lower(): item["version"] for item in json.loads(listed)}
    names = [requirement.split("[")[0].split("=")[0].lower() for requirement in requirements]
    return Environment(python, ", ".join(f"{name} {installed.get(name, '?')}" for name in names))


def npm_package(name: str) -> tuple[Path, str]:
    """Install (or reuse) an npm package; return the folder of its commands and its version.

    Raises:
        NotInstalled: it cannot be had, or there is no npm.
    """
    folder = (ROOT / "npm" / name.replace("/", "-")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "node_modules" / name / "package.json"
    if not manifest.exists():
        flags = ["--no-audit", "--no-fund", "--silent"]
        _run(["npm", "install", "--prefix", str(folder), *flags, name])
    version = json.loads(manifest.read_text())["version"]
    return folder / "node_modules" / ".bin", version


def _uv() -> str:
    """The installer, in an environment of its own: it resolves in seconds what takes pip minutes."""
    folder = (ROOT / "uv").absolute()
    uv = folder / "bin" / "uv"
    if not uv.exists():
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(folder / "bin" / "pip"), "install", "--quiet", "uv"])
    return str(uv)


def _run(command: list[str]) -> str:
    environ = {**os.environ, "UV_CACHE_DIR": str((ROOT / "cache").absolute())}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environ, timeout=INSTALL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(str(error)) from error
    if done.returncode != 0:
        raise NotInstalled(_reason(done.stderr or done.stdout))
    return done.stdout


def _reason(log: str) -> str:
    """The line that says why, as far as one can be told from the others."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    causes = [line for line in lines if "Because" in line]
    telling = [line for line in lines if "rror" in line or "failed" in line.lower()]
    return (causes or telling or lines or ["no reason was given"])[0][:200]
