"""A client's folder as one tar: the same files give the same bytes anywhere; unpacking trusts nothing."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path, PurePosixPath

from a3r.core.errors import BlueprintError
from a3r.core.hashing import tree_hash

MAX_BYTES = 16 * 2**20
"""Of all files together. A client is code; data sets and weights are named, not shipped."""
MAX_FILES = 2000
FILE_MODE = 0o644
_SKIPPED = "__pycache__"


def pack_tree(folder: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return an uncompressed tar of the folder's files: sorted, without times, owners or modes; ``__pycache__`` is left out.

    Empty folders are not kept (``tree_hash`` does not see them either).

    Raises:
        BlueprintError: a link or device, a name that is not UTF-8, too many or too large files, or no file at all.
    """
    buffer = io.BytesIO()
    total = 0
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        files = _files(folder)
        for name in sorted(files):
            data = files[name].read_bytes()
            total += len(data)
            _refuse_size(total, max_bytes)
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), FILE_MODE
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def unpack_tree(data: bytes, destination: Path, *, max_bytes: int = MAX_BYTES) -> str:
    """Write the tar's files below ``destination`` (new or empty) and return the ``tree_hash`` of what is there now.

    Everything is checked before the first byte is written.

    Raises:
        BlueprintError: not a plain tar; a path that is absolute, leaves the folder or comes twice; a link or device;
            too many or too large files; ``destination`` is not empty.
    """
    if destination.exists() and any(destination.iterdir()):
        raise BlueprintError(
            f"{str(destination)!r} is not empty", hint="unpack into a folder of its own"
        )
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            members = _checked(tar, max_bytes)
            destination.mkdir(parents=True, exist_ok=True)
            for path, member in members.items():
                content = tar.extractfile(member)
                target = destination / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read() if content else b"")
    except (tarfile.TarError, EOFError, UnicodeError) as err:
        raise BlueprintError(
            f"the client's artifact is no readable tar: {err}", hint="pack the folder again"
        ) from err
    return tree_hash(destination)


def _files(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if _SKIPPED in path.parts[len(folder.parts) :]:
            continue
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise BlueprintError(
                f"{name!r} in the client's folder is a link or a device",
                hint="put the file itself there: what is reviewed must be what runs",
            )
        try:
            name.encode()
        except UnicodeEncodeError as err:
            raise BlueprintError(f"the file name {name!r} is not UTF-8", hint="rename it") from err
        if path.is_file():
            found[name] = path
    if not found:
        raise BlueprintError(f"the client's folder {str(folder)!r} has no files")
    _refuse_count(len(found))
    return found


def _checked(tar: tarfile.TarFile, max_bytes: int) -> dict[PurePosixPath, tarfile.TarInfo]:
    members: dict[PurePosixPath, tarfile.TarInfo] = {}
    total = 0
    for member in tar:
        if member.type == tarfile.DIRTYPE:
            continue
        path = PurePosixPath(member.name)
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
            raise BlueprintError(f"{member.name!r} in the artifact is no plain file")
        if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in member.name:
            raise BlueprintError(f"{member.name!r} in the artifact leaves the client's folder")
        if path in members or any(parent in members for parent in path.parents):
            raise BlueprintError(f"{member.name!r} comes twice in the artifact")
        total += member.size
        _refuse_size(total, max_bytes)
        members[path] = member
        _refuse_count(len(members))
    return members


def _refuse_size(total: int, most: int) -> None:
    if total > most:
        raise BlueprintError(
            f"the client's files have more than {most} bytes",
            hint="keep data and weights out of the client's folder and name them in its arguments",
        )


def _refuse_count(files: int) -> None:
    if files > MAX_FILES:
        raise BlueprintError(f"the client's folder has more than {MAX_FILES} files")
