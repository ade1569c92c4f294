"""Where the processes of an attempt run: which interpreter, which variables, which secrets; made ready, and written down.

``inherit`` is the worker's own interpreter, ``python`` another one of the host, ``venv`` one made for the requirements and
kept for all attempts that want the same, ``container`` an image. Secrets are named in the blueprint and looked up here.
"""

from __future__ import annotations

import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from a3r.blueprints.model import Blueprint, EnvironmentSpec
from a3r.core.errors import BlueprintError, HostError
from a3r.core.hashing import content_hash
from a3r.sandbox.interpreter import Interpreter, NoInterpreter, interpreter
from a3r.worker.containers import Container, container_engine
from a3r.worker.processes import read_json

PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
NO_PROXY = "127.0.0.1,localhost,::1"
SECRETS_FILE = "secrets.env"
"""In the workspace: ``NAME=value`` lines; readable by this user alone."""
RESERVED = ("A3R_", "LD_PRELOAD")
"""Names that a blueprint cannot set."""
Need = Literal["client", "server"]


class SecretMissing(HostError):
    """A secret that a blueprint names is not on this host."""

    code = "secret_missing"


@dataclass(frozen=True)
class Ready:
    """An environment that a process can be started in."""

    kind: str
    argv: tuple[str, ...]
    """What stands for ``python`` in front of a script."""
    python: str
    """The interpreter on this host; empty in a container."""
    variables: dict[str, str]
    """To set; no secrets."""
    secrets: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """To set; never in argv, in a record or in a log."""
    proxy: str = ""
    container: Container | None = None


@dataclass(frozen=True)
class Environments:
    """The environments of one host."""

    home: Path
    """The workspace's folder; venvs are kept in ``environments/`` of it."""
    environ: Mapping[str, str]
    """The worker's own environment: where secrets are looked up first."""

    def venv(self, spec: EnvironmentSpec) -> Path:
        """The folder of the venv for ``spec``: one for each interpreter and list of requirements."""
        wanted = [self._base(spec), sys.prefix, sorted(spec.requirements)]
        return self.home / "environments" / f"venv-{content_hash(wanted)[:16]}"

    def _base(self, spec: EnvironmentSpec) -> str:
        return self._found(spec.python) if spec.python else sys.executable

    def _found(self, python: str) -> str:
        """An interpreter by path or name; ``BlueprintError`` when the host has none."""
        found = shutil.which(str(Path(python).expanduser()), path=self.environ.get("PATH"))
        if found is None:
            raise BlueprintError(
                f"There is no Python {python!r} on this host.",
                hint="Give the absolute path of an interpreter, or use a venv.",
            )
        return found

    def recipe(self, spec: EnvironmentSpec, need: Need) -> dict[str, Any] | None:
        """What ``a3r.worker.venv_build`` is to make; None when there is nothing to make, or it is there.

        Raises:
            BlueprintError: requirements that cannot be repeated.
        """
        if spec.kind != "venv":
            return None
        bad = [line for line in spec.requirements if line.startswith(("-r", "-e", "-c", "--req"))]
        if bad:
            raise BlueprintError(
                f"The requirement {bad[0]!r} names a file that may change.",
                hint="List the packages themselves, best with their versions.",
            )
        folder = self.venv(spec)
        if read_json(folder / "ready.json") is not None:
            return None
        return {
            "folder": str(folder),
            "python": self._base(spec),
            "overlay": not spec.python,
            "requirements": list(spec.requirements),
            "need": need,
        }

    def ready(self, spec: EnvironmentSpec, secret_names: Sequence[str] = ()) -> Ready:
        """The environment, which must have been made.

        Raises:
            BlueprintError: the interpreter is not there, or a variable is not the blueprint's to set.
            SecretMissing: a secret is not on this host.
            HostError: no container engine.
        """
        bad = [name for name in spec.variables if name.startswith(RESERVED)]
        if bad:
            raise BlueprintError(f"The variable {bad[0]!r} is a3r's own.", hint="Use another name.")
        variables = dict(spec.variables)
        if spec.proxy:
            variables |= {**dict.fromkeys(PROXY_NAMES, spec.proxy), "NO_PROXY": NO_PROXY}
            variables["no_proxy"] = NO_PROXY
        names = dict.fromkeys((*secret_names, *spec.secret_names))
        secrets = {name: self.secret(name) for name in names}
        container, python = None, ""
        if spec.kind == "container":
            container = Container(container_engine(self.environ.get("PATH")), spec.image)
            argv = (spec.python or "python",)
        else:
            python = self._python(spec)
            argv = (python,)
        return Ready(spec.kind, argv, python, variables, secrets, spec.proxy, container)

    def _python(self, spec: EnvironmentSpec) -> str:
        if spec.kind == "venv":
            return str(self.venv(spec) / "bin" / "python")
        return self._base(spec)

    def secret(self, name: str) -> str:
        """The value of a secret: of the worker's environment, else of the workspace's ``secrets.env``.

        Raises:
            SecretMissing: neither has it, or the file can be read by others.
        """
        if name in self.environ:
            return self.environ[name]
        path = self.home / SECRETS_FILE
        found = read_secrets(path).get(name) if path.exists() else None
        if found is None:
            raise SecretMissing(
                f"The secret {name!r} is not set on this host.",
                hint=f"Set it in the worker's environment, or as {name}=... in {path}.",
                name=name,
            )
        return found

    def describe(self, ready: Ready, need: Need) -> dict[str, Any]:
        """What the environment is, for the attempt's record: JSON, no secrets.

        Raises:
            BlueprintError: its interpreter does not answer, or lacks swarm.
        """
        told: dict[str, Any] = {"kind": ready.kind, "secrets": sorted(ready.secrets)}
        told["variables"] = sorted(ready.variables)
        if ready.container is not None:
            return {**told, "image": ready.container.image, "digest": ready.container.digest()}
        asked = self.interpreter(ready.python)
        if not asked.has_swarm:
            extra = "a3r" if need == "client" else "a3r[server,train]"
            raise BlueprintError(
                f"The Python {ready.python!r} does not have the package swarm.",
                hint=f"Install it there: {ready.python} -m pip install {extra!r}; or use a venv.",
            )
        made = read_json(Path(ready.python).parents[1] / "ready.json") or {}
        kept = {k: made[k] for k in ("packages_hash", "packages", "requirements") if k in made}
        return {**told, "python": ready.python, "version": asked.version, **kept}

    def interpreter(self, python: str) -> Interpreter:
        """What an interpreter says of itself; ``BlueprintError`` when it says nothing."""
        try:
            return interpreter(python)
        except NoInterpreter as error:
            raise BlueprintError(str(error), hint="Try it by hand on this host.") from error


def read_secrets(path: Path) -> dict[str, str]:
    """``NAME=value`` lines; comments and empty lines are skipped, quotes around a value are taken off.

    Raises:
        SecretMissing: others may read the file.
    """
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SecretMissing(
            f"{str(path)!r} can be read by others, so it is not used.", hint=f"chmod 600 {path}"
        )
    found: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            found[name.strip()] = value.strip().strip("\"'")
    return found


def specs_of(blueprint: Blueprint) -> list[tuple[Need, EnvironmentSpec]]:
    """Each environment that the blueprint names, with what it must be able to run; the same one once."""
    kept: list[tuple[Need, EnvironmentSpec]] = []

    def keep(need: Need, spec: EnvironmentSpec) -> None:
        if all(spec != other for _, other in kept):
            kept.append((need, spec))

    for server in blueprint.servers:
        keep("server", server.environment)
    for client in blueprint.clients:
        keep("client", client.environment)
    return kept
