"""This very a3r as a wheel: what runs on another host is what runs here, down to a changed line in a checkout.

Made of the installed files by ourselves: no build tool, no network, the same bytes for the same files.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tomllib
import zipfile
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from a3r.core.errors import HostError

PACKAGES = ("a3r", "swarm")
EXTRAS = ("campaign", "train", "agent")
"""What a worker and its attempts need."""
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Wheel:
    """A wheel in memory, with the exact versions that its requirements have here."""

    name: str
    data: bytes
    version: str
    tree: str
    """Hash of the packages' files: ``far_end`` computes the same of what is installed elsewhere."""
    pins: str

    @property
    def stamp(self) -> str:
        """Of everything that decides what an environment made from it holds."""
        return hashlib.sha256(self.data + f"{self.pins}\0{EXTRAS}".encode()).hexdigest()


def own_wheel() -> Wheel:
    """The wheel of the packages that run now.

    Raises:
        HostError: they are not installed in a way that says their requirements.
    """
    files = _files()
    try:
        dist = metadata.distribution("a3r")
    except metadata.PackageNotFoundError as error:
        raise HostError(
            "This a3r is not installed, so its requirements are not known.",
            hint="pip install it (an editable install is fine), or give --python of the host.",
        ) from error
    about = _checkout_metadata() or dist.read_text("METADATA") or ""
    info = f"a3r-{dist.version}.dist-info"
    listed = {name: path.read_bytes() for name, path in files}
    listed[f"{info}/METADATA"] = about.encode()
    listed[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: a3r\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    listed[f"{info}/entry_points.txt"] = (dist.read_text("entry_points.txt") or "").encode()
    data = _zipped(listed, f"{info}/RECORD")
    name = f"a3r-{dist.version}-py3-none-any.whl"
    return Wheel(name, data, dist.version, _tree(listed), exact_versions())


def own_tree() -> tuple[str, str]:
    """Version and tree hash of the packages that run now."""
    return metadata.version("a3r"), _tree({name: path.read_bytes() for name, path in _files()})


def exact_versions() -> str:
    """Pins: those of the checkout's ``constraints.txt``, else the versions that are installed here."""
    beside = _checkout() / "constraints.txt"
    if beside.is_file():
        return beside.read_text("utf-8")
    pins = {
        str(dist.metadata["Name"]).lower(): dist.version.partition("+")[0]
        for dist in metadata.distributions()
    }
    # Which build of torch and which CUDA packages it needs is the other host's matter.
    ours = ("a3r", "pip", "setuptools", "triton")
    kept = sorted(n for n in pins if n not in ours and not n.startswith(("nvidia-", "cuda-")))
    return "".join(f"{name}=={pins[name]}\n" for name in kept)


def _checkout() -> Path:
    """The folder that the package lies in: of a checkout, the one with ``pyproject.toml``."""
    found = find_spec("a3r")
    return Path(str(found.origin)).parents[1] if found else Path()


def _checkout_metadata() -> str:
    """Core metadata from a checkout's ``pyproject.toml``; empty without one.

    What an editable install says of itself is as old as that install: a requirement that came since would be missing.
    """
    file = _checkout() / "pyproject.toml"
    project: dict[str, Any] = (
        tomllib.loads(file.read_text("utf-8"))["project"] if file.is_file() else {}
    )
    if project.get("name") != "a3r":
        return ""
    lines = ["Metadata-Version: 2.1", "Name: a3r", f"Version: {project['version']}"]
    lines += [f"Requires-Python: {project['requires-python']}"]
    lines += [f"Requires-Dist: {need}" for need in project["dependencies"]]
    for extra, needs in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {_only_with(extra, need)}" for need in needs]
    return "\n".join([*lines, ""])


def _only_with(extra: str, need: str) -> str:
    what, semicolon, marker = need.partition(";")
    own = f"extra == '{extra}'"
    return f"{what.strip()}; ({marker.strip()}) and {own}" if semicolon else f"{what}; {own}"


def _files() -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    for package in PACKAGES:
        spec = find_spec(package)
        for root in (spec.submodule_search_locations or []) if spec else []:
            top = Path(root)
            found += [
                (f"{package}/{path.relative_to(top).as_posix()}", path)
                for path in top.rglob("*")
                if path.is_file() and "__pycache__" not in path.parts
            ]
    return sorted(found)


def _tree(listed: dict[str, bytes]) -> str:
    parts = sorted(
        [name, hashlib.sha256(data).hexdigest()]
        for name, data in listed.items()
        if name.split("/")[0] in PACKAGES
    )
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _zipped(listed: dict[str, bytes], record: str) -> bytes:
    lines = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in listed.items()]
    listed = {**listed, record: "\n".join([*lines, f"{record},,", ""]).encode()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in listed.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return buffer.getvalue()


def _digest(data: bytes) -> str:
    # As the wheel format wants it: url-safe, without padding (PEP 427).
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
