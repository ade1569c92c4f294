"""Canonical JSON and hashes."""

from pathlib import Path

import pytest

from a3r.core.hashing import canonical_json, content_hash, tree_hash


def test_canonical_json_does_not_depend_on_the_order_of_keys() -> None:
    assert canonical_json({"b": 1, "a": ["é", None]}) == '{"a":["é",null],"b":1}'
    assert content_hash({"a": 1, "b": 2}) == content_hash({"b": 2, "a": 1})
    assert content_hash([1, 2]) != content_hash([2, 1])
    assert content_hash(1) != content_hash(1.0)


def test_a_hash_is_the_same_in_every_process_and_release() -> None:
    assert content_hash({"lr": 1e-3, "on": "no"}) == (
        "9298210cf7a31ba3dbe0a5f900b0f718d99191c877a7091104fa081261939fba"
    )


def test_numbers_that_json_lacks_have_no_hash() -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            content_hash({"x": value})


def test_a_tree_hash_sees_names_and_bytes_only(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        (folder / "pkg").mkdir(parents=True)
        (folder / "client.py").write_text("print(1)\n")
        (folder / "pkg" / "a.py").write_text("")
    (two / "client.py").chmod(0o755)
    (two / "pkg" / "__pycache__").mkdir()
    (two / "pkg" / "__pycache__" / "a.pyc").write_bytes(b"x")
    (two / "empty").mkdir()
    assert tree_hash(one) == tree_hash(two)
    (two / "client.py").write_text("print(2)\n")
    assert tree_hash(one) != tree_hash(two)
    (two / "client.py").rename(two / "main.py")
    (two / "main.py").write_text("print(1)\n")
    assert tree_hash(one) != tree_hash(two)
