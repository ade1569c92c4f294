"""Packing a client's folder, and unpacking what may be hostile."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from a3r.blueprints.artifact import MAX_FILES, pack_tree, unpack_tree
from a3r.core.errors import BlueprintError
from a3r.core.hashing import tree_hash


def _client(folder: Path) -> Path:
    (folder / "lib" / "größe").mkdir(parents=True)
    (folder / "client.py").write_text("print('hi')\n")
    (folder / "lib" / "größe" / ("n" * 120 + ".py")).write_bytes(b"\x00\xff")
    (folder / "empty.txt").touch()
    return folder


def _tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def test_the_tree_hash_is_the_same_on_both_sides(tmp_path: Path) -> None:
    folder = _client(tmp_path / "client")
    there = unpack_tree(pack_tree(folder), tmp_path / "there")
    assert there == tree_hash(folder) == tree_hash(tmp_path / "there")
    assert (tmp_path / "there" / "empty.txt").read_bytes() == b""


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = _client(tmp_path / "one"), _client(tmp_path / "two")
    os.utime(two / "client.py", (1, 1))
    (two / "client.py").chmod(0o700)
    (two / "__pycache__").mkdir()
    (two / "__pycache__" / "client.pyc").write_bytes(b"x")
    packed = pack_tree(one)
    assert packed == pack_tree(two)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert {(m.mtime, m.uid, m.gid, m.uname, m.mode) for m in tar} == {(0, 0, 0, "", 0o644)}
        assert tar.getnames() == sorted(tar.getnames())


@pytest.mark.parametrize(
    "member",
    [
        _member("/etc/passwd"),
        _member("../out.py"),
        _member("a/../../out.py"),
        _member("a\\..\\out.py"),
        _member("link", tarfile.SYMTYPE, "/etc/passwd"),
        _member("hard", tarfile.LNKTYPE, "client.py"),
        _member("pipe", tarfile.FIFOTYPE),
        _member("device", tarfile.CHRTYPE),
        _member("client.py"),
        _member("client.py/under"),
    ],
    ids=lambda m: m.name,
)
def test_a_hostile_member_is_refused_before_anything_is_written(
    tmp_path: Path, member: tarfile.TarInfo
) -> None:
    data = _tar((_member("client.py"), b"ok"), (member, b""))
    with pytest.raises(BlueprintError):
        unpack_tree(data, tmp_path / "there")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_would_be_too_large_is_refused_on_both_sides(tmp_path: Path) -> None:
    folder = _client(tmp_path / "client")
    (folder / "data.bin").write_bytes(b"x" * 5000)
    with pytest.raises(BlueprintError, match="more than 4000 bytes"):
        pack_tree(folder, max_bytes=4000)
    with pytest.raises(BlueprintError, match="more than 4000 bytes"):
        unpack_tree(pack_tree(folder), tmp_path / "there", max_bytes=4000)
    assert not (tmp_path / "there").exists()


def test_a_folder_of_too_many_files_is_refused(tmp_path: Path) -> None:
    members = [(_member(f"f{n}"), b"") for n in range(MAX_FILES + 1)]
    with pytest.raises(BlueprintError, match=f"more than {MAX_FILES} files"):
        unpack_tree(_tar(*members), tmp_path / "there")


@pytest.mark.parametrize("data", [b"", b"no tar at all", b"\x1f\x8b\x08compressed", b"x" * 2000])
def test_bytes_that_are_no_tar_are_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(BlueprintError, match="no readable tar"):
        unpack_tree(data, tmp_path / "there")


def test_a_cut_tar_is_refused(tmp_path: Path) -> None:
    data = _tar((_member("client.py"), b"x" * 3000))
    with pytest.raises(BlueprintError):
        unpack_tree(data[:1500], tmp_path / "there")


def test_nothing_is_unpacked_over_other_files(tmp_path: Path) -> None:
    data = pack_tree(_client(tmp_path / "client"))
    with pytest.raises(BlueprintError, match="not empty"):
        unpack_tree(data, tmp_path / "client")


def test_a_link_and_an_empty_folder_are_not_packed(tmp_path: Path) -> None:
    folder = tmp_path / "client"
    folder.mkdir()
    with pytest.raises(BlueprintError, match="no files"):
        pack_tree(folder)
    (folder / "client.py").write_text("1")
    (folder / "link.py").symlink_to("client.py")
    with pytest.raises(BlueprintError, match=r"'link\.py'.* link"):
        pack_tree(folder)
