"""A folder as one .tar.gz: the same files give the same bytes, and reading trusts nothing of what a stranger sent."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath

from a3r.core.errors import Conflict, HostError, VerificationFailed

MAX_BYTES = 8 * 2**30
"""Of all files together, unpacked."""
MAX_FILES = 100_000
_CHUNK = 2**20
_LARGEST_READ = 16 * 2**20
"""Bytes at once; contents are read by ``_CHUNK``, headers are small."""


def write_archive(folder: Path, to: Path) -> None:
    """Pack ``folder``'s files into ``to``: whole or not at all, never over an existing file.

    Raises:
        Conflict: ``to`` exists.
        HostError: no room, no permission.
    """
    if to.exists():
        raise Conflict(f"{str(to)!r} exists", hint="choose another name, or remove it first")
    try:
        handle, name = tempfile.mkstemp(prefix=".bundle-", dir=to.parent)
        try:
            with os.fdopen(handle, "wb") as raw:
                _pack(folder, raw)
            Path(name).chmod(0o644)
            os.link(name, to)  # unlike a rename it refuses to replace
        finally:
            Path(name).unlink(missing_ok=True)
    except FileExistsError as error:
        raise Conflict(f"{str(to)!r} exists", hint="choose another name") from error
    except OSError as error:
        msg = f"the bundle can not be written to {str(to)!r}: {error.strerror or error}"
        raise HostError(msg, hint="Make room there, or choose another folder.") from error


def _pack(folder: Path, raw: object) -> None:
    packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)  # pyright: ignore[reportArgumentType, reportCallIssue]
    with packed, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            info = tarfile.TarInfo(path.relative_to(folder).as_posix())
            info.size, info.mode = path.stat().st_size, 0o644
            with path.open("rb") as file:
                tar.addfile(info, file)


def read_archive(archive: Path, into: Path) -> int:
    """Unpack into the new or empty folder ``into``; return the number of files.

    Raises:
        VerificationFailed: no .tar.gz, torn, a path that is absolute, leaves the folder or comes twice, a link or device, or
            more than a bundle may hold.
    """
    seen: set[PurePosixPath] = set()
    room = MAX_BYTES
    try:
        with _Bounded(archive, "rb") as raw, tarfile.open(fileobj=raw, mode="r:") as tar:
            for member in tar:
                path = _path_of(member, seen)
                seen.add(path)
                room -= member.size
                if room < 0 or len(seen) > MAX_FILES:
                    raise _refused(archive, "it holds more than a bundle may")
                target = into / path
                target.parent.mkdir(parents=True, exist_ok=True)
                source = tar.extractfile(member)
                assert source is not None  # a regular file
                with target.open("xb") as file:
                    shutil.copyfileobj(source, file, _CHUNK)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise _refused(archive, str(error)) from error
    except OSError as error:
        raise _refused(archive, error.strerror or str(error)) from error
    return len(seen)


class _Bounded(gzip.GzipFile):
    """Refuses a header that wants to be read whole and is not small: a few bytes can unpack to all of the memory."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _LARGEST_READ:
            msg = "an entry's header is too large"
            raise tarfile.TarError(msg)
        return super().read(size)


def _path_of(member: tarfile.TarInfo, seen: set[PurePosixPath]) -> PurePosixPath:
    path = PurePosixPath(member.name)
    plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
    inside = path.parts and not path.is_absolute() and ".." not in path.parts
    if not plain or not inside or "\\" in member.name or path in seen:
        msg = f"entry {member.name!r} is no plain file inside of it, or comes twice"
        raise tarfile.TarError(msg)
    return path


def _refused(archive: Path, why: str) -> VerificationFailed:
    return VerificationFailed(
        f"{archive.name!r} is no readable bundle: {why}",
        hint="Copy it again; `a3r campaign export` makes bundles.",
    )
